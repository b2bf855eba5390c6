"""Reductions with two results: the table, their descriptors, and the kernels that compute both in one pass."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.lowering import Sub
from ...plan.plan import Plan
from ...plan.selection import Selection, selected
from ...runtime.steps import Kernel, Launch, Ptr, Scratch, Step
from ...tensor.axes import collapse
from ...types import Componentwise, DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from .._launch import grid_of, index_scalar, index_type, pack_dims
from .._rows import FLOATS
from . import _guarantee, oracle
from ._candidates import CANDIDATES
from ._problem import INTEGERS, TABLE, Reduced, ReduceDescriptor, Row

__all__ = ["AminmaxDescriptor", "InOnePass", "PairDescriptor", "VarMeanDescriptor", "promised"]

FILE = "reduce/split.cu"
THREADS = 256


PARTS = {"aminmax": ("min", "max"), "var_mean": ("var", "mean")}


def _both(name: str, doc: str) -> Row:
    """The row of two reductions, by theirs."""
    own = [TABLE[part] for part in PARTS[name]]
    reducers = ", ".join(f"rows::{row.reducer}" for row in own)
    return Row(
        name, f"TwoReducers<{reducers}, {{out}}>", doc, all(row.integers for row in own), all(row.empty for row in own),
        lambda c: own[0].state(c) + own[1].state(c), own[0].instructions + own[1].instructions,
    )  # fmt: skip


PAIRS = {
    "aminmax": _both("aminmax", "The smallest and the largest; a NaN is both."),
    "var_mean": _both("var_mean", "The mean square deviation from the mean, of n - correction, and the mean."),
}
# Kinds that are as large as a pair of results.
WORDS = {
    8: ElementKind.U16, 16: ElementKind.U32, 32: ElementKind.U64, 64: ElementKind.COMPLEX128,
}  # fmt: skip


class StatePairDescriptor(ReduceDescriptor):
    """Both results of one of `PAIRS`, adjacent in `out`: a step, without a public function."""

    def __post_init__(self) -> None:
        self._names_op(tuple(PAIRS), "name")
        Descriptor.__post_init__(self)

    @property
    def row(self) -> Row:
        return PAIRS[self.name]

    def default_element(self, name: str) -> ElementKind:
        return WORDS[self.element.bits]

    @property
    def results(self) -> tuple[str, ...]:
        """The reductions."""
        return PARTS[self.name]

    def alone(self, name: str) -> ReduceDescriptor:
        """One of them."""
        return ReduceDescriptor(self.shape, self.element, self.axes, self.keepdims, self.correction, name)

    @property
    def reducer(self) -> str:
        return "rows::" + self.row.reducer.format(c=self.computed, out=self.element.number, digits=self.element.digits)


class StatePairPlan(Plan[StatePairDescriptor]):
    """Two reductions in one pass: operands `x` and `out`."""

    descriptor = StatePairDescriptor
    category = OpCategory.REDUCE
    candidates = CANDIDATES
    reference = oracle.side_by_side


class PairDescriptor(Reduced):
    """The part of a problem with two results that does not depend on which."""

    element: ElementKind

    @property
    def results(self) -> tuple[str, ...]:
        """The outputs, which are called as the reductions are."""
        return PARTS[self.op]

    @property
    def row(self) -> Row:
        return PAIRS[self.op]

    def check(self) -> None:
        self.check_axes(self.row)

    def _of_x(self) -> dict[str, Any]:
        x = self.layout("x")
        return {"correction": self.correction, "x_strides": x.strides, "x_align": x.align}

    def pairs(self) -> StatePairDescriptor:
        """The problem whose result has both."""
        return StatePairDescriptor(self.shape, self.element, self.axes, self.keepdims, name=self.op, **self._of_x())

    def alone(self, output: str) -> ReduceDescriptor:
        """The reduction that one of the outputs is."""
        return ReduceDescriptor(self.shape, self.element, self.axes, self.keepdims, name=output, **self._of_x())


@described(
    Slot("min", "out", shape="out_shape", element="element"),
    Slot("max", "out", shape="out_shape", element="element"),
    Slot("x", takes=(*FLOATS, *INTEGERS)),
)
class AminmaxDescriptor(PairDescriptor):
    """The smallest and the largest of an x of `shape` over `axes` (all of them where None), which stay as extents of 1 where
    `keepdims` is 1."""

    shape: tuple[int, ...]
    element: ElementKind
    axes: tuple[int, ...] | None = None
    keepdims: int = 0

    name = "aminmax"
    correction: ClassVar[int] = 0  # type: ignore[misc]

    @classmethod
    def of(
        cls, x: Any, *, min: Any = None, max: Any = None, axis: Any = None, keepdims: bool = False
    ) -> AminmaxDescriptor:
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(cls.name, {"x": x, "min": min, "max": max})
        return cls.of_tensors(tensors, **cls.options_of(cls.name, tensors["x"].shape, axis, keepdims))


@described(
    Slot("var", "out", shape="out_shape", element="element"),
    Slot("mean", "out", shape="out_shape", element="element"),
    Slot("x", takes=FLOATS),
)
class VarMeanDescriptor(PairDescriptor):
    """The variance and the mean of an x of `shape` over `axes` (all of them where None), which stay as extents of 1 where
    `keepdims` is 1. `correction` is taken from the variance's count."""

    shape: tuple[int, ...]
    element: ElementKind
    axes: tuple[int, ...] | None = None
    keepdims: int = 0
    correction: int = 0

    name = "var_mean"

    @classmethod
    def of(
        cls, x: Any, *, var: Any = None, mean: Any = None, axis: Any = None, correction: int = 0, keepdims: bool = False
    ) -> VarMeanDescriptor:
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(cls.name, {"x": x, "var": var, "mean": mean})
        options = cls.options_of(cls.name, tensors["x"].shape, axis, keepdims)
        return cls.of_tensors(tensors, correction=correction, **options)


