"""kthvalue and median: the element of each row that has a certain rank, and where it is."""

from __future__ import annotations

from typing import Any, ClassVar

from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....types import ElementKind, InvalidProblemError, OpCategory
from ..._function import function_of
from .._select import SelectRows, SplitRows
from .._short import SortRows
from ..topk import KEYS
from . import oracle, samples
from ._problem import FIELDS, RankProblem

__all__ = ["KthvalueDescriptor", "KthvaluePlan", "MedianDescriptor", "MedianPlan", "kthvalue", "median"]

_SLOTS = (
    Slot("values", "out", takes=KEYS, shape="out_shape", element="element"),
    Slot("indices", "out", element=ElementKind.I64, shape="out_shape"),
    Slot("x", takes=KEYS),
)


class Ranked(RankProblem):
    """What the kernels of `topk` see: the last of the k smallest."""

    results: ClassVar[tuple[str, str]] = ("values", "indices")
    flipped: ClassVar[bool] = True
    sorted: ClassVar[bool] = True


@described(*_SLOTS, fields=("shape", "element", "k", "axis", "keepdims"))
class KthvalueDescriptor(Ranked):
    """x of `shape`; the `k`-th smallest element along `axis`, counted from 1, by default the smallest."""

    k: int = 1

    name = "kthvalue"
    end: ClassVar[str] = "End::KTH"

    def check(self) -> None:
        if not 1 <= self.k <= self.extent:
            fix = f"give k from 1 to {self.extent}" if self.extent else "give rows of at least one element"
            raise InvalidProblemError(
                f"kthvalue: k={self.k}, and x of shape {self.shape} has {self.extent} elements along axis {self.axis}",
                fix,
            )


@described(*_SLOTS, fields=FIELDS)
class MedianDescriptor(Ranked):
    """x of `shape`; the lower median along `axis`, or the first NaN."""

    name = "median"

    @property
    def k(self) -> int:
        return (self.extent + 1) // 2

    @property
    def end(self) -> str:
        return "End::MEDIAN" if self.element.is_float else "End::KTH"

    def check(self) -> None:
        if not self.extent:
            raise InvalidProblemError(
                f"median: x of shape {self.shape} has no elements along axis {self.axis}",
                "give rows of at least one element",
            )


class KthvaluePlan(Plan[KthvalueDescriptor]):
    """The k-th smallest element of each row: operands `x`, and `values` and `indices` (i64) out."""

    descriptor = KthvalueDescriptor
    category = OpCategory.SORT
    candidates = (SortRows(), SelectRows(), SplitRows())
    probes = (
        {"shape": (5, 64), "element": "bf16", "k": 8},
        {"shape": (3, 9001), "element": "f32", "k": 4000},
        {"shape": (2, 9000), "element": "i64", "k": 50},
        {"shape": (9000, 3), "element": "f16", "k": 9, "axis": 0, "keepdims": True},
        {"shape": (1, 1 << 20), "element": "f32", "k": 16},
    )
    reference = oracle.kthvalue


class MedianPlan(Plan[MedianDescriptor]):
    """The lower median of each row: operands `x`, and `values` and `indices` (i64) out."""

    descriptor = MedianDescriptor
    category = OpCategory.SORT
    candidates = (SortRows(), SelectRows())
    probes = (
        {"shape": (5, 64), "element": "bf16"},
        {"shape": (3, 9001), "element": "f32"},
        {"shape": (2, 9000), "element": "i64"},
        {"shape": (9000, 3), "element": "f16", "axis": 0, "keepdims": True},
    )
    reference = oracle.median


@function_of(KthvaluePlan)
def kthvalue(x: Any, k: int, axis: int = -1, *, keepdims: bool = False, values: Any = None, indices: Any = None) -> Any:
    """The `k`-th smallest element of `x` along `axis`, counted from 1, and where it is: (values, indices), as torch.kthvalue.

    x: f16, bf16, f32, f64 or integers, any strides; rows of 1 to 2^31 elements. The order is that of `sort`: NaN is above every
    number, -0.0 equals 0.0, and equal elements keep their order, so that indices are those of ``sort(x).indices`` at k - 1, where
    torch leaves open which of equal elements it takes.
    values: x's kind, indices: int64, both of x's shape without the axis, or with 1 there with `keepdims`; allocated if not given.
    A row's result depends on nothing but the row. Rows are sorted in shared memory, or searched by digits of their keys (radix
    select), which reads a row of 16 bits three times, of 32 bits four times. Raises InvalidProblemError for a k or an axis out
    of range.
    """


@function_of(MedianPlan)
def median(x: Any, axis: int = -1, *, keepdims: bool = False, values: Any = None, indices: Any = None) -> Any:
    """The median of `x` along `axis`, and where it is: (values, indices), as torch.median(x, dim) gives it.

    Of an even number of elements the lower of the two in the middle, which is an element of x: rank (n - 1) // 2 of `sort`. The
    result of a row with a NaN is the first NaN.
    x, values, indices, keepdims, equal elements and errors: as in `kthvalue`; rows have at least one element.
    """


_gradient = Gradient("kthvalue_backward", ("indices", "x"), {"x": "grad_x"}, shapes=("x",))
register(Op("kthvalue", KthvaluePlan, kthvalue, samples.kthvalue, gradient=_gradient, peers={"torch": "kthvalue"}))
register(Op("median", MedianPlan, median, samples.median, gradient=_gradient))
