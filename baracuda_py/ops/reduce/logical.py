"""any, all and count_nonzero: what asks whether terms are 0, over any set of axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import OpCategory
from .._function import function_of
from . import oracle, samples
from ._candidates import CANDIDATES
from ._problem import LOGICAL, LogicalDescriptor

__all__ = ["LogicalDescriptor", "LogicalPlan", "all", "any", "count_nonzero"]


class LogicalPlan(Plan[LogicalDescriptor]):
    """A question of each term, put together: operands `x` and `out`."""

    descriptor = LogicalDescriptor
    category = OpCategory.REDUCE
    candidates = CANDIDATES
    probes = (
        *({"shape": (3, n), "element": e, "axes": (1,)} for e in ("f32", "bool", "i32") for n in (100, 4096, 100_000)),
        *({"shape": (n, 300), "element": e, "axes": (0,)} for e in ("f32", "bool") for n in (100, 4096)),
    )
    reference = oracle.reduce


def _plain(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any: ...


_DOC = """{doc}

x: an array of any shape and strides, f16, bf16, f32, f64, integers or bool. axis: an axis or several, counted from the end if
negative; None for all. keepdims: whether those stay as extents of 1.
out: an array of the result's shape, {result}; allocated in C order if not given.
The result is exact. Returns out. Raises InvalidProblemError for an axis that there is not or that is named twice.
"""


def _published(name: str) -> Callable[..., Any]:
    """The function of a row of the table, which is registered."""
    row = LOGICAL[name]
    doc = _DOC.format(doc=row.doc, result=row.result)
    function = function_of(LogicalPlan, called=name, doc=doc, name=name)(_plain)
    register(Op(name, LogicalPlan, function, samples.reduce, {"name": name}, peers={"torch": name}))
    return function


any = _published("any")
all = _published("all")
count_nonzero = _published("count_nonzero")
