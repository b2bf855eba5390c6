"""Error bounds of attention's gradients, an output each; out and lse are operands, whatever they were computed with.

With s the scores, p = exp(s - lse), h = sum|grad v| + sum|grad out| of a pair, ds = p (grad v^T - delta) derivative; u, `each`
and m as in _guarantee.py, f the scale.

- p errs by eps p, eps = a m + b |lse| + c: as attention's weights do, but that lse is given. A softcap's derivative, of slope
  2 / softcap at most, adds that share of a m.
- grad v^T and delta err by each d_v u of their magnitudes, which h is, and |ds| <= p h. So ds errs by p h (eps + each d_v u).
- Sums over keys (grad_q), or over the queries of the heads that share keys (grad_k, grad_v), err by their depth. grad_q's terms
  are |f| p h |k|, grad_k's |f| p h |q|, grad_v's p |grad|: "weighted", with m "score_error", with |lse| "lse_error".
- Where p and ds are rounded to 16 bits for the second products that is one u of that type of each. What is near zero loses half
  the type's smallest subnormal, or all of it below 2**-126: "faint" is the same sum with 1 in the place of p h.

For operands without a pattern the roundings of p and ds are random: their share in the probable bound is a multiple of the root
of the sum of squares, which shows that a block of queries or keys is missing.
"""

from __future__ import annotations

from typing import Any

from ...types import Componentwise, ElementKind, PrecisionGuarantee, Term
from .._rows import computed_in
from ._guarantee import OF_SCORE, OF_TOP, OF_WEIGHT, PROBABLE, ROOT, SOURCE
from ._problem import computed

__all__ = ["backward"]


def backward(
    desc: Any, *, dot: int | None = None, each: float = 1.0, weights: ElementKind | None = None, ordered: bool = True,
    invariant: bool = True,
) -> PrecisionGuarantee:  # fmt: skip
    """What kernels promise that sum `dot` products a score (by default d or d_v); `weights`: what p and ds are rounded to.

    Not `ordered`: terms of grad_q are added in the order in which they come. Not `invariant`: in one that depends on how many
    sequences and heads there are.
    """
    unit, math = computed(desc.element), desc.precision if weights else computed_in(desc.element).math
    dot = max(desc.d, desc.d_v) if dot is None else dot
    queries = desc.most_q * max(desc.group, 1)
    parts = {}
    for name, depth in (("grad_q", desc.most_k), ("grad_k", queries), ("grad_v", queries)):
        of_sum = each * (depth + dot) + OF_WEIGHT + (0.0 if name == "grad_v" else each * (desc.d_v + OF_SCORE))
        terms = [
            Term(each * dot + OF_SCORE, unit, "score_error"),
            Term(OF_TOP, unit, "lse_error"),
            Term(of_sum, unit, "weighted"),
        ]
        if desc.softcapped:
            terms.append(Term(2 * OF_SCORE, unit, "capped"))
        bound, probable = _bounds(desc.layout(name).element, terms, weights)
        fixed = ordered or name != "grad_q"
        alone = invariant or name != "grad_q"
        parts[name] = PrecisionGuarantee(math, unit, fixed, fixed, alone, False, bound, probable)
    if desc.has("grad_sinks"):
        terms = [Term(desc.d_v + desc.most_q * max(desc.batch, 1) + OF_WEIGHT, unit, "weighted")]
        terms += [Term(OF_TOP, unit, "score_error"), Term(OF_TOP, unit, "lse_error")]
        bound, _ = _bounds(desc.layout("grad_sinks").element, terms, None)
        parts["grad_sinks"] = PrecisionGuarantee(computed_in(desc.element).math, unit, True, True, False, False, bound)
    return PrecisionGuarantee.by_output(**parts)


def _bounds(
    out: ElementKind, terms: list[Term], weights: ElementKind | None
) -> tuple[Componentwise, Componentwise | None]:
    """For any operands, and where weights are rounded for those without a pattern."""
    last = [Term(1.0, out, "abs_result"), Term(1.0, out, "smallest_normal")]
    if weights is None:
        return Componentwise((*terms, *last), SOURCE, "beyond"), None
    least = 2.0**-25 if weights is ElementKind.F16 else 2.0**-126
    last.append(Term(least / weights.unit_roundoff, weights, "faint"))
    worst = Componentwise((*terms, Term(1.0, weights, "weighted"), *last), SOURCE, "beyond")
    return worst, Componentwise((*terms, Term(ROOT, weights, "root_weighted"), *last), PROBABLE, "beyond")
