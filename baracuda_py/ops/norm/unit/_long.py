"""Vectors divided by their lengths where rows start at any address, or where the axis is not innermost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....runtime.steps import Kernel, Launch, Run, Step
from ....types import DeviceSpec, PrecisionGuarantee
from ..._columns import ColumnConfig, ColumnCosts, Columns, across
from ..._launch import index_scalar, index_type
from ..._rows import (
    CLUSTERS,
    MOST_CTAS,
    WARP,
    WORD,
    OperandStrides,
    RowConfig,
    Rows,
    computed_in,
    row_configs,
    row_cost,
    share,
)
from ..._unaligned import kept_configs, kept_rows, unaligned_config, unaligned_launch
from ._problem import PER_ROW, RowsUnit, Unit, promised

__all__ = ["ColumnsUnit", "KeptUnit", "UnalignedUnit"]

UNALIGNED, COLUMNS = "norm/unit_unaligned.cu", "norm/unit_columns.cu"
LEAST_VECTORS = 16  # of a row, so that its ends, which go by elements, are the lesser part
MOST_LANES = 512  # that share a resident row: 128 registers each for two words of every vector
LONG_AXIS = 1 << 15  # from which extent a cluster shares an axis that is not innermost: one CTA would wait for memory
INSTRUCTIONS = 14.0  # an element of unaligned rows, of which words are shifted twice
RESIDENT_THREADS = 2048  # of an SM


class UnalignedUnit(RowsUnit):
    """Rows that start at any address, by aligned words: resident where a row fits registers, else a CTA streams it."""

    variant = "unaligned"
    launches = tuple(f"{UNALIGNED}:unit_unaligned{how}" for how in ("_resident", "", "_cluster"))

    def supports(self, desc: Unit, device: DeviceSpec) -> Feasibility:
        rows = desc.rows()
        if not rows.dense:
            return no("columns do not lie side by side in every operand")
        if rows.length < LEAST_VECTORS * rows.widest(desc.element):
            return no(f"rows are shorter than {LEAST_VECTORS} vectors")
        if rows.vector(desc.element) == rows.widest(desc.element):
            return no(f"every row starts and ends at {WORD} bytes")
        return OK

    def configs(self, desc: Unit, device: DeviceSpec) -> Iterable[RowConfig]:
        rows = desc.rows()
        found = row_configs(desc.length, rows.widest(desc.element), desc.element, 1 + desc.backward, streams=MOST_LANES)
        resident = [config for config in found if config.resident and config.lanes <= MOST_LANES]
        yield from resident or (unaligned_config(rows, desc.element, device),)

    def cost(self, desc: Unit, device: DeviceSpec, config: RowConfig) -> Cost:
        """Of resident rows as of streamed ones: what words that are shifted cost was measured of those."""
        streamed = replace(config, resident=False)
        return row_cost(device, desc.rows(), desc.nbytes, streamed, desc.element, instructions=INSTRUCTIONS)

    def lower(self, desc: Unit, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows, eps = desc.rows(), Run("eps", computed_in(desc.element).numpy)
        if not config.resident:
            return (unaligned_launch(rows, UNALIGNED, "unit_unaligned", desc.types, config, "", eps),)
        shape = f"{config.vector}, {config.items}, {config.lanes}, {config.threads}, {len(rows.rows)}, {rows.index}"
        kernel = Kernel(UNALIGNED, f"unit_unaligned_resident<{desc.types}, {shape}>")
        args = (*rows.counts, eps, rows.places(), *rows.pointers())
        return (Launch(kernel, config.grid(rows.count), (config.threads, 1, 1), args),)


class KeptUnit(UnalignedUnit):
    """A cluster a long row, of which inputs are read once and stay in shared memory."""

    variant = "kept"
    launches = (f"{UNALIGNED}:unit_kept_cluster",)

    def supports(self, desc: Unit, device: DeviceSpec) -> Feasibility:
        return kept_rows(desc.rows(), desc.element, 1 + desc.backward, device)

    def configs(self, desc: Unit, device: DeviceSpec) -> Iterable[RowConfig]:
        return kept_configs(desc.rows(), desc.element, 1 + desc.backward, device)


class ColumnsUnit(Candidate[Unit]):
    """The axis is not innermost: threads take neighbours of that and go down the axis."""

    variant = "columns"
    launches = (f"{COLUMNS}:unit_columns", f"{COLUMNS}:unit_columns_cluster")

    def supports(self, desc: Unit, device: DeviceSpec) -> Feasibility:
        return OK if columns_of(desc) is not None else no("no other axis lies side by side in every operand")

    def configs(self, desc: Unit, device: DeviceSpec) -> Iterable[ColumnConfig]:
        columns = columns_of(desc)
        if columns is None:
            return
        warps = min(32, max(4, share(desc.length // 64)))  # the extent alone decides this, and the parts
        parts = MOST_CTAS if device.tier in CLUSTERS and desc.length >= LONG_AXIS else 1
        config = ColumnConfig(columns.vector(desc.element, max(1, 8 // (warps // 16 or 1))), warps, parts)
        while (
            config.vector > 1 and config.vector * desc.element.bits > 32 and config.ctas(columns.rows) < 2 * device.sms
        ):
            config = replace(config, vector=config.vector // 2)  # narrower, and more CTAs
        yield config

    def guarantee(self, desc: Unit, device: DeviceSpec, config: ColumnConfig) -> PrecisionGuarantee:
        down = -(-desc.length // config.parts)
        return promised(desc, -(-down // config.warps) + config.warps + config.parts)

    def cost(self, desc: Unit, device: DeviceSpec, config: ColumnConfig) -> Cost:
        """The second pass reads the strips under way from L2, or where that does not hold them from memory."""
        columns, size = columns_of(desc), desc.element.bits // 8
        ctas = config.ctas(columns.rows) if columns else 1
        inputs = desc.nbytes // 3 * 2 if desc.backward else desc.nbytes // 2
        under_way = inputs * min(1.0, device.sms * (RESIDENT_THREADS // config.threads) / max(1, ctas))
        moved = desc.nbytes + (inputs if under_way > device.l2_bytes else 0)
        efficiency = ColumnCosts.of(device).softmax_bandwidth_efficiency * min(1.0, config.vector * size * WARP / 128)
        spent = 10.0 * desc.nbytes / size
        return Cost.streaming(device, moved, flops=int(spent), instructions=spent, efficiency=efficiency)

    def lower(self, desc: Unit, device: DeviceSpec, config: ColumnConfig) -> tuple[Step, ...]:
        columns = columns_of(desc)
        assert columns is not None
        rows = columns.rows
        index = index_type(rows.count * rows.length * desc.length)
        name, shared = ("unit_columns_cluster", f", {config.parts}") if config.parts > 1 else ("unit_columns", "")
        shape = f"{config.vector}, {config.warps}, {len(rows.rows)}, {index}{shared}"
        counts = (index_scalar(n, index) for n in (rows.count, rows.length, desc.length))
        eps = Run("eps", computed_in(desc.element).numpy)
        args = (*counts, eps, rows.places(index), *map(np.int64, columns.steps), *rows.pointers())
        kernel = Kernel(COLUMNS, f"{name}<{desc.types}, {shape}>")
        grid, block = (config.ctas(rows), 1, 1), (config.threads, 1, 1)
        return (Launch(kernel, grid, block, args, cluster=config.parts if config.parts > 1 else 0),)


def columns_of(desc: Unit) -> Columns | None:
    """The other axes as rows, of which the innermost are columns, and the steps of out, grad and x along the axis. None where no
    other axis is contiguous in every operand, or where there are several axes that do not collapse to one."""
    given, strides = desc.rows(), desc.strides()
    if len(given.columns) != 1 or len(desc.along) == len(desc.shape):
        return None
    rows = across(desc, desc.shape, desc.along, {n: s for n, s in strides.items() if s is not None}, PER_ROW)
    if rows is None:
        return None
    operands = {
        name: rows.operands.get(name) or OperandStrides(one.layout, (0,) * len(rows.rows), (1,), along=False)
        for name, one in given.operands.items()
    }
    moved = [one for name, one in given.operands.items() if name not in PER_ROW]
    steps = tuple(one.columns[0] * one.size for one in moved)
    return Columns(Rows(rows.rows, rows.columns, operands), steps, tuple(one.size for one in moved))
