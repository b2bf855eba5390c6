"""Local memory, which is private to each thread (PTX ISA, State Spaces: Local State Space)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...types.faults import MisalignedFault, OutOfBoundsFault
from ..threads.lanes import Array, Selection
from ..unknown import FRESH
from .global_memory import fill

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["LocalMemory"]


class LocalMemory:
    """The local memory of a wave's threads, one row each."""

    def __init__(self, wave: Wave, nbytes: int) -> None:
        self._wave, self._nbytes = wave, nbytes
        self._bytes = np.full((wave.lanes.count, -(-nbytes // 16) * 16), FRESH, np.uint8)
        self._stored = np.zeros(self._bytes.shape, bool)

    def load(self, n: int, s: Selection, a: Any, dtype: str, rows: Any) -> None:
        wave, size = self._wave, int(dtype[1])
        lanes, index = self._places(n, s, a, size, len(rows), "load")
        places = lanes[:, None], (index * size)[:, None] + np.arange(size * len(rows))
        if wave.checks and not (known := self._stored[places]).all():
            place: dict[str, Any] = {"space": "local", "extent": self._nbytes}
            wave.suspect(n, s, ~np.all(known, axis=1), index * size, "nothing had written", **place)
            if n in wave.variation:
                data = self._bytes[places]
                fill(rows, s, np.where(known, data, wave.variation.other(data, places[1])), dtype)
                return
        for j, row in enumerate(rows):
            if row is not None:
                row[s] = self._bytes.view(dtype)[lanes, index + j]

    def store(self, n: int, s: Selection, a: Any, dtype: str, values: Any) -> None:
        size = int(dtype[1])
        lanes, index = self._places(n, s, a, size, len(values), "store")
        self._stored[lanes[:, None], (index * size)[:, None] + np.arange(size * len(values))] = True
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
