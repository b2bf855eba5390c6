"""Vectors divided by their lengths: the table, the descriptors of forward and backward, and their candidate.

u is the unit roundoff of what is computed in, d the most additions that a term goes through (`RowConfig.depth`), N the length and
c = g / max(N, eps). A sum errs by at most d u sum|terms| (N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd
ed., section 4.2):

- N errs by (d + 1) / 2 u and its root's u, relatively; c by two more u.
- dot = sum(grad x) errs by (d + 1) u sum|grad x|, dot / N**2 by that, N**2's d + 1 and a division's u.

Where the squares overflow or are less than normal numbers, or N is so near eps that rounding decides, nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Descriptor, Slot, described
from ....runtime.steps import Run, Step
from ....types import (
    Componentwise,
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    OperandTypeError,
    PrecisionGuarantee,
    Term,
)
from ....types.keeping import complete
from ..._rows import FLOATS, RowConfig, Rows, axes_of, clustered, computed_in, row_configs, row_cost, rows_of

__all__ = ["PER_ROW", "SCALED", "RowsUnit", "Unit", "UnitBackwardDescriptor", "UnitDescriptor", "promised"]

SCALED = {"normalize": False, "weight_norm": True}  # whether a row's length is given
SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"
LEAST_EPS, MOST_EPS = float(np.finfo(np.float32).smallest_normal), float(np.finfo(np.float32).max)
# The kernel's operands in its order, and those of each descriptor; an empty name is absent.
FORWARD = {"out": "out", "grad_g": "", "grad": "", "x": "x", "g": "g"}
BACKWARD = {"out": "grad_x", "grad_g": "grad_g", "grad": "grad", "x": "x", "g": "g"}
PER_ROW = ("g", "grad_g")


class Unit(Descriptor):
    """What forward and backward have in common: rows run along `axes`."""

    shape: tuple[int, ...]
    element: ElementKind
    axes: tuple[int, ...]
    eps: float
    name: str
    taken_by_kernel: ClassVar[Mapping[str, str]]
    suffix: ClassVar[str] = ""  # of the ops' names

    def __post_init__(self) -> None:
        self._names_op(tuple(name + self.suffix for name in SCALED), "name")
        super().__post_init__()
        self.complete_lengths()

    @property
    def backward(self) -> bool:
        return bool(self.suffix)

    @property
    def scaled(self) -> bool:
        return SCALED[self.name.removesuffix(self.suffix)]

    @property
    def along(self) -> tuple[int, ...]:
        return axes_of(self.op, self.axes, len(self.shape))

    @property
    def lengths_shape(self) -> tuple[int, ...]:
        return tuple(1 if a in self.along else n for a, n in enumerate(self.shape))

    @property
    def length(self) -> int:
        return math.prod(self.shape[a] for a in self.along)

    @classmethod
    def along_axis(cls, name: str, operands: Mapping[str, Any], axis: int | Sequence[int] | None, eps: float) -> Self:
        """The descriptor of a call; `axis`: along which rows run, or of `weight_norm` those along which they do not."""
        tensors = cls.taken(name, operands)
        rank = len(tensors["x"].shape)
        scaled = SCALED[name.removesuffix(cls.suffix)]
        named = () if scaled and axis is None else axes_of(name, axis, rank)
        axes = tuple(a for a in range(rank) if a not in named) if scaled else named
        return cls.of_tensors(tensors, axes=axes, eps=eps, name=name)

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        if not (values["eps"] == 0 or LEAST_EPS <= values["eps"] <= MOST_EPS):
            raise InvalidProblemError(
                f"{op}: eps={values['eps']}", f"give 0, or a normal number of f32, {LEAST_EPS:.3g} to {MOST_EPS:.3g}"
            )

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values

    def complete_lengths(self) -> None:
        """Fills in the kinds of the lengths and of their gradient, which are always there where rows are scaled."""
        if self.scaled:
            fields = [f"{name}_element" for name in PER_ROW if name in self.slot_of]
            complete(self, **{field: self.element for field in fields if getattr(self, field) is None})

    def check(self) -> None:
        self.along  # noqa: B018  # the axes
        for operand in PER_ROW:
            held = getattr(self, f"{operand}_element", None)
            if held is not None and not self.scaled:
                raise InvalidProblemError(
                    f"{self.op}: there is no {operand}", f"leave it out, or call weight_norm{self.suffix}"
                )
            if held not in (None, self.element):
                raise OperandTypeError(
                    f"{self.op}: {operand} must hold {self.element}, got {held}", f"cast it to {self.element}"
                )

    def in_place(self, written: str, read: str) -> bool:
        """What is written may be x or grad itself: a thread writes columns that it alone has read."""
        return written in ("out", "grad_x") and read in ("x", "grad")

    def strides(self) -> dict[str, tuple[int, ...] | None]:
        """Those of the kernel's operands over the axes of `shape`, in its order; None for one that the problem lacks."""
        strides: dict[str, tuple[int, ...] | None] = {}
        there = {operand.name for operand in self.operands}
        for kernel, own in self.taken_by_kernel.items():
            known = self.layout(own).strides if own in there else None
            if known is not None and own in PER_ROW:
                known = tuple(0 if a in self.along else step for a, step in enumerate(known))
            strides[own or kernel] = known
        return strides

    def rows(self) -> Rows:
        return rows_of(self, self.shape, self.along, self.strides(), PER_ROW)

    @property
    def types(self) -> str:
        """Template arguments of the kernels: the elements, what is computed in, and which of the four it is."""
        flags = f"{str(self.scaled).lower()}, {str(self.backward).lower()}"
        return f"{self.element.number}, {computed_in(self.element).cuda}, {flags}"


