"""The matrix product that a kernel sees: M, N, K, a collapsed batch, and how each operand is walked.

A column-major result is the row-major result of the transposed product, so kernels write rows only. A batch that shares B
becomes one product with more rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...plan.descriptor import Layout
from ...tensor.axes import broadcast_strides, merge_axes
from ...types import ElementKind
from .scales import BLOCK, SCALES

__all__ = ["ADDENDS", "BATCH_RANK", "Gemm", "Matrix", "as_matrices", "gemm_of"]

BATCH_RANK = 3
ADDENDS = ("c", "bias", "residual")
_OTHER = dict(zip(SCALES, reversed(SCALES)))


@dataclass(frozen=True)
class Matrix:
    """One operand as a batch of matrices. Strides count elements: from row to row, column to column, and along each
    batch axis (0 where it is broadcast)."""

    operand: str
    element: ElementKind
    row: int
    col: int
    batch: tuple[int, ...]
    align: int

    @cached_property
    def mT(self) -> Matrix:
        return Matrix(self.operand, self.element, self.col, self.row, self.batch, self.align)

    @property
    def itemsize(self) -> int:
        return self.element.bits // 8

    def aligned(self, nbytes: int, *, along: int) -> bool:
        """Whether every vector along axis `along` (0: down a column, 1: along a row) starts on a multiple of `nbytes`."""
        steps = (self.col if along == 0 else self.row, *self.batch)
        return self.align % nbytes == 0 and all(s * self.itemsize % nbytes == 0 for s in steps)


@dataclass(frozen=True)
class Gemm:
    """out[m, n] = residual + f(alpha sum_k a[m, k] b[k, n] + beta c + bias), for every matrix of the batch.

    `a`, `b` and `out` name the operands that hold them: `transposed` says that those are b and a of the descriptor.
    """

    m: int
    n: int
    k: int
    batch: tuple[int, ...]
    a: Matrix
    b: Matrix
    out: Matrix
    addends: Mapping[str, Matrix]
    transposed: bool
    scales: Mapping[str, Matrix] = field(default_factory=dict)  # "scale_a" of the rows, "scale_b" of the columns
    blocked: bool = False  # whether scales change along K

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.batches

    @cached_property
    def nbytes(self) -> int:
        """Useful bytes: what is read of each operand once, and the result once (a broadcast operand counts once)."""
        whole, total = (self.m, self.n), 0
        walked = (((self.m, self.k), self.a), ((self.k, self.n), self.b), (whole, self.out))
        for (rows, cols), x in (*walked, *((whole, x) for x in self.addends.values())):
            count = (rows if x.row else 1) * (cols if x.col else 1)
            if self.batch:
                count *= math.prod(n for n, s in zip(self.batch, x.batch) if s)
            total += count * x.itemsize
        return total

    @cached_property
    def swapped(self) -> Gemm:
        """The transposed product: the same numbers, with rows and columns exchanged."""
        return Gemm(
            self.n, self.m, self.k, self.batch, self.b.mT, self.a.mT, self.out.mT,
            {name: x.mT for name, x in self.addends.items()}, not self.transposed,
            {_OTHER[name]: x.mT for name, x in self.scales.items()}, self.blocked,
        )  # fmt: skip


def as_matrices(layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """The operands of a product as NumPy has it, each of rank 2 or more: a vector A is one row, a vector B one column."""
    row, column = len(layouts["a"].shape) == 1, len(layouts["b"].shape) == 1
    made = dict(layouts)
    if row:
        made["a"] = _with_axis(made["a"], 0)
    if column:
        made["b"] = _with_axis(made["b"], 1)
    for name in ("out", *ADDENDS):
        if name in made and column and made[name].shape:
            made[name] = _with_axis(made[name], len(made[name].shape))
        if name in made and row and made[name].shape:
            made[name] = _with_axis(made[name], len(made[name].shape) - 1)
    if not layouts["out"].shape:
        made["out"] = layouts["out"]._replace(shape=(1, 1), strides=(1, 1))
    return made


def _with_axis(layout: Layout, axis: int) -> Layout:
    """The layout with an axis of extent 1 inserted."""
    shape, strides = list(layout.shape), list(layout.strides)
    shape.insert(axis, 1)
    strides.insert(axis, 1)
    return layout._replace(shape=tuple(shape), strides=tuple(strides))


def _matrix(name: str, layout: Layout, batch: tuple[int, ...]) -> Matrix:
    lead = broadcast_strides(layout.shape[:-2], layout.strides[:-2], batch) if batch else ()
    row, col = layout.strides[-2:]
    return Matrix(name, layout.element, row, col, lead, layout.align)


def _addend(name: str, layout: Layout, whole: tuple[int, ...]) -> Matrix:
    *lead, row, col = broadcast_strides(layout.shape, layout.strides, whole)
    return Matrix(name, layout.element, row, col, tuple(lead), layout.align)


def gemm_of(layouts: Mapping[str, Layout], *, blocked: bool = False) -> Gemm:
    """The product of a, b and out (each of rank 2 or more, batch axes first and broadcast), normalised."""
    out = layouts["out"]
    m, n = out.shape[-2:]
    k = layouts["a"].shape[-1]
    batch = out.shape[:-2]
    a, b, to = (_matrix(name, layouts[name], batch) for name in ("a", "b", "out"))
    addends = {name: _addend(name, layouts[name], out.shape) for name in ADDENDS if name in layouts}
    k_blocks = -(-k // BLOCK) if blocked else 1
    grids = {"scale_a": (m, k_blocks), "scale_b": (k_blocks, -(-n // BLOCK) if blocked else n)}
    scales = {name: _addend(name, layouts[name], (*batch, *grids[name])) for name in SCALES if name in layouts}
    if batch:
        every = [to, a, b, *addends.values(), *scales.values()]
        batch, steps = merge_axes(batch, [x.batch for x in every])
        to, a, b, *rest = (replace(x, batch=s) for x, s in zip(every, steps))
        addends, scales = dict(zip(addends, rest)), dict(zip(scales, rest[len(addends) :]))
    gemm = Gemm(m, n, k, batch, a, b, to, addends, False, scales, blocked)
    if _columns(gemm.out, m, n):
        gemm = gemm.swapped
    return _single(_taller(gemm))


def _columns(out: Matrix, m: int, n: int) -> bool:
    """Whether the result is column-major."""
    return out.col != 1 and out.row == 1 and n > 1 and m > 1


def _taller(gemm: Gemm) -> Gemm:
    """Merges a one-axis batch into M, where B is shared and rows are evenly spaced from matrix to matrix."""
    if len(gemm.batch) != 1 or gemm.b.batch != (0,) or gemm.scales:
        return gemm
    single = gemm.m == 1  # with one row a matrix, the step between matrices is the step between rows
    walked = {"a": gemm.a, "out": gemm.out, **gemm.addends}
    if not single and any(x.batch[0] != x.row * gemm.m for x in walked.values()):
        return gemm
    rows = {name: replace(x, row=x.batch[0] if single else x.row, batch=()) for name, x in walked.items()}
    a, out = rows.pop("a"), rows.pop("out")
    b = replace(gemm.b, batch=())
    return replace(gemm, m=gemm.m * gemm.batch[0], batch=(), a=a, b=b, out=out, addends=rows)


def _single(gemm: Gemm) -> Gemm:
    """Replaces strides of axes of extent 1, which are never stepped, by ones that permit vector accesses and libraries.

    The new stride is a whole row (column) and a multiple of 16 bytes.
    """

    def long(extent: int, x: Matrix) -> int:
        unit = 16 // x.itemsize
        return max(1, -(-extent // unit)) * unit

    if gemm.m == 1 and gemm.a.col == 1:
        gemm = replace(gemm, a=replace(gemm.a, row=long(gemm.k, gemm.a)))
    if gemm.n == 1 and gemm.b.row == 1:
        gemm = replace(gemm, b=replace(gemm.b, col=long(gemm.k, gemm.b)))
    if gemm.m == 1 and gemm.out.col == 1:
        gemm = replace(gemm, out=replace(gemm.out, row=long(gemm.n, gemm.out)))
    return gemm
