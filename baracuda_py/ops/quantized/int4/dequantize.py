"""dequantize_int4: int4 weights as a matrix of floats."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from ....packed.int4 import Int4Layout
from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Arg, Kernel, Launch, Ptr, Step
from ....types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from ..._function import CallArgs, function_of
from ..._launch import divisor, grid_of, index_scalar, index_type
from .._arguments import pointer
from .._conversion_costs import ConversionCosts
from . import oracle, samples
from .weight import HALVES, ORDER, SLOTS, Int4Weight, arrays_of, cuda_layout, taken_weight

__all__ = ["DequantizeInt4Descriptor", "DequantizeInt4Plan", "dequantize_int4"]

THREADS = 256
LAYOUTS = (Int4Layout.TILED, Int4Layout.KAIO, Int4Layout.GPTQ, Int4Layout.AWQ, Int4Layout.PLAIN)


@described(Slot("out", "out", takes=(*HALVES, ElementKind.F32)), *SLOTS, ORDER)
class DequantizeInt4Descriptor(Int4Weight):
    """A weight of `shape` (K, N), in layout `packing`, as a matrix of that shape."""

    shape: tuple[int, ...]
    element: ElementKind
    group_size: int = 128
    packing: Int4Layout = Int4Layout.TILED
    codes_element: ElementKind = ElementKind.U32
    scales_element: ElementKind = ElementKind.F16

    name = "dequantize_int4"
    needed: ClassVar[tuple[str, ...]] = ("group_size",)

    @classmethod
    def of(
        cls, codes: Any, scales: Any = None, zeros: Any = None, order: Any = None, *, out: Any = None, shape: Any = None,
        group_size: int | None = None, layout: Any = None, out_dtype: Any = None,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout; `codes` may be a PackedInt4, in place of all that describes the weight."""
        arrays, weight = arrays_of(cls.name, codes, scales, zeros, order, shape, group_size, layout)
        tensors = cls.taken(cls.name, {**arrays, "out": out})
        packing, shape = taken_weight(cls.name, tensors, **weight)
        made = (tensors["out"] if out is not None else tensors["scales"]).element
        element = made if out_dtype is None else ElementKind.of(out_dtype)
        return cls.of_tensors(tensors, shape=shape, group_size=weight["group_size"], packing=packing, element=element)

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.as_weight(self.shape)

    def check(self) -> None:
        self.check_weight()


