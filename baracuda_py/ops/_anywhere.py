"""Long rows that start at any address, a CTA or a cluster each: kernels that take kernels/include/rows/anywhere.cuh."""

from __future__ import annotations

from dataclasses import replace

from ..plan.candidate import OK, Feasibility, no
from ..runtime.steps import Arg, Kernel, Launch
from ..types import DeviceSpec, ElementKind
from ._launch import index_scalar
from ._rows import RowConfig, Rows, clustered, share

__all__ = ["anywhere_config", "anywhere_launch", "anywhere_rows"]

LONG = 2048  # columns from which unaligned rows go by aligned words
MOST_VECTORS = 8  # that a thread holds of all inputs: of 128 registers, half


def anywhere_rows(rows: Rows, element: ElementKind, access: int) -> Feasibility:
    """Whether rows are long, dense and no other kernel could access them by `access` bytes."""
    if not rows.dense:
        return no("columns do not lie side by side in every operand")
    if rows.length < LONG:
        return no(f"rows are shorter than {LONG}")
    if rows.vector(element) * element.bits >= 8 * access:
        return no(f"every row starts and ends at {access} bytes")
    return OK


def anywhere_config(rows: Rows, element: ElementKind, device: DeviceSpec) -> RowConfig:
    """Half as many vectors a thread where there are not so many for each; a row's length alone decides."""
    vector = Rows.widest(element)
    vectors = rows.length // vector
    lanes = min(512, max(128, share(vectors // 2)))
    config = clustered(RowConfig(vector, MOST_VECTORS // 2, lanes), rows.length, element, device)
    return replace(config, items=MOST_VECTORS) if vectors >= MOST_VECTORS * lanes * config.ctas else config


def anywhere_launch(
    rows: Rows, file: str, name: str, types: str, config: RowConfig, options: str = "", *values: Arg
) -> Launch:
    """As Rows.launch: `options` come behind the toolkit's template arguments, and `values` behind the length."""
    shape = f"{config.vector}, {config.items}, {config.lanes}, {len(rows.rows)}, {rows.index}"
    shared = str(config.ctas) if config.ctas > 1 else ""
    entry = f"{name}{'_cluster' if shared else ''}<{', '.join(filter(None, (types, shape, options, shared)))}>"
    args = (index_scalar(rows.length, rows.index), *values, rows.places(), *rows.pointers())
    return Launch(Kernel(file, entry), config.grid(rows.count), (config.threads, 1, 1), args)
