"""diag: a matrix with a vector on a diagonal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import ElementKind, InvalidProblemError
from .._function import function_of
from . import oracle, samples
from ._axes import Axis, kept, padded
from ._gather import Gather
from ._problem import BYTES, Rearranged

__all__ = ["DiagDescriptor", "DiagPlan", "diag"]


@described(
    Slot("out", "out", takes=BYTES, shape="out_shape", element="element", strided=False), Slot("x", takes=BYTES)
)  # fmt: skip
class DiagDescriptor(Rearranged):
    """A square matrix with the vector x of `shape` on diagonal `k`, and zeros elsewhere."""

    shape: tuple[int, ...]
    element: ElementKind
    k: int = 0

    name = "diag"

    def rules(self) -> tuple[Axis, ...]:
        if len(self.shape) != 1:
            fix = "bp.diagonal(x, k), a view of a matrix's diagonal" if len(self.shape) > 1 else "pass x of one axis"
            raise InvalidProblemError(f"diag: x of shape {self.shape} is no vector", fix)
        (n,) = self.shape
        return padded(n, max(-self.k, 0), max(self.k, 0), "constant"), kept(n + abs(self.k))

    def axes(self) -> tuple[Axis, ...]:
        """A row holds one element of x, at every place of which the diagonal keeps one."""
        row, column = self.rules()
        return replace(row, stride=self.layout("x").strides[0]), column

    @property
    def band(self) -> tuple[int, int]:
        return self.k, self.k


class DiagPlan(Plan[DiagDescriptor]):
    """A vector on a diagonal of a matrix: operands `x` and `out`."""

    descriptor = DiagDescriptor
    candidates = (Gather(),)
    reference = oracle.diag
    probes = ({"shape": (33,), "element": "f32"}, {"shape": (64,), "element": "u8", "k": -3})


@function_of(DiagPlan)
def diag(x: Any, /, k: int = 0) -> Any:
    """A square matrix with the vector `x` on diagonal `k` and zeros elsewhere, as numpy.diag; `diagonal` is the way back, a view.

    x: a vector of a byte-wide kind, any stride. k: 0 is the main diagonal, positive ones are above it. out: a C-ordered matrix of
    x's kind. Raises InvalidProblemError for an x of other axes.
    """


register(
    Op("diag", DiagPlan, diag, samples.diag, peers={"cupy": "diag", "torch": "diag"},
       gradient=Gradient("", (), {"x": "grad_x"}, views=lambda given: {"x": lambda grad: grad.diagonal(given.get("k", 0))}))
)  # fmt: skip
