"""Generic addresses, which may refer to any state space (PTX ISA, State Spaces; Generic Addressing)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..threads.lanes import Array, Selection

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["LOCAL", "PARAMETERS", "SHARED", "Generic"]

# Windows of the generic address space, which overlap no other addresses.
PARAMETERS, SHARED, LOCAL = 0x7E00_0000_0000, 0x7F00_0000_0000, 0x7F80_0000_0000


class Generic:
    """Forwards the generic accesses of a wave to the state space of each address."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave

    def windows(self, s: Selection, a: Any) -> Iterator[tuple[Selection, Array | None, str, Array]]:
        """(lanes, their positions in the selection or None for all, space, address in it) of generic addresses."""
        lanes = self._wave.lanes
        a = lanes.spread(s, a)
        kinds = np.where(a >= np.uint64(LOCAL), 2, np.where(a >= np.uint64(SHARED), 1, 0))
        for kind, space, base in ((0, "global", 0), (1, "shared", SHARED), (2, "local", LOCAL)):
            mine = kinds == kind
            if mine.all():
                yield s, None, space, a - np.uint64(base)
                return
            if mine.any():
                places = np.flatnonzero(mine)
                yield lanes.numbers(s)[places], places, space, a[places] - np.uint64(base)

    def load(self, n: int, s: Selection, a: Any, dtype: str, rows: Any) -> None:
        wave = self._wave
        for part, _, space, address in self.windows(s, a):
            if space == "global":
                wave.memory.load(wave, n, part, address, dtype, rows)
            elif space == "shared":
                wave.shared.load(n, part, address.astype(np.uint32), dtype, rows)
            else:
                wave.local.load(n, part, address, dtype, rows)

    def store(self, n: int, s: Selection, a: Any, dtype: str, values: Any) -> None:
        wave = self._wave
        for part, places, space, address in self.windows(s, a):
            mine = [v if places is None or np.ndim(v) == 0 else v[places] for v in values]
            if space == "global":
                wave.memory.store(wave, n, part, address, dtype, mine)
            elif space == "shared":
                wave.shared.store(n, part, address.astype(np.uint32), dtype, mine)
            else:
                wave.local.store(n, part, address, dtype, mine)
