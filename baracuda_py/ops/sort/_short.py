"""sort_rows: short rows, several a CTA, sorted whole in shared memory (kernels/sort/topk.cu)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility, no
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...types import DeviceSpec, PrecisionGuarantee
from .._launch import THREADS, grid_of, index_scalar
from ._rows import SortedRows, guarantee, servable

__all__ = ["SortRows"]

TILES = 1024, 2048  # entries of a CTA
STEP_INSTRUCTIONS = 14  # of a thread and pair of entries, in a step of the network


class SortRows(Candidate[Any]):
    """Rows that fit a tile, whole."""

    variant = "sort_rows"
    launches = ("sort/topk.cu:sort_rows",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        n = desc.shape[desc.axis]
        return no(f"rows have {n} elements, and it sorts {TILES[-1]} at most") if n > TILES[-1] else servable(desc)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return guarantee(desc)

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        rows = SortedRows.of(desc)
        steps = _length(rows.n).bit_length() * (_length(rows.n).bit_length() - 1) / 2
        instructions = rows.count * _length(rows.n) / 2 * steps * STEP_INSTRUCTIONS
        return Cost.streaming(device, desc.nbytes, instructions=instructions)

    def lower(self, desc: Any, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        rows = SortedRows.of(desc)
        length = _length(rows.n)
        tile = next(t for t in TILES if length <= t)
        entry = f"sort_rows<{desc.element.number}, {rows.index}, {rows.axes}, {tile}, {desc.end}>"
        args = (
            Ptr("values"), Ptr("indices"), Ptr("x"), index_scalar(rows.count, rows.index), np.uint32(rows.n),
            np.uint32(desc.k), np.uint32(length), np.uint32(not desc.sorted), rows.flip, rows.packed,
        )  # fmt: skip
        grid = grid_of(rows.count, tile // length)
        return (Launch(Kernel("sort/topk.cu", entry), grid, (THREADS, 1, 1), args),)


def _length(n: int) -> int:
    """The next power of two."""
    return 1 << max(n - 1, 0).bit_length()
