"""Along which axis a matrix is best read, and how many elements at a time."""

from __future__ import annotations

from dataclasses import replace

from .gemm import Matrix

__all__ = ["nearest_axis", "vector_width"]


def nearest_axis(matrix: Matrix, rows: int, cols: int) -> int:
    """The axis with the smallest stride: 0 down a column, 1 along a row."""

    def distance(stride: int, extent: int) -> float:
        return abs(stride) or 2.0 if extent > 1 else float("inf")  # a broadcast axis is second to one of stride 1

    return 0 if distance(matrix.row, rows) < distance(matrix.col, cols) else 1


def vector_width(matrix: Matrix, rows: int, cols: int, axis: int, widest: int) -> int:
    """The most elements, at most `widest`, that every access along `axis` may take; they divide the extent, so that no
    vector straddles an end."""
    stride, extent = ((matrix.row, rows), (matrix.col, cols))[axis]
    walked = replace(matrix, row=matrix.row if rows > 1 else 0, col=matrix.col if cols > 1 else 0)
    width = widest if stride == 1 else 1
    while width > 1 and (extent % width or not walked.aligned(width * matrix.itemsize, along=axis)):
        width //= 2
    return width
