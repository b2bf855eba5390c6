"""Rows of segments of rows, beside torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .operands import Kit, itemsize
from .row import Calls, Row
from .row_families import calls_of, row_name
from .target import BEST, FLOOR, Target

__all__ = ["SEGMENT_ROWS"]

OFFSET = 8  # bytes of an i64
ELEMENTS, SEGMENTS = 1 << 27, 100_000  # of x; the segments of its rows
WIDTHS = (1, 16, 128)


def _offsets(rows: int) -> Any:
    """The first rows of segments of which the i-th is as long as 1 / i says, in no order, and the end of the last one."""
    lengths = np.random.default_rng(7).permutation(1 / np.arange(1, SEGMENTS + 1))
    return np.rint(np.concatenate([[0.0], np.cumsum(lengths) / lengths.sum()]) * rows).astype(np.int64)


def _sum(width: int) -> Row:
    rows = ELEMENTS // width
    shape = (rows, width)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, offsets = kit.normal(shape, "float32"), kit.xp.asarray(_offsets(rows))
        ours = bp.segment_sum.bind(x, offsets, out=kit.empty((SEGMENTS, width), "float32"))

        def theirs(torch: Any, x: Any, offsets: Any) -> Any:
            return torch.segment_reduce(x, "sum", offsets=offsets, axis=0)

        return calls_of(kit, "segment_sum", ours, theirs, (x, offsets))

    size = itemsize("float32")
    return Row(
        "segment", row_name("segment_sum", shape, "float32", f"{SEGMENTS} Zipf"), "segment_sum", shape, "float32",
        ELEMENTS * size + (SEGMENTS + 1) * OFFSET, SEGMENTS * width * size, make, Target(1.25, against=FLOOR),
        Target(1.0, "paired", BEST),
    )  # fmt: skip


def _rows() -> Iterator[Row]:
    for width in WIDTHS:
        yield _sum(width)


SEGMENT_ROWS: tuple[Row, ...] = tuple(_rows())
