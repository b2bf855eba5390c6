"""contiguize: a fresh C-ordered array of any view."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from ... import functional, samples
from ...plan.candidate import exact_movement
from ...plan.descriptor import Descriptor, Layout, Operand, resolved_strides
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...reference import shape_layout as oracle
from ...tensor import intake
from ...tensor.axes import c_strides
from ...types import ElementKind, InvalidProblemError, OpCategory, OperandTypeError, PlanPreference, PrecisionGuarantee
from ._copy import COPY_CANDIDATES, CopyProblem

__all__ = ["ContiguizeDescriptor", "ContiguizePlan", "contiguize"]


@dataclass(frozen=True)
class ContiguizeDescriptor(Descriptor):
    """A view of `shape` with any strides (zero and negative included), to be copied in C order.

    `x_phase` is the nibble of its first byte at which a packed view starts.
    """

    shape: tuple[int, ...]
    element: ElementKind
    x_strides: tuple[int, ...] | None = None
    x_align: int | None = None
    out_align: int | None = None
    x_phase: int = 0

    signature_operands: ClassVar[tuple[Operand, ...]] = (Operand("x"), Operand("out", "out"))
    covers_dest: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._ints("shape", "x_strides")
        self._kind("element")
        self._int("x_align", "out_align", "x_phase")

    @classmethod
    def of(cls, x: Any, out: Any = None) -> Self:
        """The descriptor of arrays as they lie."""
        tx = intake(x, what="contiguize: x")
        align = None if out is None else intake(out, what="contiguize: out").align
        return cls(tx.shape, tx.element, tx.strides, tx.align, align, tx.phase)

    @property
    def op(self) -> str:
        return "contiguize"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (Operand("out", "out"), Operand("x"))

    def layout(self, name: str) -> Layout:
        if name == "out":
            return Layout(self.shape, c_strides(self.shape, self.element), self.element, self._align(name))
        strides = resolved_strides(self.shape, self.x_strides, self.element)
        return Layout(self.shape, strides, self.element, self._align(name), self.x_phase)

    def check(self) -> None:
        if self.element is ElementKind.BIN:
            raise OperandTypeError("contiguize: bin is not supported", "view the bytes as u8")
        if any(n < 0 for n in self.shape):
            raise InvalidProblemError(
                f"contiguize: shape {self.shape} has a negative extent", "give extents of 0 or more"
            )
        if self.x_strides is not None and len(self.x_strides) != len(self.shape):
            raise InvalidProblemError(
                f"contiguize: x_strides {self.x_strides} for a shape of rank {len(self.shape)}", "one stride an axis"
            )
        if self.x_phase not in range(self.element.per_byte):
            raise InvalidProblemError(
                f"contiguize: x_phase={self.x_phase}: a byte holds {self.element.per_byte} {self.element}",
                "give the element of its first byte at which x starts, from 0",
            )

    def canonical(self) -> ContiguizeDescriptor:
        x, out = self.layout("x"), self.layout("out")
        return replace(self, x_strides=x.strides, x_align=x.align, out_align=out.align)

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

    @classmethod
    def reference(cls, desc: ContiguizeDescriptor, **arrays: Any) -> Any:
        return oracle.contiguize(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: ContiguizeDescriptor) -> PrecisionGuarantee:
        return exact_movement(desc.element)


def contiguize(
    x: Any, /, *, out: Any = None, stream: Any = None, pref: PlanPreference | None = None, device: Any = None
) -> Any:
    """A C-ordered copy of `x`, whatever its strides; always a copy.

    x: any array of any kind but BIN; zero (broadcast) and negative strides included. out: a C-ordered array of x's shape
    and kind, allocated if not given (packed kinds need it). Returns out. Raises OverlapError where out shares memory with x.
    """
    return functional.call(
        ContiguizePlan,
        {"out": out, "x": x},
        lambda: ContiguizeDescriptor.of(x, out),
        stream=stream,
        pref=pref,
        device=device,
    )


register(
    Op(
        "contiguize",
        ContiguizePlan,
        contiguize,
        samples.contiguize,
        peers={"cupy": "ascontiguousarray", "torch": "contiguous"},
    )
)
