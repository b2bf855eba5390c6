"""Linear layers of int8 weights."""

from __future__ import annotations

from typing import Any, Self

import torch

from ....plan.registry import get_op
from .quantized import QuantizedLinear, float_of

__all__ = ["Int8Linear"]

_product, _dequantize = get_op("matmul_int8").function, get_op("dequantize_int8").function
_quantize = get_op("quantize_int8").function


class Int8Linear(QuantizedLinear):
    """A linear layer of 8-bit codes with a scale for each output. `x` holds f16 or bf16. With `dynamic` each row of `x` is
    quantised as well, and the sums are of bytes (W8A8); otherwise the codes are multiplied by `x` as it is (W8A16)."""

    def __init__(
        self, in_features: int, out_features: int, *, dynamic: bool = False, bias: bool = True,
        dtype: Any = torch.float16, device: Any = None,
    ) -> None:  # fmt: skip
        """A layer without values, for `load_state_dict`; `dtype` is that of the bias."""
        self.dynamic = dynamic
        arrays = {
            "codes": torch.zeros((out_features, in_features), dtype=torch.int8, device=device),
            "scales": torch.zeros(out_features, dtype=torch.float32, device=device),
        }
        super().__init__(
            in_features, out_features, arrays, torch.zeros(out_features, dtype=dtype, device=device) if bias else None
        )

    @classmethod
    def of(cls, linear: torch.nn.Linear, *, dynamic: bool = False) -> Self:
        """The layer of a torch.nn.Linear, quantised by `quantize_int8`."""
        weight, bias = float_of(linear)
        codes, scales = _quantize(weight)
        made = cls(linear.in_features, linear.out_features, dynamic=dynamic, bias=bias is not None, device="meta")
        made.codes, made.scales = codes, scales
        if bias is not None:
            made.bias = torch.nn.Parameter(bias, requires_grad=False)
        return made

    def product(self, x: Any) -> Any:
        return _product(x, self.codes.T, scale_b=self.scales, bias=self.bias, dynamic=self.dynamic, out_dtype=x.dtype)

    def dequantize(self, dtype: Any = None) -> Any:
        return _dequantize(self.codes, self.scales, dtype=torch.float32 if dtype is None else dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, dynamic={self.dynamic}"
