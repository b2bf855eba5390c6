"""8-bit states: the dynamic maps, blocks with an absmax each, and how far codes may be from those of exact states.

The maps are those of T. Dettmers et al. (ICLR 2022), written out number by number. A state is map[code] * absmax, rounded to f32.
A new state that errs by e has an absmax that errs by the greatest e of its block and a rounding to f32. The state over its absmax
errs by both and by two roundings more; its code is allowed to be any between those of the ends of that interval: one, but near
the border of two codes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from ....numerics.rounding import wide
from ....types import ElementKind
from .parts import LEAD, Array, Parts, Step

__all__ = ["BlockwiseParts", "coded", "numbers"]

BLOCK = 256  # elements that share an absmax
U = ElementKind.F32.unit_roundoff
GREATEST = 1e37  # sizes of states


@cache
def numbers(*, squares: bool) -> Array:
    """The 256 numbers of a map, in order: those of squares are not negative."""
    made = [0.0, 1.0]
    for decade in range(7):
        parts = 2 ** (decade + squares)
        middles = [0.1 + 0.9 * (part + 0.5) / parts for part in range(parts)]
        sized = [middle / 10.0 ** (6 - decade) for middle in middles]
        made += sized if squares else [*sized, *(-x for x in sized)]
    return np.sort(np.array(made)).astype(np.float32)


def coded(x: Array, *, squares: bool) -> Array:
    """The nearest codes, of two the greater; of NaN 0."""
    known = numbers(squares=squares)
    borders = (known[:-1] + known[1:]) / np.float32(2)
    return np.where(np.isnan(x), 0, np.searchsorted(borders, x, side="right"))


class BlockwiseParts(Parts):
    """Parts whose states are codes. Blocks count from the first element of an array, or of a row of a table."""

    def __init__(self, desc: Any, given: Mapping[str, Array]) -> None:
        super().__init__(desc, given)
        whole = np.array([[math.prod(desc.shape), *[0] * (1 + len(desc.arrays))]])
        table = given["table"].astype(np.int64) if "table" in given else whole
        counts = table[:, 0].tolist()
        starts = [first + np.arange(0, n, BLOCK) for first, n in zip(np.cumsum([0, *counts]), counts)]
        self.starts = np.concatenate([*starts, np.zeros(0, np.int64)]).astype(np.int64)
        self.lengths = np.diff([*self.starts, sum(counts)])
        for name in desc.rule.absmaxes:
            begins = table[:, LEAD + desc.arrays.index(name)] // 4
            held = [begin + np.arange(-(-n // BLOCK)) for begin, n in zip(begins, counts)]
            self.at[name] = np.concatenate([*held, np.zeros(0, np.int64)]).astype(np.int64)

    def entries(self, name: str) -> Array:
        """What counts of an array, as it is stored."""
        held: Array = np.asarray(self.given[name]).reshape(-1)[self.at[name]]
        return held

    def of(self, name: str) -> Array:
        if name not in self.desc.rule.states:
            return super().of(name)
        of_blocks = np.repeat(self.entries(f"{name}_absmax"), self.lengths)
        known = numbers(squares=name in self.desc.rule.squares)
        return wide(known[self.entries(name)] * of_blocks, self.desc.element)

    def maxima(self, x: Array) -> Array:
        """The greatest of each block."""
        return np.maximum.reduceat(x, self.starts) if len(self.starts) else x[:0]

    def stored(self, states: Mapping[str, Array]) -> dict[str, Array]:
        made = {}
        for name, x in states.items():
            most = self.maxima(np.abs(x))
            made[name] = coded(self._over(x, most), squares=name in self.desc.rule.squares)
            made[f"{name}_absmax"] = most
        return made

    def _over(self, x: Array, most: Array) -> Array:
        """Of each element what it is of the greatest of its block, 0 where that is."""
        over = np.repeat(most, self.lengths)
        return np.where(over == 0, 0, x / over)

    def requantized(self, made: Step, output: str) -> tuple[Array, Array]:
        """By how much the entries of an output may be off, and where nothing is said: near the end of f32."""
        name = output.removesuffix("_absmax")
        x, squares = made.states[name], name in self.desc.rule.squares
        error = self.unit * made.lost[name] + U * (np.abs(x) + ElementKind.F32.smallest_normal)
        error = np.where((x == 0) & (self.of(name) == 0), 0, error)
        most, off = self.maxima(np.abs(x)), self.maxima(error)
        vague = (most > GREATEST) & np.isfinite(most)
        off = off + U * most
        if output != name:
            return off, vague
        exact, distance = coded(self._over(x, most), squares=squares), np.zeros(len(x))
        for way, other in product((-1, 1), repeat=2):
            end = self._over(x + way * error, np.maximum(most + other * off, 0))
            end = end + way * 4 * U * (np.abs(end) + ElementKind.F32.smallest_normal)
            distance = np.maximum(distance, np.abs(coded(end, squares=squares) - exact))
        return distance, np.repeat(vague, self.lengths)
