"""What a paged cache holds, counted exactly."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CacheStatistics"]


@dataclass(frozen=True)
class CacheStatistics:
    """`pages` = `used` + `cached` + `free`: those that sequences have, those that only cached prefixes hold, and the others.
    `shared` of the used ones belong to several sequences. `tokens` of all `sequences` fill slots, a shared slot counted once in
    `filled`; `wasted` slots of used pages are empty. `bytes` are those of used and cached pages. Since the cache was made:
    `copied` pages, shared ones that were about to be written; `moved` by defragmentation; `evicted`; and prompts' tokens that
    were found cached, `hits`."""

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
