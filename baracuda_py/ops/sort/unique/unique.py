"""unique and unique_consecutive: distinct elements, where they are and how many of each there are."""

from __future__ import annotations

from typing import Any

from ....call.results.trim import Trim
from ....plan.descriptor import described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import OpCategory
from ..._function import SignatureRules, function_of
from ..._numbers import number
from . import oracle, samples
from ._problem import FIELDS, SLOTS, DistinctProblem
from ._runs import OfNeighbours, OfSorted

__all__ = [
    "UniqueConsecutiveDescriptor",
    "UniqueConsecutivePlan",
    "UniqueDescriptor",
    "UniquePlan",
    "unique",
    "unique_consecutive",
]


@described(*SLOTS, fields=FIELDS)
class UniqueDescriptor(DistinctProblem):
    """x of `shape`, whose distinct elements are wanted in ascending order; as many as `size`, by default as many as x has."""

    name = "unique"


@described(*SLOTS, fields=FIELDS)
class UniqueConsecutiveDescriptor(DistinctProblem):
    """x of `shape`, of whose runs of equal elements the first is wanted; as many as `size`, by default as many as x has."""

    name = "unique_consecutive"


WHOLE = {"return_inverse": True, "return_counts": True, "return_index": True}


class UniquePlan(Plan[UniqueDescriptor]):
    """Distinct elements in order: operands `x`, `out`, `count`, and as the problem has them `inverse`, `counts` and `index`."""

    descriptor = UniqueDescriptor
    category = OpCategory.SORT
    candidates = (OfSorted(),)
    probes = (
        {"shape": (70, 130), "element": "bf16", "x_strides": (131, 1), "size": 50, "fill_value": 0, **WHOLE},
        {"shape": (20_000,), "element": "i32", "return_inverse": True},
    )
    reference = oracle.unique


class UniqueConsecutivePlan(Plan[UniqueConsecutiveDescriptor]):
    """Runs of equal elements: operands `x`, `out`, `count`, and as the problem has them `inverse`, `counts` and `index`."""

    descriptor = UniqueConsecutiveDescriptor
    category = OpCategory.SORT
    candidates = (OfNeighbours(),)
    probes = (
        {"shape": (70, 130), "element": "f64", "x_strides": (131, 1), "equal_nan": True, **WHOLE},
        {"shape": (20_000,), "element": "u8", "return_counts": True},
    )
    reference = oracle.unique_consecutive


RULES = SignatureRules(
    reads={"fill_value": number},
    wanted={name: (f"return_{name}", True) for name in ("inverse", "counts", "index")},
    trim=Trim(("out", "counts", "index"), unless="size", alone=("fill_value",)),
)


def _template(
    x: Any, *, return_inverse: bool = False, return_counts: bool = False, return_index: bool = False,
    equal_nan: bool = False, trim: bool = True, size: int | None = None, fill_value: int | float | None = None,
    inverse: Any = None, counts: Any = None, index: Any = None, count: Any = None,
) -> Any: ...  # fmt: skip


_DISTINCT = """\
The distinct elements of `x` in ascending order, as torch.unique(x); with `size`, as jax.numpy.unique(x, size=size).

x: f16, bf16, f32, f64 or integers of any shape and strides, up to 2^31 elements, taken in C order. The order is that of
`sort`; -0.0 equals 0.0, and the result has the bits of the first of equal elements. Every NaN is an element of its own,
at the end, as in PyTorch; with ``equal_nan=True`` all are one, as NumPy's default.
return_inverse: `inverse`, int64 of x's shape, has the place in the result of each element of x. return_counts: `counts`,
int64, how many of each there are. return_index: `index`, int64, where in flattened x each is first.
trim: waits for the device once, for the count, and returns as many elements. With ``trim=False`` or a `size` nothing waits,
and a captured graph can hold the call: out, counts and index have `size` elements (by default as many as x), and `count`
(int64 [1]) is how many elements of x are distinct. If these are fewer than `size`, the rest of out has `fill_value`, by
default the first element of out; that of index has the index of the first, and that of counts 0. If they are more, the first
`size` are kept, and inverse counts on.
Returns out, or the named tuple (out, inverse, counts, index) of those that were asked for; with `count` at its end where the
call does not wait. All are allocated if not given; out, counts and index have as many elements as x, or `size`. Exact, the
same at every call. Raises InvalidProblemError for a negative size, a fill_value where the results are cut or that x's kind
does not hold (floats are rounded to it), and an empty x with a size.
"""
_RUNS = """\
The first element of every run of equal elements of `x`, as torch.unique_consecutive(x): `unique` without the sort.

x: f16, bf16, f32, f64 or integers of any shape and strides, up to 2^31 elements, taken in C order. -0.0 equals 0.0; every NaN
is a run of its own, as in PyTorch, and with ``equal_nan=True`` neighbouring NaN are one run.
return_inverse: `inverse`, int64 of x's shape, has the number of each element's run. return_counts: `counts`, int64, the
lengths of the runs. return_index: `index`, int64, where in flattened x each begins.
trim, size, fill_value, count, the results and the errors: as in `unique`, of runs.
"""

unique = function_of(UniquePlan, called="unique", doc=_DISTINCT, rules=RULES)(_template)
unique_consecutive = function_of(UniqueConsecutivePlan, called="unique_consecutive", doc=_RUNS, rules=RULES)(_template)
PEERS = {"torch": "unique", "cupy": "unique"}
register(Op("unique", UniquePlan, unique, samples.unique, peers=PEERS))
register(
    Op(
        "unique_consecutive",
        UniqueConsecutivePlan,
        unique_consecutive,
        samples.unique_consecutive,
        peers={"torch": "unique_consecutive"},
    )
)
