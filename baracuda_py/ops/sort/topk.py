"""topk: the k largest or smallest elements along an axis, and where they are."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import ElementKind, InvalidProblemError, OpCategory
from .._function import function_of
from . import oracle, samples
from ._greatest import GreatestRows
from ._held import HeldRows
from ._select import FIRST_K, SelectRows, SplitRows
from ._short import SortRows

__all__ = ["TopkDescriptor", "TopkPlan", "topk"]

KEYS = tuple(k for k in ElementKind if not k.packed and (k.is_integer or (k.is_float and k.bits > 8)))


@described(
    Slot("values", "out", takes=KEYS, shape="out_shape", element="element"),
    Slot("indices", "out", element=ElementKind.I64, shape="out_shape"),
    Slot("x", takes=KEYS),
)
class TopkDescriptor(Descriptor):
    """x of `shape`; `k` elements along `axis`, the `largest` or the smallest, `sorted` or in x's order."""

    shape: tuple[int, ...]
    element: ElementKind
    k: int
    axis: int = -1
    largest: bool = True
    sorted: bool = True

    name = "topk"
    results: ClassVar[tuple[str, str]] = ("values", "indices")
    end: ClassVar[str] = FIRST_K

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("largest", "sorted"), _flag)

    @property
    def out_shape(self) -> tuple[int, ...]:
        rank = len(self.shape)
        if not -rank <= self.axis < rank:
            known = f"give one of {-rank} to {rank - 1}" if rank else "give x an axis"
            raise InvalidProblemError(f"topk: axis={self.axis}, and x has {rank} axes", known)
        axis = self.axis % rank
        return (*self.shape[:axis], self.k, *self.shape[axis + 1 :])

    @property
    def flipped(self) -> bool:
        return not self.largest

    def neutral(self) -> dict[str, Any]:
        return {"axis": self.axis % len(self.shape)}

    def check(self) -> None:
        self.out_shape  # noqa: B018  # the axis
        if not 0 <= self.k <= self.shape[self.axis]:
            raise InvalidProblemError(
                f"topk: k={self.k}, and x of shape {self.shape} has {self.shape[self.axis]} elements along axis {self.axis}",
                f"give k from 0 to {self.shape[self.axis]}",
            )


def _flag(value: Any, what: str) -> bool:
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InvalidProblemError(f"{what} must be True or False, got {type(value).__name__}", "give a bool")


class TopkPlan(Plan[TopkDescriptor]):
    """The k largest or smallest elements of each row: operands `x`, and `values` and `indices` (i64) out."""

    descriptor = TopkDescriptor
    category = OpCategory.SORT
    candidates = (SortRows(), HeldRows(), GreatestRows(), SelectRows(), SplitRows())
    probes = (
        {"shape": (5, 64), "element": "bf16", "k": 8},
        {"shape": (5, 2048), "element": "f64", "k": 8, "largest": False},
        {"shape": (3, 9001), "element": "f32", "k": 50},
        {"shape": (2, 9000), "element": "i64", "k": 5000},
        {"shape": (9000, 3), "element": "f16", "k": 9, "axis": 0, "sorted": False},
        {"shape": (1, 1 << 20), "element": "f32", "k": 16},
    )
    reference = oracle.topk


@function_of(TopkPlan)
def topk(
    x: Any,
    k: int,
    axis: int = -1,
    *,
    largest: bool = True,
    sorted: bool = True,
    values: Any = None,
    indices: Any = None,
) -> Any:
    """The `k` largest (or smallest) elements of `x` along `axis`, and where they are: (values, indices).

    x: f16, bf16, f32, f64 or integers, any strides. values: x's kind, indices: int64, both of x's shape with k along the axis;
    allocated if not given. NaN is above every number, -0.0 equals 0.0. Of equal elements the lower index comes first and is
    taken first, always: unlike torch.topk, a row's result depends on nothing but the row. `sorted`: from the largest (smallest)
    on; otherwise by index. Any k up to the extent; k of which 32 KB of entries (8 bytes, 16 of 64-bit kinds) hold no more are
    sorted by way of scratch, which is slower. Raises InvalidProblemError for a k or an axis out of range.
    """


_gradient = Gradient("take_along_axis_backward", ("indices", "x"), {"x": "grad_x"}, shapes=("x",))
register(Op("topk", TopkPlan, topk, samples.topk, gradient=_gradient, peers={"torch": "topk"}))
