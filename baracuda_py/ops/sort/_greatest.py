"""greatest_rows: k = 1 by the argmax reducer, one CTA per row (kernels/sort/short.cu)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility, no
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...types import DeviceSpec, PrecisionGuarantee
from .._fitted import Fitted
from ._rows import WORD, SortedRows, guarantee, servable

__all__ = ["GreatestRows"]

THREADS, CTAS_PER_SM = 512, 2
SHORT, SHORT_THREADS = 8192, 128  # elements of a row that fewer threads read
STEPPED_ITEMS, VECTOR_ITEMS = 8, 4  # accesses in flight per thread: of single elements, of vectors


class Costs(Fitted, table="rows.greatest"):
    bandwidth_efficiency: float
    element_instructions: int
    row_instructions: int


class GreatestRows(Candidate[Any]):
    """The first greatest or smallest element of each row."""

    variant = "greatest_rows"
    launches = ("sort/short.cu:greatest_rows",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return servable(desc) if desc.k == 1 else no(f"k={desc.k}; it finds one element per row")

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return guarantee(desc)

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        rows, costs = SortedRows.of(desc), Costs.of(device)
        ctas = CTAS_PER_SM * THREADS // _threads(rows) * device.sms
        waves = -(-rows.count // ctas)
        stream = waves * rows.n * rows.size * ctas / (costs.bandwidth_efficiency * device.bandwidth)
        issued = rows.count * (rows.n * costs.element_instructions + _threads(rows) * costs.row_instructions)
        return Cost(desc.nbytes, 0, device.overhead + max(stream, issued / device.rate("issue")))

    def lower(self, desc: Any, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        rows = SortedRows.of(desc)
        vector, items = (WORD // rows.size, VECTOR_ITEMS) if rows.vector else (1, STEPPED_ITEMS)
        threads = _threads(rows)
        entry = f"greatest_rows<{desc.element.number}, {rows.index}, {rows.axes}, {vector}, {items}, {threads}>"
        args = (Ptr("values"), Ptr("indices"), Ptr("x"), np.uint32(rows.n), rows.flip, rows.packed)
        return (Launch(Kernel("sort/short.cu", entry), (rows.count, 1, 1), (threads, 1, 1), args),)


def _threads(rows: SortedRows) -> int:
    return SHORT_THREADS if rows.n <= SHORT else THREADS
