"""Scales of fp8 operands: one a tensor, one a row of A or a column of B, or one a block (1 x 128 of A, 128 x 128 of B).

Blocks as in DeepSeek-V3 (arXiv:2412.19437), section 3.3.2.
"""

from __future__ import annotations

import enum

__all__ = ["BLOCK", "SCALES", "Scaling", "accepted", "scaling_of"]

SCALES = ("scale_a", "scale_b")
BLOCK = 128
Shape = tuple[int, ...]


class Scaling(enum.Enum):
    """How the scales of both operands lie together."""

    LINES = "lines"  # constant along K: a tensor's, or a row's and a column's
    BLOCKS = "blocks"


def accepted(name: str, m: int, n: int, k: int) -> tuple[Shape, Shape, Shape]:
    """The last two extents of a scale: of the whole tensor, of lines, of blocks."""
    blocks = -(-k // BLOCK)
    return ((1, 1), (m, 1), (m, blocks)) if name == "scale_a" else ((1, 1), (1, n), (blocks, -(-n // BLOCK)))


def matrix_shape(shape: Shape) -> Shape:
    """The last two extents; a single number is a matrix of one."""
    return shape[-2:] if len(shape) > 1 else (1, *shape, 1)[-2:] if shape in ((), (1,)) else shape


def scaling_of(a: Shape | None, b: Shape | None, m: int, n: int, k: int) -> Scaling | None:
    """How scales of these shapes (None: absent) scale the product, or None where they do not go together."""
    sizes = [matrix_shape(() if s is None else s) for s in (a, b)]
    each = [accepted(name, m, n, k) for name in SCALES]
    if all(size in ok[:2] for size, ok in zip(sizes, each)):
        return Scaling.LINES
    return Scaling.BLOCKS if all(size == ok[2] for size, ok in zip(sizes, each)) else None
