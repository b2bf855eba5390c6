"""A launch in waves: as many of its CTAs at a time as suit memory and caches, one wave after the other."""

from __future__ import annotations

import time

import numpy as np

from .launched import Launched
from .machine import Wave

__all__ = ["run_launch"]


def run_launch(launched: Launched) -> None:
    """Runs every CTA of a launch."""
    began, total = time.perf_counter(), launched.grid[0] * launched.grid[1] * launched.grid[2]
    with np.errstate(all="ignore"):
        for first, ctas in launched.waves():
            Wave(launched, first, ctas).run()
            done = first + ctas
            if launched.deadline and began + (time.perf_counter() - began) * total / done > launched.deadline:
                raise launched.too_large((time.perf_counter() - began) * total / done)
