"""The kernels that reduce: along rows of terms, and down columns of results. What is long goes in chunks, whose states come
together in a second launch; the reduced extent alone says how many, so that no result depends on how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.grammar import Config, term
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Scratch, Step
from ...types import DeviceSpec, ElementKind, PrecisionGuarantee
from .._columns import ColumnCosts, Columns, across
from .._launch import grid_of, index_scalar, pack_dims
from .._rows import WARP, RowConfig, Rows, row_configs, row_cost, rows_of, share
from . import _guarantee
from ._problem import ReduceDescriptor

__all__ = ["CANDIDATES"]

FILE = "reduce/reduce.cu"
CHUNK = 1 << 15  # terms: more along a row are several CTAs' work
LEAST_CHUNK, MOST_CHUNK, FEW_CHUNKS = (
    64,
    512,
    32,
)  # terms of a chunk down columns; chunks, where they need not be longer
DEPTH, MOST_DOWN = 4, 8  # terms that a thread has in flight down columns; warps that share a column
STATES = 64  # bytes of a thread's states
WARPS_ACROSS = 4  # of a CTA whose columns need one warp
SHORT_ITEMS = 8  # vectors per thread, where at most a warp shares a row
LANES, JOINERS, FEW = 256, 256, 64


def _join(desc: ReduceDescriptor, chunks: int, results: int, partial: Arg, kept: tuple[Any, Any], index: str) -> Step:
    """Puts the chunks' states together; `kept` are the collapsed kept axes and out's steps in bytes."""
    outs = 32 if chunks <= FEW else 1  # the order of joins must not depend on how many results there are
    extents, steps = kept
    args = (index_scalar(results, index), np.uint32(chunks), np.int64(desc.extent), np.int32(desc.correction),
            pack_dims(extents, [steps], index), Ptr("out"), partial)  # fmt: skip
    entry = f"join_chunks<{desc.reducer}, {JOINERS}, {outs}, {len(extents)}, {index}>"
    return Launch(Kernel(FILE, entry), grid_of(results, outs), (JOINERS, 1, 1), args, pdl=True)


def _scratch(desc: ReduceDescriptor, chunks: int, results: int) -> Arg:
    return Scratch(0, chunks * results * desc.state) if chunks > 1 else Packed(bytes(8))


class RowsReduce(Candidate[ReduceDescriptor]):
    """A group of threads a row of terms; long rows in chunks, a CTA each."""

    variant = "rows"
    launches = (f"{FILE}:reduce_rows", f"{FILE}:join_chunks")

    def configs(self, desc: ReduceDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        rows = desc.rows()
        vector = _vector(rows, desc.element)
        shallow = desc.element.bits == 8
        chosen = next(iter(row_configs(min(desc.extent, CHUNK), vector, desc.element, shallow=shallow)))
        short = _short(desc.extent, vector, SHORT_ITEMS >> shallow) if rows.dense else None
        if short is not None and (chosen.lanes > WARP or _slots(short) < _slots(chosen)):
            yield short
        elif desc.extent <= CHUNK and chosen.resident and chosen.lanes <= LANES:
            yield chosen
        else:
            yield RowConfig(vector, min(chosen.items, 16 // vector or 2), LANES)

    def guarantee(self, desc: ReduceDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        chunks = _chunks(desc.extent, CHUNK)
        depth = config.depth(min(desc.extent, CHUNK)) + config.vector  # what is beyond whole vectors
        return _guarantee.promised(desc, depth + (_joins(chunks) if chunks > 1 else 0))

    def cost(self, desc: ReduceDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=desc.row.instructions)

    def lower(self, desc: ReduceDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows, chunks = desc.rows(), _chunks(desc.extent, CHUNK)
        index, partial = rows.index, _scratch(desc, chunks, rows.count)
        entry = (
            f"reduce_rows<{desc.reducer}, {desc.stored}, {desc.computed}, {config.template}, {rows.template}, "
            f"{str(chunks > 1).lower()}, {str(not _aligned(rows, config.vector)).lower()}>"
        )
        counts = (index_scalar(n, index) for n in (rows.count, desc.extent, CHUNK, chunks))
        args = (*counts, np.int32(desc.correction), rows.places(), Ptr("out"), partial, Ptr("x"))
        grid = (config.grid(rows.count)[0] * chunks, 1, 1)
        first = Launch(Kernel(FILE, entry), grid, (config.threads, 1, 1), args)
        if chunks == 1:
            return (first,)
        size = desc.layout("out").element.bits // 8
        kept = rows.rows, [s * size for s in rows.operands["out"].rows]
        return first, _join(desc, chunks, rows.count, partial, kept, index)


def _vector(rows: Rows, element: ElementKind) -> int:
    """Neighbouring terms that a thread takes together, whatever the address of x: no bit of a sum depends on that. Where
    terms are not contiguous, as many as divide the innermost axis."""
    if rows.dense:
        return rows.widest(element)
    x = rows.operands["x"]
    return math.gcd(rows.columns[-1], rows.widest(element)) if x.columns[-1] == 1 else 1


def _aligned(rows: Rows, vector: int) -> bool:
    """Whether one access reaches each vector of x."""
    x = rows.operands["x"]
    access = vector * x.size
    steps = (*x.rows, *(() if rows.dense else x.columns[:-1]))
    return x.layout.align % access == 0 and all(step * x.size % access == 0 for step in steps)


def _slots(config: RowConfig) -> int:
    """Vectors that the threads of a row have registers for."""
    return config.lanes * config.items


def _short(extent: int, vector: int, items: int) -> RowConfig | None:
    """A warp or less per row, with the fewest idle vectors; more threads where that is equal. None where a row is too long."""
    vectors = max(1, -(-extent // vector))
    shares = [RowConfig(vector, -(-vectors // lanes), lanes, True) for lanes in (32, 16, 8, 4, 2, 1)]
    return min((s for s in shares if s.items <= items), key=_slots, default=None)


@dataclass(frozen=True)
class ColumnsConfig(Config):
    """How columns are shared out."""

    vector: int = term("neighbouring columns per thread")
    down: int = term("warps that share a column")
    across: int = term("warps whose columns are neighbours")
    unaligned: bool = term("rows start at any address; a vector is shifted out of two aligned words", default=False)

    @property
    def threads(self) -> int:
        return WARP * self.down * self.across

    def ctas(self, rows: Rows) -> int:
        return rows.count * -(-rows.length // (WARP * self.across * self.vector))


class ColumnsReduce(Candidate[ReduceDescriptor]):
    """Results run along the innermost axis: threads take neighbours of them and go down the terms, many in chunks."""

    variant = "columns"
    launches = (f"{FILE}:reduce_columns", f"{FILE}:join_chunks")

    def supports(self, desc: ReduceDescriptor, device: DeviceSpec) -> Feasibility:
        if _columns(desc) is None:
            return no("no axis that is kept lies side by side in out and in x")
        return OK

    def configs(self, desc: ReduceDescriptor, device: DeviceSpec) -> Iterable[ColumnsConfig]:
        found = _columns(desc)
        if found is None:
            return
        widest = found[0].rows.widest(desc.element)
        vector = found[0].vector(desc.element, widest)
        unaligned = widest > vector and WARP * widest <= found[0].rows.length
        if unaligned and widest * desc.state <= STATES:
            vector = widest
        else:
            unaligned = False
        while vector > 1 and vector * desc.state > STATES:
            vector //= 2
        down = min(MOST_DOWN, share(-(-min(desc.extent, _chunk(desc.extent)) // DEPTH)))
        yield ColumnsConfig(vector, down, max(1, WARPS_ACROSS // down), unaligned)

    def guarantee(self, desc: ReduceDescriptor, device: DeviceSpec, config: ColumnsConfig) -> PrecisionGuarantee:
        chunk = _chunk(desc.extent)
        chunks = _chunks(desc.extent, chunk)
        depth = -(-min(desc.extent, chunk) // (config.down * DEPTH)) * DEPTH + config.down
        return _guarantee.promised(desc, depth + (_joins(chunks) if chunks > 1 else 0))

    def cost(self, desc: ReduceDescriptor, device: DeviceSpec, config: ColumnsConfig) -> Cost:
        size = desc.element.bits // 8
        spent = (desc.row.instructions + 2) * math.prod(desc.shape)
        costs = ColumnCosts.of(device)
        vector = min(1.0, costs.least_vector_ratio + config.vector * size / 16)
        efficiency = costs.reduce_bandwidth_efficiency * vector
        return Cost.streaming(device, desc.nbytes, flops=int(spent), instructions=spent, efficiency=efficiency)

    def lower(self, desc: ReduceDescriptor, device: DeviceSpec, config: ColumnsConfig) -> tuple[Step, ...]:
        found = _columns(desc)
        assert found is not None
        (rows, steps, _), extents = found
        index, chunk = rows.index if math.prod(desc.shape) < 1 << 31 else "u64", _chunk(desc.extent)
        chunks = _chunks(desc.extent, chunk)
        results = rows.count * rows.length
        partial = _scratch(desc, chunks, results)
        entry = (
            f"reduce_columns<{desc.reducer}, {desc.stored}, {desc.computed}, {config.vector}, {config.down}, "
            f"{config.across}, {len(rows.rows)}, {len(extents)}, {index}, {str(chunks > 1).lower()}, "
            f"{str(config.unaligned).lower()}>"
        )
        counts = (index_scalar(n, index) for n in (rows.count, rows.length, desc.extent, chunk, chunks))
        args = (
            *counts,
            np.int32(desc.correction),
            rows.places(index),
            pack_dims(extents, [steps], index),
            Ptr("out"),
            partial,
            Ptr("x"),
        )
        first = Launch(Kernel(FILE, entry), (config.ctas(rows) * chunks, 1, 1), (config.threads, 1, 1), args)
        if chunks == 1:
            return (first,)
        size = desc.layout("out").element.bits // 8
        kept = (*rows.rows, rows.length), [s * size for s in (*rows.operands["out"].rows, 1)]
        return first, _join(desc, chunks, results, partial, kept, index)


def _chunk(extent: int) -> int:
    """Terms of a chunk down columns, by the extent alone: few enough chunks to join, enough CTAs where columns are few."""
    if extent <= 2 * LEAST_CHUNK:
        return max(extent, 1)
    return min(MOST_CHUNK, max(LEAST_CHUNK, share(-(-extent // FEW_CHUNKS))))


def _chunks(extent: int, chunk: int) -> int:
    return max(1, -(-extent // chunk))


def _joins(chunks: int) -> int:
    """Joins that a chunk's state goes through at most, along the chunks and among threads."""
    return -(-chunks // 8) + 16


def _columns(desc: ReduceDescriptor) -> tuple[Columns, tuple[int, ...]] | None:
    """Kept axes, and x's steps along the axes of terms; the extents of those. None where the innermost kept axis is not
    contiguous in out and x."""
    x = desc.layout("x").strides
    rows = across(desc, desc.shape, desc.along, {"out": desc.spread("out"), "x": x}, ("out",))
    if rows is None:
        return None
    terms, size = rows_of(desc, desc.shape, desc.along, {"x": x}, ordered=desc.row.ordered), desc.element.bits // 8
    steps = tuple(s * size for s in terms.operands["x"].columns)
    return Columns(rows, steps, (size,) * len(steps)), terms.columns


CANDIDATES: tuple[Candidate[Any], ...] = (RowsReduce(), ColumnsReduce())
