"""Warps that share chunks of GGUF blocks, and what they have under way: configurations of kernels/quantized/gguf_product.cu."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ....plan.grammar import Config, term
from ....types import DeviceSpec
from ....types.gguf import Block
from .blocks import block_align

__all__ = ["PART", "RESERVED", "ROWS", "WORD", "ProductConfig", "chunks_are_shifted", "configs_of", "vectors_of"]

ROWS, PART, WORD = 16, 256, 16  # rows of weights a warp, weights at a time, bytes of a copy: gguf_product.cu
MOST_TILES = 8
# Warps along N, along K, slots of each, CTAs an SM, and weights of a chunk; the first of those that cost the same.
SHAPES: tuple[tuple[int, int, int, int, int], ...] = (
    (2, 4, 3, 2, 256), (4, 4, 4, 1, 256), (4, 3, 4, 1, 256), (1, 8, 4, 2, 256), (2, 4, 4, 2, 256), (1, 8, 3, 2, 256),
    (1, 4, 4, 4, 256), (1, 16, 3, 1, 256), (4, 2, 4, 2, 256), (2, 6, 4, 1, 256), (1, 4, 4, 3, 256), (1, 4, 2, 2, 256),
    (2, 4, 5, 1, 256), (1, 8, 5, 1, 256), (4, 2, 5, 1, 256), (6, 2, 4, 1, 256), (3, 4, 4, 1, 256), (2, 5, 4, 1, 256),
    (2, 5, 3, 1, 256), (1, 12, 4, 1, 256), (1, 4, 3, 1, 256), (1, 4, 2, 4, 512), (1, 4, 2, 4, 1024), (2, 4, 2, 2, 512),
    (1, 8, 2, 2, 512), (1, 4, 3, 3, 512), (1, 4, 2, 3, 512), (2, 4, 3, 1, 512), (4, 3, 2, 1, 512), (4, 4, 2, 1, 512),
    (4, 4, 3, 1, 256), (8, 2, 3, 1, 256), (8, 2, 4, 1, 256), (4, 4, 2, 1, 1024), (2, 8, 2, 1, 1024), (4, 4, 3, 1, 512),
    (2, 8, 3, 1, 512), (2, 4, 2, 2, 1024), (4, 2, 3, 2, 512), (4, 2, 2, 2, 1024), (4, 2, 2, 2, 512), (2, 6, 3, 1, 512),
    (4, 3, 3, 1, 512), (8, 2, 2, 1, 512), (8, 2, 3, 1, 512),
)  # fmt: skip
# With codes looked up in shared memory: warps that share the table
BY_BOOK: tuple[tuple[int, int, int, int, int], ...] = (
    (4, 4, 4, 1, 256), (4, 4, 3, 1, 256), (8, 2, 4, 1, 256), (2, 8, 3, 1, 256), (1, 16, 3, 1, 256), (2, 4, 3, 2, 256),
    (4, 2, 4, 2, 256), (4, 3, 4, 1, 256), (4, 4, 2, 1, 512), (8, 2, 2, 1, 512), (2, 8, 2, 1, 512), (2, 4, 2, 2, 512),
    (4, 2, 2, 2, 512), (2, 4, 3, 1, 256),
)  # fmt: skip
BOOK_BYTES = 256 * 128  # of that table
REGISTERS = {1: 168, 2: 216, 4: 128, 8: 232}  # of a thread, by tiles; `_registers` knows more
RESERVED = 1024  # bytes of shared memory that a CTA takes besides its own
SCHEDULERS, REGISTERS_OF_LANES = 4, 512  # of an SM; of a scheduler, shared by its warps


@dataclass(frozen=True)
class ProductConfig(Config):
    """Warps of a CTA and their slots; what follows from the problem: tiles of 8 columns, and sub-blocks that share them."""

    warps_n: int = term("warps a CTA side by side along N, of 16 rows of weights each")
    warps_k: int = term("warps a CTA that share rows of weights along K")
    stages: int = term("chunks of 16 rows that a warp has in shared memory")
    ctas: int = term("CTAs an SM is to hold", default=2)
    chunk: int = term("weights of a row in a chunk", default=256)
    book: bool = term("codes are looked up in shared memory", default=False)
    ahead: int = term("groups of sub-blocks that activations are loaded ahead", default=1)
    staged: bool = term("activations are copied first, to rows that meet no bank twice", default=False)
    tiles: int = term("tiles of 8 columns", default=1, hidden=True)
    spread: int = term("sub-blocks that are summed side by side", default=1, hidden=True)
    slot: int = term("bytes of a chunk of 16 rows in shared memory", default=0, hidden=True)
    beside: int = term("bytes of a warp's sums and scales in shared memory", default=0, hidden=True)

    @property
    def warps(self) -> int:
        return self.warps_n * self.warps_k

    @property
    def shared_bytes(self) -> int:
        return self.warps * (self.stages * self.slot + self.beside) + self.book * BOOK_BYTES

    @property
    def in_flight(self) -> int:
        """Bytes under way to a CTA."""
        return self.warps * (self.stages - 1) * self.slot


def configs_of(
    desc: Any, tokens: int, columns: int, *, rounded: bool, stages: bool, device: DeviceSpec
) -> Iterator[ProductConfig]:
    """Those that an SM has room for: of rows of x that take `columns` each, `rounded` or not; `stages` says whether they can be
    copied first."""
    wanted, block = columns << max(tokens - 1, 0).bit_length(), desc.format.block
    tiles, spread = min(MOST_TILES, max(1, wanted // 8)), max(1, 8 // wanted)
    sums = 2 * 4 * ROWS * (8 * tiles // (columns * spread))
    scales = 0 if spread == 8 else 4 * ROWS * (2 * PART // block.sub + 4)
    shapes = [(*shape, False) for shape in SHAPES]
    if block.book == "iq4" and not rounded:
        shapes += [(*shape, True) for shape in BY_BOOK]
    for warps_n, warps_k, slots, ctas, chunk, book in shapes:
        if chunk > PART and not _chunk_serves(desc, tiles, spread, chunk):
            continue
        slot = ROWS * (vectors_of(desc, chunk) | 1) * WORD
        config = ProductConfig(warps_n, warps_k, slots, ctas, chunk, book, 1, False, tiles, spread, slot, sums + scales)
        if config.ctas * (config.shared_bytes + RESERVED) > device.shared_bytes + RESERVED:
            continue
        for ahead in _groups_ahead(block, tiles, spread, chunk):
            if _registers(desc, tiles, spread, chunk, ahead) > REGISTERS_OF_LANES // -(
                -ctas * config.warps // SCHEDULERS
            ):
                continue
            yield replace(config, ahead=ahead)
            if stages and tiles == 1 and spread < 4:
                yield replace(config, ahead=ahead, staged=True)


def chunks_are_shifted(desc: Any, chunk: int) -> bool:
    """Whether a chunk may begin between two multiples of 16 bytes."""
    block = desc.format.block
    return bool(block.bytes_of(chunk) % WORD or block.bytes_of(desc.k) % WORD)


def _chunk_serves(desc: Any, tiles: int, spread: int, chunk: int) -> bool:
    """Whether rows are whole ones of several parts: of two, or of the fewest that begin on a multiple of 16 bytes."""
    block = desc.format.block
    if tiles > 1 or desc.k % chunk or (spread < 8 and chunks_are_shifted(desc, chunk)):
        return False
    if chunk == 2 * PART:
        return not block.bytes_of(chunk) % WORD or bool(block.bytes_of(2 * chunk) % WORD)
    return not block.bytes_of(chunk) % WORD and bool(block.bytes_of(chunk // 2) % WORD)


def _registers(desc: Any, tiles: int, spread: int, chunk: int, ahead: int) -> int:
    """Of a thread, so that none is kept in memory, for one tile: fewest where all columns are of one token, or of 8 of which few
    activations are at hand, and rows whole chunks; more where small sub-blocks share them."""
    if tiles > 1:
        return REGISTERS[tiles]
    if spread == 8 or (spread == 1 and chunk == PART and not desc.k % PART and ahead < 4):
        return 128
    return 200 if spread == 2 and desc.format.block.sub == 16 else REGISTERS[1]


def _groups_ahead(block: Block, tiles: int, spread: int, chunk: int) -> tuple[int, ...]:
    """How many groups of sub-blocks activations can be loaded ahead: those that a part has, and registers hold."""
    if spread == 8 or tiles > 1 or chunk > PART:
        return (1,)
    return tuple(
        n for n in (1, 2, 4) if PART // block.sub // spread % n == 0 and (n < 4 or spread == 1 or block.sub == 32)
    )


def vectors_of(desc: Any, chunk: int) -> int:
    """Copies of 16 bytes that hold a row's chunk: Slot of gguf_product.cu."""
    align = block_align(desc.format, WORD)
    nbytes: int = desc.format.block.bytes_of(chunk) + (WORD - align if chunks_are_shifted(desc, chunk) else 0)
    return -(-nbytes // WORD)
