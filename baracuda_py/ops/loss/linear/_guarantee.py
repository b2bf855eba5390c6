"""Error bounds of linear cross entropy and its gradients.

u is the unit roundoff of what is computed in, v that of the operands' kind, in which logits and their gradients are stored. A
logit errs by k u |h| |w| (k of its product) and v |x| + v |error|: by D = (k u + 1.01 v) A, A the largest |h| |w| of the row.

- log(sum(exp)) of logits that err by D errs by D at most. As in `ops/loss/_guarantee.py` it errs by its own depth, and by a few u
  times S = A + log V + 1 + |x - lse|, since no logit is above A.
- A loss errs by (2 + 2 |z| (L + A)) of these, L the larger of |lse| and A + log V; a sum over rows by its depth.
- p = exp(x - lse) errs by 2 p D exp(2 D), and p (1 + 2 z lse) by as much times that factor, and by z's part. The measure's own
  estimate of D is above it, since it takes more than twice each coefficient.
- A gradient of a logit is rounded, v |G|, and multiplied: the products err by their own k u |G| |W|, and by 20 u at each chunk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ....types import Componentwise, ElementKind, PrecisionGuarantee, Term
from ..._rows import computed_in

__all__ = ["Product", "guarantee"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 4.2"
SECOND = 1.01  # a rounding of what already errs


class Product(NamedTuple):
    """The coefficients of a product's bound: of |a| |b|, and of the smallest normal number."""

    sums: float
    underflow: float

    @staticmethod
    def of(guarantees: Iterable[PrecisionGuarantee]) -> Product:
        """The largest of several."""
        found = [Product(0.0, 0.0)]
        for one in guarantees:
            assert isinstance(one.bound, Componentwise)
            named = {measure: n for (_, measure), n in one.bound.coefficients().items()}
            found.append(Product(named["abs_matmul"] + named["abs_epilogue"], named["underflow"]))
        return Product(*map(max, zip(*found)))


def guarantee(desc: Any, products: Mapping[str, Product], *, row: int, rows: int, chunks: int) -> PrecisionGuarantee:
    """`row` and `rows`: additions of a sum along a row of logits, and of the sum of their losses."""
    computed, stored = computed_in(desc.element), desc.element
    logits = products["logits"]
    carried = {
        (computed.element, "logits"): logits.sums, (stored, "logits"): SECOND,
        (computed.element, "ones"): 6.0 * row + 64.0, (computed.element, "sizes"): 32.0,
        (computed.element, "underflow"): logits.underflow + desc.shape[1] + 16.0, (stored, "subnormal"): SECOND,
    }  # fmt: skip

    def promise(name: str, more: Mapping[tuple[ElementKind, str], float]) -> PrecisionGuarantee:
        terms: dict[tuple[ElementKind, str], float] = dict(carried)
        for what, n in more.items():
            terms[what] = terms.get(what, 0.0) + n
        named = [Term(n, unit, measure) for (unit, measure), n in terms.items()]
        bound = Componentwise.rounded(named, desc.layout(name).element, SOURCE, "overflowing")
        return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound, batch_invariant=False)

    more: dict[str, Mapping[tuple[ElementKind, str], float]] = {
        "lse": {}, "out": {(computed.element, "losses"): row + rows + 16.0}
    }  # fmt: skip
    for name in desc.gradients:
        own = products[name]
        more[name] = {
            (computed.element, "gradient"): own.sums + 20.0 * chunks + 40.0, (stored, "gradient"): SECOND,
            (computed.element, "underflow"): own.underflow + 16.0 * chunks,
        }  # fmt: skip
    parts = {name: promise(name, each) for name, each in more.items() if name in desc.slot_of and desc.has(name)}
    if desc.given:
        parts.pop("lse")
    if desc.has("status"):
        parts["status"] = PrecisionGuarantee.exact(ElementKind.I32)
    return PrecisionGuarantee.by_output(**parts)
