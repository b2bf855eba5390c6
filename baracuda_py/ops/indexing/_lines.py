"""Lines along one axis of an array, named by an array of indices: shapes, modes for indices out of range, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from ...plan.descriptor import Descriptor
from ...plan.fields import integer
from ...tensor import Tensor
from ...types import ElementKind, InvalidProblemError
from .._rows import axes_of

__all__ = ["INDICES", "MODES", "STATUSES", "IndexedLines"]

INDICES = (ElementKind.I32, ElementKind.I64)
MODES = {"clip": 1, "wrap": 2, "raise": 3}  # and their numbers in kernels/include/indexing/within.cuh
STATUSES = {1: ("an index is out of range", 'give 0 to n - 1, or mode="clip" or "wrap"')}


class IndexedLines(Descriptor):
    """A problem in which an array of indices, `index`, names lines of another array, `lines`, along its `axis`.

    A subclass has the fields ``<lines>_shape``, ``<index>_shape`` and ``mode``, and either ``axis`` or a constant of that name;
    ``padding_idx``, if there is one, is an index along the axis.
    """

    lines: ClassVar[str] = "x"
    index: ClassVar[str] = "index"
    mode: str = "raise"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(tuple(MODES), "mode")

    @property
    def lines_shape(self) -> tuple[int, ...]:
        return tuple(getattr(self, f"{self.lines}_shape"))

    @property
    def places_shape(self) -> tuple[int, ...]:
        """The shape of the indices."""
        return tuple(getattr(self, f"{self.index}_shape"))

    @property
    def along(self) -> int:
        """The axis, counted from the front."""
        axis, rank = integer(getattr(self, "axis"), f"{self.op}: axis"), len(self.lines_shape)  # noqa: B009
        if not rank:
            raise InvalidProblemError(f"{self.op}: {self.lines} has no axis", f"pass {self.lines}.reshape(1)")
        return axes_of(self.op, axis, rank)[0]

    @property
    def extent(self) -> int:
        """How many lines there are."""
        return self.lines_shape[self.along]

    @property
    def picked_shape(self) -> tuple[int, ...]:
        """The shape of the lines that the indices name: that of the indices in place of the axis."""
        return (*self.lines_shape[: self.along], *self.places_shape, *self.lines_shape[self.along + 1 :])

    @property
    def count(self) -> int:
        """How many indices there are."""
        return math.prod(self.places_shape)

    @property
    def scalar_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def has_status(self) -> bool:
        """Whether an index out of range is reported."""
        return "status" in self.slot_of and self.has("status")

    def neutral(self) -> dict[str, Any]:
        return super().neutral() | ({"axis": self.along} if "axis" in type(self).__dataclass_fields__ else {})

    def over_places(self, name: str) -> tuple[int, ...]:
        """The strides of an operand of `picked_shape` over the axes of the indices."""
        return self.layout(name).strides[self.along : self.along + len(self.places_shape)]

    def over_others(self, name: str, *, picked: bool) -> tuple[int, ...]:
        """The strides of an operand, of `picked_shape` or of `lines_shape`, over all other axes."""
        strides, width = self.layout(name).strides, len(self.places_shape) if picked else 1
        return (*strides[: self.along], *strides[self.along + width :])

    def check(self) -> None:
        if self.count and not self.extent and self.mode != "raise":
            raise InvalidProblemError(
                f"{self.op}: {self.lines} of shape {self.lines_shape} has nothing along axis {self.along} to index",
                f"pass no indices, or {self.lines} with an extent of 1 or more there",
            )
        if self.has_status and self.mode != "raise":
            raise InvalidProblemError(
                f"{self.op}: with mode={self.mode!r} every index names a line, and status says nothing",
                'leave status out, or give mode="raise"',
            )
        padding = getattr(self, "padding_idx", None)
        if padding is not None and not -self.extent <= padding < self.extent:
            raise InvalidProblemError(
                f"{self.op}: padding_idx={padding}, and {self.lines} has {self.extent} rows",
                f"give one of {-self.extent} to {self.extent - 1}" if self.extent else "leave padding_idx out",
            )

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if self.mode != "raise" or self.has_status or 0 in self.picked_shape:
            return
        index = tensors[self.index].array()
        wrong = (index < 0) | (index >= self.extent)
        if wrong.any():
            at = tuple(map(int, np.argwhere(wrong)[0]))
            place = f"[{', '.join(map(str, at))}]" if at else ""
            raise InvalidProblemError(
                f"{self.op}: {self.index}{place} = {int(index[at])} is out of range: {self.lines} has {self.extent} lines along "
                f"axis {self.along}",
                f'give 0 to {self.extent - 1}, or mode="clip" or "wrap"' if self.extent else "pass no indices",
            )

    @classmethod
    def of_arrays(cls, op: str, return_status: bool, arrays: Mapping[str, Any], **options: Any) -> Self:
        """The descriptor of arrays, with a status where one is asked for."""
        tensors = cls.taken(op, arrays)
        asked = {"status_element": ElementKind.I32} if return_status and "status" not in tensors else {}
        return cls.of_tensors(tensors, **options, **asked)
