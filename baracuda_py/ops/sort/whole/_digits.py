"""Digits of keys, as kernels/include/sort/ranks.cuh ranks them."""

from __future__ import annotations

from typing import Any

__all__ = ["DIGIT_INSTRUCTIONS", "RADIX", "RADIX_BITS", "counters", "passes"]

RADIX_BITS, RADIX = 8, 256
WARP = 32
DIGIT_INSTRUCTIONS = 50  # of an element: its digit, and a ballot per bit


def passes(desc: Any) -> int:
    """Digits of a key."""
    return int(desc.element.bits) // RADIX_BITS


def counters(threads: int) -> int:
    """Counters of a CTA: one per warp and digit."""
    return threads // WARP * RADIX
