"""What appended tokens are worth: moved or quantised bit for bit; keys that are rotated, within the rotation's bound."""

from __future__ import annotations

from typing import Any

from ...types import Componentwise, ElementKind, MathPrecision, PrecisionGuarantee, Term
from ..position.angles import terms_of

__all__ = ["guarantee_of"]

F32 = ElementKind.F32
SOURCE = "rope's bound; codes and scales differ by what the numbers do, and a code by one more step, as it is rounded"


def guarantee_of(desc: Any) -> PrecisionGuarantee:
    """Keys that are rotated are `rope`'s, bit for bit, and what is then done to them is exact: what is bounded here is their
    distance from the exact rotation, and by how much that may change codes and scales."""
    exact = PrecisionGuarantee.exact(desc.pages_element)
    if not desc.rotates_keys:
        return exact
    parts = {operand.name: exact for operand in desc.operands if operand.written}
    if desc.quantized:
        parts["k_pages"] = _bounded(Term(1.0, desc.element, "code_error"))
        if desc.has("k_scales"):
            parts["k_scales"] = _bounded(Term(1.0, desc.element, "scale_error"))
    else:
        parts["k_pages"] = _bounded(*terms_of(desc, "abs_rotated"))
    parts["status"] = PrecisionGuarantee.exact(ElementKind.I32)
    return PrecisionGuarantee.by_output(**parts)


def _bounded(*terms: Term) -> PrecisionGuarantee:
    return PrecisionGuarantee.fixed_order(MathPrecision.F32, F32, Componentwise(terms, SOURCE, "unbounded"))
