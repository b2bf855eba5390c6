"""quantize_nf4: floats as NF4 codes with the largest magnitude of each block; pack_nf4: a weight as a PackedNf4."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from ....packed.nf4 import BLOCK_SIZES, PackedNf4
from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Arg, Kernel, Launch, Ptr, Scratch, Step
from ....tensor import intake
from ....types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from ..._function import CallArgs, function_of
from ..._launch import grid_of, index_scalar, index_type
from .._arguments import flag
from .._conversion_costs import ConversionCosts
from ..int4.quantize import exactly
from . import oracle, samples
from ._weight import FLOATS, Nf4Weight

__all__ = ["QuantizeNf4Descriptor", "QuantizeNf4Plan", "pack_nf4", "quantize_nf4"]

FILE = "quantized/nf4_quantize.cu"
THREADS, OF_SUM, EIGHT, WORD = 256, 4096, 8, 16
U8, F32 = ElementKind.U8, ElementKind.F32


@described(
    Slot("out", "out", element=U8, shape="codes_shape", strided=False),
    Slot("absmax", "out", takes=(F32, U8), shape="absmax_shape", strided=False, aligned=False),
    Slot("scales", "out", optional=True, takes=(F32,), shape="groups_shape", strided=False, aligned=False),
    Slot("offset", "out", optional=True, takes=(F32,), shape="no_axes", strided=False, aligned=False),
    Slot("x", takes=FLOATS, shape="shape", element="element", strided=False),
)
class QuantizeNf4Descriptor(Nf4Weight):
    """Values of `shape`, [..., K], in blocks of `block_size` that run on from row to row. `absmax_element` u8, beside
    `scales_element` and `offset_element`, says that magnitudes are quantised as well."""

    shape: tuple[int, ...]
    element: ElementKind
    block_size: int = 64
    absmax_element: ElementKind = F32

    name = "quantize_nf4"

    @classmethod
    def of(
        cls, x: Any, *, out: Any = None, absmax: Any = None, scales: Any = None, offset: Any = None, block_size: int = 64,
        double_quant: bool = False,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        named = {"out": out, "absmax": absmax, "scales": scales, "offset": offset, "x": x}
        tensors = cls.taken(cls.name, named)
        options: dict[str, Any] = {
            "shape": tensors["x"].shape,
            "element": tensors["x"].element,
            "block_size": block_size,
        }
        if flag(double_quant, f"{cls.name}: double_quant"):
            options |= {"absmax_element": U8, "scales_element": F32, "offset_element": F32}
        return cls.of_tensors(tensors, **options)

    @property
    def values_shape(self) -> tuple[int, ...]:
        return self.shape

    def check(self) -> None:
        self.check_weight("x")
        if self.double and 0 in self.shape:
            raise InvalidProblemError(
                f"{self.op}: double_quant of no values, which have no mean", "leave double_quant out"
            )


class Blocks(Candidate[QuantizeNf4Descriptor]):
    """A thread eight neighbours; then magnitudes, by 256."""

    variant = "blocks"
    launches = (f"{FILE}:nf4_quantize", f"{FILE}:nf4_sum", f"{FILE}:nf4_magnitudes")

    def cost(self, desc: QuantizeNf4Descriptor, device: DeviceSpec, config: Any) -> Cost:
        efficiency = ConversionCosts.of(device).nf4_quantize_efficiency
        return Cost.streaming(device, desc.nbytes, instructions=12.0 * math.prod(desc.shape), efficiency=efficiency)

    def guarantee(self, desc: QuantizeNf4Descriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return exactly(desc)

    def lower(self, desc: QuantizeNf4Descriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        x, eights, (blocks,) = desc.layout("x"), math.prod(desc.shape) // EIGHT, desc.absmax_shape
        size, lanes = x.element.bits // 8, desc.block_size // EIGHT
        index = index_type(math.prod(desc.shape))  # places of values are counted in it, too
        vector, threads = min(EIGHT, min(WORD, x.align) // size), max(lanes, THREADS) if lanes <= 32 else lanes
        words = str(desc.layout("out").align >= 4).lower()
        most: Ptr | Scratch = Scratch(0, 4 * blocks) if desc.double else Ptr("absmax")
        entry = f"nf4_quantize<{x.element.number}, {vector}, {lanes}, {words}, {threads}, {index}>"
        args: tuple[Arg, ...] = (Ptr("out"), most, Ptr("x"), index_scalar(eights, index))
        first = Launch(Kernel(FILE, entry), grid_of(eights, threads), (threads, 1, 1), args, pdl=True)
        if not desc.double:
            return (first,)
        parts, count, block = -(-blocks // OF_SUM), np.uint32(blocks), (THREADS, 1, 1)
        sums = Scratch(-(-4 * blocks // WORD) * WORD, 8 * parts)
        of_magnitudes = (Ptr("absmax"), Ptr("scales"), Ptr("offset"), most, sums, count)
        return (
            first,
            Launch(Kernel(FILE, f"nf4_sum<{THREADS}>"), (parts, 1, 1), block, (sums, most, count), pdl=True),
            Launch(
                Kernel(FILE, f"nf4_magnitudes<{THREADS}>"), grid_of(blocks, THREADS), block, of_magnitudes, pdl=True
            ),
        )  # fmt: skip


class QuantizeNf4Plan(Plan[QuantizeNf4Descriptor]):
    """Values as NF4 codes: operands `x`, `out` (codes), `absmax`, and with double quantisation `scales` and `offset`."""

    descriptor = QuantizeNf4Descriptor
    category = OpCategory.QUANTIZATION
    candidates = (Blocks(),)
    probes = (
        *({"shape": (64, size), "element": kind, "block_size": size} for size, kind in zip(BLOCK_SIZES, FLOATS * 3)),
        {"shape": (64, 64), "element": "bf16", "absmax_element": "u8", "scales_element": "f32", "offset_element": "f32"},
    )  # fmt: skip
    reference = oracle.quantize
    reference_guarantee = exactly


@function_of(QuantizeNf4Plan)
def quantize_nf4(
    x: Any, *, block_size: int = 64, double_quant: bool = False, out: Any = None, absmax: Any = None, scales: Any = None,
    offset: Any = None,
) -> CallArgs:  # fmt: skip
    """NF4 codes of floats, as bitsandbytes lays them out; `dequantize_nf4` is the inverse, `pack_nf4` makes a PackedNf4 of them.

    x: [..., K] in C order, f32, f16 or bf16, K a multiple of 64. What is not finite counts as 0: no code stands for it.
    block_size: 64, 128, 256, 512, 1024, 2048 or 4096 neighbours in C order, across rows, share absmax = max|x|.
    double_quant: absmax are quantised as well: less the mean of all, `offset`, 256 share the scale max|absmax - offset|, and
    codes are of bitsandbytes' dynamic map.
    A code is that of the nearest value to x (1 / absmax), of two as near the lower; all in f32, each operation rounded (the mean
    summed in f64, in a fixed order).
    Returns (out, absmax): u8 [..., K/2], the first code of a byte in its high four bits, and f32 [blocks]; with double_quant
    (out, absmax, scales, offset): u8, u8 [blocks], f32 [blocks / 256, rounded up] and f32 [].
    """
    double_quant = flag(double_quant, "quantize_nf4: double_quant")
    wanted = double_quant or scales is not None or offset is not None
    operands = {"out": out, "absmax": absmax, **({"scales": scales, "offset": offset} if wanted else {}), "x": x}
    of, size = QuantizeNf4Descriptor.of, block_size
    return (
        operands,
        lambda: of(**operands, block_size=size, double_quant=double_quant),
        (size, double_quant),
        None,
        None,
    )


def pack_nf4(
    w: Any, *, block_size: int = 64, double_quant: bool = False, stream: Any = None, device: Any = None
) -> PackedNf4:
    """A weight [N, K] as NF4 codes: see `quantize_nf4`. `dequantize_nf4` is the inverse."""
    shape = intake(w, what="pack_nf4: w").shape
    if len(shape) != 2:
        raise InvalidProblemError(f"pack_nf4: w has shape {shape}", "pass a weight, [N, K]")
    made = quantize_nf4(w, block_size=block_size, double_quant=double_quant, stream=stream, device=device)
    names = ("codes", "absmax", "scales", "offset")
    return PackedNf4((shape[0], shape[1]), block_size=block_size, **dict(zip(names, made)))


register(Op("quantize_nf4", QuantizeNf4Plan, quantize_nf4, samples.quantize_nf4))
