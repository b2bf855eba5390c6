"""Error bounds of the reductions.

u is the unit roundoff of what is computed in, d the most additions that a term goes through. A sum errs by d u sum|terms| (N. J.
Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 4.2), a mean by one rounding more. A variance that is
joined of blocks' errs by about 2 d u v sqrt(1 + m**2 / v), m the mean and v the variance (T. F. Chan, G. H. Golub and R. J.
LeVeque, "Algorithms for computing the sample variance: analysis and recommendations", The American Statistician 37(3), 1983,
table 1), and by the square of the mean's error; shares to 2 ulp add 5 u of each increment, not of the sum so far. For logsumexp
see ops/softmax/_guarantee.py. A maximum is one of the terms.

A product of n terms errs by (1 + u)**(n - 1) - 1 of itself in any order (ibid., section 3.1), if no part of it overflows or
underflows. A standard deviation s of a variance that errs by E1 + E2 errs by 2 E1 / s + 1.2 sqrt(E2): E1 is of the first term, E2
of the others and of squares that underflow. A norm by squares errs by half of what the sum of squares does, of itself, by one
rounding, and by the square root of what n squares lose. A norm by powers errs by 1 / p of what their sum does, of itself: by the
powers' own errors (5 ulp of f32, 2 of f64) and by the sum's; a rounded p moves each power by log|x| of it, a rounded 1 / p the
result by its own logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...types import Componentwise, ElementKind, PrecisionGuarantee, Term, Ulp
from .._rows import computed_in

__all__ = ["promised"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"
POWER = 12.0  # roundoffs of a power whose exponent is exact, and what is left of powers below normal numbers
COUNTED = ("max_ties", "min_ties", "nanmax_ties", "nanmin_ties", "largest_ties", "smallest_ties", "valid")
CHOSEN = ("max", "min", "nanmax", "nanmin", "norm_largest", "norm_smallest", *COUNTED)


def _sum(desc: Any, depth: float, u: ElementKind) -> tuple[Term, ...]:  # noqa: ARG001
    return (Term(depth, u, "abs_sum"),)


def _mean(desc: Any, depth: float, u: ElementKind) -> tuple[Term, ...]:  # noqa: ARG001
    return (Term(depth + 1, u, "abs_mean"),)


def _var(desc: Any, depth: float, u: ElementKind) -> tuple[Term, ...]:  # noqa: ARG001
    return Term(2 * depth + 12, u, "conditioned"), Term((depth + 2) ** 2 * u.unit_roundoff, u, "squared_mean")


def _std(desc: Any, depth: float, u: ElementKind) -> tuple[Term, ...]:  # noqa: ARG001
    spread, mean = Term(4 * depth + 24, u, "spread"), Term(1.2 * (depth + 2), u, "spread_mean")
    return spread, mean, Term(2.4, u, "lost_squares"), Term(2.0, u, "magnitude")


def _logsumexp(desc: Any, depth: float, u: ElementKind) -> tuple[Term, ...]:  # noqa: ARG001
    own = Term(6 * depth + 8, u, "one"), Term(3.0, u, "expected_shift")
    return *own, Term(4.0, u, "log_sum"), Term(1.0, u, "abs_result")


def _prod(desc: Any, depth: float, u: ElementKind) -> tuple[Term, ...]:  # noqa: ARG001
    return (Term(math.expm1(desc.extent * math.log1p(u.unit_roundoff)) / u.unit_roundoff, u, "magnitude"),)


def _norm_zero(desc: Any, depth: float, u: ElementKind) -> tuple[Term, ...]:  # noqa: ARG001
    return (Term(1.0, u, "magnitude"),)


def _norm_two(desc: Any, depth: float, u: ElementKind) -> tuple[Term, ...]:  # noqa: ARG001
    return Term(depth / 2 + 3, u, "magnitude"), Term(1.0, u, "lost_squares")


def _norm_power(desc: Any, depth: float, u: ElementKind) -> tuple[Term, ...]:
    roundoff = u.unit_roundoff
    own = math.expm1(min((depth + POWER) * roundoff / abs(desc.p), 700.0)) / roundoff + POWER
    return Term(own, u, "magnitude"), Term(1.5, u, "log_powers"), Term(1.5, u, "log_result")


_TERMS: dict[str, Callable[[Any, float, ElementKind], tuple[Term, ...]]] = {
    "sum": _sum, "mean": _mean, "var": _var, "std": _std, "logsumexp": _logsumexp, "prod": _prod, "nansum": _sum,
    "nanmean": _mean, "other_factors": _prod, "norm_zero": _norm_zero, "norm_one": _sum, "norm_two": _norm_two,
    "norm_power": _norm_power,
}  # fmt: skip


def promised(desc: Any, depth: float) -> PrecisionGuarantee:
    """What `desc.name` promises of a term that goes through `depth` additions or joins."""
    element = desc.layout("out").element
    if not element.is_float:
        return PrecisionGuarantee.exact(element)
    computed = computed_in(element)
    name = desc.row.name
    if name in CHOSEN:
        return PrecisionGuarantee.fixed_order(computed.math, computed.element, Ulp(0.5))
    u = computed.element
    terms = _TERMS[name](desc, depth, u)
    lost = 4.0 if name == "var" else 1.0  # of its squares, where they are no normal numbers
    outside = "" if name in ("logsumexp", "norm_zero") else "overflowing"
    bound = Componentwise.rounded(terms, element, SOURCE, outside, subnormal=lost)
    return PrecisionGuarantee.fixed_order(computed.math, u, bound)
