"""Row families: problems as rows and columns, how many threads share a row, and what kernels/include/rows takes.

A row kernel sees `count` rows of `length` columns. Rows are found by the axes that do not run along them, columns by those that
do, each collapsed, with strides of every operand (0 where it does not vary). How a row is shared out follows from its length, its
alignment and the element alone: a row's result does not depend on how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..plan.candidate import Cost
from ..plan.descriptor import Descriptor, Layout
from ..plan.fields import integer, integers
from ..plan.grammar import Config, term
from ..runtime.steps import Arg, Kernel, Launch, Packed, Ptr
from ..tensor.axes import collapse, merge_axes
from ..types import ArchSku, DeviceSpec, ElementKind, InvalidProblemError, MathPrecision
from ._fitted import Fitted
from ._launch import grid_of, index_scalar, index_type, pack_dims

__all__ = [
    "FLOATS",
    "OperandStrides",
    "RowConfig",
    "Rows",
    "axes_of",
    "clustered",
    "computed_in",
    "row_configs",
    "row_cost",
    "rows_of",
    "share",
]

FLOATS = (ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64)
WORD = 16  # bytes of the widest access
CTA = 128  # threads, where rows are shared by a warp or less
WARP, MOST_LANES = 32, 1024
ALONE = 256  # columns of single elements that a warp takes by itself
CLUSTERS = (ArchSku.SM90A, ArchSku.SM100A, ArchSku.SM120)  # tiers whose CTAs form clusters


class Computed(NamedTuple):
    """What a row of some element is computed in."""

    cuda: str
    numpy: str
    element: ElementKind
    math: MathPrecision


def computed_in(element: ElementKind) -> Computed:
    """f32, and f64 for f64."""
    if element is ElementKind.F64:
        return Computed("double", "float64", ElementKind.F64, MathPrecision.F64)
    return Computed("float", "float32", ElementKind.F32, MathPrecision.F32)


def axes_of(op: str, axis: Any, rank: int) -> tuple[int, ...]:
    """Axes counted from the front, in order, of one axis, several, or all of them for None. InvalidProblemError for what is no
    axis, and one that is named twice."""
    what = f"{op}: axis"
    several = isinstance(axis, (tuple, list))
    given = tuple(range(rank)) if axis is None else integers(axis, what) if several else (integer(axis, what),)
    for a in given:
        if not -max(rank, 1) <= a < max(rank, 1):
            raise InvalidProblemError(f"{op}: axis {a} is out of range for {rank} axes", f"give {-rank} to {rank - 1}")
    axes = tuple(sorted(a % max(rank, 1) for a in given))
    if len(set(axes)) < len(axes):
        raise InvalidProblemError(f"{op}: axis={axis} names an axis twice", "name each once")
    return axes if rank else ()


class OperandStrides(NamedTuple):
    """How one operand goes along rows and columns, in elements."""

    layout: Layout
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    along: bool  # whether it is accessed by columns: it is there, and has not one value a row

    @property
    def size(self) -> int:
        return self.layout.element.bits // 8


_ABSENT = Layout((), (), ElementKind.U8)


@dataclass(frozen=True)
class Rows:
    """A collapsed row problem; operands by name, in the order of the kernel's own."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    operands: Mapping[str, OperandStrides]

    @property
    def count(self) -> int:
        return math.prod(self.rows)

    @property
    def length(self) -> int:
        return math.prod(self.columns)

    @property
    def index(self) -> str:
        return index_type(self.count * self.length)

    @property
    def dense(self) -> bool:
        """Whether every operand's columns are contiguous."""
        return all(operand.columns in ((), (1,)) for operand in self.operands.values() if operand.along)

    @property
    def column_rank(self) -> int:
        return 0 if self.dense else len(self.columns)

    def vector(self, element: ElementKind, *, whole: bool = True) -> int:
        """The widest vector of columns that every operand can be accessed by, 16 bytes of `element` at most. Rows consist of
        `whole` vectors, or else the kernel sees to what they have beyond."""
        vector = self.widest(element) if self.dense else 1
        while vector > 1 and not all(
            self._fits(operand, vector, whole) for operand in self.operands.values() if operand.along
        ):
            vector //= 2
        return vector

    @staticmethod
    def widest(element: ElementKind) -> int:
        """Elements of 16 bytes."""
        return WORD * 8 // element.bits

    def unaligned(self, element: ElementKind) -> bool:
        """Whether columns are contiguous, but not every row starts at 16 bytes."""
        return self.dense and self.vector(element, whole=False) < self.widest(element)

    def _fits(self, operand: OperandStrides, vector: int, whole: bool) -> bool:
        access = min(WORD, vector * operand.size)
        steps = (*(s * operand.size for s in operand.rows), operand.layout.align)
        return not (whole and self.length % vector) and all(step % access == 0 for step in steps)

    def places(self, index: str = "") -> Packed:
        """rows::Places for the operands in order."""
        index = index or self.index
        rows = pack_dims(self.rows, [[s * w.size for s in w.rows] for w in self.operands.values()], index)
        columns: Sequence[int] = () if self.dense else self.columns
        steps = [[s * w.size for s in w.columns] if columns else () for w in self.operands.values()]
        return Packed(rows.data + pack_dims(columns, steps, index).data, 8)

    def pointers(self) -> tuple[Arg, ...]:
        """The operands' addresses in order, null for what the problem lacks."""
        return tuple(
            Packed(bytes(8)) if operand.layout is _ABSENT else Ptr(name) for name, operand in self.operands.items()
        )

    @property
    def template(self) -> str:
        """Ranks and index type, as kernels take them."""
        return f"{len(self.rows)}, {self.column_rank}, {self.index}"

    @property
    def counts(self) -> tuple[Arg, Arg]:
        """How many rows and columns there are, as kernels take them."""
        return index_scalar(self.count, self.index), index_scalar(self.length, self.index)

    def launch(self, file: str, name: str, types: str, config: RowConfig, options: str = "", *values: Arg) -> Launch:
        """A kernel of which a group of threads takes a row: `types` and `options` are its own template arguments, ahead of the
        toolkit's and behind them, and `values` what it takes behind the counts."""
        entry = config.entry(name, types, self.template, options)
        args = (*self.counts, *values, self.places(), *self.pointers())
        return Launch(Kernel(file, entry), config.grid(self.count), (config.threads, 1, 1), args)


