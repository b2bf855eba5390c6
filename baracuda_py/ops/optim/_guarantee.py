"""Error bounds of the steps of optimizers, an output each.

`lost` is what an output loses on the way, as `oracle` derives for each rule (N. J. Higham, *Accuracy and Stability of Numerical
Algorithms*, 2nd ed., section 3.1), and `correction` what bias corrections do. A result is rounded to its kind at the end. Where a
divisor may lose half of itself, a sign is undecided, or terms are near the end of what is computed in, nothing is said of the
parameter.
"""

from __future__ import annotations

from typing import Any

from ...numerics.guarantee import widely
from ...types import Componentwise, ElementKind, PrecisionGuarantee, Term
from .._rows import computed_in

__all__ = ["of_reference", "of_update"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 3.1"
OF_POWERS = 4.0  # unit roundoffs of f64 that a bias correction's power loses: 2 ulp


def of_update(desc: Any) -> PrecisionGuarantee:
    """Of every written operand."""
    computed = computed_in(desc.element)
    parts = {}
    for name in (operand.name for operand in desc.operands if operand.written and operand.name != "step"):
        terms = [Term(1.0, computed.element, "lost")]
        param = name in ("param", "master")
        terms += [Term(OF_POWERS, ElementKind.F64, "correction")] if param else []
        if desc.stochastic and param:  # by a spacing, where others err by half of one
            terms += [Term(1.0, desc.element, measure) for measure in ("abs_result", "smallest_normal")]
        bound = Componentwise.rounded(terms, desc.layout(name).element, SOURCE, "beyond" if param else "")
        parts[name] = PrecisionGuarantee.fixed_order(computed.math, computed.element, bound)
    return PrecisionGuarantee.by_output(**parts, step=PrecisionGuarantee.exact(ElementKind.F32))


def of_reference(desc: Any) -> PrecisionGuarantee:
    """Of the oracle."""
    return widely(of_update(desc), desc)
