"""What the problems of NF4 weights have in common: the weight's operands, their shapes, and what kernels get of them."""

from __future__ import annotations

from typing import Any

from ....packed.nf4 import PackedNf4, check_blocks, check_double, nf4_shapes
from ....packed.weight import refuse_packed
from ....plan.descriptor import Descriptor, Slot
from ....plan.fields import integer
from ....runtime.steps import Packed, Ptr, Struct
from ....types import ElementKind, InvalidProblemError

__all__ = ["FLOATS", "HALVES", "NAMES", "SLOTS", "Nf4Weight", "arrays_of_nf4", "magnitudes_struct"]

HALVES = (ElementKind.F16, ElementKind.BF16)
FLOATS = (*HALVES, ElementKind.F32)
U8, F32 = ElementKind.U8, ElementKind.F32
NAMES = ("codes", "absmax", "scales", "offset")
SLOTS = (
    Slot("codes", element=U8, shape="codes_shape", strided=False),
    Slot("absmax", takes=(F32, U8), shape="absmax_shape", strided=False, aligned=False),
    Slot("scales", optional=True, takes=(F32,), shape="groups_shape", strided=False, aligned=False),
    Slot("offset", optional=True, takes=(F32,), shape="no_axes", strided=False, aligned=False),
)


class Nf4Weight(Descriptor):
    """A problem with values [..., K] as NF4 codes. A subclass says `values_shape`."""

    @property
    def values_shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    block_size: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return nf4_shapes(self.values_shape, self.block_size)

    @property
    def codes_shape(self) -> tuple[int, ...]:
        return self.shapes["codes"]

    @property
    def absmax_shape(self) -> tuple[int, ...]:
        return self.shapes["absmax"]

    @property
    def groups_shape(self) -> tuple[int, ...]:
        return self.shapes["scales"]

    @property
    def no_axes(self) -> tuple[int, ...]:
        return self.shapes["offset"]

    @property
    def double(self) -> bool:
        """Whether magnitudes are codes."""
        return self.has("offset")

    def check_weight(self, name: str) -> None:
        """Raises InvalidProblemError where values of that shape, `name`'s, have no such blocks."""
        if not self.values_shape:
            raise InvalidProblemError(f"{self.op}: {name} has no axis", "pass rows, [..., K]")
        check_blocks(self.op, name, self.values_shape[-1], self.block_size)
        check_double(self.op, self.layout("absmax").element, scales=self.has("scales"), offset=self.has("offset"))


def arrays_of_nf4(
    op: str, codes: Any, absmax: Any, scales: Any, offset: Any, block_size: int | None
) -> tuple[dict[str, Any], int]:
    """The operands that a weight has, and its block size: of a PackedNf4, or of its arrays as given."""
    given = {"absmax": absmax, "scales": scales, "offset": offset}
    size = None if block_size is None else integer(block_size, f"{op}: block_size")
    if not isinstance(codes, PackedNf4):
        refuse_packed(op, codes, "matmul_nf4")
        held = {"codes": codes, "absmax": absmax}
        held |= {name: x for name, x in given.items() if x is not None}
        return held, 64 if size is None else size
    if size not in (None, codes.block_size):
        raise InvalidProblemError(
            f"{op}: block_size={block_size}, and the weight has {codes.block_size}", "leave block_size out"
        )
    twice = [name for name, x in given.items() if x is not None]
    if twice:
        raise InvalidProblemError(f"{op}: {twice[0]} was passed beside a PackedNf4", f"leave {twice[0]} out")
    return dict(codes.operands), codes.block_size


def magnitudes_struct(desc: Nf4Weight) -> Struct:
    """nf4::Magnitudes of kernels/include/quantized/nf4.cuh."""
    null = Packed(bytes(8))
    return Struct((Ptr("absmax"), *(Ptr(name) if desc.has(name) else null for name in ("scales", "offset"))))
