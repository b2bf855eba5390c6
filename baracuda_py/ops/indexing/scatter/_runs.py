"""Lines reduced by index, in a fixed order: indices are sorted by the row that they name, and runs of equal ones are reduced."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ....numerics.guarantee import product_term
from ....plan.candidate import Candidate, Cost, Feasibility, exact_results, no
from ....plan.grammar import Config, term
from ....runtime.steps import Arg, Fill, Kernel, Launch, Packed, Ptr, Scratch, Step
from ....tensor.axes import broadcast_strides, c_strides, merge_axes
from ....types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee, Term, Ulp
from ..._launch import pack_dims
from ..._reported import raises_on
from ..._rows import computed_in
from .._indexed import IndexedProblem
from .._lines import ByIndices, IndexedLines
from ..costs import LineCosts
from ..keys import KERNELS, MOST, KeyedIndices

__all__ = [
    "Runs",
    "ScatteredElements",
    "ScatteredLines",
    "ScatteredProblem",
    "Share",
    "Sorted",
    "Strided",
    "additions",
    "bound",
    "scattered",
]

FILE = "indexing/reduce_runs.cu"
CHUNK, SLICES, THREADS, WARP, UNROLL = 32, 8, 128, 32, 4  # of that file
# The reductions, there.
OPS = {"set": "Last", "add": "Add", "prod": "Product", "mean": "Mean", "max": "Max", "min": "Min"}
ROUNDED = ("add", "prod", "mean")  # those that are computed, and do not choose one of their terms
WORDS = {1: "u8", 2: "u16", 4: "u32", 8: "u64", 16: "uint4"}  # by bytes
MOST_GRID_Y = 65_535
ACCESS = 16  # bytes
MOST_COLUMNS = (1 << 31) - 1 - MOST_GRID_Y * WARP * 8  # one grid's step beyond the last column fits 31 bits


@dataclass(frozen=True)
class Strided:
    """The axes of one kind of the problem, with strides in elements of each operand that goes along them."""

    shape: Sequence[int]
    strides: Sequence[Sequence[int]]

    def merged(self, *, scale: int = 1) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        shape, strides = merge_axes(self.shape, self.strides)
        return shape, tuple(tuple(s * scale for s in one) for one in strides)


class ScatteredProblem(IndexedProblem):
    """A problem whose result, in C order, reduces what the operand `source` has for each index."""

    element: ElementKind
    result: ClassVar[str]
    source: ClassVar[str]
    base: ClassVar[str] = ""  # the operand that the result is without any index; 0 where there is none
    reduce: str = "add"

    @property
    def reduced_as(self) -> tuple[str, str, int]:
        """The C++ types of an element and of what is computed, and the bytes of the latter. Whole numbers wrap, and their sign
        does not matter to a sum or a product."""
        size = self.element.bits // 8
        if self.element.is_integer and self.reduce in ("max", "min"):
            return self.element.number, self.element.number, size
        if self.reduce == "set" or self.element.is_integer:
            return WORDS[size], WORDS[size], size
        computed = computed_in(self.element)
        return self.element.number, computed.cuda, computed.element.bits // 8

    def keyed(self) -> KeyedIndices:
        """The indices, and the row that each names."""
        raise NotImplementedError

    def strided(self) -> tuple[Strided, Strided, Strided]:
        """The result's axes by key; those of the source by position; and columns, of the result and of the source."""
        raise NotImplementedError


class ScatteredLines(IndexedLines, ScatteredProblem):
    """Lines along an axis, each with an index."""

    def keyed(self) -> KeyedIndices:
        index, padding = self.layout(self.index), getattr(self, "padding_idx", None)
        steps = [s * index.natural for s in index.strides]
        shape, strides = merge_axes(index.shape, (steps, (0,) * len(steps)))
        return KeyedIndices(
            self.index, index.element.number, self.kernel_mode, self.extent, -1 if padding is None else padding % self.extent,
            self.extent, 1, self.count, shape, (strides[0], strides[1]), self.has_status,
        )  # fmt: skip

    def strided(self) -> tuple[Strided, Strided, Strided]:
        result, others = (
            self.layout(self.result),
            (*self.lines_shape[: self.along], *self.lines_shape[self.along + 1 :]),
        )
        columns = self.over_others(self.result, picked=False), self.over_others(self.source, picked=True)
        return (
            Strided((self.extent,), ((result.strides[self.along],),)),
            Strided(self.places_shape, (self.over_places(self.source),)),
            Strided(others, columns),
        )


