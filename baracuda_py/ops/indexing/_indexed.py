"""What ops by index have in common: modes for indices out of range, the status that reports them, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...plan.fields import integer
from ...tensor import Tensor
from ...types import ElementKind, InvalidProblemError
from .._reported import ReportedProblem
from .._rows import axes_of

__all__ = [
    "BYTES",
    "FROM_THE_END",
    "INDICES",
    "STATUSES",
    "STRICT",
    "UNNAMED",
    "UNREPORTED",
    "IndexedProblem",
]

BYTES = tuple(kind for kind in ElementKind if not kind.packed)
INDICES = (ElementKind.I32, ElementKind.I64)
STATUSES = {1: ("an index is out of range", 'give 0 to n - 1, or mode="clip" or "wrap"')}
UNNAMED = ("drop", "status")  # modes in which an index out of range names nothing
CLIP, WRAP, FROM_THE_END, STRICT, UNREPORTED = 1, 2, 0, 3, 4  # of kernels/include/indexing/within.cuh


class IndexedProblem(ReportedProblem):
    """A problem in which an array of indices, `index`, names places of another array, `lines`, along its `axis`.

    A subclass has the fields ``<lines>_shape``, ``<index>_shape`` and ``mode``, and either ``axis`` or a constant of that name.
    """

    lines: ClassVar[str] = "x"
    index: ClassVar[str] = "index"
    from_the_end: ClassVar[bool] = False  # whether -1 names the last place
    modes: ClassVar[tuple[str, ...]] = (*UNNAMED, "clip", "wrap", "raise")

    @property
    def kernel_mode(self) -> int:
        """The number of the mode in the kernels. Indices of "raise" were looked at before."""
        return {"clip": CLIP, "wrap": WRAP}.get(self.mode, FROM_THE_END if self.from_the_end else STRICT)

    @property
    def lines_shape(self) -> tuple[int, ...]:
        return tuple(getattr(self, f"{self.lines}_shape"))

    @property
    def places_shape(self) -> tuple[int, ...]:
        """The shape of the indices."""
        return tuple(getattr(self, f"{self.index}_shape"))

    @property
    def picked_shape(self) -> tuple[int, ...]:
        """The shape of what the indices name."""
        raise NotImplementedError

    @property
    def along(self) -> int:
        """The axis, counted from the front."""
        axis, rank = integer(getattr(self, "axis"), f"{self.op}: axis"), len(self.lines_shape)  # noqa: B009
        if not rank:
            raise InvalidProblemError(f"{self.op}: {self.lines} has no axis", f"pass {self.lines}.reshape(1)")
        return axes_of(self.op, axis, rank)[0]

    @property
    def extent(self) -> int:
        """How many places there are along the axis."""
        return self.lines_shape[self.along]

    @property
    def count(self) -> int:
        """How many indices there are."""
        return math.prod(self.places_shape)

    def neutral(self) -> dict[str, Any]:
        return super().neutral() | ({"axis": self.along} if "axis" in type(self).__dataclass_fields__ else {})

    def check(self) -> None:
        asked = self.count if self.mode == "raise" else 0 not in self.picked_shape and self.mode not in UNNAMED
        if asked and not self.extent:
            raise InvalidProblemError(
                f"{self.op}: {self.lines} of shape {self.lines_shape} has nothing along axis {self.along} to index",
                'pass no indices, or mode="drop", under which none of them is in range',
            )

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if self.mode != "raise":
            return
        extent, index = self.extent, tensors[self.index].array()
        first = -extent if self.from_the_end else 0
        wrong = (index < first) | (index >= extent)
        if wrong.any():
            at = tuple(map(int, np.argwhere(wrong)[0]))
            place = f"[{', '.join(map(str, at))}]" if at else ""
            raise InvalidProblemError(
                f"{self.op}: {self.index}{place} = {int(index[at])} is out of range: {self.lines} has extent {extent} along axis "
                f"{self.along}",
                f'give {first} to {extent - 1}, or mode="clip", "wrap", "drop" or "status"',
            )
