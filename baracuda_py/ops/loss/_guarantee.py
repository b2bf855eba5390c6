"""Error bounds of cross entropy and its gradient.

u is the unit roundoff of what is computed in, t = x - max(x), E = sum p |t| with the probabilities p, s = sum exp(t). As in
softmax (`ops/softmax/_guarantee.py`): log(s) errs by (d + 5 scalings + 4) u + 3 u E from s and by 4 u log(s) of its own, t by
u |t|. A term n = log(s) - t is rounded, multiplied by a weight and its share of the target (4 roundings), and added.

- z lse**2 errs by 2 z |lse| times lse's error, and by 4 roundings.
- A sum over rows errs by its depth times sum|losses| (N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed.,
  section 4.2); the divisor of the mean likewise, which may cancel, since weights may be negative.
- The gradient is g (p f - q): x - lse is rounded, exp errs by 4 u and 3 u |x - lse|; f, q and g by their few roundings, and f by
  the depth of sum(weight).
- Where terms are beyond what is computed in, nothing is promised.
"""

from __future__ import annotations

from typing import Any

from ...types import Componentwise, ElementKind, PrecisionGuarantee, Term
from .._rows import computed_in
from ._problem import TOTAL_THREADS

__all__ = ["backward", "depth", "forward"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"


def depth(terms: int) -> int:
    """Additions that a term of a sum of one CTA goes through."""
    return -(-terms // TOTAL_THREADS) + 5 + TOTAL_THREADS // 32


def _promise(
    desc: Any, output: ElementKind, terms: dict[str, float], outside: str, *, alone: bool
) -> PrecisionGuarantee:
    computed = computed_in(desc.element)
    named = tuple(Term(float(n), computed.element, measure) for measure, n in terms.items())
    bound = Componentwise.rounded(named, output, SOURCE, outside)
    return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound, batch_invariant=alone)


def _parts(desc: Any, **parts: PrecisionGuarantee) -> PrecisionGuarantee:
    """Those of the outputs that there are."""
    status = {"status": PrecisionGuarantee.exact(ElementKind.I32)}
    return PrecisionGuarantee.by_output(**{name: part for name, part in (parts | status).items() if desc.has(name)})


def forward(desc: Any, *, depth: int, scalings: int, rows: int) -> PrecisionGuarantee:
    """`depth`: additions of a row's sum; `rows`: of the sum over rows."""
    of_s = depth + 5.0 * scalings + 5
    terms = {"terms": 1.0, "shares": of_s, "losses": depth + 8.0, "lost": 4.0}
    if desc.reduction != "none":
        terms["losses"] += rows
    if desc.reduction == "mean":
        terms["cancelled"] = rows + 2.0
    lse = _promise(
        desc, desc.computed, {"lse_terms": 1.0, "one": of_s, "computed_smallest_normal": 4.0}, "", alone=True
    )
    out = _promise(desc, desc.computed, terms, "overflowing", alone=desc.reduction == "none")
    return _parts(desc, out=out, lse=lse)


def backward(desc: Any, *, rows: int, classes: int) -> PrecisionGuarantee:
    """`rows` and `classes`: additions of the sums of weights over these."""
    terms = {"shifted": 4.0, "pulled": 16.0, "spread": classes + 2.0, "lost": 8.0}
    if desc.reduction == "mean":
        terms["cancelled"] = rows + 2.0
    return _parts(desc, grad_logits=_promise(desc, desc.element, terms, "overflowing", alone=desc.reduction != "mean"))
