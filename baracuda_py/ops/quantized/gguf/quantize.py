"""quantize_gguf: rows of floats as blocks of a GGUF format."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Descriptor, Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Kernel, Launch, Ptr, Step
from ....types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from ....types.gguf import GgufFormat
from ....types.keeping import complete
from ..._function import function_of
from ..._launch import THREADS, divisor, grid_of, index_scalar, index_type
from .._arguments import flag
from .._conversion_costs import ConversionCosts
from . import samples
from .blocks import FLOATS, block_align, check_columns, padded
from .oracle import quantize as oracle

__all__ = ["GgufQuantizeDescriptor", "GgufQuantizePlan", "quantize_gguf"]

FILE = "quantized/gguf_quantize.cu"
EIGHT, WORD = 8, 16  # values a thread; bytes of the widest access
# What makes a format's blocks: kernels/include/quantized/gguf/quantize.cuh.
MAKERS = {
    GgufFormat.Q4_0: "gguf::Symmetric<8, 2>", GgufFormat.Q4_1: "gguf::Affine<15, 4>",
    GgufFormat.Q5_0: "gguf::Symmetric<16, 6>", GgufFormat.Q5_1: "gguf::Affine<31, 8>",
    GgufFormat.Q8_0: "gguf::Bytes<false>", GgufFormat.Q8_1: "gguf::Bytes<true>",
    GgufFormat.Q4_K: "gguf::SixBitScales", GgufFormat.Q6_K: "gguf::ByteScales",
}  # fmt: skip


@described(
    Slot("out", "out", shape="out_shape", element=ElementKind.U8, strided=False),
    Slot("x", takes=FLOATS, strided=False),
)
class GgufQuantizeDescriptor(Descriptor):
    """Rows of `shape`, [..., K]; with `pad` zeros are put behind a row that ends within a block."""

    shape: tuple[int, ...]
    element: ElementKind
    format: GgufFormat
    pad: bool = False

    name: ClassVar[str] = "quantize_gguf"

    @classmethod
    def of(cls, x: Any, *, format: Any, pad: bool = False, out: Any = None) -> Self:  # as GGUF calls it
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(cls.name, {"x": x, "out": out})
        given = tensors["x"]
        return cls.of_tensors(tensors, shape=given.shape, element=given.element, format=format, pad=pad)

    def __post_init__(self) -> None:
        complete(self, pad=flag(self.pad, f"{self.op}: pad"))
        super().__post_init__()

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (*self.shape[:-1], self.format.block.bytes_of(padded(self.shape[-1], self.format)))

    def check(self) -> None:
        if self.format not in MAKERS:
            raise InvalidProblemError(
                f"{self.op}: format={self.format.value!r} is not made here",
                f"one of {', '.join(kind.value for kind in MAKERS)}",
            )
        if not self.shape:
            raise InvalidProblemError(f"{self.op}: x has no axis", "pass rows")
        if not self.pad:
            check_columns(self.op, "x", self.shape[-1], self.format)
        if self.shape[-1] >= 1 << 31:
            raise InvalidProblemError(f"{self.op}: rows of {self.shape[-1]}", "pass rows of less than 2**31")


class Quantize(Candidate[GgufQuantizeDescriptor]):
    """A thread for eight values."""

    variant = "blocks"
    launches = (f"{FILE}:gguf_quantize",)

    def guarantee(self, desc: GgufQuantizeDescriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return oracle.guarantee(desc)

    def cost(self, desc: GgufQuantizeDescriptor, device: DeviceSpec, config: Any) -> Cost:
        efficiency = ConversionCosts.of(device).gguf_quantize_efficiency
        return Cost.streaming(device, desc.nbytes, instructions=20.0 * math.prod(desc.shape), efficiency=efficiency)

    def lower(self, desc: GgufQuantizeDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        x, block, columns = desc.layout("x"), desc.format.block, desc.shape[-1]
        size = x.element.bits // 8
        vector = max(1, math.gcd(columns * size, x.align, WORD) // size)
        of_row = padded(columns, desc.format) // block.weights
        blocks = math.prod(desc.shape[:-1]) * of_row
        index = index_type(blocks)
        align = block_align(desc.format, desc.layout("out").align)
        entry = f"gguf_quantize<{MAKERS[desc.format]}, {x.element.number}, {vector}, {align}, {THREADS}, {index}>"
        args = (Ptr("out"), Ptr("x"), divisor(of_row, index), index_scalar(blocks, index), np.uint32(columns))
        grid = grid_of(blocks * block.weights, THREADS * EIGHT)
        return (Launch(Kernel(FILE, entry), grid, (THREADS, 1, 1), args, pdl=True),)


class GgufQuantizePlan(Plan[GgufQuantizeDescriptor]):
    """Rows as blocks: operands `x` and `out`."""

    descriptor = GgufQuantizeDescriptor
    category = OpCategory.QUANTIZATION
    candidates = (Quantize(),)
    probes = (
        {"shape": (2, 64), "element": "f32", "format": "q5_0"},
        {"shape": (2, 64), "element": "f16", "format": "q5_1"},
        {"shape": (1, 256), "element": "f32", "format": "q6_k"},
        {"shape": (3, 512), "element": "f32", "format": "q4_k"},
        {"shape": (3, 100), "element": "bf16", "format": "q8_1", "pad": True},
    )
    reference = oracle.quantize
    shown = "x", ElementKind.U8
    reference_guarantee = oracle.guarantee


@function_of(GgufQuantizePlan)
def quantize_gguf(x: Any, format: Any, *, pad: bool = False) -> Any:
    """Rows of floats as blocks of a GGUF format; `dequantize_gguf` is the inverse.

    x: f32, f16 or bf16 [..., K] in C order. What is not finite counts as 0: no block can hold it.
    format: Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0, byte for byte those of the `gguf` package but for blocks so small that 1 / d is
    beyond f32 (the package makes zeros of them); Q4_K and Q6_K, which round every sub-block by its own extremes (no search for
    better scales); Q8_1, which activations are staged in.
    pad: put zeros behind rows that end within a block; else K is a multiple of the block.
    Returns out, u8 [..., bytes].
    """


register(Op("quantize_gguf", GgufQuantizePlan, quantize_gguf, samples.quantize))