class ScatteredElements(ByIndices, ScatteredProblem):
    """Elements, each with an index along the axis. Axes of x that have one place take all that the source has there."""

    def keyed(self) -> KeyedIndices:
        index, own, axis = self.layout(self.index), c_strides(self.lines_shape), self.along
        steps = [s * index.natural for s in broadcast_strides(index.shape, index.strides, self.picked_shape)]
        to = [0 if a == axis or n == 1 else s for a, (n, s) in enumerate(zip(self.lines_shape, own))]
        shape, strides = merge_axes(self.picked_shape, (steps, to))
        return KeyedIndices(
            self.index, index.element.number, self.kernel_mode, self.extent, -1, math.prod(self.lines_shape), own[axis],
            math.prod(self.picked_shape), shape, (strides[0], strides[1]), self.has_status,
        )  # fmt: skip

    def strided(self) -> tuple[Strided, Strided, Strided]:
        return (
            Strided(self.lines_shape, (self.layout(self.result).strides,)),
            Strided(self.picked_shape, (self.layout(self.source).strides,)),
            Strided((), ((), ())),
        )


def bound(desc: ScatteredProblem, added: float) -> PrecisionGuarantee:
    """The bound of so many additions in turn, or multiplications in all, in a fixed order that depends on all indices; other
    results are one of their terms, a NaN with bits of its own where they are compared."""
    if desc.reduce == "set" or desc.element.is_integer:
        return exact_results(desc)
    computed, rounded = computed_in(desc.element), desc.reduce in ROUNDED
    terms = {
        "add": Term(added, computed.element, "abs_sums"),
        "mean": Term(added + 1, computed.element, "abs_sums"),
        "prod": product_term(added, computed.element, "product"),
    }
    source = "Higham, sections 3.1 and 4.2"
    bounded = Componentwise.rounded((terms[desc.reduce],), desc.element, source) if rounded else Ulp(0.5)
    made = PrecisionGuarantee.fixed_order(computed.math, computed.element, bounded, batch_invariant=not rounded)
    if not desc.keyed().status:
        return made
    return PrecisionGuarantee.by_output(**{desc.result: made, "status": PrecisionGuarantee.exact(ElementKind.I32)})


@dataclass(frozen=True)
class Share(Config):
    """How lines are shared out."""

    vector: int = term("elements per access")
    lanes: int = term("threads per chunk of indices and tile of columns")


