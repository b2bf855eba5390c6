"""Error bounds of attention of e4m3 operands: those of attention (ops/attention/_problem/guarantee.py), with three terms more.

- Hopper's tensor cores align 32 products and the accumulator to the largest exponent and keep 13 bits below it (DeepSeek-V3,
  arXiv:2412.19437, section 3.3.2): `narrow_additions` counts that of a score's sum over the head dim, and of the result's over
  all keys, which no f32 sum interrupts. Scores then err by more than f32's errors, so that the measures count higher orders by
  that ("score_error_fp8", "top_error_fp8", "indistinct_fp8").
- Weights are rounded to e4m3 for the second product: u = 2**-4 of each; near zero half its smallest subnormal, 2**-10. The
  kernel multiplies weights with 2**8, so that this is 2**-18 of the highest weight ("faint").
- Scales are a few roundings more of the score and of the result.

In the probable bound the rounding of weights is as large as the root of the sum of squares, and of the tensor cores' truncations
the share remains that a product of 8-bit matrices has (ops/products/guarantee.py).
"""

from __future__ import annotations

from typing import Any

from ...types import Componentwise, ElementKind, MathPrecision, PrecisionGuarantee, Term
from ..products.guarantee import TRUNCATED, narrow_additions

__all__ = ["on_tensor_cores", "plain"]

F32, E4M3 = ElementKind.F32, ElementKind.FP8_E4M3
SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2; DeepSeek-V3, section 3.3.2"
PROBABLE = "the same, with roundings of weights and truncations as large as the root of their sum of squares"
OF_SCORE, OF_TOP, OF_WEIGHT = 12.0, 6.0, 24.0  # units roundoff: with scales, and with the exponent's shift of 8
ROOT, LIKELY = 6.0, 4.0  # standard deviations
LEFT = 2 / 33  # the share of an instruction's truncations that remains where they have both signs
HALF_SUBNORMAL = 2.0**-10 * 2.0**-8
OF_SUBNORMAL = 512.0  # the largest value, where its scale is subnormal


def on_tensor_cores(desc: Any, dot: int, blocks: int) -> PrecisionGuarantee:
    """What wgmma promises: `dot` products a score, keys in so many blocks."""
    keys = max(desc.most_k, 1)
    scores, values = (TRUNCATED * narrow_additions(n, n) for n in (dot, keys))
    depth = keys + 8.0 * blocks + 2 * OF_WEIGHT
    likely = 2 * LIKELY * (keys**0.5 + blocks**0.5) + 2 * OF_WEIGHT
    rounded = Term(1.0, E4M3, "weighted"), Term(ROOT, E4M3, "root_weighted")
    faint = Term(HALF_SUBNORMAL / E4M3.unit_roundoff, E4M3, "faint")
    of_score, of_sums = (scores + OF_SCORE, scores * LEFT + OF_SCORE), (values + depth, values * LEFT + likely)
    return _promised(desc, MathPrecision.FP8_FAST, "_fp8", of_score, of_sums, rounded, (faint,), batch_invariant=True)


def plain(desc: Any, blocks: int, *, batch_invariant: bool = True) -> PrecisionGuarantee:
    """What a kernel promises that multiplies and adds in f32."""
    depth, score = desc.most_k + 8.0 * blocks + 2 * OF_WEIGHT, desc.d + OF_SCORE
    likely = 2 * LIKELY * (desc.most_k**0.5 + blocks**0.5) + 2 * OF_WEIGHT
    return _promised(
        desc, MathPrecision.F32, "", (score, score), (2 * depth, likely), (), (), batch_invariant=batch_invariant
    )


def _promised(
    desc: Any, math: MathPrecision, own: str, score: tuple[float, float], sums: tuple[float, float],
    rounded: tuple[Term, ...], faint: tuple[Term, ...], *, batch_invariant: bool,
) -> PrecisionGuarantee:  # fmt: skip
    """Of each pair, what holds for any operands and what is likely; `own`: what measures that count higher orders are called."""
    out, beyond = desc.layout("out").element, "beyond"
    top = [Term(OF_TOP, F32, f"top_error{own}")]
    if desc.softcapped:
        top.append(Term(OF_SCORE, F32, "capped"))
    last = [
        *faint, Term(1.0, out, "abs_result"), Term(1.0, out, "smallest_normal"),
        Term(F32.smallest_normal / F32.unit_roundoff, F32, "flushed"),
        Term(sums[0] + OF_SUBNORMAL, F32, "computed_smallest_normal"),
        Term(1.0 / F32.unit_roundoff, F32, f"indistinct{own}"),
    ]  # fmt: skip

    def bound(at: int, source: str) -> Componentwise:
        both = Term(score[at], F32, f"score_error{own}"), Term(sums[at], F32, "weighted")
        return Componentwise((*top, *both, *rounded[at : at + 1], *last), source, beyond)

    parts: dict[str, tuple[Componentwise, Componentwise | None]] = {"out": (bound(0, SOURCE), bound(1, PROBABLE))}
    if desc.has("lse"):
        of_lse = [Term(score[0], F32, name) for name in ("mean_score", f"row_indistinct{own}")]
        of_lse += [Term(OF_TOP, F32, "top_score"), Term(desc.most_k + 8.0 + OF_WEIGHT, F32, "one")]
        if desc.softcapped:
            of_lse.append(Term(OF_SCORE, F32, "mean_capped"))
        parts["lse"] = Componentwise((*of_lse, Term(4.0, F32, "abs_result")), SOURCE, f"row_{beyond}"), None
    return PrecisionGuarantee.by_output(**{
        name: PrecisionGuarantee(math, F32, True, True, batch_invariant, False, worst, probable)
        for name, (worst, probable) in parts.items()
    })  # fmt: skip
