"""Atomic operations, one lane after the other (PTX ISA, Parallel Synchronization and Communication Instructions: atom, red)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..types import UnsupportedError
from .lanes import Array, Selection
from .translate import DTYPES

if TYPE_CHECKING:
    from .machine import Wave

__all__ = ["OPERATIONS", "Atomics"]

OPERATIONS = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}


class Atomics:
    """The lanes of a warp act in an order of their own; which, no kernel may rely on: random orders draw it."""

    def __init__(self, wave: Wave) -> None:
        self._wave = wave

    def apply(
        self, n: int, s: Selection, space: str, name: str, kind: str, addresses: Any, values: tuple[Any, ...]
    ) -> Array:
        """Each lane's old value."""
        wave = self._wave
        dtype = DTYPES[kind]
        if kind in ("f16", "bf16", "f16x2", "bf16x2"):
            raise UnsupportedError(f"atom.{name}.{kind}: the emulator has no atomics on halves")
        numbers, size = wave.lanes.numbers(s), int(dtype[1])
        addresses = wave.lanes.spread(s, addresses)
        given = [np.broadcast_to(v, numbers.shape) for v in values]
        old = np.empty(numbers.shape, dtype)
        if space == "shared":
            places = wave.shared.places(n, s, addresses, size, store=True)
            self._each(wave.shared.bytes, places, name, given, old)
            if wave.shared.checks:
                wave.shared.state[places[:, None] + np.arange(size)] = 1
            return old
        for chosen, region, offsets in wave.memory.find(wave, n, s, addresses, size, store=True):
            mine = np.arange(len(numbers)) if chosen is None else chosen
            part = np.empty(len(mine), dtype)
            self._each(region.bytes, offsets, name, [v[mine] for v in given], part)
            old[mine] = part
        return old

    def _each(self, memory: Array, places: Array, name: str, values: list[Array], old: Array) -> None:
        view = memory[: len(memory) // old.itemsize * old.itemsize].view(old.dtype)
        index = places // old.itemsize
        order = range(len(index)) if self._wave.options.order == "lockstep" else self._wave.rng.permutation(len(index))
        for j in order:
            old[j] = view[index[j]]
            view[index[j]] = _after(name, old[j], *(v[j] for v in values))


def _after(name: str, old: Any, value: Any, other: Any = None) -> Any:
    match name:
        case "add":
            return old + value
        case "min":
            return min(old, value)
        case "max":
            return max(old, value)
        case "and":
            return old & value
        case "or":
            return old | value
        case "xor":
            return old ^ value
        case "exch":
            return value
        case "cas":
            return other if old == value else old
        case "inc":
            return old + type(old)(1) if old < value else type(old)(0)
        case _:  # dec
            return value if old == 0 or old > value else old - type(old)(1)
