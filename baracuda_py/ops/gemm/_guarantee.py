"""What a matrix product is worth: a componentwise bound from the accumulator, the order of K and the output's rounding.

Sums of products follow N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 3.1 (to first
order in the unit roundoff). Tensor cores align the products and the accumulator to the largest exponent and truncate
(M. Fasi, N. J. Higham, M. Mikaitis and S. Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 7:e330, 2021):
twice the unit roundoff for every addend. No smaller multiple of K follows, though an instruction adds a block of products
at once: next to a large accumulator each product of the block may be cut at the accumulator's last bit. Beyond K of a few
thousand the bound is therefore wider than a product; that none is missing shows in sums of integers, which are exact.
"""

from __future__ import annotations

from typing import Any

from ...types import Activation, Componentwise, ElementKind, MathPrecision, PrecisionGuarantee, Term

__all__ = ["ROUNDED", "TRUNCATED", "guarantee_of", "narrow_additions"]

ROUNDED, TRUNCATED = 1.0, 2.0  # units roundoff that one addition may cost
_EPILOGUE = 16.0  # alpha, beta c, bias, the activation and the residual, each a few units
# What the GELU of a 16-bit result is off, in f32's units roundoff of |x| Phi(-|x|): kernels/include/math.cuh's upper_tail fits
# Phi to 5.86e-5 for bf16 and 9.8e-6 for f16.
_GELU_TAIL = {ElementKind.BF16: 1100.0, ElementKind.F16: 180.0}
_SOURCE = "Higham 2002, section 3.1; Fasi et al. 2021 for tensor cores"
_TF32_TRUNCATION = 2.0**-10  # relative, for an f32 whose last 13 bits a tensor core ignores


def narrow_additions(k: int, promoted: int) -> float:
    """Additions, in f32's units roundoff truncated, of sums of fp8 that are promoted to f32 every `promoted` of K.

    Hopper's tensor cores align 32 products and the accumulator to the largest exponent and keep 13 bits below it
    (DeepSeek-V3, arXiv:2412.19437, section 3.3.2): 33 addends may each lose 2**-13 of it.
    """
    instructions = -(-min(k, promoted) // 32)
    return instructions * 33 * 2.0 ** (ElementKind.F32.digits - 1 - 13) + -(-k // max(promoted, 1))


def guarantee_of(
    desc: Any, math: MathPrecision, additions: float, *, each: float, splits: int = 1, batch_invariant: bool = True
) -> PrecisionGuarantee:
    """The bound of a kernel that sums K products in `additions` steps, each of `each` units roundoff, in `splits` parts.

    `batch_invariant`: that neither tile nor split depends on M or the batch.
    """
    accumulator = ElementKind.F64 if math is MathPrecision.F64 else ElementKind.F32
    out = desc.layout("out").element
    coefficient = each * additions + splits + 1
    if math is MathPrecision.TF32:
        coefficient += 2 * _TF32_TRUNCATION / accumulator.unit_roundoff
    terms = [Term(coefficient, accumulator, "abs_matmul"), Term(_EPILOGUE, accumulator, "abs_epilogue")]
    if desc.activation is Activation.GELU and out in _GELU_TAIL:
        terms.append(Term(_GELU_TAIL[out], accumulator, "gelu_tail"))
    terms += [Term(1.0, out, "abs_result"), Term(1.0, out, "smallest_normal")]
    bound = Componentwise(tuple(terms), _SOURCE)
    return PrecisionGuarantee(math, accumulator, True, True, batch_invariant, False, bound)
