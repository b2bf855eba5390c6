"""cumprod, cummax, cummin and logcumsumexp: a row of the table is an op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...numerics.guarantee import widely
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import OpCategory, PrecisionGuarantee
from .._function import function_of
from . import oracle, samples
from ._candidates import either_way
from ._running import SCANS, ScanDescriptor

__all__ = ["ScanDescriptor", "ScanPlan", "cummax", "cummin", "cumprod", "logcumsumexp"]


class ScanPlan(Plan[ScanDescriptor]):
    """A running product, extremum or logarithm of a sum: operands `x` and `out`."""

    descriptor = ScanDescriptor
    category = OpCategory.SCAN
    candidates = either_way(ScanDescriptor, oracle.running)
    measures = oracle.RUNNING_MEASURES
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 100_000)),
        *({"shape": (n, 300), "element": e, "axis": 0} for e in ("f32", "bf16") for n in (100, 4096)),
    )
    reference = oracle.running

    @staticmethod
    def reference_guarantee(desc: ScanDescriptor) -> PrecisionGuarantee:
        return widely(desc.promised(1), desc, desc.extent)


def _plain(x: Any, /, axis: int = -1, *, reverse: bool = False, exclusive: bool = False) -> Any: ...


def _of_extremum(x: Any, /, axis: int = -1, *, reverse: bool = False) -> Any: ...


_DOC = """{doc} up to and with each one, along an axis.

x: {kinds}, of any shape and strides. axis: counted from the end if negative. reverse: from each one on to the last, instead.
{more}out: an array of x's shape, x itself included{own}, {result}; allocated in C order if not given.
{computed}
Returns out. Raises InvalidProblemError for an axis that there is not, OperandTypeError for an out of another dtype.
"""
_EXCLUSIVE = """exclusive: of the elements before each one (behind it, with reverse), without itself; the first result is {edge}.
"""
_EXACT = "The results are exact."
_ROUNDED = """Computed in f32 (f64 for f64) and rounded once; the order is fixed, and no row's results depend on how many rows
there are (a single column is stored like a row, and is computed in a row's order)."""


def _published(name: str) -> Callable[..., Any]:
    """The function of a row of the table, which is registered."""
    row = SCANS[name]
    kinds = "f16, bf16, f32, f64 or integers" if row.integers else "f16, bf16, f32 or f64"
    widened = "of x's dtype for floats, int64 for signed integers and uint64 for unsigned ones, which wrap, as in NumPy"
    edge, taken = row.edge, _of_extremum if row.edge is None else _plain
    more, own = ("", "") if edge is None else (_EXCLUSIVE.format(edge=edge), " unless exclusive")
    doc = _DOC.format(
        more=more, own=own,
        doc=row.doc, kinds=kinds, result=widened if row.widens else "of x's dtype",
        computed=_EXACT if name in ("cummax", "cummin") else _ROUNDED,
    )  # fmt: skip
    function = function_of(ScanPlan, called=name, doc=doc, name=name)(taken)
    gradient = Gradient(f"{name}_backward", ("x", "out"), {"x": "grad_x"}, renames={"out": "y"})
    register(Op(name, ScanPlan, function, samples.running, {"name": name}, gradient=gradient, peers={"torch": name}))
    return function


cumprod = _published("cumprod")
cummax = _published("cummax")
cummin = _published("cummin")
logcumsumexp = _published("logcumsumexp")
