"""The exact contents of a paged cache."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CacheStatistics"]


@dataclass(frozen=True)
class CacheStatistics:
    """`pages` = `used` + `cached` + `free`: pages of sequences, pages that only cached prefixes hold, and free pages. `shared`
    of the used pages belong to several sequences. `tokens` counts the tokens of all `sequences`; `filled` counts slots, a
    shared slot once; `wasted` slots of used pages are empty. `bytes` is the size of used and cached pages. Counted since the
    cache was created: pages that were `copied` before a write because they were shared, pages that were `moved` by
    defragmentation, pages that were `evicted`, and `hits`, the tokens of prompts that were found cached."""

    pages: int
    used: int
    shared: int
    cached: int
    free: int
    sequences: int
    tokens: int
    filled: int
    wasted: int
    bytes: int
    copied: int
    moved: int
    evicted: int
    hits: int
