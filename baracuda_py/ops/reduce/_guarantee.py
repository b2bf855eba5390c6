"""Error bounds of the reductions.

u is the unit roundoff of what is computed in, d the most additions that a term goes through. A sum errs by d u sum|terms| (N. J.
Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 4.2), a mean by one rounding more. A variance that is
joined of blocks' errs by about 2 d u v sqrt(1 + m**2 / v), m the mean and v the variance (T. F. Chan, G. H. Golub and R. J.
LeVeque, "Algorithms for computing the sample variance: analysis and recommendations", The American Statistician 37(3), 1983,
table 1), and by the square of the mean's error; shares to 2 ulp add 5 u of each increment, not of the sum so far. For logsumexp
see ops/softmax/_guarantee.py. A maximum is one of the terms.
"""

from __future__ import annotations

from typing import Any

from ...types import Componentwise, PrecisionGuarantee, Term, Ulp
from .._rows import computed_in

__all__ = ["promised"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"


def promised(desc: Any, depth: float) -> PrecisionGuarantee:
    """What `desc.name` promises of a term that goes through `depth` additions or joins."""
    element = desc.layout("out").element
    if not element.is_float:
        return PrecisionGuarantee.exact(element)
    computed = computed_in(element)
    if desc.name in ("max", "min", "max_ties", "min_ties"):
        return PrecisionGuarantee.fixed_order(computed.math, computed.element, Ulp(0.5))
    u = computed.element
    terms = {
        "sum": (Term(depth, u, "abs_sum"),),
        "mean": (Term(depth + 1, u, "abs_mean"),),
        "var": (Term(2 * depth + 12, u, "conditioned"), Term((depth + 2) ** 2 * u.unit_roundoff, u, "squared_mean")),
        "logsumexp": (Term(6 * depth + 8, u, "one"), Term(3.0, u, "expected_shift"), Term(4.0, u, "log_sum"),
                      Term(1.0, u, "abs_result")),
    }[desc.name]  # fmt: skip
    lost = 4.0 if desc.name == "var" else 1.0  # of its squares, where they are no normal numbers
    outside = "overflowing" if desc.name in ("sum", "mean", "var") else ""
    bound = Componentwise.rounded(terms, element, SOURCE, outside, subnormal=lost)
    return PrecisionGuarantee.fixed_order(computed.math, u, bound)
