"""What ops along one axis have in common, whose results have their operands' shape: rows run along it, or columns."""

from __future__ import annotations

from ..plan.descriptor import Descriptor
from ..types import ElementKind
from ..types.keeping import complete
from ._columns import Columns, across
from ._rows import Rows, axes_of, rows_of

__all__ = ["AlongAxis"]


class AlongAxis(Descriptor):
    """Every operand has `shape`; `axis` counts from the front once the descriptor is made."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if -len(self.shape) <= self.axis < 0:
            complete(self, axis=self.axis + len(self.shape))

    @property
    def along(self) -> tuple[int, ...]:
        return axes_of(self.op, self.axis, len(self.shape))

    @property
    def extent(self) -> int:
        return self.shape[self.axis] if self.shape else 1

    def check(self) -> None:
        self.along  # noqa: B018  # the axis

    def in_place(self, written: str, read: str) -> bool:
        """What is written may be an input itself: a thread writes elements that it alone has read."""
        return True

    def _strides(self) -> dict[str, tuple[int, ...]]:
        return {operand.name: self.layout(operand.name).strides for operand in self.operands}

    def rows(self) -> Rows:
        return rows_of(self, self.shape, self.along, self._strides())

    def columns(self) -> Columns | None:
        """None where no other axis is contiguous in every operand."""
        names = self._strides()
        rows = across(self, self.shape, self.along, names) if self.shape else None
        if rows is None:
            return None
        sizes = tuple(self.layout(name).element.bits // 8 for name in names)
        return Columns(rows, tuple(s[self.axis] * size for s, size in zip(names.values(), sizes)), sizes)
