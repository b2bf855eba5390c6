"""triu, tril: matrices without what is below or above a diagonal."""

from __future__ import annotations

from typing import Any

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import ElementKind, InvalidProblemError
from .._function import function_of
from . import oracle, samples
from ._axes import Axis, kept
from ._gather import Gather
from ._problem import BYTES, EVERYWHERE, Rearranged

__all__ = ["TriangleDescriptor", "TrianglePlan", "tril", "triu"]


@described(
    Slot("out", "out", takes=BYTES, strided=False), Slot("x", takes=BYTES)
)  # fmt: skip
class TriangleDescriptor(Rearranged):
    """x of `shape`, of whose matrices (the last two axes) the elements above (`triu`) or below (`tril`) diagonal `k` are kept,
    and those on it."""

    shape: tuple[int, ...]
    element: ElementKind
    k: int = 0
    name: str = "triu"

    def __post_init__(self) -> None:
        self._names_op(("triu", "tril"), "name")
        super().__post_init__()

    def rules(self) -> tuple[Axis, ...]:
        if len(self.shape) < 2:
            raise InvalidProblemError(f"{self.op}: x of shape {self.shape} is no matrix", "pass x of two axes or more")
        return tuple(kept(n) for n in self.shape)

    @property
    def band(self) -> tuple[int, int]:
        low, high = EVERYWHERE
        k = min(max(self.k, low), high)
        return (k, high) if self.name == "triu" else (low, k)


class TrianglePlan(Plan[TriangleDescriptor]):
    """The upper or lower triangles of matrices: operands `x` and `out`."""

    descriptor = TriangleDescriptor
    candidates = (Gather(),)
    reference = oracle.triangle
    probes = ({"shape": (3, 5, 33), "element": "f32"}, {"shape": (64, 64), "element": "u8", "k": -3})


@function_of(TrianglePlan, name="triu")
def triu(x: Any, /, k: int = 0) -> Any:
    """`x` with zeros below diagonal `k` of its last two axes, as numpy.triu.

    x: an array of two axes or more of a byte-wide kind, any strides. k: 0 is the main diagonal, positive ones are above it.
    out: a C-ordered array of x's shape and kind. Raises InvalidProblemError for an x of fewer axes.
    """


@function_of(TrianglePlan, name="tril")
def tril(x: Any, /, k: int = 0) -> Any:
    """`x` with zeros above diagonal `k` of its last two axes, as numpy.tril.

    x: an array of two axes or more of a byte-wide kind, any strides. k: 0 is the main diagonal, positive ones are above it.
    out: a C-ordered array of x's shape and kind. Raises InvalidProblemError for an x of fewer axes.
    """


for name, function in (("triu", triu), ("tril", tril)):
    register(
        Op(name, TrianglePlan, function, samples.triangle, fixed={"name": name},
           gradient=Gradient(name, (), {"x": "out"}, grad="x"), peers={"cupy": name, "torch": name})
    )  # fmt: skip
