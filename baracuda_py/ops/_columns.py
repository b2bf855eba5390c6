"""Problems along axes that are not the innermost: threads take neighbours along the innermost of the other axes, and go down.

Kernels see `Rows` whose columns are those neighbours, and the steps in bytes from one element to the next on the way down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..plan.descriptor import Descriptor
from ..plan.grammar import Config, term
from ..tensor.axes import collapse
from ..types import ElementKind
from ._fitted import Fitted
from ._rows import WARP, WORD, OperandStrides, Rows

__all__ = ["ColumnConfig", "ColumnCosts", "Columns", "across"]


class ColumnCosts(Fitted, table="rows.columns"):
    softmax_bandwidth_efficiency: float
    reduce_bandwidth_efficiency: float
    scan_bandwidth_efficiency: float
    least_vector_ratio: float


@dataclass(frozen=True)
class ColumnConfig(Config):
    """How many threads go down columns of a CTA, a thread down `vector` neighbours."""

    vector: int = term("neighbouring columns a thread")
    warps: int = term("warps of a CTA that go down the same columns")
    parts: int = term("CTAs of a cluster that share the axis", default=1)

    @property
    def threads(self) -> int:
        return WARP * self.warps

    def ctas(self, rows: Rows) -> int:
        """CTAs of all strips of columns."""
        return rows.count * -(-rows.length // (WARP * self.vector)) * self.parts


class Columns(NamedTuple):
    """The other axes as `rows`, whose columns are the innermost of them, and `steps` down in bytes, each with the size of the
    elements along it."""

    rows: Rows
    steps: tuple[int, ...]
    sizes: tuple[int, ...]

    def vector(self, element: ElementKind, most: int) -> int:
        """The most neighbours that a thread can access at once, wherever down the axis."""
        vector = min(most, self.rows.vector(element))
        while vector > 1 and any(step % min(WORD, vector * size) for step, size in zip(self.steps, self.sizes)):
            vector //= 2
        return vector


def across(
    desc: Descriptor,
    shape: Sequence[int],
    along: Sequence[int],
    names: Mapping[str, Sequence[int]],
    per_row: Sequence[str] = (),
) -> Rows | None:
    """The axes of `shape` but those `along`: the innermost as columns, the others as rows. `names` are the kernel's operands in
    order, each with its strides in elements over all axes of `shape`; those `per_row` are not accessed by vectors of columns.
    None where the innermost axis is not contiguous in every operand."""
    kept = [a for a in range(len(shape)) if a not in along]
    extents, steps = collapse([shape[a] for a in kept], [[s[a] for a in kept] for s in names.values()])
    if not extents or any(s[-1] != 1 for s in steps):
        return None
    operands = {n: OperandStrides(desc.layout(n), s[:-1], (1,), n not in per_row) for n, s in zip(names, steps)}
    return Rows(extents[:-1], extents[-1:], operands)
