"""A bool mask as bits, which kernels read in its place: what packs them (kernels/attention/mask_bits.cu)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np

from ....runtime.steps import Arg, Kernel, Launch, Scratch
from .struct import problem_struct

__all__ = ["ROW_BITS", "TILE_BITS", "RowBits", "TileBits"]

ROW_BITS, TILE_BITS = "attention/mask_bits.cu:attention_mask_bits", "attention/mask_bits.cu:attention_mask_tiles"
THREADS = 256
TILE_QUERIES, TILE_KEYS, WIDEST = 64, 16, 128  # WIDEST: queries or keys that a CTA takes at a time, at most


@dataclass(frozen=True)
class RowBits:
    """For scores: a word for each of four lanes, per row and block of `keys` keys. `queries`: a CTA's."""

    desc: Any
    queries: int
    keys: int

    launch_name: ClassVar[str] = ROW_BITS
    group: ClassVar[int] = 4  # words
    lanes: ClassVar[int] = 8  # that pack them

    @property
    def units(self) -> tuple[int, int]:
        """Rows, and blocks of keys."""
        return self.desc.total_q, -(-self.desc.total_k // self.keys)

    @property
    def template(self) -> str:
        element, out = (self.desc.layout(name).element.number for name in ("q", "out"))
        return f"{element}, {out}, {self.queries}, {self.keys}"

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Batch, heads, rows and blocks; 1 where the mask is broadcast."""
        rows, blocks = self.units
        along = zip((self.desc.batch, self.desc.heads, rows), self.desc.broadcast_strides("mask", 4))
        batch, heads, rows = (n if step else 1 for n, step in along)
        return batch, heads, rows, blocks

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Words from one to the next."""
        _, heads, rows, blocks = self.extents
        steps = (heads * rows * blocks, rows * blocks, blocks)
        kept = (bool(step) for step in self.desc.broadcast_strides("mask", 4))
        batch, head, row = (self.group * step * there for step, there in zip(steps, kept))
        return batch, head, row, self.group

    @property
    def words(self) -> Scratch:
        return Scratch.named("mask_bits", max(16, 4 * self.group * prod(self.extents)))

    @property
    def launch(self) -> Launch:
        file, name = self.launch_name.split(":")
        (_, heads, rows, blocks), groups = self.extents, prod(self.extents)
        args: tuple[Arg, ...] = (problem_struct(self.desc), self.words, *map(np.uint32, (heads, rows, blocks)))
        kernel = Kernel(file, f"{name}<{self.template}>")
        ctas = -(-groups * self.lanes // THREADS)
        return Launch(kernel, (ctas, 1, 1), (THREADS, 1, 1), (*args, np.uint64(groups)))


@dataclass(frozen=True)
class TileBits(RowBits):
    """For transposed scores: a word for each lane, per tile of 64 queries by 16 keys."""

    queries: int = WIDEST
    keys: int = TILE_KEYS

    launch_name: ClassVar[str] = TILE_BITS
    group: ClassVar[int] = 32
    lanes: ClassVar[int] = 32

    @property
    def units(self) -> tuple[int, int]:
        """Tiles of queries and of keys, of whole CTAs."""
        ctas = (-(-n // WIDEST) for n in (self.desc.total_q, self.desc.total_k))
        queries, keys = (n * (WIDEST // tile) for n, tile in zip(ctas, (TILE_QUERIES, TILE_KEYS)))
        return queries, keys

    @property
    def template(self) -> str:
        return f"{self.desc.layout('q').element.number}, {self.queries}"