@dataclass(frozen=True)
class Pass:
    """The configuration: what reduces."""

    pairs: Selection

    def __str__(self) -> str:
        return f"pairs={self.pairs.candidate.variant}[{self.pairs.config}]"


class InOnePass(Candidate[PairDescriptor]):
    """Pairs of results by the kernels of a reduction, which read x once; then each to its output."""

    variant = "one_pass"
    launches = (
        *dict.fromkeys(launch for candidate in CANDIDATES for launch in candidate.launches),
        f"{FILE}:split_pairs",
    )

    def configs(self, desc: PairDescriptor, device: DeviceSpec) -> Iterable[Pass]:
        yield Pass(selected(StatePairPlan, desc.pairs(), None, device))

    def guarantee(self, desc: PairDescriptor, device: DeviceSpec, config: Pass) -> PrecisionGuarantee:
        """That of each reduction alone, if it goes through its terms in the same order."""
        pairs = config.pairs
        return _by_output(desc, lambda output: pairs.candidate.guarantee(desc.alone(output), device, pairs.config))

    def cost(self, desc: PairDescriptor, device: DeviceSpec, config: Pass) -> Cost:
        first = config.pairs.cost
        moved = 4 * desc.element.nbytes(math.prod(desc.out_shape))
        second = Cost.streaming(device, moved)
        return Cost(desc.nbytes, first.flops, first.seconds + second.seconds, first.limit)

    def lower(self, desc: PairDescriptor, device: DeviceSpec, config: Pass) -> tuple[Step | Sub, ...]:
        results, size, names = math.prod(desc.out_shape), desc.element.bits // 8, desc.results
        made = config.pairs.desc.layout("out")
        pairs = Scratch.named("pairs", max(2 * size * results, 1))
        steps = [[s * size for s in desc.layout(name).strides] for name in names]
        extents, walked = collapse(desc.out_shape, [*steps, [s * 2 * size for s in made.strides]])
        index = index_type(results)
        entry = f"split_pairs<{desc.element.number}, {THREADS}, {len(extents)}, {index}>"
        dims = pack_dims(extents, walked, index)
        first, second = map(Ptr, names)
        args = (index_scalar(results, index), dims, first, second, pairs)
        split = Launch(Kernel(FILE, entry), grid_of(results, THREADS), (THREADS, 1, 1), args)
        return Sub(config.pairs, {"x": Ptr("x"), "out": pairs}), split


def _by_output(desc: PairDescriptor, of: Any) -> PrecisionGuarantee:
    """The guarantee of each output; what a bound excludes is asked of that one."""
    parts = {}
    for output in desc.results:
        part = of(output)
        if isinstance(part.bound, Componentwise):
            part = replace(part, bound=replace(part.bound, outside=f"overflowing_{output}"))
        parts[output] = part
    return PrecisionGuarantee.by_output(**parts)


def promised(desc: PairDescriptor, depth: float) -> PrecisionGuarantee:
    """What the outputs promise of terms that go through `depth` additions or joins."""
    return _by_output(desc, lambda output: _guarantee.promised(desc.alone(output), depth))
