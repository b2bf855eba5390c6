"""What is sorted: the fields of `sort` and `argsort`."""

from __future__ import annotations

from typing import Any, ClassVar

from ....plan.descriptor import Descriptor
from ....plan.fields import flag
from ....types import ElementKind, InvalidProblemError

__all__ = ["FIELDS", "INDICES", "SortProblem"]

INDICES = (ElementKind.I64, ElementKind.I32)
FIELDS = ("shape", "element", "axis", "descending", "stable", "index_dtype")
MOST_I32 = 1 << 31  # elements whose places are all int32


class SortProblem(Descriptor):
    """x of `shape`, in order along `axis`."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    descending: bool = False
    stable: bool = True
    index_dtype: ElementKind = ElementKind.I64

    results: ClassVar[tuple[str, str]]  # the operands of values and indices; one name where there are indices alone

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("descending", "stable"), flag)

    @property
    def index_element(self) -> ElementKind:
        return self.index_dtype

    @property
    def flipped(self) -> bool:
        return self.descending

    @property
    def has_values(self) -> bool:
        return self.results[0] != self.results[1]

    def neutral(self) -> dict[str, Any]:
        return {"axis": self.axis % len(self.shape), "stable": True}

    def check(self) -> None:
        rank = len(self.shape)
        if not -rank <= self.axis < rank:
            known = f"give one of {-rank} to {rank - 1}" if rank else "give x an axis"
            raise InvalidProblemError(f"{self.op}: axis={self.axis}, and x has {rank} axes", known)
        if self.index_dtype is ElementKind.I32 and self.shape[self.axis] > MOST_I32:
            raise InvalidProblemError(
                f"{self.op}: places among {self.shape[self.axis]} elements are no int32", 'give index_dtype="i64"'
            )
