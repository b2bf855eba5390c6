"""Error bounds of attention's gradients, an output each; out and lse are operands, whatever they were computed with.

With s the scores, p = min(exp(s - lse), 1), h = sum|grad v| + sum|grad out| of a pair, ds = p (grad v^T - delta) derivative; u,
`each` and m as in _problem/guarantee.py, f the scale.

- p errs by eps p, eps = a m + b |lse| + c: as attention's weights do, but that lse is given. A softcap's derivative, of slope
  2 / softcap at most, adds that share of a m.
- grad v^T and delta err by each d_v u of their magnitudes, which h is, and |ds| <= p h. So ds errs by p h (eps + each d_v u).
- Sums over keys (grad_q), or over the queries of the heads that share keys (grad_k, grad_v), err by their depth. grad_q's terms
  are |f| p h |k|, grad_k's |f| p h |q|, grad_v's p |grad|: "weighted", with m "score_error", with |lse| "lse_error". Those of
  grad_mask are p h, and of grad_alibi_slopes that times the distance of query and key.
- Where p and ds are rounded to 16 bits for the second products that is one u of that type of each. What is near zero loses half
  the type's smallest subnormal, or all of it below 2**-126: "faint" is the same sum with 1 in the place of p h.

- A weight below the smallest normal number of what is computed in is 0: "flushed" is the sum with h (grad_v: 1) in the place of
  p h, which shows where lse is a sink's, far above the scores.
- eps is of first order: "score_error" and "lse_error" are multiplied by what higher orders add at most, exp(eps) - 1 over eps.
  Where eps may be more than a quarter, p may be any number from 0 to 1: "indistinct" is the same sum over those pairs.

For operands without a pattern the roundings of p and ds are random: their share in the probable bound is a multiple of the root
of the sum of squares, and that of sums on their way a multiple of the root of their depth. That shows that a block of queries or
keys is missing.
"""

from __future__ import annotations

from typing import Any

from ....types import Componentwise, ElementKind, PrecisionGuarantee, Term
from ..._rows import computed_in
from .._problem.attended import computed
from .._problem.guarantee import LIKELY, OF_SCORE, OF_TOP, OF_WEIGHT, PROBABLE, ROOT, SOURCE
from .gradients import BIASES

__all__ = ["backward"]

OF_ANY_WEIGHT = 1.25  # a weight, and what else errs by parts of it


def backward(
    desc: Any, *, dot: int | None = None, each: float = 1.0, weights: ElementKind | None = None, ordered: bool = True,
    invariant: bool = True,
) -> PrecisionGuarantee:  # fmt: skip
    """What kernels promise that sum `dot` products a score (by default d or d_v); `weights`: what p and ds are rounded to.

    Not `ordered`: terms of grad_q are added in the order in which they come. Not `invariant`: in one that goes by how many
    sequences and heads there are, as the choice of kernel does.
    """
    unit, math = computed(desc.element), desc.precision if weights else computed_in(desc.element).math
    dot = max(desc.d, desc.d_v) if dot is None else dot
    queries = desc.most_q * max(desc.group, 1)
    parts = {}
    for name, depth in (("grad_q", desc.most_k), ("grad_k", queries), ("grad_v", queries)):
        pulled = 0 if name == "grad_v" else desc.d_v  # products a weight's pull
        terms = [Term(each * dot + OF_SCORE, unit, "score_error"), Term(OF_TOP, unit, "lse_error")]
        if desc.softcapped:
            terms.append(Term(2 * OF_SCORE, unit, "capped"))
        sums = each * (depth + dot + pulled), LIKELY * each * (depth**0.5 + dot**0.5 + pulled**0.5)
        bounds = _bounds(desc.layout(name).element, terms, [n + 2 * OF_WEIGHT for n in sums], weights, unit)
        fixed = ordered or name != "grad_q"
        parts[name] = PrecisionGuarantee(math, unit, fixed, fixed, invariant and fixed, False, *bounds)
    if desc.has("grad_sinks"):
        terms = [Term(OF_TOP, unit, "score_error"), Term(OF_TOP, unit, "lse_error")]
        depth = desc.d_v + desc.most_q * max(desc.batch, 1)
        sums = float(depth), LIKELY * depth**0.5
        bounds = _bounds(desc.layout("grad_sinks").element, terms, [n + OF_WEIGHT for n in sums], None, unit)
        parts["grad_sinks"] = PrecisionGuarantee(
            computed_in(desc.element).math, unit, True, True, False, False, *bounds
        )
    for name in BIASES:
        if desc.has(f"grad_{name}"):
            parts[f"grad_{name}"] = _of_bias(desc, f"grad_{name}", unit)
    return PrecisionGuarantee.by_output(**parts)


def _of_bias(desc: Any, name: str, unit: ElementKind) -> PrecisionGuarantee:
    """ds itself, or with a slope's distance, computed without rounding to 16 bits and summed in order."""
    terms = [Term(max(desc.d, desc.d_v) + OF_SCORE, unit, "score_error"), Term(OF_TOP, unit, "lse_error")]
    if desc.softcapped:
        terms.append(Term(2 * OF_SCORE, unit, "capped"))
    depth = 2.0 * desc.d_v + desc.most_q * desc.most_k * desc.heads * max(desc.batch, 1)
    sums = depth, LIKELY * depth**0.5
    bounds = _bounds(desc.layout(name).element, terms, [n + 2 * OF_WEIGHT for n in sums], None, unit)
    return PrecisionGuarantee(computed_in(desc.element).math, unit, True, True, False, False, *bounds)


def _bounds(
    out: ElementKind, terms: list[Term], sums: list[float], weights: ElementKind | None, unit: ElementKind
) -> tuple[Componentwise, Componentwise]:
    """For any operands, and for those without a pattern; `sums` are what sums of magnitudes err by in each."""
    last = [Term(1.0, out, "abs_result"), Term(1.0, out, "smallest_normal")]
    roundings = [(Term(1.0, weights, "weighted"), Term(ROOT, weights, "root_weighted"))] if weights else []
    if weights:
        least = 2.0**-25 if weights is ElementKind.F16 else 2.0**-126
        last.append(Term(least / weights.unit_roundoff, weights, "faint"))
    last.append(Term(unit.smallest_normal / unit.unit_roundoff, unit, "flushed"))
    last.append(Term(OF_ANY_WEIGHT / unit.unit_roundoff, unit, "indistinct"))
    worst, likely = (Term(n, unit, "weighted") for n in sums)
    return (
        Componentwise((*terms, worst, *(worst for worst, _ in roundings), *last), SOURCE, "beyond"),
        Componentwise((*terms, likely, *(likely for _, likely in roundings), *last), PROBABLE, "beyond"),
    )
