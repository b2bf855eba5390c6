"""Which keys a query sees by its place: causal attention, windows, offsets."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

__all__ = ["Visible"]


class Visible(NamedTuple):
    """Which keys query i sees: i + offset - left <= j <= i + offset + right; None: no limit on that side."""

    left: int | None
    right: int | None

    @lru_cache(maxsize=4096)  # noqa: B019  # of two numbers each; the cost of every configuration asks
    def keys(self, rows: int, keys: int, offset: int) -> float:
        """Keys that a row sees, in the mean (of a sample of rows)."""
        if not rows:
            return 0.0
        if self == EVERY_KEY:
            return float(keys)
        i = np.linspace(0, rows - 1, min(rows, 64)) + offset
        first = np.zeros_like(i) if self.left is None else np.clip(i - self.left, 0, keys)
        last = np.full_like(i, keys) if self.right is None else np.clip(i + self.right + 1, 0, keys)
        return float(np.maximum(last - first, 0).mean())

    @lru_cache(maxsize=4096)  # noqa: B019
    def blocks(self, rows: int, keys: int, offset: int, tile: tuple[int, int]) -> float:
        """Blocks of keys that a tile of queries touches, in the mean (of a sample of tiles): `tile` is both's size."""
        tiles = -(-rows // tile[0])
        if not tiles:
            return 0.0
        if self == EVERY_KEY:
            return float(-(-keys // tile[1]))
        i = np.unique(np.linspace(0, tiles - 1, min(tiles, 64)).astype(np.int64)) * tile[0]
        low, high = i + offset, np.minimum(i + tile[0], rows) - 1 + offset
        first = np.zeros_like(i) if self.left is None else np.clip(low - self.left, 0, keys)
        last = np.full_like(i, keys) if self.right is None else np.clip(high + self.right + 1, 0, keys)
        return float(np.where(last > first, -(-last // tile[1]) - first // tile[1], 0).mean())


EVERY_KEY = Visible(None, None)
