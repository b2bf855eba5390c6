"""Linear layers of NF4 weights, of floats or of the tensors that bitsandbytes writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

import torch

from ....ops.quantized.nf4.quantize import pack_nf4
from ....packed.nf4 import PackedNf4, nf4_shapes
from ....plan.registry import get_op
from ....types import InvalidProblemError
from .quantized import QuantizedLinear, float_of

__all__ = ["Nf4Linear"]

_product, _dequantize = get_op("matmul_nf4").function, get_op("dequantize_nf4").function
STATE = "weight.quant_state.bitsandbytes__nf4"


class Nf4Linear(QuantizedLinear):
    """A linear layer of NF4 codes with a magnitude for each block of `block_size` weights. `x` holds f16 or bf16."""

    def __init__(
        self, in_features: int, out_features: int, *, block_size: int = 64, double_quant: bool = False, bias: bool = True,
        dtype: Any = torch.bfloat16, device: Any = None,
    ) -> None:  # fmt: skip
        """A layer without values, for `load_state_dict`; `dtype` is that of the bias."""
        shapes = nf4_shapes((out_features, in_features), block_size)
        magnitudes = torch.uint8 if double_quant else torch.float32
        dtypes = {"codes": torch.uint8, "absmax": magnitudes, "scales": torch.float32, "offset": torch.float32}
        arrays = {
            name: torch.zeros(shape, dtype=dtypes[name], device=device)
            if double_quant or name in ("codes", "absmax") else None
            for name, shape in shapes.items()
        }  # fmt: skip
        self.block_size = block_size
        super().__init__(
            in_features, out_features, arrays, torch.zeros(out_features, dtype=dtype, device=device) if bias else None
        )

    @classmethod
    def of(cls, linear: torch.nn.Linear, *, block_size: int = 64, double_quant: bool = False) -> Self:
        """The layer of a torch.nn.Linear, quantised by `pack_nf4`."""
        weight, bias = float_of(linear)
        return cls.of_packed(pack_nf4(weight.contiguous(), block_size=block_size, double_quant=double_quant), bias)

    @classmethod
    def of_packed(cls, packed: PackedNf4, bias: Any = None) -> Self:
        """The layer of a PackedNf4 [out_features, in_features], whose arrays are torch tensors."""
        n, k = packed.shape
        made = cls(k, n, block_size=packed.block_size, double_quant=packed.double_quant, bias=bias is not None,
                   device="meta")  # fmt: skip
        for name in made.weight_arrays:
            made.register_buffer(name, getattr(packed, name))
        if bias is not None:
            made.bias = torch.nn.Parameter(bias.detach(), requires_grad=False)
        return made

    @classmethod
    def of_state_dict(cls, state: Mapping[str, Any], prefix: str = "") -> Self:
        """The layer of the tensors that bitsandbytes writes for a `Linear4bit` of type nf4, behind `prefix`."""
        if prefix + STATE not in state:
            raise InvalidProblemError(
                f"Nf4Linear.of_state_dict: no {prefix + STATE} among the tensors",
                "pass the prefix of a layer that bitsandbytes saved in nf4",
            )
        about = json.loads(bytes(state[prefix + STATE].cpu().tolist()))
        codes, absmax = state[prefix + "weight"], state[prefix + "weight.absmax"]
        more: dict[str, Any] = {}
        if prefix + "weight.nested_absmax" in state:
            offset = torch.tensor(about["nested_offset"], dtype=torch.float32, device=codes.device)
            more = {"scales": state[prefix + "weight.nested_absmax"], "offset": offset}
        shape = (int(about["shape"][0]), int(about["shape"][1]))
        packed = PackedNf4(shape, codes, absmax, block_size=int(about["blocksize"]), **more)
        return cls.of_packed(packed, state.get(prefix + "bias"))

    def _weight(self) -> dict[str, Any]:
        return {"scales": self.scales, "offset": self.offset, "block_size": self.block_size}

    def product(self, x: Any) -> Any:
        return _product(x, self.codes, self.absmax, bias=self.bias, **self._weight())

    def dequantize(self, dtype: Any = None) -> Any:
        dtype = torch.float32 if dtype is None else dtype
        return _dequantize(self.codes, self.absmax, out_dtype=dtype, **self._weight())

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, block_size={self.block_size}"
