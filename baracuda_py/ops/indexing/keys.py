"""Launches that sort indices by the place that they name, in pairs of key and position (kernels/indexing/sorted_keys.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.steps import Arg, Kernel, Launch, Ptr, Scratch, Step
from .._launch import grid_of, pack_dims

__all__ = ["KERNELS", "MOST", "KeyedIndices"]

FILE = "indexing/sorted_keys.cu"
KERNELS = tuple(f"{FILE}:{name}" for name in ("make_keys", "count_digits", "scan_counts", "move_pairs"))
DIGIT_BITS, RADIX, THREADS, TILE = 8, 256, 256, 2048  # of that file
SCAN_THREADS = 256
MOST = (1 << 31) - 1  # keys, and indices


@dataclass(frozen=True)
class KeyedIndices:
    """Indices of an operand, in C order of `shape`, and the key of each: the place that it names among `keys` of them."""

    operand: str
    number: str  # the C++ type of an index
    mode: int  # of kernels/include/indexing/within.cuh
    extent: int
    ignored: int  # an index that has no place, or -1
    keys: int
    key_step: int  # keys from an index to the next
    count: int
    shape: Sequence[int]  # merged axes, with strides of the operand in bytes, and in keys
    strides: tuple[Sequence[int], Sequence[int]]
    status: bool = False  # whether the operand `status` is set where an index has no place

    @property
    def passes(self) -> int:
        """Digits of the largest key, `keys`, which says that an index has no place."""
        return max(1, -(-self.keys.bit_length() // DIGIT_BITS))

    @property
    def moved(self) -> int:
        """Bytes that sorting moves."""
        return self.count * (4 + self.passes * 20)

    def pairs(self) -> tuple[Scratch, Scratch]:
        """Where the sorted keys and their positions are."""
        return self._buffer("keys", self.passes), self._buffer("positions", self.passes)

    def made(self) -> Launch:
        """The launch that writes the keys, and the status where there is one."""
        args = (
            self._buffer("keys", 0),
            Ptr(self.operand),
            Ptr("status") if self.status else Scratch.named("status", 4),
            np.int64(self.extent),
            np.int64(self.ignored),
            np.uint32(self.key_step),
            np.uint32(self.keys),
            np.uint32(self.count),
            pack_dims(self.shape, self.strides, "u32"),
        )
        return _launch(f"make_keys<{self.number}, {len(self.shape)}, {self.mode}>", -(-self.count // THREADS), *args)

    def steps(self) -> tuple[Step, ...]:
        """The launches that write them."""
        tiles = -(-self.count // TILE)
        counts, totals = Scratch.named("counts", 4 * RADIX * tiles), Scratch.named("totals", 4 * RADIX)
        number = np.uint32(self.count)
        steps = [self.made()]
        for i in range(self.passes):
            keys, positions = self._buffer("keys", i), self._buffer("positions", i)
            shift = np.uint32(i * DIGIT_BITS)
            moved = self._buffer("keys", i + 1), self._buffer("positions", i + 1), keys, positions
            steps += [
                _launch(f"count_digits<{DIGIT_BITS}>", tiles, counts, keys, shift, number),
                _launch(f"scan_counts<{SCAN_THREADS}>", RADIX, counts, totals, np.uint32(tiles), threads=SCAN_THREADS),
                _launch(
                    f"move_pairs<{DIGIT_BITS}, {str(i == 0).lower()}>", tiles, *moved, counts, totals, shift, number
                ),
            ]
        return tuple(steps)

    def _buffer(self, what: str, passes: int) -> Scratch:
        """One of two buffers in turn."""
        return Scratch.named(f"{what} {passes % 2}", 4 * self.count)


def _launch(entry: str, ctas: int, *args: Arg, threads: int = THREADS) -> Launch:
    return Launch(Kernel(FILE, entry), grid_of(ctas, 1), (threads, 1, 1), args)
