"""Local memory: what each thread has to itself (PTX ISA, State Spaces: Local State Space)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..types.faults import MisalignedFault, OutOfBoundsFault
from .lanes import Array, Selection

if TYPE_CHECKING:
    from .machine import Wave

__all__ = ["LocalMemory"]


class LocalMemory:
    """The local memory of a wave's threads, a row each."""

    def __init__(self, wave: Wave, nbytes: int) -> None:
        self._wave, self._nbytes = wave, nbytes
        self._bytes = np.zeros((wave.lanes.count, -(-nbytes // 16) * 16), np.uint8)

    def load(self, n: int, s: Selection, a: Any, dtype: str, rows: Any) -> None:
        lanes, index = self._places(n, s, a, int(dtype[1]), len(rows), "load")
        for j, row in enumerate(rows):
            if row is not None:
                row[s] = self._bytes.view(dtype)[lanes, index + j]

    def store(self, n: int, s: Selection, a: Any, dtype: str, values: Any) -> None:
        lanes, index = self._places(n, s, a, int(dtype[1]), len(values), "store")
        for j, value in enumerate(values):
            self._bytes.view(dtype)[lanes, index + j] = value

    def _places(self, n: int, s: Selection, a: Any, size: int, count: int, verb: str) -> tuple[Array, Array]:
        """(lanes, the index of each access in elements of `size` bytes) of accesses to `count` elements."""
        lanes = self._wave.lanes
        offset, extent = lanes.spread(s, a).astype(np.int64), self._nbytes
        what = f"{verb} of {size * count} bytes"
        for kind, bad, text in (
            (OutOfBoundsFault, (offset < 0) | (offset + size * count > extent), what),
            (MisalignedFault, offset % (size * count) != 0, f"{what} at an odd address"),
        ):
            if bad.any():
                j = int(np.flatnonzero(bad)[0])
                raise self._wave.fault(kind, text, n, s, j, space="local", byte=int(offset[j]), extent=extent)
        return lanes.numbers(s), offset // size
