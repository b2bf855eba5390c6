"""sort and argsort: rows in order, and where their elements were."""

from __future__ import annotations

from typing import Any, ClassVar

from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....types import OpCategory
from ....types.elements import ElementLike
from ..._function import function_of
from ..topk import KEYS
from . import oracle, samples
from ._in_shared import RowInShared, ShortRows
from ._problem import FIELDS, INDICES, SortProblem
from ._radix import RadixSort

__all__ = ["ArgsortDescriptor", "ArgsortPlan", "SortDescriptor", "SortPlan", "argsort", "sort"]


@described(
    Slot("values", "out", takes=KEYS),
    Slot("indices", "out", takes=INDICES, shape="shape", element="index_element"),
    Slot("x", takes=KEYS),
    fields=FIELDS,
)
class SortDescriptor(SortProblem):
    """x of `shape`; its elements in order along `axis`, and where they were. Every answer is that of a stable sort."""

    name = "sort"
    results: ClassVar[tuple[str, str]] = ("values", "indices")


@described(
    Slot("out", "out", takes=INDICES, shape="shape", element="index_element"),
    Slot("x", takes=KEYS),
    fields=FIELDS,
)
class ArgsortDescriptor(SortProblem):
    """x of `shape`; the places of its elements in order along `axis`. Every answer is that of a stable sort."""

    name = "argsort"
    results: ClassVar[tuple[str, str]] = ("out", "out")


PROBES = (
    {"shape": (5, 64), "element": "bf16"},
    {"shape": (5, 2000), "element": "f64", "descending": True},
    {"shape": (3, 9001), "element": "f32"},
    {"shape": (3, 5000), "element": "i16", "index_dtype": "i32"},
    {"shape": (9000, 3), "element": "f16", "axis": 0},
    {"shape": (2, 20_000), "element": "u8"},
    {"shape": (1 << 20,), "element": "f32"},
)


class SortPlan(Plan[SortDescriptor]):
    """Rows in order: operands `x`, and `values` and `indices` out."""

    descriptor = SortDescriptor
    category = OpCategory.SORT
    candidates = (ShortRows(), RowInShared(), RadixSort())
    probes = PROBES
    reference = oracle.sort


class ArgsortPlan(Plan[ArgsortDescriptor]):
    """The places of elements in order: operands `x` and `out`."""

    descriptor = ArgsortDescriptor
    category = OpCategory.SORT
    candidates = (ShortRows(), RowInShared(), RadixSort())
    probes = PROBES
    reference = oracle.argsort


@function_of(SortPlan)
def sort(
    x: Any,
    axis: int = -1,
    *,
    descending: bool = False,
    stable: bool = True,
    index_dtype: ElementLike = "i64",
    values: Any = None,
    indices: Any = None,
) -> Any:
    """The elements of `x` in order along `axis`, and where they were: (values, indices), as torch.sort gives them.

    x: f16, bf16, f32, f64 or integers, any strides; rows of any length up to 2^31 elements. The order is total: NaN is above
    every number, so the last of an ascending row and the first where `descending`, and all NaN are equal; -0.0 equals 0.0. Equal
    elements keep their order, `descending` too, and every element its bits; with ``stable=False`` as well.
    values: x's shape and kind; indices: int64, or int32 by `index_dtype`; allocated if not given. A row's result depends on
    nothing but the row. Raises InvalidProblemError for an axis out of range.
    """


@function_of(ArgsortPlan)
def argsort(
    x: Any, axis: int = -1, *, descending: bool = False, stable: bool = True, index_dtype: ElementLike = "i64"
) -> Any:
    """The places of the elements of `x` in order along `axis`: the indices that `sort` gives, as torch.argsort(stable=True).

    x, its order, equal elements, index_dtype and errors: as in `sort`. out: of x's shape; allocated if not given. Returns out.
    """


_gradient = Gradient("take_along_axis_backward", ("indices", "x"), {"x": "grad_x"}, shapes=("x",))
register(Op("sort", SortPlan, sort, samples.sort, gradient=_gradient, peers={"torch": "sort"}))
register(Op("argsort", ArgsortPlan, argsort, samples.sort, peers={"cupy": "argsort", "torch": "argsort"}))
