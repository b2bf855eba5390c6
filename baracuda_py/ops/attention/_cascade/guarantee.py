"""The error bound of attention that is merged from parts of the keys, made of the parts' own bounds.

With s_j the scores and L_i = sum exp(s_j) over part i, a part gives out_i = N_i / L_i and lse_i = log L_i, both of the same
computed L_i, so that merging by exp(lse_i) divides by what it multiplies with: what L_i errs by counts once, as where one kernel
adds all keys. The parts' shares w_i = exp(lse_i - lse) make a part's weights those of the whole, w_i exp(s_j - lse_i) =
exp(s_j - lse), so a measure that is a sum of weights is the shares' mean of the parts' measures, and its coefficient is the
larger one. A part's M and its "beyond" are at most the whole's.

- A part's result is rounded to f32: u of sum w_i |out_i|, at most "weighted".
- |lse_i| <= M + log n of n keys. lse_i is rounded, with its logarithm, by 4 u of that; the difference from the largest, times
  log2 e, by 3 u of at most twice that; exp is good to 2 ulp. A share errs by that sum, and out by twice that (the shares are
  divided by their sum): "top_error" is 2 M "weighted".
- Shares below the smallest normal number of f32 are 0: each key of such a part has a weight below that, which is at most n times
  it of "flushed".
- Sums err by their depth (Higham, section 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....types import Componentwise, ElementKind, PrecisionGuarantee, Term

__all__ = ["merged"]

F32 = ElementKind.F32
SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2"
OF_SHARE, OF_EXP = 10.0, 2.0  # units roundoff of a share, as above: of M + log n, and beside
OF_SUM = 10.0  # of the sums' division and of the logarithm
SMALLEST = F32.smallest_normal / F32.unit_roundoff
AS = {
    "abs_result": "weighted",
    "smallest_normal": "computed_smallest_normal",
}  # what a part's own rounding is of the whole


def merged(desc: Any, parts: Iterable[PrecisionGuarantee], count: int, keys: int) -> PrecisionGuarantee:
    """What is promised of `count` parts of `keys` keys together, which have the guarantees `parts`."""
    each, logarithm, depth = tuple(parts), math.log(max(keys, 2) + 1.0), count + OF_SUM
    share = 2 * (OF_SHARE * logarithm + OF_EXP)
    of_out = (
        Term(OF_SHARE, F32, "top_error"), Term(share + 2 * depth, F32, "weighted"), Term(SMALLEST * keys, F32, "flushed"),
        Term(depth, F32, "computed_smallest_normal"),
    )  # fmt: skip
    of_lse = Term(OF_SHARE, F32, "top_score"), Term(OF_SHARE * logarithm + OF_EXP + depth, F32, "one")
    out = desc.layout("out").element

    def result(name: str, bounds: list[Componentwise], own: Iterable[Term]) -> Componentwise:
        if name == "lse":
            found = _largest(bounds, {"abs_result": "top_score"}, own)
            return Componentwise((*found, Term(4.0, F32, "abs_result")), SOURCE, bounds[0].outside)
        return Componentwise.rounded(_largest(bounds, AS, own), out, SOURCE, bounds[0].outside)

    def whole(name: str, own: Iterable[Term]) -> PrecisionGuarantee:
        of = [part.of(name) for part in each]
        likely = [one.probable for one in of if one.probable is not None]
        return replace(
            of[0],
            deterministic=all(one.deterministic for one in of),
            bit_stable_on_same_hardware=all(one.bit_stable_on_same_hardware for one in of),
            batch_invariant=all(one.batch_invariant for one in of),
            flushes_subnormals=any(one.flushes_subnormals for one in of),
            bound=result(name, [_terms_of(one) for one in of], own),
            probable=result(name, likely, own) if len(likely) == len(of) else None,
        )

    made = {"out": whole("out", of_out)} | ({"lse": whole("lse", of_lse)} if desc.has("lse") else {})
    if desc.has("status"):
        made["status"] = PrecisionGuarantee.exact(ElementKind.I32)
    return PrecisionGuarantee.by_output(**made)


def _terms_of(guarantee: PrecisionGuarantee) -> Componentwise:
    assert isinstance(guarantee.bound, Componentwise), "attention is bounded by components"
    return guarantee.bound


def _largest(bounds: Iterable[Componentwise], renamed: dict[str, str], more: Iterable[Term]) -> tuple[Term, ...]:
    """The larger coefficient of each measure of the parts, renamed where it is of a part's result, and those of merging."""
    found: dict[tuple[str, ElementKind], float] = {}
    for bound in bounds:
        own: dict[tuple[str, ElementKind], float] = {}
        for term in bound.terms:
            key = renamed.get(term.measure, term.measure), term.unit
            own[key] = own.get(key, 0.0) + term.coefficient
        found = {key: max(own.get(key, 0.0), found.get(key, 0.0)) for key in (*found, *own)}
    for term in more:
        key = term.measure, term.unit
        found[key] = found.get(key, 0.0) + term.coefficient
    return tuple(Term(coefficient, unit, measure) for (measure, unit), coefficient in found.items())
