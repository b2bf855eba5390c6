"""Extents of the device tests whose time is what their kernels compute: ``--small`` makes them few, for compute-sanitizer."""

from __future__ import annotations

__all__ = ["UNIT", "choose", "extent", "launches"]

UNIT, MOST = 128, 2  # tiles end on divisors of UNIT; MOST of them, and what is left over
_small = False


def choose(small: bool) -> None:
    """Whether extents are cut from here on."""
    global _small
    _small = small


def extent(size: int) -> int:
    """`size`; with ``--small`` at most a few hundred, as far beyond a multiple of `UNIT` as it was: edges are where
    they are at full size."""
    return min(size, MOST * UNIT + size % UNIT) if _small else size


def launches(count: int) -> int:
    """`count`; with ``--small`` two: a tool that watches every access needs no repetition."""
    return min(count, 2) if _small else count
