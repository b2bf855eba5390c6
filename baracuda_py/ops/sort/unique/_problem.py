"""Which elements are distinct: the fields of `unique` and `unique_consecutive`."""

from __future__ import annotations

import math
from typing import Any

from ....plan.descriptor import Descriptor, Slot
from ....plan.fields import flag
from ....types import ElementKind, InvalidProblemError
from ..._numbers import element_bytes, number
from ..topk import KEYS

__all__ = ["FIELDS", "MOST", "SLOTS", "DistinctProblem"]

MOST = 1 << 31  # elements, which are counted in 32 bits
FLAGS = ("return_inverse", "return_counts", "return_index", "equal_nan")
FIELDS = ("shape", "element", "size", "fill_value", *FLAGS)
I64 = ElementKind.I64
SLOTS = (
    Slot("out", "out", takes=KEYS, shape="out_shape", element="element", strided=False),
    Slot("inverse", "out", element=I64, shape="shape", strided=False),
    Slot("counts", "out", element=I64, shape="out_shape", strided=False),
    Slot("index", "out", element=I64, shape="out_shape", strided=False),
    Slot("count", "out", element=I64, shape="count_shape", strided=False),
    Slot("x", takes=KEYS),
)


class DistinctProblem(Descriptor):
    """x of `shape`, whose elements are taken in C order. There are `inverse`, `counts` and `index` where they are asked for."""

    shape: tuple[int, ...]
    element: ElementKind
    size: int | None = None
    fill_value: Any = None
    return_inverse: bool = False
    return_counts: bool = False
    return_index: bool = False
    equal_nan: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(FLAGS, flag)
        if self.fill_value is not None:
            self._each(("fill_value",), number)

    @property
    def length(self) -> int:
        return math.prod(self.shape)

    @property
    def capacity(self) -> int:
        """How many distinct elements the results hold."""
        return self.length if self.size is None else self.size

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.capacity,)

    @property
    def count_shape(self) -> tuple[int, ...]:
        return (1,)

    @property
    def fill(self) -> bytes | None:
        """The bytes of the elements behind the last distinct one; None where they are those of the first."""
        return None if self.fill_value is None else element_bytes(self.op, "fill_value", self.fill_value, self.element)

    @property
    def distinct_nan(self) -> bool:
        return self.element.is_float and not self.equal_nan

    def has(self, name: str) -> bool:
        return getattr(self, f"return_{name}") if name in ("inverse", "counts", "index") else super().has(name)

    def neutral(self) -> dict[str, Any]:
        return {"size": self.capacity, "equal_nan": self.equal_nan or not self.element.is_float}

    def check(self) -> None:
        self.fill  # noqa: B018  # the number
        if self.capacity < 0:
            raise InvalidProblemError(f"{self.op}: size={self.size} is negative", "give 0 or more")
        if self.capacity and not self.length:
            raise InvalidProblemError(
                f"{self.op}: x has no elements, and size={self.size} of them are asked for", "give size=0, or no size"
            )
