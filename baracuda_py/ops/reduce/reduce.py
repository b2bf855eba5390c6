"""Reductions over any set of axes: a row of the table is an op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...numerics.guarantee import widely
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import OpCategory, PrecisionGuarantee
from .._function import function_of
from . import _guarantee, oracle, samples
from ._candidates import CANDIDATES
from ._problem import TABLE, ReduceDescriptor

__all__ = [
    "ReduceDescriptor",
    "ReducePlan",
    "argmax",
    "argmin",
    "logsumexp",
    "max",
    "mean",
    "min",
    "nanmax",
    "nanmean",
    "nanmin",
    "nansum",
    "prod",
    "std",
    "sum",
    "var",
]


class ReducePlan(Plan[ReduceDescriptor]):
    """A reduction: operands `x` and `out`."""

    descriptor = ReduceDescriptor
    category = OpCategory.REDUCE
    candidates = CANDIDATES
    measures = oracle.MEASURES
    probes = (
        *({"shape": (3, n), "element": e, "axes": (1,)} for e in ("f32", "bf16", "f64") for n in (100, 4096, 100_000)),
        *({"shape": (n, 300), "element": e, "axes": (0,)} for e in ("f32", "bf16") for n in (100, 4096)),
        {"shape": (5, 7, 40), "element": "f16", "axes": (0, 2)},
    )
    reference = oracle.reduce

    @staticmethod
    def reference_guarantee(desc: ReduceDescriptor) -> PrecisionGuarantee:
        return widely(_guarantee.promised(desc, 1), desc, desc.extent)


def _plain(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any: ...


def _with_correction(x: Any, /, axis: Any = None, *, correction: int = 0, keepdims: bool = False) -> Any: ...


_DOC = """{doc}

x: an array of any shape and strides, {kinds}. axis: an axis or several, counted from the end if negative; None for all.
keepdims: whether those stay as extents of 1. out: an array of the result's shape and dtype, allocated in C order if not given.
{computed}
Returns out. Raises InvalidProblemError for an axis that there is not or that is named twice{empty}.
"""

_SUMMED = """Computed in f32 (f64 for f64) and rounded once{integers}; the order of terms follows from the reduced
extents and from how x and out are laid out, and no result depends on how many there are (a single column is laid out like a
row)."""
_CHOSEN = "The result is exact."
_SAVED: dict[str, tuple[str, ...]] = {
    "sum": ("x",), "mean": ("x",), "max": ("x", "out"), "min": ("x", "out"), "var": ("x",), "logsumexp": ("x", "out"),
    "prod": ("x", "out"), "std": ("x", "out"), "nansum": ("x",), "nanmean": ("x",), "nanmax": ("x", "out"),
    "nanmin": ("x", "out"),
}  # fmt: skip
_GRADIENTS = {
    name: Gradient(
        f"{name}_backward", saved, {"x": "grad_x"}, renames={"out": "y"} if "out" in saved else {},
        shapes=("x",) if name in ("sum", "mean") else (),
    )
    for name, saved in _SAVED.items()
}  # fmt: skip


def _published(name: str) -> Callable[..., Any]:
    """The function of a row of the table, which is registered."""
    row = TABLE[name]
    kinds = "f16, bf16, f32, f64 or integers" if row.integers else "f16, bf16, f32 or f64"
    empty = "" if row.empty else ", and where there is nothing to reduce"
    integers = {"sum": ", integers are summed exactly", "prod": ", integers are multiplied exactly"}.get(name, "")
    computed = _SUMMED.format(integers=integers) if row.empty else _CHOSEN
    doc = _DOC.format(doc=row.doc, kinds=kinds, computed=computed, empty=empty)
    function = function_of(ReducePlan, called=name, doc=doc, name=name)(
        _with_correction if name in ("var", "std") else _plain
    )
    peer = {"max": "amax", "min": "amin"}.get(name, name)
    library = "cupy" if name in ("nanmax", "nanmin") else "torch"
    gradient = _GRADIENTS.get(name)
    register(Op(name, ReducePlan, function, samples.reduce, {"name": name}, gradient=gradient, peers={library: peer}))
    return function


sum = _published("sum")
mean = _published("mean")
max = _published("max")
min = _published("min")
argmax = _published("argmax")
var = _published("var")
logsumexp = _published("logsumexp")
prod = _published("prod")
argmin = _published("argmin")
std = _published("std")
nansum = _published("nansum")
nanmean = _published("nanmean")
nanmax = _published("nanmax")
nanmin = _published("nanmin")
