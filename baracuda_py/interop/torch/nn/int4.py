"""Linear layers of int4 weights, of floats or of the tensors that GPTQ and AWQ write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch

from ....ops.quantized.int4.pack import pack_int4, repack_int4
from ....packed.int4 import GROUP_SIZES, Int4Layout, PackedInt4, shapes_of
from ....plan.registry import get_op
from ....types import InvalidProblemError
from .quantized import QuantizedLinear, float_of

__all__ = ["Int4Linear"]

_product, _dequantize = get_op("matmul_int4").function, get_op("dequantize_int4").function
TILED = Int4Layout.TILED


class Int4Linear(QuantizedLinear):
    """A linear layer of 4-bit codes with a scale, and perhaps a zero point, for `group_size` weights of a row. `x` holds f16 or
    bf16. The arrays are in the layout that the kernels read ("tiled")."""

    def __init__(
        self, in_features: int, out_features: int, *, group_size: int = 128, zeros: bool = True, order: bool = False,
        bias: bool = True, dtype: Any = torch.float16, device: Any = None,
    ) -> None:  # fmt: skip
        """A layer without values, for `load_state_dict`. `zeros`, `order`: whether the weight has zero points, and an order of
        its inputs (GPTQ's act-order); `dtype` is that of scales and bias."""
        shapes = shapes_of(TILED, (in_features, out_features), group_size)
        dtypes = {"codes": torch.int32, "scales": dtype, "zeros": torch.uint8, "order": torch.int32}
        wanted = {"codes": True, "scales": True, "zeros": zeros, "order": order}
        arrays = {
            n: torch.zeros(shapes[n], dtype=dtypes[n], device=device) if there else None for n, there in wanted.items()
        }
        self.group_size = group_size
        super().__init__(
            in_features, out_features, arrays, torch.zeros(out_features, dtype=dtype, device=device) if bias else None
        )

    @classmethod
    def of(cls, linear: torch.nn.Linear, *, group_size: int = 128, symmetric: bool = False) -> Self:
        """The layer of a torch.nn.Linear, quantised by `pack_int4`. f32 weights are cast to f16 first."""
        weight, bias = float_of(linear)
        if weight.dtype not in (torch.float16, torch.bfloat16):
            weight = weight.to(torch.float16)
        return cls.of_packed(pack_int4(weight.T.contiguous(), group_size=group_size, symmetric=symmetric), bias)

    @classmethod
    def empty(cls, linear: torch.nn.Linear, *, symmetric: bool = False, **options: Any) -> Self:
        return super().empty(linear, zeros=not symmetric, **options)

    @classmethod
    def of_packed(cls, packed: PackedInt4, bias: Any = None) -> Self:
        """The layer of a PackedInt4 [in_features, out_features] of any layout, whose arrays are torch tensors."""
        if packed.layout is not TILED:
            packed = repack_int4(packed)
        k, n = packed.shape
        made = cls(
            k, n, group_size=packed.group_size, zeros=packed.zeros is not None, order=packed.order is not None,
            bias=bias is not None, device="meta",
        )  # fmt: skip
        for name in made.weight_arrays:
            made.register_buffer(name, _signed(getattr(packed, name)))
        if bias is not None:
            made.bias = torch.nn.Parameter(bias.detach(), requires_grad=False)
        return made

    @classmethod
    def of_state_dict(
        cls, state: Mapping[str, Any], prefix: str = "", *, layout: str = "gptq", group_size: int | None = None
    ) -> Self:
        """The layer of the tensors that AutoGPTQ ("gptq") or AutoAWQ ("awq") write: `qweight`, `qzeros`, `scales`, and perhaps
        `g_idx` and `bias`, behind `prefix`."""
        kind = Int4Layout.of(layout, "Int4Linear.of_state_dict: layout")
        if kind not in (Int4Layout.GPTQ, Int4Layout.AWQ):
            raise InvalidProblemError(f"Int4Linear.of_state_dict: layout {str(kind)!r}", "name 'gptq' or 'awq'")
        missing = [name for name in ("qweight", "qzeros", "scales") if prefix + name not in state]
        if missing:
            raise InvalidProblemError(
                f"Int4Linear.of_state_dict: no {prefix + missing[0]} among the tensors", "pass the layer's prefix"
            )
        codes, zeros, scales = (state[prefix + name] for name in ("qweight", "qzeros", "scales"))
        inputs = codes.shape[0] * (8 if kind is Int4Layout.GPTQ else 1)
        group_size = group_size or inputs // scales.shape[0]
        if group_size not in (*GROUP_SIZES, inputs):
            raise InvalidProblemError(
                f"Int4Linear.of_state_dict: {scales.shape[0]} rows of scales for {inputs} inputs",
                "pass the tensors of one layer; groups are 32, 64, 128 or all inputs",
            )
        order = state.get(prefix + "g_idx") if kind is Int4Layout.GPTQ else None
        if order is not None:
            order = order.to(torch.int32)
            plain = torch.arange(inputs, device=order.device, dtype=torch.int32) // group_size
            order = None if torch.equal(order, plain) else order
        if scales.dtype not in (torch.float16, torch.bfloat16):
            scales = scales.to(torch.float16)
        shape = inputs, int(scales.shape[1])
        packed = PackedInt4(kind, shape, group_size, codes.contiguous(), scales.contiguous(), zeros.contiguous(), order)
        return cls.of_packed(packed, state.get(prefix + "bias"))

    def _weight(self) -> dict[str, Any]:
        return {
            "zeros": self.zeros, "order": self.order, "shape": (self.in_features, self.out_features),
            "group_size": self.group_size, "layout": "tiled",
        }  # fmt: skip

    def product(self, x: Any) -> Any:
        return _product(x, self.codes, self.scales, bias=self.bias, **self._weight())

    def dequantize(self, dtype: Any = None) -> Any:
        dtype = torch.float32 if dtype is None else dtype
        return _dequantize(self.codes, self.scales, out_dtype=dtype, **self._weight()).T

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, group_size={self.group_size}"


def _signed(array: Any) -> Any:
    """Words as int32, which every torch function takes."""
    return array.view(torch.int32) if array is not None and array.dtype == torch.uint32 else array
