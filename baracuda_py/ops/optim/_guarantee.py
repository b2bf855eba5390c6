"""Error bounds of the steps of optimizers, an output each.

u is the unit roundoff of what is computed in, A = |g| (+ weight_decay |p|) the gradient's size, M = |m| + (1 - beta1) (A + |m|) and
V = beta2 v + (1 - beta2) A**2 those of Adam's averages. All that a step shares is computed in f64 and rounded once, to u.

- The gradient errs by 4 u A: its scale is rounded, multiplied, and weight decay takes two roundings more.
- m + (1 - beta1) (g - m) errs by u M from each of its five roundings, and by the gradient's: 9 u M.
- beta2 v + (1 - beta2) g g errs by 13 u V: the square takes the gradient's error twice, and five roundings.
- Its root errs by 13 u V / (2 root) or by the square root of that, whichever is less, as sqrt(x + d) - sqrt(x) <= sqrt(d), and by
  u; over the bias correction by 2 u more. With eps, the divisor's error follows, `of_divisor` in the oracle.
- A quotient errs by what its terms do, over the least that the divisor may be. The powers in the bias corrections err by 2 ulp of
  f64 (CUDA C++ Programming Guide, "Mathematical Functions"), which counts where 1 less a power is small: `correction`.
- The parameter takes three roundings.

A step whose result is not a normal number loses up to half of the smallest one there is. Where the divisor may lose half of
itself, or terms are beyond what is computed in, nothing is said of the parameter.
"""

from __future__ import annotations

from typing import Any

from ...numerics.guarantee import widely
from ...types import Componentwise, ElementKind, PrecisionGuarantee, Term
from .._rows import computed_in

__all__ = ["adam", "adam_reference"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 3.1"


def _promise(desc: Any, name: str, terms: list[Term], outside: str = "") -> PrecisionGuarantee:
    computed = computed_in(desc.element)
    bound = Componentwise.rounded(terms, desc.layout(name).element, SOURCE, outside)
    return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound)


def adam(desc: Any) -> PrecisionGuarantee:
    """Of a step of Adam or AdamW."""
    unit = computed_in(desc.element).element
    lost = Term(5.0, unit, "computed_smallest_normal")
    param = [Term(1.0, unit, "moved"), Term(4.0, ElementKind.F64, "correction")]
    second = [Term(13.0, unit, "second"), lost]
    terms = {
        "param": param, "master": param, "exp_avg": [Term(9.0, unit, "first"), lost], "exp_avg_sq": second,
        "max_exp_avg_sq": second,
    }  # fmt: skip
    written = [operand.name for operand in desc.operands if operand.written and operand.name != "step"]
    outside = {"param": "beyond", "master": "beyond"}
    parts = {name: _promise(desc, name, terms[name], outside.get(name, "")) for name in written}
    return PrecisionGuarantee.by_output(**parts, step=PrecisionGuarantee.exact(ElementKind.F32))


def adam_reference(desc: Any) -> PrecisionGuarantee:
    """Of the oracle."""
    return widely(adam(desc), desc)
