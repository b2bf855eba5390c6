"""What a product with i8 weights is worth: sums of integers are exact, what is left are the roundings of the last few steps.

Sums of floats with i8 weights (W8A16) are those of tensor cores, twice the unit roundoff an addend, as for `matmul`
(N. J. Higham, section 3.1; M. Fasi et al., PeerJ CS 7:e330, 2021).
"""

from __future__ import annotations

from typing import Any

from ....types import Activation, Componentwise, ElementKind, MathPrecision, PrecisionGuarantee, Term

__all__ = ["guarantee"]

F32 = ElementKind.F32
SOURCE = "Higham 2002, sections 2.2 and 3.1"
EPILOGUE = 16.0  # the activation's few units, and bias
# GELU for 16-bit results, in units of f32 roundoff times |x| Phi(-|x|): kernels/include/math/upper_tail.cuh
GELU_TAIL = {ElementKind.BF16: 1100.0, ElementKind.F16: 180.0}


def guarantee(
    desc: Any, math: MathPrecision, additions: float = 0.0, *, weights: ElementKind | None = None
) -> PrecisionGuarantee:
    """`additions`: of f32, that a sum of floats goes through; `weights`: what dequantised weights are rounded to, if at all."""
    out = desc.layout("out").element
    integers = math is MathPrecision.INT8
    if not out.is_float:
        if integers:
            return PrecisionGuarantee.fixed_order(math, ElementKind.I32, PrecisionGuarantee.exact(out).bound)
        raise ValueError(f"{desc.op}: sums of floats as {out}")  # refused before
    terms = [Term(5.0, F32, "abs_scaled"), Term(EPILOGUE, F32, "abs_finished"), Term(EPILOGUE, F32, "tiny")]
    if additions:
        terms.append(Term(additions, F32, "abs_products"))
    if weights is not None:
        terms.append(Term(2.0**24, F32, "rounded_weights"))
        terms.append(Term(1.0, weights, "tiny_weights"))
    if desc.activation is Activation.GELU and out in GELU_TAIL:
        terms.append(Term(GELU_TAIL[out], F32, "gelu_tail"))
    bound = Componentwise.rounded(terms, out, SOURCE, "beyond")
    return PrecisionGuarantee.fixed_order(math, ElementKind.I32 if integers else F32, bound, batch_invariant=integers)