@described(
    Slot("out", "out", takes=FLOATS),
    Slot("x", takes=FLOATS),
    Slot("g", optional=True, takes=FLOATS, shape="lengths_shape"),
)
class UnitDescriptor(Unit):
    """`name` of an x of `shape`, along `axes`."""

    shape: tuple[int, ...]
    element: ElementKind
    axes: tuple[int, ...] = (-1,)
    eps: float = 1e-12
    name: str = "normalize"
    values: ClassVar[tuple[str, ...]] = ("eps",)
    taken_by_kernel = FORWARD

    @classmethod
    def of(
        cls, x: Any, g: Any = None, out: Any = None, *, axis: int | Sequence[int] | None = -1, eps: float = 1e-12,
        name: str = "normalize",
    ) -> UnitDescriptor:  # fmt: skip
        """The descriptor of arrays of any layout."""
        return cls.along_axis(name, {"x": x, "g": g, "out": out}, axis, eps)


@described(
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad_g", "out", optional=True, takes=FLOATS, shape="lengths_shape"),
    Slot("grad", takes=FLOATS),
    Slot("x", takes=FLOATS),
    Slot("g", optional=True, takes=FLOATS, shape="lengths_shape"),
)
class UnitBackwardDescriptor(Unit):
    """The gradient of `name` without its ``_backward``, along `axes`."""

    shape: tuple[int, ...]
    element: ElementKind
    axes: tuple[int, ...] = (-1,)
    eps: float = 1e-12
    name: str = "normalize_backward"
    values: ClassVar[tuple[str, ...]] = ("eps",)
    taken_by_kernel = BACKWARD
    suffix = "_backward"

    @classmethod
    def of(
        cls, grad: Any, x: Any, g: Any = None, grad_x: Any = None, grad_g: Any = None, *,
        axis: int | Sequence[int] | None = -1, eps: float = 1e-12, name: str = "normalize_backward",
    ) -> UnitBackwardDescriptor:  # fmt: skip
        """The descriptor of arrays of any layout."""
        operands = {"grad": grad, "x": x, "g": g, "grad_x": grad_x, "grad_g": grad_g}
        return cls.along_axis(name, operands, axis, eps)


def promised(desc: Unit, depth: int) -> PrecisionGuarantee:
    """What is promised of each output; a term of a sum goes through at most `depth` additions."""
    computed, d = computed_in(desc.element), float(depth)
    unit = computed.element
    terms = {
        "out": [Term(d / 2 + 6, unit, "scaled"), Term(4.0, unit, "lost")],
        "grad_x": [Term(d / 2 + 8, unit, "g_scaled"), Term(3 * d + 14, unit, "along_scaled"), Term(8.0, unit, "lost")],
        "grad_g": [Term(2 * d + 8, unit, "dot_scaled"), Term(8.0, unit, "row_lost")],
    }
    bounds = {}
    for operand in desc.operands:
        if operand.written:
            outside = "row_out_of_range" if operand.name == "grad_g" else "out_of_range"
            bound = Componentwise.rounded(terms[operand.name], desc.element, SOURCE, outside)
            bounds[operand.name] = PrecisionGuarantee.fixed_order(computed.math, unit, bound)
    return PrecisionGuarantee.by_output(**bounds)


class RowsUnit(Candidate[Unit]):
    """A group of threads a row, which stays in registers where it fits and is streamed where it does not."""

    variant = "rows"
    launches: ClassVar[tuple[str, ...]] = ("norm/unit.cu:unit", "norm/unit.cu:unit_cluster")

    def configs(self, desc: Unit, device: DeviceSpec) -> Iterable[RowConfig]:
        for config in row_configs(
            desc.length, desc.rows().vector(desc.element), desc.element, 1 + desc.backward, streams=512
        ):
            yield clustered(config, desc.length, desc.element, device)

    def guarantee(self, desc: Unit, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return promised(desc, config.depth(desc.length))

    def cost(self, desc: Unit, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=6.0)

    def lower(self, desc: Unit, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        eps = Run("eps", computed_in(desc.element).numpy)
        return (desc.rows().launch("norm/unit.cu", "unit", desc.types, config, "", eps),)