def rows_of(
    desc: Descriptor,
    shape: Sequence[int],
    along: Sequence[int],
    names: Mapping[str, Sequence[int] | None],
    per_row: Sequence[str] = (),
    *,
    ordered: bool = False,
) -> Rows:
    """The rows of `shape` along some axes. `names` are the kernel's operands in order, each with its strides in elements over
    all axes of `shape`, or None where the problem lacks it; those `per_row` have one value a row.
    Columns are counted in C order where `ordered`, else in the order of memory."""
    across = [a for a in range(len(shape)) if a not in along]
    given = [tuple(s) if s is not None else (0,) * len(shape) for s in names.values()]
    rows, row_steps = collapse([shape[a] for a in across], [[s[a] for a in across] for s in given])
    columns, column_steps = (merge_axes if ordered else collapse)(
        [shape[a] for a in along], [[s[a] for a in along] for s in given]
    )
    operands = {
        name: OperandStrides(
            _ABSENT if strides is None else desc.layout(name), r, c, strides is not None and name not in per_row
        )
        for (name, strides), r, c in zip(names.items(), row_steps, column_steps)
    }
    return Rows(rows, columns, operands)


@dataclass(frozen=True)
class RowConfig(Config):
    """How a row is shared out among threads; a CTA takes `rows` of them."""

    vector: int = term("columns an access")
    items: int = term("vectors that a thread holds at a time")
    lanes: int = term("threads that share a row")
    resident: bool = term("a row stays in registers; else it is read again for every pass", default=False)
    ctas: int = term("CTAs of a cluster that share a row", default=1)
    kept: int = term("inputs whose part of a row a CTA keeps in shared memory", default=0)

    @property
    def rows(self) -> int:
        return CTA // self.lanes if self.lanes <= WARP else 1

    @property
    def threads(self) -> int:
        return self.lanes * self.rows

    @property
    def template(self) -> str:
        """As kernels take them: V, ITEMS, LANES, THREADS, RESIDENT."""
        return f"{self.vector}, {self.items}, {self.lanes}, {self.threads}, {str(self.resident).lower()}"

    def depth(self, length: int) -> int:
        """Additions that a term of a row's sum goes through at most: a thread's own, then those of lanes and of warps."""
        own = self.items * self.vector
        part = -(-length // self.ctas) + self.vector * (self.ctas > 1)
        passes = 1 if self.resident else -(-part // (own * self.lanes))
        return own * passes + int(math.log2(min(self.lanes, WARP))) + max(self.lanes // WARP - 1, 0) + self.ctas - 1

    def grid(self, count: int) -> tuple[int, int, int]:
        """CTAs for so many rows."""
        return grid_of(count * self.ctas, self.rows)

    def entry(self, name: str, types: str, places: str, options: str = "") -> str:
        """The name expression of a kernel of the toolkit, or of its twin for clusters."""
        shared = str(self.ctas) if self.ctas > 1 else ""
        arguments = ", ".join(filter(None, (types, self.template, places, options, shared)))
        return f"{name}{'_cluster' if shared else ''}<{arguments}>"


CLUSTER_BYTES = 128 << 10  # rows of more than this are shared by a cluster
PART_BYTES = 64 << 10  # of a row for each of its CTAs: so the rows under way stay in L2 for the second pass
MOST_CTAS = 8  # of a cluster, on every arch that has them


def clustered(config: RowConfig, length: int, element: ElementKind, device: DeviceSpec) -> RowConfig:
    """`config`, by as many CTAs as a streamed row of `length` takes: a row's length alone decides, and not how many there are."""
    nbytes = length * element.bits // 8
    if config.resident or nbytes <= CLUSTER_BYTES or device.tier not in CLUSTERS:
        return config
    return replace(config, ctas=min(share(-(-nbytes // PART_BYTES)), MOST_CTAS))


def row_configs(
    length: int, vector: int, element: ElementKind, inputs: int = 1, *, shallow: bool = False, streams: int = MOST_LANES
) -> Iterator[RowConfig]:
    """How a row of `length` may be shared out, the best known first. `inputs` are the operands that a thread holds at once;
    `shallow` halves how many vectors it may hold, and `streams` are the most threads that stream a row.

    A thread has two vectors in all until 128 threads share a row (a warp, where there are two inputs); then up to `deep`, 64
    bytes or so an operand: enough bytes under way, few enough registers. Longer rows take more threads, and what does not fit
    1,024 of them is streamed. Up to `ALONE` single elements are a warp's: several rows a CTA, and no exchange between warps.
    """
    access = vector * element.bits // 8
    deep = {16: 4, 8: 8}.get(access, 16) >> shallow
    vectors = max(1, -(-length // vector))
    pairs = share(-(-vectors * inputs // 2))
    lanes = min(pairs, 128 if inputs == 1 else WARP) if pairs >= 8 else min(share(vectors), WARP)
    if vector == 1 and vectors <= ALONE:
        lanes = min(lanes, WARP)
    lanes = max(lanes, share(-(-vectors // deep)))
    most = MOST_LANES if inputs == 1 else MOST_LANES // 2
    wide = MOST_LANES if element is not ElementKind.F64 else MOST_LANES // 2
    if lanes <= min(most, wide):
        yield RowConfig(vector, -(-vectors // lanes), lanes, True)
        for more in (2 * lanes, 4 * lanes):  # fewer vectors a thread
            if lanes >= WARP and more <= min(most, wide) and vectors >= more:
                yield RowConfig(vector, -(-vectors // more), more, True)
    if lanes > WARP or lanes > min(most, wide):
        yield RowConfig(vector, deep, min(most, wide, streams))


class Costs(Fitted, table="rows.rows"):
    resident_bandwidth_efficiency: float
    item_efficiency_loss: float
    streamed_bandwidth_efficiency: float
    kept_bandwidth_efficiency: float
    strided_bandwidth_efficiency: float
    least_vector_ratio: float


def row_cost(
    device: DeviceSpec, rows: Rows, nbytes: int, config: RowConfig, element: ElementKind, *, instructions: float
) -> Cost:
    """What a pass over rows takes, at so many instructions an element. Configurations are ranked in the order in which
    `row_configs` gives them: fewer vectors a thread come behind."""
    costs = Costs.of(device)
    efficiency = costs.strided_bandwidth_efficiency
    if rows.dense and config.resident:
        efficiency = costs.resident_bandwidth_efficiency - costs.item_efficiency_loss / config.items
    elif rows.dense:
        efficiency = costs.kept_bandwidth_efficiency if config.kept else costs.streamed_bandwidth_efficiency
    full = config.vector * element.bits / (8 * WORD)
    spent = (instructions + 4.0 / config.vector) * rows.count * rows.length
    efficiency *= max(costs.least_vector_ratio, full)
    return Cost.streaming(device, nbytes, flops=int(spent), instructions=spent, efficiency=efficiency)


def share(n: int) -> int:
    """The next power of two."""
    return 1 << max(0, n - 1).bit_length()