class ByEights(Candidate[DequantizeInt4Descriptor]):
    """A thread eight neighbours along K of one column."""

    variant = "eights"
    launches = ("quantized/int4_dequantize.cu:dequantize", "quantized/int4_dequantize.cu:dequantize_tiles")

    def cost(self, desc: DequantizeInt4Descriptor, device: DeviceSpec, config: Any) -> Cost:
        of_layout = dict(zip(LAYOUTS, ConversionCosts.of(device).int4_dequantize_efficiency))
        return Cost.streaming(device, desc.nbytes, efficiency=of_layout[desc.packing])

    def guarantee(self, desc: DequantizeInt4Descriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return oracle.rounded_once(desc)

    def lower(self, desc: DequantizeInt4Descriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        out, (k, n) = desc.layout("out"), desc.weight_shape
        size = out.element.bits // 8
        ordered = desc.has("order")
        order = ("BY_GROUP" if desc.packing is Int4Layout.GPTQ else "BY_INDEX") if ordered else "SEQUENTIAL"
        packs = out.strides[0] == 1 and out.strides[1] * size % 16 == 0 and out.align >= 16 and k % 8 == 0
        wide = str(packs and order != "BY_INDEX").lower()
        if wide == "true" and order == "SEQUENTIAL" and _by_tiles(desc):
            return (_tiles(desc),)
        eights = -(-k // 8) * n
        index = index_type(eights)
        args: tuple[Arg, ...] = (
            Ptr("out"), Ptr("codes"), Ptr("scales"), pointer(desc, "zeros"), pointer(desc, "order"),
            np.int64(out.strides[0]), np.int64(out.strides[1]), np.uint32(k), np.uint32(n), np.uint32(desc.columns),
            divisor(desc.group_size, "u32"), np.uint32(desc.groups), divisor(-(-k // 8), index), index_scalar(eights, index),
        )  # fmt: skip
        kinds = f"{out.element.number}, {desc.layout('scales').element.number}"
        kernel = Kernel(
            "quantized/int4_dequantize.cu",
            f"dequantize<{cuda_layout(desc.packing)}, {kinds}, {order}, {wide}, {index}>",
        )
        return (Launch(kernel, grid_of(eights, THREADS), (THREADS, 1, 1), args),)


def _by_tiles(desc: DequantizeInt4Descriptor) -> bool:
    """Whether a thread can take 16 bytes of a tile: runs of eight, each of one group."""
    whole = desc.group_size % 8 == 0 or desc.groups == 1
    tiled = desc.packing is Int4Layout.TILED and desc.layout("codes").align >= 16
    return tiled and whole and desc.layout("out").element.bits == 16 and _lanes(desc) < 1 << 31


def _lanes(desc: DequantizeInt4Descriptor) -> int:
    k, n = desc.weight_shape
    return -(-n // 16) * -(-k // 64) * 32


def _tiles(desc: DequantizeInt4Descriptor) -> Launch:
    (k, n), out, lanes = desc.weight_shape, desc.layout("out"), _lanes(desc)
    args: tuple[Arg, ...] = (
        Ptr("out"), Ptr("codes"), Ptr("scales"), pointer(desc, "zeros"), np.int64(out.strides[1]), np.uint32(k), np.uint32(n),
        np.uint32(desc.columns), divisor(desc.group_size, "u32"), divisor(-(-k // 64), "u32"), np.uint32(lanes),
    )  # fmt: skip
    entry = f"dequantize_tiles<{out.element.number}, {desc.layout('scales').element.number}>"
    kernel = Kernel("quantized/int4_dequantize.cu", entry)
    return Launch(kernel, grid_of(lanes, THREADS), (THREADS, 1, 1), args)


class DequantizeInt4Plan(Plan[DequantizeInt4Descriptor]):
    """A weight of int4 codes as a matrix: operands `codes`, `scales`, and as it has them `zeros` and `order`; `out`."""

    descriptor = DequantizeInt4Descriptor
    category = OpCategory.QUANTIZATION
    candidates = (ByEights(),)
    probes = (
        {"shape": (256, 48), "element": "f16"},
        {"shape": (256, 48), "element": "bf16", "out_strides": (1, 256), "zeros_element": "u8"},
        {"shape": (256, 48), "element": "f32", "packing": "gptq", "zeros_element": "i32", "order_element": "i32"},
        {"shape": (256, 48), "element": "f16", "packing": "awq"},
        {"shape": (256, 48), "element": "f16", "packing": "kaio"},
    )
    reference = oracle.dequantize
    reference_guarantee = oracle.rounded_once


@function_of(DequantizeInt4Plan)
def dequantize_int4(
    codes: Any, scales: Any = None, zeros: Any = None, order: Any = None, *, shape: Any = None, group_size: int | None = None,
    layout: Any = None, out_dtype: Any = None, out: Any = None,
) -> CallArgs:  # fmt: skip
    """The matrix [K, N] that int4 weights stand for: (code - zero) scale, rounded once.

    codes: a PackedInt4, which has all that follows; or its arrays, with `shape` (K, N), `group_size` and `layout` ("kaio", "awq",
    "gptq" or "tiled"; only "tiled" needs `shape`).
    order: as `matmul_int4` has it; a row that no place holds is not written.
    out_dtype: f16, bf16 or f32; that of the scales by default. out may have any strides.
    Raises InvalidProblemError or OperandTypeError for arrays that the layout does not have.
    """
    arrays, options = arrays_of("dequantize_int4", codes, scales, zeros, order, shape, group_size, layout, reads=True)
    operands = {"out": out, **arrays}
    key = (tuple(arrays), *options.values(), out_dtype)
    return operands, lambda: DequantizeInt4Descriptor.of(**operands, **options, out_dtype=out_dtype), key, None, None


register(Op("dequantize_int4", DequantizeInt4Plan, dequantize_int4, samples.dequantize_int4))
