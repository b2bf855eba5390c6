"""What norms and their gradients have in common: the table of norms, and rows along the last axes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...plan.descriptor import Descriptor
from ...types import ElementKind, InvalidProblemError, OperandTypeError
from .._rows import Rows, rows_of

__all__ = ["TABLE", "Normed"]


@dataclass(frozen=True)
class Row:
    """One norm: whether the mean is taken away, and what it says of itself."""

    name: str
    centered: bool
    formula: str


TABLE = {row.name: row for row in (
    Row("rms_norm", False, "x / sqrt(mean(x**2) + eps) * weight"),
    Row("layer_norm", True, "(x - mean(x)) / sqrt(var(x) + eps) * weight + bias"),
)}  # fmt: skip


class Normed(Descriptor):
    """What forward and backward have in common: rows are what lies along the last axes, those of `normalized_shape`."""

    shape: tuple[int, ...]
    element: ElementKind
    normalized_shape: tuple[int, ...] | None
    name: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalized_shape is None:
            object.__setattr__(self, "normalized_shape", self.shape[-1:])

    @property
    def centered(self) -> bool:
        return TABLE[self.name.removesuffix("_backward")].centered

    @property
    def rank(self) -> int:
        """Axes that lie along a row."""
        return len(self.normalized_shape or ())

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[: len(self.shape) - self.rank]

    @property
    def length(self) -> int:
        return math.prod(self.normalized_shape or ())

    def check(self) -> None:
        if not self.rank or self.shape[-self.rank :] != self.normalized_shape:
            raise InvalidProblemError(
                f"{self.op}: normalized_shape {self.normalized_shape} is not how x's shape {self.shape} ends",
                "give the extents of x's last axes, at least one",
            )

    def spread(self, name: str) -> tuple[int, ...] | None:
        """An operand's strides over all axes of x; None where it is absent."""
        if name not in {operand.name for operand in self.operands}:
            return None
        layout, extra = self.layout(name), len(self.shape)
        if len(layout.shape) == extra:
            return layout.strides
        missing = (0,) * (extra - len(layout.shape))
        return (*layout.strides, *missing) if name in ("mean", "rstd") else (*missing, *layout.strides)

    def kind(self, name: str) -> ElementKind | None:
        """What an optional operand holds; None where there is none."""
        held: ElementKind | None = getattr(self, f"{name}_element")
        return held

    def has_also(self, name: str, kind: ElementKind) -> None:
        """At construction: there is this operand too, of `kind` where it does not say."""
        if self.kind(name) is None:
            object.__setattr__(self, f"{name}_element", kind)

    def holds(self, name: str, wanted: ElementKind) -> None:
        """Raises OperandTypeError where an operand there is holds something else."""
        held = self.kind(name)
        if held not in (None, wanted):
            raise OperandTypeError(f"{self.op}: {name} must hold {wanted}, got {held}", f"cast it to {wanted}")

    def rows(self, *names: str, ordered: bool = False) -> Rows:
        """Columns are counted in C order where `ordered`, else in the order of memory."""
        along = range(len(self.shape) - self.rank, len(self.shape))
        strides = {name: self.spread(name) for name in names}
        return rows_of(self, self.shape, along, strides, ("mean", "rstd"), ordered=ordered)
