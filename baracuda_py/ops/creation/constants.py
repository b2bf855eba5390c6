"""fill, fill_eye, one_hot: constants, and rows with another one at one column."""

from __future__ import annotations

import math
from typing import Any

from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind, InvalidProblemError
from ...types.elements import ElementLike
from .._function import SignatureRules, function_of
from .._numbers import element_bytes, number
from . import oracle, samples
from ._mark import Mark

__all__ = [
    "FillDescriptor",
    "FillEyeDescriptor",
    "FillEyePlan",
    "FillPlan",
    "OneHotDescriptor",
    "OneHotPlan",
    "fill",
    "fill_eye",
    "one_hot",
]

BYTES = tuple(kind for kind in ElementKind if not kind.packed)
INDICES = tuple(kind for kind in ElementKind if kind.is_integer and not kind.packed)
X = Slot("x", "inout", takes=BYTES, strided=False)


# ---- fill --------------------------------------------------------------------------------------------------------------


@described(X)
class FillDescriptor(Descriptor):
    """x of `shape`, whose elements all become `value`."""

    shape: tuple[int, ...]
    element: ElementKind
    value: Any = 0

    name = "fill"
    written = "x"
    diagonal = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("value",), number)

    @property
    def elements(self) -> tuple[bytes, bytes]:
        """The bytes of the elements that are not marked, and of those that are."""
        one = element_bytes(self.op, "value", self.value, self.element)
        return one, one

    @property
    def columns(self) -> int:
        return max(math.prod(self.shape), 1)

    def check(self) -> None:
        self.elements  # noqa: B018  # the number


class FillPlan(Plan[FillDescriptor]):
    """One value for all elements: operand `x`."""

    descriptor = FillDescriptor
    candidates = (Mark(),)
    reference = oracle.fill
    probes = (
        {"shape": (5, 33), "element": "f32", "value": 2.5},
        {"shape": (64,), "element": "complex128"},
        {"shape": (64,), "element": "u8", "x_align": 1},
    )


@function_of(FillPlan, rules=SignatureRules(reads={"value": number}))
def fill(x: Any, value: int | float) -> Any:
    """Sets every element of `x` to `value`, in place, and returns `x`; `full` makes the array.

    x: a C-ordered array of any byte-wide kind. value: a real number that the kind holds. Raises InvalidProblemError for one that
    it does not hold.
    """


# ---- fill_eye ----------------------------------------------------------------------------------------------------------


@described(X)
class FillEyeDescriptor(Descriptor):
    """A matrix x of `shape`, which becomes ones on diagonal `k` and zeros elsewhere."""

    shape: tuple[int, ...]
    element: ElementKind
    k: int = 0

    name = "fill_eye"
    written = "x"

    @property
    def elements(self) -> tuple[bytes, bytes]:
        return _unit(self.op, self.element)

    @property
    def columns(self) -> int:
        return max(self.shape[1], 1)

    @property
    def diagonal(self) -> int:
        return max(min(self.k, self.shape[1]), -self.shape[0])

    def check(self) -> None:
        if len(self.shape) != 2:
            raise InvalidProblemError(f"fill_eye: x of shape {self.shape} is no matrix", "pass x of two axes")


class FillEyePlan(Plan[FillEyeDescriptor]):
    """Ones on a diagonal: operand `x`."""

    descriptor = FillEyeDescriptor
    candidates = (Mark(),)
    reference = oracle.fill_eye
    probes = ({"shape": (5, 33), "element": "f32", "k": 1}, {"shape": (64, 64), "element": "u8"})


def _unit(op: str, kind: ElementKind) -> tuple[bytes, bytes]:
    return element_bytes(op, "zero", 0, kind), element_bytes(op, "one", 1, kind)


@function_of(FillEyePlan)
def fill_eye(x: Any, k: int = 0) -> Any:
    """Sets the matrix `x` to ones on diagonal `k` and zeros elsewhere, in place, and returns `x`; `eye` makes the array.

    x: a C-ordered array of two axes of any byte-wide kind. k: 0 is the main diagonal, positive ones are above it. Raises
    InvalidProblemError for an x of other axes.
    """


# ---- one_hot -----------------------------------------------------------------------------------------------------------


@described(
    Slot("out", "out", takes=BYTES, shape="out_shape", element="element", strided=False),
    Slot("indices", takes=INDICES, shape="indices_shape", element="indices_element", strided=False),
)
class OneHotDescriptor(Descriptor):
    """For each of the indices a row of `num_classes` with a one at the index."""

    indices_shape: tuple[int, ...]
    indices_element: ElementKind
    num_classes: int
    dtype: ElementKind = ElementKind.I64

    name = "one_hot"
    written = "out"
    diagonal = 0

    @property
    def element(self) -> ElementKind:
        return self.dtype

    @property
    def out_shape(self) -> tuple[int, ...]:
        if self.num_classes < 0:
            raise InvalidProblemError(f"one_hot: num_classes={self.num_classes} is negative", "give 0 or more")
        return (*self.indices_shape, self.num_classes)

    @property
    def elements(self) -> tuple[bytes, bytes]:
        return _unit(self.op, self.element)

    @property
    def columns(self) -> int:
        return max(self.num_classes, 1)


class OneHotPlan(Plan[OneHotDescriptor]):
    """A row with a one at the index, for each index: operands `indices` and `out`."""

    descriptor = OneHotDescriptor
    candidates = (Mark(),)
    reference = oracle.one_hot
    probes = (
        {"indices_shape": (5, 3), "indices_element": "i64", "num_classes": 33, "dtype": "f32"},
        {"indices_shape": (64,), "indices_element": "u8", "num_classes": 64, "dtype": "u8"},
    )


@function_of(OneHotPlan)
def one_hot(indices: Any, /, num_classes: int, dtype: ElementLike = ElementKind.I64) -> Any:
    """For each index a row of `num_classes` zeros with a one at the index, as torch.nn.functional.one_hot and jax.nn.one_hot.

    indices: a C-ordered array of integers; those below 0 or from num_classes on give a row of zeros, as in JAX. dtype: any
    byte-wide kind. out: a C-ordered array of the indices' shape with one more axis. Raises InvalidProblemError for a negative
    num_classes.
    """


register(Op("fill", FillPlan, fill, samples.fill, peers={"cupy": "fill", "torch": "fill_"}))
register(Op("fill_eye", FillEyePlan, fill_eye, samples.fill_eye, peers={"cupy": "eye", "torch": "eye"}))
register(Op("one_hot", OneHotPlan, one_hot, samples.one_hot, peers={"torch": "one_hot"}))
