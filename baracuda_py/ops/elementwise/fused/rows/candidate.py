"""The kernel of graphs with statistics of rows: a group of threads takes a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .....plan.candidate import OK, Candidate, Cost, Feasibility, no
from .....runtime.steps import Arg, Kernel, Launch, Ptr, Step, Struct
from .....tensor.axes import broadcast_strides
from .....types import DeviceSpec, ElementKind, PrecisionGuarantee
from ...._rows import MOST_LANES, WARP, RowConfig, Rows, row_cost, rows_of, share
from ..._candidates import ContiguousGradients, StridedGradients, argument_of
from .source import graph_struct

__all__ = ["CANDIDATES", "additions"]

FILE = "elementwise/rows.cu"
HELD, LEAST_HELD = 256, 128  # bytes of a row in a thread's registers, and in those of one of MOST_LANES
ITEMS = 2  # vectors a thread, until a warp shares a row
REDUCES = "it has statistics of rows"
STREAMED = 512  # threads that share a row that is read again


def rows(desc: Any) -> Rows:
    """A problem as rows: every output and input, numbers included."""
    shape, axes = desc.out_shape, desc.shapes_of_values.axes
    kept = len(shape) - axes
    names: dict[str, Any] = {}
    single: list[str] = []
    for name in (*desc.outputs, *desc.inputs):
        if name not in desc.outputs and name not in desc.arrays:
            names[name] = None
            continue
        layout = desc.layout(name)
        of_rows = name in desc.outputs and not desc.is_whole(name)
        strides = (
            (*layout.strides[:kept], *(0,) * axes)
            if of_rows
            else broadcast_strides(layout.shape, layout.strides, shape)
        )
        if of_rows or not any(strides[kept:]):
            single.append(name)
        names[name] = strides
    return rows_of(desc, shape, range(kept, len(shape)), names, single)


def _streams(desc: Any, found: Rows) -> tuple[ElementKind, int]:
    """The widest kind among what is accessed by columns, and the bytes of a column of all inputs."""
    along = [name for name, operand in found.operands.items() if operand.along]
    widest = max((desc.layout(name).element for name in along), key=lambda kind: kind.bits, default=desc.typed.kind)
    return widest, sum(found.operands[name].size for name in along if name in desc.inputs)


def _configs(desc: Any) -> list[RowConfig]:
    """How a row may be shared out, the best known first: it stays in registers where those of a CTA hold it."""
    found = rows(desc)
    widest, size = _streams(desc, found)
    vector = found.vector(widest)
    vectors = max(1, -(-found.length // vector))
    most = MOST_LANES // 2 if desc.typed.carrier == "double" else MOST_LANES
    fits = max(1, HELD // max(1, vector * size))
    lanes = min(share(-(-vectors // min(ITEMS, fits))), WARP)
    lanes = max(lanes, share(-(-vectors // min(2 * ITEMS, fits))))
    if lanes >= most:
        fits = max(1, (LEAST_HELD if most == MOST_LANES else HELD) // max(1, vector * size))
        lanes = most
    if -(-vectors // lanes) <= fits:
        made = [RowConfig(vector, -(-vectors // lanes), lanes, True)]
        made += [RowConfig(vector, -(-vectors // (2 * lanes)), 2 * lanes, True)] if WARP <= 2 * lanes <= most else []
        return made
    return [RowConfig(vector, min(2 * ITEMS, fits), min(STREAMED, most))]


def additions(desc: Any) -> int:
    """The most additions that a term of a row goes through in a configuration of the kernel."""
    length = rows(desc).length
    return max(config.depth(length) for config in _configs(desc))


class FusedContiguous(ContiguousGradients):
    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return super().supports(desc, device) if not desc.shapes_of_values.axes else no(REDUCES)


class FusedStrided(StridedGradients):
    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return super().supports(desc, device) if not desc.shapes_of_values.axes else no(REDUCES)


class FusedRows(Candidate[Any]):
    """A group of threads a row: it is read once, and stays in registers, or once for every pass where it is too long."""

    variant = "rows"
    launches = (f"{FILE}:fused_rows",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK if desc.shapes_of_values.axes else no("it has no statistics of rows")

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[RowConfig]:
        return _configs(desc)

    def guarantee(self, desc: Any, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return desc.guarantee()  # type: ignore[no-any-return]

    def cost(self, desc: Any, device: DeviceSpec, config: RowConfig) -> Cost:
        found = rows(desc)
        widest, _ = _streams(desc, found)
        spent = desc.instructions[desc.typed.kind.bits <= 16]
        return row_cost(device, found, desc.nbytes, config, widest, instructions=spent)

    def lower(self, desc: Any, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        found, types = rows(desc), desc.computed()
        columns = sum(desc.is_whole(name) << place for place, name in enumerate(desc.outputs))
        single = sum((not found.operands[name].along) << place for place, name in enumerate(desc.inputs))
        stored = (t if n in desc.arrays else f"Value<{t}>" for n, t in zip(desc.inputs, types.inputs))
        operands = ", ".join((types.out, str(len(desc.outputs)), *stored))
        entry = config.entry(
            "fused_rows", f"{types.type}, {types.digits}", found.template, f"{columns}u, {single}u, {operands}"
        )
        args: tuple[Arg, ...] = (
            *found.counts,
            found.places(),
            Struct(tuple(Ptr(name) for name in desc.outputs)),
            *(argument_of(desc, name) for name in desc.inputs),
        )
        return (
            Launch(
                Kernel(FILE, entry, graph_struct(desc.typed)), config.grid(found.count), (config.threads, 1, 1), args
            ),
        )


CANDIDATES: tuple[Candidate[Any], ...] = (FusedContiguous(), FusedStrided(), FusedRows())
