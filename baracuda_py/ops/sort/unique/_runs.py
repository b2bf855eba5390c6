"""Runs of equal neighbours (kernels/sort/unique.cu), of x as it is or sorted first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.lowering import Sub
from ....plan.selection import Selection, selected
from ....runtime.steps import Arg, Fill, Kernel, Launch, Ptr, Scratch, Step
from ....tensor.axes import Collapsed, merge_axes
from ....types import DeviceSpec, ElementKind
from ..._launch import pack_dims
from ...shape_layout.contiguize import ContiguizeDescriptor, ContiguizePlan
from ..whole.sort import SortDescriptor, SortPlan
from ._problem import MOST, DistinctProblem

__all__ = ["OfNeighbours", "OfSorted"]

FILE, SCAN = "sort/unique.cu", "indexing/nonzero.cu"
THREADS, TILE, SCAN_THREADS = 256, 4096, 1024  # of those kernels
PLACE_BYTES = 4


def _line(desc: DistinctProblem) -> Collapsed:
    """x's axes, neighbours joined where memory allows, and their strides in bytes."""
    x = desc.layout("x")
    return merge_axes(x.shape, [[s * x.natural for s in x.strides]])


class OfNeighbours(Candidate[DistinctProblem]):
    """Runs counted by tiles, the counts added up, the runs written."""

    variant = "runs"
    launches = (f"{FILE}:count_runs", f"{SCAN}:scan_tiles", f"{FILE}:write_runs")

    def supports(self, desc: DistinctProblem, device: DeviceSpec) -> Feasibility:
        return no(f"x has {desc.length} elements, {MOST} at most are counted") if desc.length > MOST else OK

    def cost(self, desc: DistinctProblem, device: DeviceSpec, config: Any) -> Cost:
        """As if all elements were distinct."""
        one = Cost.streaming(device, desc.nbytes + desc.element.nbytes(desc.length))
        return Cost(one.bytes, 0, one.seconds + 2 * device.overhead, one.limit)

    def lower(self, desc: DistinctProblem, device: DeviceSpec, config: Any) -> tuple[Step | Sub, ...]:
        return _steps(desc, Ptr("x"), np.uint64(0), _line(desc))


@dataclass(frozen=True)
class Parts:
    """A configuration: what sorts, and what copies x ahead of it where no stride leads along its elements."""

    sort: Selection
    copy: Selection | None

    def __str__(self) -> str:
        parts = {"copy": self.copy, "sort": self.sort}
        return " ".join(f"{name}={one.candidate.variant}" for name, one in parts.items() if one)


class OfSorted(Candidate[DistinctProblem]):
    """x sorted through scratch, then its runs."""

    variant = "sorted_runs"
    launches = (
        *dict.fromkeys(
            launch
            for plan in (ContiguizePlan, SortPlan)
            for candidate in plan.candidates
            for launch in candidate.launches
        ),
        *OfNeighbours.launches,
    )

    def supports(self, desc: DistinctProblem, device: DeviceSpec) -> Feasibility:
        return no(f"x has {desc.length} elements, {MOST} at most are counted") if desc.length > MOST else OK

    def configs(self, desc: DistinctProblem, device: DeviceSpec) -> Iterable[Parts]:
        x, (extents, (strides,)) = desc.layout("x"), _line(desc)
        given: dict[str, Any] = {"x_strides": x.strides, "x_align": x.align}
        of_line: dict[str, Any] = {"index_dtype": ElementKind.I32}
        copy = None
        if len(extents) > 1:
            copy = selected(ContiguizePlan, ContiguizeDescriptor(x.shape, desc.element, **given), None, device)
        else:
            of_line |= {"x_strides": tuple(s // x.natural for s in strides) or (1,), "x_align": x.align}
        order: Any = SortDescriptor
        yield Parts(selected(SortPlan, order((desc.length,), desc.element, **of_line), None, device), copy)

    def cost(self, desc: DistinctProblem, device: DeviceSpec, config: Parts) -> Cost:
        parts = [
            OfNeighbours().cost(desc, device, None),
            config.sort.cost,
            *([config.copy.cost] if config.copy else []),
        ]
        return Cost(sum(part.bytes for part in parts), 0, sum(part.seconds for part in parts), parts[1].limit)

    def lower(self, desc: DistinctProblem, device: DeviceSpec, config: Parts) -> tuple[Step | Sub, ...]:
        nbytes, x = desc.element.nbytes(desc.length), cast("Ptr | Scratch", Ptr("x"))
        values, places = Scratch.named("values", nbytes), Scratch.named("places", PLACE_BYTES * desc.length)
        steps: tuple[Step | Sub, ...] = ()
        if config.copy:
            copied = Scratch.named("copy of x", nbytes)
            steps, x = (Sub(config.copy, {"x": x, "out": copied}),), copied
        order = Sub(config.sort, {"x": x, "values": values, "indices": places})
        return (*steps, order, *_steps(desc, values, places, ((desc.length,), ((desc.layout("x").natural,),))))


def _steps(desc: DistinctProblem, x: Arg, places: Arg, line: Collapsed) -> tuple[Step, ...]:
    """The launches on elements in order, which were at `places`."""
    if not desc.length:
        return (Fill(Ptr("count"), 0, 8),)
    (extents, strides), tiles = line, -(-desc.length // TILE)
    counts, begins = Scratch.named("counts", 4 * tiles), Scratch.named("begins", 8 * tiles)
    kind = desc.element.number if desc.element.is_float else f"u{desc.element.bits}"
    taken, length = f"{kind}, {len(extents)}, {str(desc.distinct_nan).lower()}", np.uint32(desc.length)
    dims = pack_dims(extents, strides, "u32")
    fill = np.uint64(int.from_bytes(desc.fill or b"", "little"))
    results = (Ptr(name) if desc.has(name) else np.uint64(0) for name in ("out", "inverse", "counts", "index"))
    cleared = (Fill(Ptr("counts"), 0, 8 * desc.capacity),) if desc.has("counts") and desc.capacity else ()

    def launch(kernel: Kernel, ctas: int, threads: int, *args: Any) -> Launch:
        return Launch(kernel, (ctas, 1, 1), (threads, 1, 1), args)

    return (
        *cleared,
        launch(Kernel(FILE, f"count_runs<{taken}>"), tiles, THREADS, counts, x, length, dims),
        launch(
            Kernel(SCAN, f"scan_tiles<{SCAN_THREADS}>"), 1, SCAN_THREADS, begins, Ptr("count"), counts, np.uint32(tiles)
        ),
        launch(
            Kernel(FILE, f"write_runs<{taken}>"), tiles, THREADS, *results, begins, Ptr("count"), x, places, length,
            np.int64(desc.capacity), fill, np.uint32(desc.fill is not None), dims,
        ),
    )  # fmt: skip
