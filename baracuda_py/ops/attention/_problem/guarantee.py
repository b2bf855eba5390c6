"""Error bounds of attention, an output each.

With s_j the scores as they enter the softmax, p_j = exp(s_j - lse) and out = sum p_j v_j. u is the unit roundoff of what is
computed in; `each` is 1 where products are added with rounding and 2 where tensor cores truncate (ops/products/guarantee.py).

- A score's sum of `dot` products errs by dot each u e_j, e_j = |scale| sum|q k|; scale, softcap (of slope 1 at most), ALiBi and
  mask add a few u of m_j = e_j + |alibi| + |mask|. tanh errs by a few u of `softcap`.
- exp's argument, a difference from the highest score so far, errs by u of both: m_j and M = max m_j. exp itself is good to 2 ulp,
  as is each of the `blocks` factors by which sums are rescaled; the errors of their arguments add up to u of 2 M at most, for the
  arguments themselves do.
- So a weight errs by eps_j = a m_j + b M + c, and since weights are divided by their sum, out by sum p_j |v_j| (eps_j + mean
  eps), mean eps = sum p_j eps_j: the measures "score_error", "top_error" and "weighted".
- Sums of weights and of weighted values err by their depth (N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd
  ed., section 4.2). Where weights are rounded to 16 bits for the second product, that is one u of that type of each, and those
  near zero lose half its smallest subnormal: "faint" is sum |v_j| exp(max s - lse). Weights below the smallest normal number of
  what is computed in are 0: "flushed" is the same sum. What is below it on its way errs by its spacing.
- eps_j is of first order: "score_error" and "top_error" are multiplied by what higher orders add at most, exp(eps) - 1 over eps
  of weights and of their sum. Where eps may be more than a quarter, a weight may be any number from 0 to 1: "indistinct" is what
  two means of the row's values differ by, and of lse "row_indistinct" what M errs by.
- A sum of weighted values may leave f32's range on its way where the result does not: "beyond" are also those whose sum |v_j|,
  of all that count, does.
- lse errs by mean eps, and by u of M and of log of the sum.

- f32 that is multiplied as TF32 is rounded to it: each factor errs by 2**-11 of itself, and numbers below 2**-126 by 2**-137.

For operands without a pattern the rounding of weights, and to TF32, is random: its share in the probable bound is a multiple of
the root of the sum of squares. Sums on their way are then as large as the root of the number of terms, or err with both signs:
their share is a multiple of the root of their depth. Scores' errors by TF32 move out by sum p_j err_j (v_j - out): "root_score"
is the root of sum p_j**2 r_j**2 (v_j - out)**2, r_j = |scale| root(sum q**2 k**2). That shows that a block of keys is missing.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes

from ....types import Componentwise, ElementKind, MathPrecision, PrecisionGuarantee, Term
from ..._rows import computed_in
from .attended import computed

__all__ = ["forward"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2"
PROBABLE = (
    "the same, with the rounding of weights as large as the root of its sum of squares; for operands without a pattern"
)
OF_SCORE, OF_TOP, OF_WEIGHT = (
    8.0,
    6.0,
    8.0,
)  # units roundoff, as above: roundings, those of exp's argument, exp and division
ROOT, LIKELY = 6.0, 4.0  # standard deviations
TF32 = 2.0**-11  # unit roundoff


def forward(
    desc: Any, *, dot: int, keys: int, blocks: int, each: float = 1.0, weights: ElementKind | None = None,
    tf32: bool = False, batch_invariant: bool = True, tanh: float = OF_SCORE,
) -> PrecisionGuarantee:  # fmt: skip
    """What a kernel promises that sums `dot` products a score and `keys` weights in `blocks`; `weights`: what these are rounded
    to for the second product; `tanh`: units roundoff of softcap."""
    unit = computed(desc.element)
    factor = TF32 / unit.unit_roundoff if tf32 else 0.0
    factors = factor * (2.0 + TF32)  # of a product
    score = each * dot + OF_SCORE
    depth = each * keys + 4.0 * blocks + OF_WEIGHT
    own = "_tf32" if tf32 else ""  # measures that count higher orders of a score's error
    terms = [Term(OF_TOP, unit, f"top_error{own}")]
    if desc.softcapped:
        terms.append(Term(tanh, unit, "capped"))
    out, beyond = desc.layout("out").element, f"beyond{own}"
    last = [Term(1.0, out, "abs_result"), Term(1.0, out, "smallest_normal")]
    rounding = _rounding(weights)
    last += _faint(rounding)
    last += [
        Term(unit.smallest_normal / unit.unit_roundoff, unit, "flushed"),
        Term(depth, unit, "computed_smallest_normal"),
    ]
    last.append(Term(1.0 / unit.unit_roundoff, unit, f"indistinct{own}"))
    if tf32:
        last.append(Term(factors, unit, "smallest_normal"))
    of_sums = (Term(score + factors, unit, f"score_error{own}"), Term(2 * depth + factors, unit, "weighted"))
    worst = Componentwise((*terms, *of_sums, *(Term(1.0, k, "weighted") for k in rounding), *last), SOURCE, beyond)
    likely_sums = 2 * LIKELY * (each * keys**0.5 + blocks**0.5) + 2 * OF_WEIGHT
    of_sums = (Term(score, unit, f"score_error{own}"), Term(likely_sums, unit, "weighted"))
    random = [Term(ROOT, k, "root_weighted") for k in rounding]
    if tf32:
        random += [Term(ROOT * factor, unit, name) for name in ("root_weighted", "root_score")]
    likely = Componentwise((*terms, *of_sums, *random, *last), PROBABLE, beyond)
    bounds: dict[str, tuple[Componentwise, Componentwise | None]] = {"out": (worst, likely)}
    if desc.has("lse"):
        of_lse = [Term(score + factors, unit, name) for name in ("mean_score", f"row_indistinct{own}")]
        of_lse += [Term(OF_TOP, unit, "top_score"), Term(depth, unit, "one")]
        if desc.softcapped:
            of_lse.append(Term(tanh, unit, "mean_capped"))
        bounds["lse"] = Componentwise((*of_lse, Term(4.0, unit, "abs_result")), SOURCE, f"row_{beyond}"), None
    math = MathPrecision.TF32 if tf32 else desc.precision if weights else computed_in(desc.element).math
    return PrecisionGuarantee.by_output(**{
        name: PrecisionGuarantee(math, unit, True, True, batch_invariant, False, bound, probable)
        for name, (bound, probable) in bounds.items()
    })  # fmt: skip


def _rounding(weights: ElementKind | None) -> tuple[ElementKind, ...]:
    return () if weights is None else (weights,)


def _faint(rounding: tuple[ElementKind, ...]) -> tuple[Term, ...]:
    """Weights below the type's normal numbers are rounded to multiples of its smallest subnormal."""
    half = {k: float(ml_dtypes.finfo(k.dtype).smallest_subnormal) / 2 for k in rounding}
    return tuple(Term(each / k.unit_roundoff, k, "faint") for k, each in half.items())
