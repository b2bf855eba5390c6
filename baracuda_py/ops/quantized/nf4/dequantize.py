"""dequantize_nf4: NF4 codes as floats."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Kernel, Launch, Ptr, Step
from ....types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from ..._function import CallArgs, function_of
from ..._launch import grid_of, index_scalar, index_type
from .._arguments import asked_element
from .._conversion_costs import ConversionCosts
from . import oracle, samples
from ._weight import FLOATS, SLOTS, Nf4Weight, arrays_of_nf4, magnitudes_struct

__all__ = ["DequantizeNf4Descriptor", "DequantizeNf4Plan", "dequantize_nf4"]

FILE = "quantized/nf4_dequantize.cu"
THREADS, ROUNDS, EIGHT, WORD = 256, 4, 8, 16
F32 = ElementKind.F32


@described(Slot("out", "out", takes=FLOATS, shape="shape", element="element", strided=False), *SLOTS)
class DequantizeNf4Descriptor(Nf4Weight):
    """Values of `shape`, [..., K], in blocks of `block_size` that run on from row to row."""

    shape: tuple[int, ...]
    element: ElementKind = F32
    block_size: int = 64
    absmax_element: ElementKind = F32

    name = "dequantize_nf4"
    needed: ClassVar[tuple[str, ...]] = ("block_size",)

    @classmethod
    def of(
        cls, codes: Any, absmax: Any = None, scales: Any = None, offset: Any = None, *, out: Any = None,
        block_size: int | None = None, out_dtype: Any = None,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout; `codes` may be a PackedNf4, in place of all that describes the weight."""
        arrays, block_size = arrays_of_nf4(cls.name, codes, absmax, scales, offset, block_size)
        tensors = cls.taken(cls.name, {**arrays, "out": out})
        element = asked_element(cls.name, out_dtype, tensors.get("out")) or F32
        held = tensors["codes"].shape
        shape = (*held[:-1], 2 * held[-1]) if held else ()
        return cls.of_tensors(tensors, shape=shape, block_size=block_size, element=element)

    @property
    def values_shape(self) -> tuple[int, ...]:
        return self.shape

    def check(self) -> None:
        self.check_weight("codes" if self.shape and self.shape[-1] % 2 == 0 else "out")


class Eights(Candidate[DequantizeNf4Descriptor]):
    """A thread eight neighbours, four times."""

    variant = "eights"
    launches = (f"{FILE}:nf4_dequantize",)

    def cost(self, desc: DequantizeNf4Descriptor, device: DeviceSpec, config: Any) -> Cost:
        efficiency = ConversionCosts.of(device).nf4_dequantize_efficiency
        return Cost.streaming(device, desc.nbytes, instructions=5.0 * math.prod(desc.shape), efficiency=efficiency)

    def guarantee(self, desc: DequantizeNf4Descriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return oracle.rounded_twice(desc)

    def lower(self, desc: DequantizeNf4Descriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        out, eights = desc.layout("out"), math.prod(desc.shape) // EIGHT
        index = index_type(math.prod(desc.shape))  # places of values are counted in it, too
        align, store = min(4, desc.layout("codes").align), min(WORD, out.align) // (out.element.bits // 8)
        double = str(desc.double).lower()
        entry = f"nf4_dequantize<{out.element.number}, {double}, {align}, {min(store, EIGHT)}, {index}>"
        shift = np.uint32((desc.block_size // EIGHT).bit_length() - 1)
        args = (Ptr("out"), Ptr("codes"), magnitudes_struct(desc), shift, index_scalar(eights, index))
        return (Launch(Kernel(FILE, entry), grid_of(eights, THREADS * ROUNDS), (THREADS, 1, 1), args, pdl=True),)


class DequantizeNf4Plan(Plan[DequantizeNf4Descriptor]):
    """NF4 codes as floats: operands `codes`, `absmax`, with double quantisation `scales` and `offset`; `out`."""

    descriptor = DequantizeNf4Descriptor
    category = OpCategory.QUANTIZATION
    candidates = (Eights(),)
    probes = (
        {"shape": (48, 256), "element": "f16"},
        {"shape": (48, 256), "element": "bf16", "block_size": 4096, "absmax_element": "u8", "scales_element": "f32",
         "offset_element": "f32"},
        {"shape": (3, 64), "element": "f32", "codes_align": 1},
    )  # fmt: skip
    reference = oracle.dequantize
    reference_guarantee = oracle.rounded_twice


@function_of(DequantizeNf4Plan)
def dequantize_nf4(
    codes: Any, absmax: Any = None, *, scales: Any = None, offset: Any = None, block_size: int | None = None,
    out_dtype: Any = None, out: Any = None,
) -> CallArgs:  # fmt: skip
    """The values that NF4 codes stand for: NF4[code] absmax, in f32, then rounded to the result's type.

    codes: a PackedNf4, which has all that follows; or u8 [..., K/2], two codes a byte, the first in the high four bits.
    absmax: f32 [blocks], or u8 [blocks] with `scales` f32 [blocks / 256] and `offset` f32 [], as `quantize_nf4` returns them.
    block_size: 64 (the default), 128, 256, ... 4096 neighbours in C order.
    out_dtype: f32 (the default), f16 or bf16.
    Returns out, [..., K]. Raises InvalidProblemError or OperandTypeError for arrays that do not fit.
    """
    arrays, size = arrays_of_nf4("dequantize_nf4", codes, absmax, scales, offset, block_size)
    operands = {"out": out, **arrays}
    of = DequantizeNf4Descriptor.of
    return (
        operands,
        lambda: of(**operands, block_size=size, out_dtype=out_dtype),
        (tuple(arrays), size, out_dtype),
        None,
        None,
    )


register(Op("dequantize_nf4", DequantizeNf4Plan, dequantize_nf4, samples.dequantize_nf4))
