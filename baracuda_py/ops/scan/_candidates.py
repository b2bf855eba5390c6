"""The kernels of running sums: along rows, and down columns of results. What is long goes in chunks of fixed length: their
totals are written, summed up by the same kernel, and added as x is read again."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.descriptor import Layout
from ...plan.family import Oracle
from ...plan.grammar import Config, term
from ...plan.plan import Plan
from ...runtime.steps import Arg, Kernel, Launch, Packed, Scratch, Step
from ...types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from .._columns import ColumnConfig, ColumnCosts
from .._fitted import Fitted
from .._launch import grid_of, index_scalar, index_type
from .._rows import WARP, OperandStrides, Rows, share
from ._exclusive import EXCLUSIVE, OfShifted
from ._problem import LATER, NAMES, CumsumDescriptor
from ._reversed import OfReversed

__all__ = ["either_way"]

LONGEST, CHUNK = 1 << 15, 1 << 14  # elements: of a row that one CTA goes along, and of a longer row's chunks
TALLEST, CHUNK_DOWN = 1024, 512  # the same down columns
ITEMS, WARPS, CTA = 4, 8, 128
BACKWARDS = Feasibility("the scan goes from the last element on", instead="reversed")
NOWHERE = Packed(bytes(8))
COMBINE_ADDITIONS = 2  # additions that combine what precedes a thread's elements, but for tiles


@dataclass(frozen=True)
class RowScan(Config):
    """How a row is shared out."""

    vector: int = term("neighbours that a lane adds up")
    items: int = term("vectors that a lane holds at a time")
    lanes: int = term("lanes of a warp that share a row")
    warps: int = term("warps that share a row")

    @staticmethod
    def of(length: int, element: ElementKind) -> RowScan:
        """By the row's length and its element alone."""
        vector = min(8, 128 // element.bits)
        vectors = max(1, -(-length // vector))
        if vectors <= WARP:
            return RowScan(vector, 1, share(vectors), 1)
        warp_steps = -(-vectors // WARP)
        warps = min(WARPS, share(-(-warp_steps // ITEMS)))
        return RowScan(vector, min(ITEMS, -(-warp_steps // warps)), WARP, warps)

    @property
    def threads(self) -> int:
        return max(CTA, self.lanes * self.warps) if self.warps == 1 else WARP * self.warps

    def depth(self, length: int) -> int:
        """Additions that a term goes through: a lane's, the tree's, then vectors, warps and tiles in turn."""
        return self.vector + int(math.log2(self.lanes)) + self.items + self.warps + self.carried(length)

    def carried(self, length: int) -> int:
        """Additions that what is before a chunk of `length` goes through, as it is carried along."""
        return -(-length // (self.vector * self.items * self.lanes * self.warps)) + COMBINE_ADDITIONS


class RowCosts(Fitted, table="rows.row_scan"):
    bandwidth_efficiency: float
    element_bandwidth_efficiency: float
    strided_bandwidth_efficiency: float


class RowsCumsum(Candidate[CumsumDescriptor]):
    """Lanes, warps or a CTA a row; long rows in chunks, a CTA each."""

    variant = "rows"
    launches = ("scan/rows.cu:scan_rows",)

    def supports(self, desc: CumsumDescriptor, device: DeviceSpec) -> Feasibility:
        """By the operands' layouts and not by cost, which would let the number of rows decide on the order of additions."""
        if desc.exclusive:
            return EXCLUSIVE
        if desc.backwards:
            return BACKWARDS
        if desc.rows().dense or desc.columns() is None:
            return OK
        return Feasibility("another axis lies side by side in out and in x", instead="columns")

    def configs(self, desc: CumsumDescriptor, device: DeviceSpec) -> Iterable[RowScan]:
        yield RowScan.of(desc.extent if desc.extent <= LONGEST else CHUNK, desc.element)

    def guarantee(self, desc: CumsumDescriptor, device: DeviceSpec, config: RowScan) -> PrecisionGuarantee:
        chunks = _chunks(desc.extent, LONGEST, CHUNK)
        if chunks == 1:
            return desc.promised(config.depth(desc.extent))
        summed = RowScan.of(chunks, desc.summed).depth(chunks)
        return desc.promised(config.depth(CHUNK) + summed + config.carried(CHUNK))

    def cost(self, desc: CumsumDescriptor, device: DeviceSpec, config: RowScan) -> Cost:
        rows = desc.rows()
        costs = RowCosts.of(device)
        efficiency = costs.element_bandwidth_efficiency if rows.dense else costs.strided_bandwidth_efficiency
        if rows.vector(desc.element, whole=False) >= config.vector:
            efficiency = costs.bandwidth_efficiency
        return _cost(desc, device, _chunks(desc.extent, LONGEST, CHUNK), efficiency)

    def lower(self, desc: CumsumDescriptor, device: DeviceSpec, config: RowScan) -> tuple[Step, ...]:
        rows, chunks = desc.rows(), _chunks(desc.extent, LONGEST, CHUNK)
        vector = rows.vector(desc.element, whole=False) >= config.vector
        out, x = rows.pointers()
        if chunks == 1:
            return (_along(desc, desc.template, "WHOLE", config, rows, vector, 1, out, NOWHERE, x),)
        totals = Scratch(0, rows.count * chunks * desc.total.bits // 8)
        layout = Layout((rows.count, chunks), (chunks, 1), desc.total, 16)
        operand = OperandStrides(layout, (chunks,), (1,), True)
        held, kind = Rows((rows.count,), (chunks,), {"out": operand, "x": operand}), desc.state
        summed = RowScan.of(chunks, desc.summed)
        return (
            _along(desc, desc.template, "TOTALS", config, rows, vector, chunks, out, totals, x),
            _along(desc, f"{kind}, {kind}, {kind}", "WHOLE", summed, held, False, 1, totals, NOWHERE, totals),
            _along(desc, desc.template, "CHUNKS", config, rows, vector, chunks, out, totals, x),
        )


def _along(
    desc: CumsumDescriptor,
    types: str,
    mode: str,
    config: RowScan,
    rows: Rows,
    vector: bool,
    chunks: int,
    out: Arg,
    totals: Arg,
    x: Arg,
) -> Launch:
    how = f"{config.vector}, {config.items}, {config.lanes}, {config.warps}, {config.threads}"
    entry = f"scan_rows<{types}, {how}, {str(vector).lower()}, {mode}, {rows.template}>"
    counts = (index_scalar(n, rows.index) for n in (rows.count, rows.length, CHUNK, chunks))
    grid = grid_of(rows.count, config.threads // (config.lanes * config.warps))[0] * chunks
    args = (*counts, rows.places(), out, totals, x)
    return Launch(Kernel("scan/rows.cu", entry, desc.prelude), (grid, 1, 1), (config.threads, 1, 1), args)


@dataclass(frozen=True)
class ColumnScan(ColumnConfig):
    """Warps go down the same columns one behind the other."""

    def depth(self, extent: int) -> int:
        """Additions that a term goes through: a thread's, then warps and tiles in turn."""
        return ITEMS + self.warps + self.carried(extent)

    def carried(self, extent: int) -> int:
        """Additions that what is before a chunk of `extent` goes through, as it is carried down."""
        return -(-extent // (ITEMS * self.warps)) + COMBINE_ADDITIONS


class ColumnsCumsum(Candidate[CumsumDescriptor]):
    """The axis is not the innermost one: threads take neighbours of that and go down the axis, far in chunks."""

    variant = "columns"
    launches = ("scan/columns.cu:scan_columns",)

    def supports(self, desc: CumsumDescriptor, device: DeviceSpec) -> Feasibility:
        if desc.exclusive:
            return EXCLUSIVE
        if desc.backwards:
            return BACKWARDS
        return OK if desc.columns() is not None else no("no other axis lies side by side in out and in x")

    def configs(self, desc: CumsumDescriptor, device: DeviceSpec) -> Iterable[ColumnScan]:
        columns = desc.columns()
        if columns is not None:  # sums of 64 bits take twice the registers
            yield ColumnScan(columns.vector(desc.element, 8 if desc.total.bits == 32 else 2), _warps(desc.extent))

    def guarantee(self, desc: CumsumDescriptor, device: DeviceSpec, config: ColumnScan) -> PrecisionGuarantee:
        chunks = _chunks(desc.extent, TALLEST, CHUNK_DOWN)
        if chunks == 1:
            return desc.promised(config.depth(desc.extent))
        summed = ColumnScan(1, _warps(chunks)).depth(chunks)
        return desc.promised(config.depth(CHUNK_DOWN) + summed + config.carried(CHUNK_DOWN))

    def cost(self, desc: CumsumDescriptor, device: DeviceSpec, config: ColumnScan) -> Cost:
        costs = ColumnCosts.of(device)
        vector = min(1.0, costs.least_vector_ratio + config.vector * desc.element.bits / 128)
        efficiency = costs.scan_bandwidth_efficiency * vector
        return _cost(desc, device, _chunks(desc.extent, TALLEST, CHUNK_DOWN), efficiency)

    def lower(self, desc: CumsumDescriptor, device: DeviceSpec, config: ColumnScan) -> tuple[Step, ...]:
        columns = desc.columns()
        assert columns is not None
        rows, steps = columns.rows, columns.steps
        chunks, (out, x) = _chunks(desc.extent, TALLEST, CHUNK_DOWN), rows.pointers()
        if chunks == 1:
            return (_down(desc, desc.template, "WHOLE", config, rows, desc.extent, 1, steps, out, NOWHERE, x),)
        results, size, kind = rows.count * rows.length, desc.total.bits // 8, desc.state
        totals = Scratch(0, chunks * results * size)
        operand = OperandStrides(Layout((chunks, results), (results, 1), desc.total, 16), (), (1,), True)
        held, summed = Rows((), (results,), {"out": operand, "x": operand}), ColumnScan(1, _warps(chunks))
        types, pitch = f"{kind}, {kind}, {kind}", (results * size,) * 2
        return (
            _down(desc, desc.template, "TOTALS", config, rows, desc.extent, chunks, steps, out, totals, x),
            _down(desc, types, "WHOLE", summed, held, chunks, 1, pitch, totals, NOWHERE, totals),
            _down(desc, desc.template, "CHUNKS", config, rows, desc.extent, chunks, steps, out, totals, x),
        )


def _down(
    desc: CumsumDescriptor, types: str, mode: str, config: ColumnScan, rows: Rows, extent: int, chunks: int,
    steps: tuple[int, ...], out: Arg, totals: Arg, x: Arg,
) -> Launch:  # fmt: skip
    index = index_type(rows.count * rows.length * extent)
    entry = f"scan_columns<{types}, {config.vector}, {ITEMS}, {config.warps}, {mode}, {len(rows.rows)}, {index}>"
    counts = (index_scalar(n, index) for n in (rows.count, rows.length, extent, CHUNK_DOWN, chunks))
    args = (*counts, rows.places(index), *map(np.int64, steps), out, totals, x)
    return Launch(
        Kernel("scan/columns.cu", entry, desc.prelude), (config.ctas(rows) * chunks, 1, 1), (config.threads, 1, 1), args
    )


def _chunks(extent: int, longest: int, chunk: int) -> int:
    return 1 if extent <= longest else -(-extent // chunk)


def _warps(extent: int) -> int:
    return min(WARPS, share(-(-extent // ITEMS)))


def _cost(desc: CumsumDescriptor, device: DeviceSpec, chunks: int, efficiency: float) -> Cost:
    """Chunks read x twice, in three launches."""
    spent = 8.0 * math.prod(desc.shape)
    second_read = desc.element.nbytes(math.prod(desc.shape)) if chunks > 1 else 0
    one = Cost.streaming(device, desc.nbytes + second_read, flops=int(spent), instructions=spent, efficiency=efficiency)
    return Cost(desc.nbytes, one.flops, one.seconds + (2 * device.overhead if chunks > 1 else 0.0), one.limit)


CANDIDATES: tuple[Candidate[Any], ...] = (RowsCumsum(), ColumnsCumsum())


class ScanOfReversed(OfReversed):
    """The scan of the reversed x, into a reversed result."""

    def supports(self, desc: CumsumDescriptor, device: DeviceSpec) -> Feasibility:
        if desc.exclusive:
            return EXCLUSIVE
        if not desc.reverse:
            return Feasibility("the scan goes from the first element on", instead="rows")
        return super().supports(desc, device)


def either_way(descriptor: type[CumsumDescriptor], reference: Oracle) -> tuple[Candidate[Any], ...]:
    """The candidates of scans from either end, with each element itself or without it."""
    own = {"descriptor": descriptor, "category": OpCategory.SCAN, "reference": staticmethod(reference)}
    forward = type("_ForwardPlan", (Plan,), {**own, "candidates": CANDIDATES})
    candidates = (*CANDIDATES, ScanOfReversed(forward, NAMES))
    inclusive = type("_InclusivePlan", (forward,), {**own, "candidates": candidates})
    return (*candidates, OfShifted(inclusive, "out", LATER))
