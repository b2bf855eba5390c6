"""dequantize_gguf: blocks of a GGUF format as floats, with the roundings of the `gguf` package."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, ClassVar, Self

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Descriptor, Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Kernel, Launch, Ptr, Step
from ....types import BufferTooSmallError, DeviceSpec, ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from ....types.gguf import GgufFormat
from ..._function import CallArgs, function_of
from ..._launch import THREADS, grid_of, index_scalar, index_type
from .._arguments import asked_element
from .._conversion_costs import ConversionCosts
from . import samples
from .blocks import FLOATS, block_align, blocks_of, check_columns
from .oracle import matmul as oracle

__all__ = ["GgufDequantizeDescriptor", "GgufDequantizePlan", "dequantize_gguf"]

FILE = "quantized/gguf_dequantize.cu"
EIGHT, SHARE = 8, 32  # adjacent weights written at once, and weights a thread
WORD = 16  # bytes of the widest access


@described(
    Slot("out", "out", takes=FLOATS, shape="out_shape", element="out_element", strided=False),
    Slot("blocks", element=ElementKind.U8, strided=False),
)
class GgufDequantizeDescriptor(Descriptor):
    """Blocks in bytes, `blocks_shape`, the last axis being rows of whole blocks; with `shape`, all bytes one behind the other
    are the blocks of weights of that shape."""

    blocks_shape: tuple[int, ...]
    format: GgufFormat
    shape: tuple[int, ...] | None = None
    out_element: ElementKind | None = None

    name: ClassVar[str] = "dequantize_gguf"

    @classmethod
    def of(cls, blocks: Any, *, format: Any = None, shape: Any = None, out_dtype: Any = None, out: Any = None) -> Self:
        """The descriptor of arrays of any layout; `blocks` may be a PackedGguf, in place of its bytes, format and shape."""
        blocks, format, shape = blocks_of(cls.name, "blocks", blocks, format, shape)
        tensors = cls.taken(cls.name, {"blocks": blocks, "out": out})
        element = asked_element(cls.name, out_dtype, tensors.get("out"))
        return cls.of_tensors(tensors, format=format, shape=shape, out_element=element)

    @property
    def element(self) -> ElementKind:
        return self.out_element or ElementKind.F32

    def default_element(self, name: str) -> ElementKind:
        return ElementKind.F32

    @cached_property
    def out_shape(self) -> tuple[int, ...]:
        if self.shape is not None:
            return self.shape
        block = self.format.block
        return (*self.blocks_shape[:-1], self.blocks_shape[-1] // block.nbytes * block.weights)

    def check(self) -> None:
        block = self.format.block
        if not self.blocks_shape:
            raise InvalidProblemError(f"{self.op}: blocks has no axis", "pass rows of bytes")
        got, rows = math.prod(self.blocks_shape), "in all"
        if self.shape is None:
            got, rows = self.blocks_shape[-1], "a row"
            needed = -(-got // block.nbytes) * block.nbytes
        else:
            if not self.shape:
                raise InvalidProblemError(f"{self.op}: shape has no axis", "give the weights' shape")
            check_columns(self.op, "shape", self.shape[-1], self.format)
            needed = block.bytes_of(math.prod(self.shape))
        if got < needed:
            raise BufferTooSmallError(
                f"{self.op}: blocks holds {got} bytes {rows}, and {block.name} blocks of {block.nbytes} take {needed}", needed,
                got, f"pass whole blocks: {needed} bytes {rows}",
            )  # fmt: skip
        if got > needed:
            raise InvalidProblemError(
                f"{self.op}: blocks holds {got} bytes, and weights of shape {self.shape} as {block.name} take {needed}",
                "pass the format and shape that the tensor has",
            )


class Dequantize(Candidate[GgufDequantizeDescriptor]):
    """A thread for 32 weights."""

    variant = "blocks"
    launches = (f"{FILE}:gguf_dequantize",)

    def guarantee(self, desc: GgufDequantizeDescriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return oracle.guarantee(desc)

    def cost(self, desc: GgufDequantizeDescriptor, device: DeviceSpec, config: Any) -> Cost:
        efficiency = ConversionCosts.of(device).gguf_dequantize_efficiency
        return Cost.streaming(device, desc.nbytes, instructions=8.0 * math.prod(desc.out_shape), efficiency=efficiency)

    def lower(self, desc: GgufDequantizeDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        weights, out = math.prod(desc.out_shape), desc.layout("out")
        threads, index = weights // SHARE, index_type(weights // EIGHT)
        store = min(WORD, out.align) // (out.element.bits // 8)
        align = block_align(desc.format, desc.layout("blocks").align)
        types = f"{desc.format.block.cuda}, {out.element.number}"
        entry = f"gguf_dequantize<{types}, {align}, {min(store, EIGHT)}, {THREADS}, {index}>"
        args = (Ptr("out"), Ptr("blocks"), index_scalar(threads, index))
        return (Launch(Kernel(FILE, entry), grid_of(threads, THREADS), (THREADS, 1, 1), args, pdl=True),)


class GgufDequantizePlan(Plan[GgufDequantizeDescriptor]):
    """Blocks as floats: operands `blocks` and `out`."""

    descriptor = GgufDequantizeDescriptor
    category = OpCategory.QUANTIZATION
    candidates = (Dequantize(),)
    probes = (
        {"blocks_shape": (3, 288), "format": "q4_k"},
        {"blocks_shape": (2, 54), "format": "q4_0", "out_element": "bf16"},
        {"blocks_shape": (210,), "format": "q6_k", "out_element": "f16", "blocks_align": 1},
        {"blocks_shape": (2, 48), "format": "q5_1"},
        {"blocks_shape": (2, 36), "format": "iq4_nl"},
        {"blocks_shape": (2, 34), "format": "mxfp4"},
    )
    reference = oracle.dequantize
    reference_guarantee = oracle.guarantee


@function_of(GgufDequantizePlan)
def dequantize_gguf(
    blocks: Any, format: Any = None, *, shape: Any = None, out_dtype: Any = None, out: Any = None
) -> CallArgs:
    """Blocks of a GGUF format as floats, bit for bit those of the `gguf` package.

    blocks: a PackedGguf, which has format and shape; or u8 [..., bytes] in C order, rows of whole blocks, as the package's reader
    gives a tensor's data.
    format: "Q4_0", "Q4_K", ... (`GgufFormat`), or the package's own member.
    shape: the weights' shape, where blocks are bytes of another shape: all of them in C order.
    out_dtype: f32 (the default), f16 or bf16, rounded from f32.
    Returns out, [..., weights]. Raises BufferTooSmallError, with `needed` and `got`, where a block is not whole, and
    InvalidProblemError for a format that is not known or a shape that does not fit.
    """
    array, kind, whole = blocks_of("dequantize_gguf", "blocks", blocks, format, shape)
    operands = {"out": out, "blocks": array}
    key = (kind, whole, out_dtype)
    return (
        operands,
        lambda: GgufDequantizeDescriptor.of(**operands, format=kind, shape=whole, out_dtype=out_dtype),
        key,
        None,
        None,
    )


register(Op("dequantize_gguf", GgufDequantizePlan, dequantize_gguf, samples.dequantize))
