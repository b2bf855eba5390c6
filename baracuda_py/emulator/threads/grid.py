"""Synchronisation between CTAs: one releases by a fence and then an atomic operation on an address, another acquires by an
atomic operation on that address and then a fence (PTX ISA, Memory Consistency Model: Release and Acquire Patterns).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias

import numpy as np

from .lanes import Array

__all__ = ["Grid"]

Place: TypeAlias = tuple[str, int]  # a region and an offset in it


class Grid:
    """The synchronisation of one launch; clusters are numbered over the whole launch."""

    def __init__(self) -> None:
        self._left: dict[Place, dict[int, Array]] = defaultdict(
            dict
        )  # what the fences of each cluster's warps have released
        self._via: dict[Place, set[Place]] = defaultdict(set)  # addresses acquired from before a release here
        self._asked: dict[int, set[Place]] = defaultdict(set)  # addresses read by a cluster that has yet to fence
        self._found: dict[int, set[Place]] = defaultdict(set)

    def meet(self, place: Place, cluster: int, fenced: Array, *, asks: bool) -> None:
        """A warp's atomic operation; `fenced` are the stamps of its cluster's warps at its last fence. An operation that `asks`
        gets the old value, and so acquires what others have released."""
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
        """Whether the access of a warp of another cluster at a stamp is over for a cluster."""
        found = (self._left[place].get(other) for place in self._found.get(cluster, ()))
        return any(stamps is not None and stamps[member] >= stamp for stamps in found)
