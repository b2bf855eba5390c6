"""Device tests that compile many kernels, in parts: each part is a test of its own, so that processes share the work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest

__all__ = ["WHOLE", "Part", "in_parts"]

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """One of `count` parts of what a test takes: together they are all of it, and none has anything of another."""

    index: int
    count: int

    def of(self, items: Sequence[T]) -> list[T]:
        """Every `count`-th item: neighbours, which cost alike, are in different parts."""
        return list(items[self.index :: self.count])

    @property
    def first(self) -> bool:
        return self.index == 0

    def __str__(self) -> str:
        return f"{self.index + 1} of {self.count}"


WHOLE = Part(0, 1)


def in_parts(count: int) -> pytest.MarkDecorator:
    """A test that takes a `part`, and runs once for each of `count`."""
    return pytest.mark.parametrize("part", [Part(i, count) for i in range(count)], ids=str)
