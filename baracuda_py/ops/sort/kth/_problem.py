"""What is taken of each row: the fields of `kthvalue`, `median` and their gradient."""

from __future__ import annotations

from typing import Any

from ....plan.descriptor import Descriptor
from ....plan.fields import flag
from ....types import ElementKind, InvalidProblemError

__all__ = ["FIELDS", "RankProblem"]

FIELDS = ("shape", "element", "axis", "keepdims")


class RankProblem(Descriptor):
    """x of `shape`, of which each row along `axis` gives one element; the axis stays with extent 1 where `keepdims`."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    keepdims: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("keepdims",), flag)

    @property
    def along(self) -> int:
        """The axis, counted from the front."""
        rank = len(self.shape)
        if not -rank <= self.axis < rank:
            known = f"give one of {-rank} to {rank - 1}" if rank else "give x an axis"
            raise InvalidProblemError(f"{self.op}: axis={self.axis}, and x has {rank} axes", known)
        return self.axis % rank

    @property
    def extent(self) -> int:
        """Elements of a row."""
        return self.shape[self.along]

    @property
    def out_shape(self) -> tuple[int, ...]:
        axis = self.along
        return (*self.shape[:axis], *((1,) if self.keepdims else ()), *self.shape[axis + 1 :])

    def spread(self, name: str) -> tuple[int, ...]:
        """The strides of an operand of the result's shape over all axes of x."""
        strides, axis = self.layout(name).strides, self.along
        return (*strides[:axis], 0, *strides[axis + self.keepdims :])

    def neutral(self) -> dict[str, Any]:
        return {"axis": self.along}

    def check(self) -> None:
        self.along  # noqa: B018  # the axis
