"""What CTAs know of one another: one leaves word at a place by an atomic operation behind a fence, another finds it there by an
atomic operation and a fence behind that (PTX ISA, Memory Consistency Model: Release and Acquire Patterns).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias

import numpy as np

from .lanes import Array

__all__ = ["Grid"]

Place: TypeAlias = tuple[str, int]  # a region and an offset in it


class Grid:
    """Of one launch; clusters are counted over all of it."""

    def __init__(self) -> None:
        self._left: dict[Place, dict[int, Array]] = defaultdict(
            dict
        )  # what stood behind a fence of each cluster's warps
        self._via: dict[Place, set[Place]] = defaultdict(set)  # where those had found word who left it here
        self._asked: dict[int, set[Place]] = defaultdict(set)  # that a cluster has yet to fence
        self._found: dict[int, set[Place]] = defaultdict(set)

    def meet(self, place: Place, cluster: int, fenced: Array, *, asks: bool) -> None:
        """A warp's atomic operation; `fenced` are the stamps of its cluster's warps that it stands behind a fence with. One that
        `asks` gets the old value, and so finds what others left."""
        if fenced.any():
            left = self._left[place]
            left[cluster] = np.maximum(left[cluster], fenced) if cluster in left else fenced.copy()
            self._via[place] |= self._found[cluster]
        if asks:
            self._asked[cluster].add(place)

    def fence(self, cluster: int) -> None:
        for place in self._asked.pop(cluster, ()):
            self._found[cluster] |= {place} | self._via[place]

    def knows(self, cluster: int, other: int, member: int, stamp: int) -> bool:
        """Whether what a warp of another cluster did at a stamp is over for a cluster."""
        found = (self._left[place].get(other) for place in self._found.get(cluster, ()))
        return any(stamps is not None and stamps[member] >= stamp for stamps in found)