class Sorted(Candidate[ScatteredProblem]):
    """Indices sorted by row; runs of equal ones reduced in order, long runs in chunks. Same bits at every call."""

    variant = "sorted"
    launches = (*KERNELS, f"{FILE}:reduce_chunks", f"{FILE}:join_runs")

    def supports(self, desc: ScatteredProblem, device: DeviceSpec) -> Feasibility:
        keyed, (_, _, columns) = desc.keyed(), desc.strided()
        if max(keyed.keys, keyed.count) > MOST or math.prod(columns.shape) > MOST_COLUMNS:
            return no("rows, indices or columns exceed 31 bits", "make several calls")
        return raises_on(desc, device)

    def configs(self, desc: ScatteredProblem, device: DeviceSpec) -> Iterable[Share]:
        vector = _vector(desc)
        length = math.prod(desc.strided()[2].shape)
        yield Share(vector, min(WARP, 1 << max(0, -(-length // vector) - 1).bit_length()))

    def cost(self, desc: ScatteredProblem, device: DeviceSpec, config: Share) -> Cost:
        """As if every index named a row of its own."""
        keyed = desc.keyed()
        lines = desc.element.nbytes(math.prod(desc.layout(desc.source).shape))
        moved = (
            2 * lines
            + keyed.moved
            + desc.element.nbytes(math.prod(desc.layout(desc.result).shape)) * (2 if desc.base else 1)
        )
        launches = 3 + 3 * keyed.passes + 1
        one = Cost.streaming(device, moved, efficiency=LineCosts.of(device).bandwidth_efficiency)
        return Cost(
            one.bytes,
            math.prod(desc.layout(desc.source).shape),
            one.seconds + (launches - 1) * device.overhead,
            one.limit,
        )

    def guarantee(self, desc: ScatteredProblem, device: DeviceSpec, config: Share) -> PrecisionGuarantee:
        most = desc.keyed().count  # of one row
        return bound(desc, most + 2.0 if desc.reduce == "prod" else additions(most))

    def lower(self, desc: ScatteredProblem, device: DeviceSpec, config: Share) -> tuple[Step, ...]:
        clear = Fill(Ptr(desc.result), 0, desc.element.nbytes(math.prod(desc.layout(desc.result).shape)))
        return (clear, *scattered(desc, config))


def scattered(desc: ScatteredProblem, config: Share) -> tuple[Step, ...]:
    """The launches that reduce lines into a result that is 0 or holds the base already."""
    keyed = desc.keyed()
    clear = (Fill(Ptr("status"), 0, 4),) if keyed.status else ()
    if 0 in desc.layout(desc.source).shape:  # lines of no elements have indices, which are reported all the same
        return (*clear, keyed.made()) if clear and keyed.count else clear
    element, computed, width = desc.reduced_as
    sizes, accumulate = (desc.element.bits // 8, width), bool(desc.base) and desc.reduce != "set"
    runs = Runs((element, computed), sizes, OPS[desc.reduce], accumulate, keyed, desc.strided())
    return (*clear, *keyed.steps(), *runs.launches(config, Ptr(desc.result), Ptr(desc.source)))


def _vector(desc: ScatteredProblem) -> int:
    """Elements of the widest access that columns, rows and addresses are multiples of."""
    size = desc.element.bits // 8
    keys, positions, columns = (one.merged() for one in desc.strided())
    if any(strides != (1,) for strides in columns[1]):
        return 1
    steps = [s * size for one in (keys, positions) for strides in one[1] for s in strides]
    steps += [desc.layout(name).align for name in (desc.result, desc.source)] + [size * n for n in columns[0]]
    vector = ACCESS // size
    while any(step % (vector * size) for step in steps):
        vector //= 2
    return vector


class Runs(NamedTuple):
    """Lines to be reduced by sorted keys: the C++ types of an element and of what is computed, and the bytes of both; the
    reduction, and whether it is joined to what the result holds; the keys, and where lines are."""

    types: tuple[str, str]
    sizes: tuple[int, int]
    op: str
    accumulate: bool
    keyed: KeyedIndices
    strided: tuple[Strided, Strided, Strided]

    def launches(self, config: Share, out: Arg, lines: Arg) -> tuple[Launch, Launch]:
        (size, width), keyed = self.sizes, self.keyed
        keys, positions, columns = (one.merged(scale=size) for one in self.strided)
        length, count = math.prod(columns[0]), keyed.count
        chunks = -(-count // CHUNK)
        dense = all(strides in ((), (size,)) for strides in columns[1])
        ranks = len(keys[0]), len(positions[0]), 0 if dense else len(columns[0])
        packed = [pack_dims(shape, strides, "u32").data for shape, strides in (keys, positions)]
        packed.append(pack_dims(*(((), ((), ())) if dense else columns), "u32").data)
        scratch = width * chunks * length
        heads, tails = Scratch.named("heads", scratch), Scratch.named("tails", scratch)
        numbers = np.uint32(keyed.keys), np.uint32(count), np.uint32(length), Packed(b"".join(packed), 8)
        sorted_keys, places = keyed.pairs()

        def launch(name: str, options: str, tail: str, ctas: int, lanes: int, threads: int, *args: Any) -> Launch:
            types = f"{', '.join(self.types)}, {self.op}, {config.vector}{options}"
            entry = f"{name}<{types}, {ranks[0]}, {ranks[1]}, {ranks[2]}, {str(self.accumulate).lower()}{tail}>"
            grid = ctas, min(MOST_GRID_Y, -(-length // (lanes * config.vector))), 1
            return Launch(Kernel(FILE, entry), grid, (threads, 1, 1), (*args, *numbers))

        ctas = -(-chunks // (THREADS // config.lanes))
        return (
            launch(
                "reduce_chunks", f", {config.lanes}", f", {UNROLL}", ctas, config.lanes, THREADS, out, lines, heads, tails,
                sorted_keys, places,
            ),
            launch("join_runs", "", "", chunks, WARP, WARP * SLICES, out, heads, tails, sorted_keys),
        )  # fmt: skip


def additions(count: int) -> float:
    """Those that a term goes through at most, of so many indices."""
    chunks = -(-count // CHUNK)
    return min(count, CHUNK + SLICES + -(-chunks // SLICES)) + 2.0
