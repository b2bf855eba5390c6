"""contiguize: a fresh C-ordered array of any view."""

from __future__ import annotations

from typing import Any, ClassVar

from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import ElementKind, InvalidProblemError, OpCategory
from .._function import function_of
from . import oracle
from ._candidates import COPY_CANDIDATES
from ._walks import BYTES_OR_NIBBLES, CopyProblem
from .samples import copies as samples

__all__ = ["ContiguizeDescriptor", "ContiguizePlan", "contiguize"]


@described(
    Slot("out", "out", takes=BYTES_OR_NIBBLES, strided=False), Slot("x", takes=BYTES_OR_NIBBLES), last=("x_phase",)
)  # fmt: skip
class ContiguizeDescriptor(Descriptor):
    """A view of `shape` with any strides (zero and negative included), to be copied in C order.

    `x_phase` is the nibble of its first byte at which a packed view starts.
    """

    shape: tuple[int, ...]
    element: ElementKind
    x_phase: int = 0

    name = "contiguize"
    covers_dest: ClassVar[bool] = True

    def check(self) -> None:
        if self.x_phase not in range(self.element.per_byte):
            raise InvalidProblemError(
                f"contiguize: x_phase={self.x_phase}: a byte holds {self.element.per_byte} {self.element}",
                "give the element of its first byte at which x starts, from 0",
            )

    def copy(self) -> CopyProblem:
        out, x = self.layout("out"), self.layout("x")
        return CopyProblem(
            "out", "x", self.shape, out.strides, x.strides, self.element, out.align, x.align, 0, self.x_phase
        )


class ContiguizePlan(Plan[ContiguizeDescriptor]):
    """A C-ordered copy of a view: operands `x` and `out`."""

    descriptor = ContiguizeDescriptor
    category = OpCategory.SHAPE_LAYOUT
    candidates = COPY_CANDIDATES
    probes = (
        {"shape": (24, 40), "element": "f32"},
        {"shape": (24, 40), "element": "bf16", "x_strides": (48, 1)},
        {"shape": (24, 41), "element": "u8", "x_strides": (-47, 1), "x_align": 1},
        {"shape": (4, 200, 72), "element": "bf16", "x_strides": (200 * 72, 1, 200)},
        {"shape": (65, 63), "element": "f64", "x_strides": (1, 65), "x_align": 8},
        {"shape": (5, 6, 7), "element": "complex128", "x_strides": (0, 14, 2)},
        {"shape": (6, 9), "element": "s4", "x_strides": (2, 12), "x_phase": 1},
    )
    reference = oracle.contiguize


@function_of(ContiguizePlan)
def contiguize(x: Any, /) -> Any:
    """A C-ordered copy of `x`, whatever its strides; always a copy.

    x: any array of any kind but BIN; zero (broadcast) and negative strides included. out: a C-ordered array of x's shape
    and kind, allocated if not given (packed kinds need it). Returns out. Raises OverlapError where out shares memory with x.
    """


register(
    Op(
        "contiguize",
        ContiguizePlan,
        contiguize,
        samples.contiguize,
        gradient=Gradient("contiguize", (), {"x": "out"}, grad="x"),
        peers={"cupy": "ascontiguousarray", "torch": "contiguous"},
    )
)
