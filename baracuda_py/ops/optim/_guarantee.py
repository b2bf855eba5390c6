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

__all__ = ["of_norm", "of_reference", "of_update"]

SOURCE = "Higham, Accuracy and Stability of Numerical Algorithms, section 3.1"
OF_CODES = "the bound of states; a code is another one only where its state is near the border of two"
OF_POWERS = 4.0  # unit roundoffs of f64 that a bias correction's power loses: 2 ulp


def of_update(desc: Any) -> PrecisionGuarantee:
    """Of every written operand."""
    computed = computed_in(desc.element)
    parts = {}
    for name in (operand.name for operand in desc.operands if operand.written and operand.name != "step"):
        if name in (*desc.rule.absmaxes, *(desc.rule.states if desc.rule.blockwise else ())):
            requantized = Componentwise((Term(1.0, ElementKind.F32, "requantized"),), OF_CODES, "near_the_end")
            parts[name] = PrecisionGuarantee.fixed_order(computed.math, computed.element, requantized)
            continue
        terms = [Term(1.0, computed.element, "lost")]
        param = name in ("param", "master")
        sized = desc.rule.normed and (param or name == "momentum_buffer")  # by norms of its whole array
        terms += [Term(OF_POWERS, ElementKind.F64, "correction")] if param else []
        if desc.stochastic and param:  # by a spacing, where others err by half of one
            terms += [Term(1.0, desc.element, measure) for measure in ("abs_result", "smallest_normal")]
        bound = Componentwise.rounded(terms, desc.layout(name).element, SOURCE, "beyond" if param or sized else "")
        parts[name] = PrecisionGuarantee.fixed_order(computed.math, computed.element, bound, batch_invariant=not sized)
    return PrecisionGuarantee.by_output(**parts, step=PrecisionGuarantee.exact(ElementKind.F32))


def of_reference(desc: Any) -> PrecisionGuarantee:
    """Of the oracle."""
    return widely(of_update(desc), desc)


def of_norm(desc: Any) -> PrecisionGuarantee:
    """Of the norm of gradients and what follows from it. Squares are added in f64, each by `depth` additions at most (Higham,
    section 4.2): the norm errs by half of that, and by a root and a quotient; a factor by three roundings more."""
    depth, computed = desc.depth, computed_in(desc.element)

    def promise(name: str, *more: Term) -> PrecisionGuarantee:
        terms = [Term(depth + 8.0, ElementKind.F64, "abs_result"), *more]
        bound = Componentwise.rounded(terms, desc.layout(name).element, SOURCE, "beyond")
        return PrecisionGuarantee.fixed_order(computed.math, ElementKind.F64, bound, batch_invariant=False)

    parts = {
        "norm": lambda: promise("norm"), "scale": lambda: promise("scale"),
        "found_inf": lambda: PrecisionGuarantee.exact(ElementKind.F32),
        "grad": lambda: promise(
            "grad", Term(3.0, computed.element, "abs_result"), Term(2.0, computed.element, "computed_smallest_normal")
        ),
    }  # fmt: skip
    return PrecisionGuarantee.by_output(**{o.name: parts[o.name]() for o in desc.operands if o.written})
