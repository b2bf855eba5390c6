"""Linear layers of weights in blocks of a GGUF format, of floats or of a tensor of a `.gguf` file."""

from __future__ import annotations

from typing import Any, Self

import torch

from ....plan.registry import get_op
from ....types.gguf import GgufFormat
from .quantized import QuantizedLinear, float_of

__all__ = ["GgufLinear"]

_product, _dequantize = get_op("matmul_gguf").function, get_op("dequantize_gguf").function
_quantize = get_op("quantize_gguf").function


class GgufLinear(QuantizedLinear):
    """A linear layer of blocks of a GGUF format. `x` holds f16, bf16 or f32."""

    def __init__(
        self, in_features: int, out_features: int, format: GgufFormat | str = "Q8_0", *, bias: bool = True,
        dtype: Any = torch.float32, device: Any = None,
    ) -> None:  # fmt: skip
        """A layer without values, for `load_state_dict`; `dtype` is that of the bias."""
        self.format = GgufFormat.of(format, "GgufLinear: format").name
        nbytes = GgufFormat.of(self.format).block.bytes_of(in_features)
        blocks = torch.zeros((out_features, nbytes), dtype=torch.uint8, device=device)
        super().__init__(
            in_features, out_features, {"blocks": blocks},
            torch.zeros(out_features, dtype=dtype, device=device) if bias else None,
        )  # fmt: skip

    @classmethod
    def of(cls, linear: torch.nn.Linear, *, format: GgufFormat | str = "Q8_0") -> Self:
        """The layer of a torch.nn.Linear, quantised by `quantize_gguf`."""
        weight, bias = float_of(linear)
        return cls._of_blocks(_quantize(weight.contiguous(), format), format, linear.in_features, bias)

    @classmethod
    def of_tensor(cls, tensor: Any, bias: Any = None, *, device: Any = None) -> Self:
        """The layer of a tensor of the `gguf` package's reader, copied to `device`."""
        blocks = torch.tensor(tensor.data, device=device)
        return cls._of_blocks(blocks, tensor.tensor_type, int(tensor.shape[0]), bias)

    @classmethod
    def _of_blocks(cls, blocks: Any, format: Any, in_features: int, bias: Any) -> Self:
        made = cls(in_features, int(blocks.shape[0]), format, bias=bias is not None, device="meta")
        made.register_buffer("blocks", blocks)
        if bias is not None:
            made.bias = torch.nn.Parameter(bias.detach(), requires_grad=False)
        return made

    def product(self, x: Any) -> Any:
        made = _product(x, self.blocks, self.format)
        return made if self.bias is None else made + self.bias.to(made.dtype)

    def dequantize(self, dtype: Any = None) -> Any:
        return _dequantize(self.blocks, self.format, out_dtype=torch.float32 if dtype is None else dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, format={self.format}"
