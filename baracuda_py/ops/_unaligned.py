"""Rows that start at any address. Long ones, a CTA or a cluster each: kernels that take kernels/include/rows/unaligned.cuh.
Rows that stay in registers: those that take kernels/include/rows/shifted_row.cuh."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..plan.candidate import OK, Cost, Feasibility, no
from ..runtime.steps import Arg, Kernel, Launch
from ..types import ArchSku, DeviceSpec, ElementKind
from ._fitted import Fitted
from ._launch import index_scalar
from ._rows import CLUSTER_BYTES, CLUSTERS, MOST_CTAS, WORD, RowConfig, Rows, clustered, row_configs, share

__all__ = [
    "kept_configs",
    "kept_rows",
    "resident_configs",
    "resident_cost",
    "resident_launch",
    "resident_rows",
    "unaligned_config",
    "unaligned_launch",
    "unaligned_rows",
]

LONG = 2048  # columns from which unaligned rows go by aligned words
MOST_VECTORS = 8  # that a thread holds of all inputs: of 128 registers, half
KEPT_BYTES = 54 << 10  # of a row for each CTA that keeps its part, so that an SM has four of them
KEPT_LEAST = 64 << 10  # bytes from which unaligned rows are kept
KEPT_LANES, WIDE_BYTES = 256, 64 << 10  # threads of such a CTA; twice as many for more bytes than these
KEPT_VECTORS = 4  # that a thread holds of all inputs
NON_PORTABLE_CTAS = 16  # of a cluster, where an arch has them
STATIC_BYTES = 4 << 10  # of shared memory, for states
# Threads of a resident row of one input at most, by the registers of a thread.
RESIDENT_LANES = {ElementKind.F32: 1024, ElementKind.F16: 512, ElementKind.BF16: 512}


def unaligned_rows(rows: Rows, element: ElementKind, access: int) -> Feasibility:
    """Whether rows are long, dense and no other kernel could access them by `access` bytes."""
    if not rows.dense:
        return no("columns do not lie side by side in every operand")
    if rows.length < LONG:
        return no(f"rows are shorter than {LONG}")
    if rows.vector(element) * element.bits >= 8 * access:
        return no(f"every row starts and ends at {access} bytes")
    return OK


def unaligned_config(rows: Rows, element: ElementKind, device: DeviceSpec) -> RowConfig:
    """Half as many vectors a thread where there are not so many for each; a row's length alone decides."""
    vector = Rows.widest(element)
    vectors = rows.length // vector
    lanes = min(512, max(128, share(vectors // 2)))
    config = clustered(RowConfig(vector, MOST_VECTORS // 2, lanes), rows.length, element, device)
    return replace(config, items=MOST_VECTORS) if vectors >= MOST_VECTORS * lanes * config.ctas else config


def kept_rows(rows: Rows, element: ElementKind, inputs: int, device: DeviceSpec) -> Feasibility:
    """Whether a cluster's shared memory holds a row of at least one of `inputs`, and registers do not."""
    if device.tier not in CLUSTERS:
        return no("CTAs of this arch form no clusters")
    if not rows.dense:
        return no("columns do not lie side by side in every operand")
    least = KEPT_LEAST if rows.unaligned(element) or rows.length % Rows.widest(element) else CLUSTER_BYTES
    if rows.length * element.bits <= 8 * least:
        return no(f"rows are not longer than {least} bytes")
    if next(kept_configs(rows, element, inputs, device), None) is None:
        return no("rows are longer than the shared memory of a cluster")
    return OK


def kept_configs(rows: Rows, element: ElementKind, inputs: int, device: DeviceSpec) -> Iterator[RowConfig]:
    """How a row is kept by a cluster, the best first: of all `inputs`, or of as many as there is shared_bytes for. A row's length
    alone decides."""
    vector, size = Rows.widest(element), element.bits // 8
    largest = NON_PORTABLE_CTAS if device.tier is ArchSku.SM90A else MOST_CTAS
    for kept in range(inputs, 0, -1):
        best = min(largest, share(-(-kept * rows.length * size // KEPT_BYTES)))
        for ctas in (best, 2 * best, best // 2):
            config = RowConfig(vector, KEPT_VECTORS, KEPT_LANES, ctas=ctas, kept=kept)
            shared_bytes = _kept_bytes(rows.length, size, config) if 1 < ctas <= largest else device.shared_bytes
            if shared_bytes > WIDE_BYTES:
                config = replace(config, lanes=2 * KEPT_LANES)
            if shared_bytes + STATIC_BYTES <= device.shared_bytes:
                yield config


def _kept_bytes(length: int, size: int, config: RowConfig) -> int:
    """Dynamic shared memory of a CTA: its columns of each kept input, and the words at their ends."""
    vectors = -(-length // config.vector)
    part = -(-vectors // config.ctas) * config.vector
    return config.kept * ((part * size + 2 * WORD - 1) // WORD * WORD)


def unaligned_launch(
    rows: Rows, file: str, name: str, types: str, config: RowConfig, options: str = "", *values: Arg
) -> Launch:
    """As Rows.launch: `options` come behind the toolkit's template arguments, and `values` behind the length."""
    shape = f"{config.vector}, {config.items}, {config.lanes}, {len(rows.rows)}, {rows.index}"
    shared = str(config.ctas) if config.ctas > 1 else ""
    kept = str(config.kept) if config.kept else ""
    name = f"{name.replace('_unaligned', '_kept') if kept else name}{'_cluster' if shared else ''}"
    entry = f"{name}<{', '.join(filter(None, (types, shape, options, kept, shared)))}>"
    args = (index_scalar(rows.length, rows.index), *values, rows.places(), *rows.pointers())
    shared_bytes = _kept_bytes(rows.length, WORD // config.vector, config)
    grid, block = config.grid(rows.count), (config.threads, 1, 1)
    return Launch(Kernel(file, entry), grid, block, args, shared_bytes, cluster=config.ctas)


class ResidentCosts(Fitted, table="rows.unaligned_resident"):
    bandwidth_efficiency: float
    item_efficiency_loss: float
    end_efficiency_ratio: float
    vector_instructions: float
    least_columns: float
    short_efficiency_ratio: float


def resident_rows(rows: Rows, element: ElementKind, access: int, inputs: int = 1) -> Feasibility:
    """Whether rows are dense, stay in registers, and no other kernel could access them by `access` bytes. `inputs` are the
    operands that a thread holds."""
    if element is ElementKind.F64:
        return no("an f64 is half of a 16-byte word")
    if not rows.dense:
        return no("columns are not contiguous in every operand")
    if rows.vector(element) * element.bits >= 8 * access:
        return no(f"every row starts and ends at {access} bytes")
    if next(resident_configs(rows, element, inputs), None) is None:
        return no("rows are longer than the registers of a CTA")
    return OK


def resident_configs(rows: Rows, element: ElementKind, inputs: int = 1) -> Iterator[RowConfig]:
    """As aligned rows of this length are shared, by at least so many threads as the two words at a row's ends have elements."""
    vector = Rows.widest(element)
    vectors = max(1, -(-rows.length // vector))
    for config in row_configs(rows.length, vector, element, inputs):
        if config.resident and config.lanes <= RESIDENT_LANES[element] // inputs:
            lanes = max(config.lanes, 2 * vector)
            yield replace(config, lanes=lanes, items=-(-vectors // lanes))


def resident_cost(device: DeviceSpec, rows: Rows, nbytes: int, config: RowConfig, *, instructions: float) -> Cost:
    """What a pass over rows takes, at so many instructions an element beside those of shifts. Two vectors of a row, its ends,
    are accessed by elements."""
    costs = ResidentCosts.of(device)
    ends = min(1.0, 2 * config.vector / max(1, rows.length))
    efficiency = costs.bandwidth_efficiency - costs.item_efficiency_loss / config.items
    efficiency /= 1 - ends + ends / costs.end_efficiency_ratio
    efficiency *= costs.short_efficiency_ratio if rows.length < costs.least_columns else 1.0
    moved = sum(operand.along for operand in rows.operands.values())
    spent = (instructions + moved * costs.vector_instructions / config.vector) * rows.count * rows.length
    return Cost.streaming(device, nbytes, flops=int(spent), instructions=spent, efficiency=efficiency)


def resident_launch(
    rows: Rows, file: str, name: str, types: str, config: RowConfig, options: str = "", *values: Arg
) -> Launch:
    """As Rows.launch: `options` come behind the toolkit's template arguments, and `values` behind the counts."""
    shape = f"{config.vector}, {config.items}, {config.lanes}, {config.threads}, {len(rows.rows)}, {rows.index}"
    kernel = Kernel(file, f"{name}<{', '.join(filter(None, (types, shape, options)))}>")
    args = (*rows.counts, *values, rows.places(), *rows.pointers())
    return Launch(kernel, config.grid(rows.count), (config.threads, 1, 1), args)
