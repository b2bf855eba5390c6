"""Error bounds of a matrix product: componentwise, from the accumulator, the order of summation and the output's rounding.

Sums of products follow N. J. Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., section 3.1 (to first
order in the unit roundoff). Tensor cores align the products and the accumulator to the largest exponent and truncate
(M. Fasi, N. J. Higham, M. Mikaitis and S. Pranesh, "Numerical behavior of NVIDIA tensor cores", PeerJ CS 7:e330, 2021):
twice the unit roundoff for every addend. No smaller multiple of K follows, though an instruction adds a block of products
at once: next to a large accumulator each product of the block may be cut at the accumulator's last bit. Below the smallest normal
number errors are no smaller than half its last place (Higham, section 2.2): the terms "underflow" and "subnormal_operands". Sums
that may leave the accumulator's range on the way are outside the bound.

For K beyond a few thousand that bound exceeds a single product, so it would not show a missing one. The probable bound does. It
uses the actual size of partial sums (running error analysis, Higham, section 3.3). Of an instruction's truncations it counts the
share that remains where errors have both signs, or the surplus of products of one sign. Errors of separate parts of K, and of
operands rounded to TF32, are independent: for those it takes a multiple of the root of the sum of squares. For random operands,
in a simulation of the tensor cores, it is 10 to 250 times the root mean square error and at least 3 times the largest error. It
is less than one product up to K = 32768 (fp8_fast: 2048); tests with sums of integers, which are exact, cover larger K. Kernels
that add many short sums need no probable bound: up to K = 65536 the bound for any operands shows that 128 of K are missing.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ...types import Activation, Componentwise, ElementKind, MathPrecision, PrecisionGuarantee, Term

__all__ = ["ROUNDED", "TRUNCATED", "guarantee_of", "narrow_additions"]

ROUNDED, TRUNCATED = 1.0, 2.0  # units roundoff that one addition may cost
_EPILOGUE = 16.0  # alpha, beta c, bias, the activation and the residual, each a few units
# Error of GELU for 16-bit results, in units of f32 roundoff times |x| Phi(-|x|): kernels/include/math/upper_tail.cuh
# approximates Phi to 5.86e-5 for bf16 and 9.8e-6 for f16.
_GELU_TAIL = {ElementKind.BF16: 1100.0, ElementKind.F16: 180.0}
_SOURCE = "Higham 2002, section 3.1; Fasi et al. 2021 for tensor cores"
_PROBABLE = "Higham 2002, section 3.3, with partial sums as large as they are; for operands without a pattern"
_TF32_TRUNCATION = 2.0**-10  # relative error of an f32 whose last 13 bits a tensor core ignores
_EIGHTS = (MathPrecision.FP8, MathPrecision.FP8_FAST)
# The share of an instruction's truncations that remains where they have both signs: 1 of 8, for fp8 2 of 33.
_LEFT, _LEFT_OF_EIGHTS = 1 / 8, 2 / 33
# Multiples of the root of the sum of squares: of what one addition costs, of products of rounded operands, and of fp8's sums of
# one instruction or one block of K.
_ROOT, _ROOT_OF_TF32, _ROOT_OF_EIGHTS = 1 / 4, 1.5, 2.0**-9


def narrow_additions(k: int, promoted: int) -> float:
    """The error of fp8 sums promoted to f32 after every `promoted` of K, as an equivalent number of truncated f32 additions.

    Hopper's tensor cores align 32 products and the accumulator to the largest exponent and keep 13 bits below it
    (DeepSeek-V3, arXiv:2412.19437, section 3.3.2): 33 addends may each lose 2**-13 of it.
    """
    instructions = -(-min(k, promoted) // 32)
    return instructions * 33 * 2.0 ** (ElementKind.F32.digits - 1 - 13) + -(-k // max(promoted, 1))


def guarantee_of(
    desc: Any,
    math: MathPrecision,
    additions: float,
    *,
    each: float,
    splits: int = 1,
    batch_invariant: bool = True,
    in_order: bool = True,
) -> PrecisionGuarantee:
    """The bound of a kernel that sums K products in `additions` steps, each of `each` units roundoff, in `splits` parts.

    `batch_invariant`: that neither tile nor split depends on M or the batch. `in_order`: that the steps of a sum follow K;
    partial sums of lanes that share K out may be far larger than those in its order, so that there is no probable bound.
    """
    out, k = desc.layout("out").element, desc.a_shape[-1]
    return _guarantee(math, out, desc.activation, k, additions, each, splits, batch_invariant, in_order)


@lru_cache(maxsize=256)
def _guarantee(
    math: MathPrecision,
    out: ElementKind,
    activation: Activation,
    k: int,
    additions: float,
    each: float,
    splits: int,
    batch_invariant: bool,
    in_order: bool,
) -> PrecisionGuarantee:
    """The guarantee, cached by what it depends on: neither M nor N."""
    accumulator = ElementKind.F64 if math is MathPrecision.F64 else ElementKind.F32
    unit = accumulator.unit_roundoff
    rounding = 2 * _TF32_TRUNCATION / unit if math is MathPrecision.TF32 else 0.0  # of the operands
    last = splits + 1
    rest = [Term(_EPILOGUE, accumulator, "abs_epilogue")]
    if activation is Activation.GELU and out in _GELU_TAIL:
        rest.append(Term(_GELU_TAIL[out], accumulator, "gelu_tail"))
    # Products may be truncated at the last place of subnormals. Adding partial sums there is exact, so splits do not count.
    rest.append(Term(each * k + _EPILOGUE, accumulator, "underflow"))
    if rounding:
        rest.append(Term(rounding, accumulator, "subnormal_operands"))
    outside = "beyond_tf32" if math is MathPrecision.TF32 else f"beyond_{accumulator}"
    worst = Term(each * additions + last + rounding, accumulator, "abs_matmul")
    bound = Componentwise.rounded((worst, *rest), out, _SOURCE, outside)

    if not in_order:
        return PrecisionGuarantee(math, accumulator, True, True, batch_invariant, False, bound)
    left = (_LEFT_OF_EIGHTS if math in _EIGHTS else _LEFT) if each == TRUNCATED else 1.0
    sums = each * additions * left + last
    root = _ROOT * sums + _ROOT_OF_TF32 * rounding + (_ROOT_OF_EIGHTS / unit if math in _EIGHTS else 0.0)
    seen = [Term(sums + rounding, accumulator, "partial_sums"), Term(root, accumulator, "root_products")]
    if each == TRUNCATED:
        seen.append(Term(each * additions / max(1, k), accumulator, "like_signs"))
    probable = Componentwise.rounded((*seen, *rest), out, _PROBABLE, outside)
    return PrecisionGuarantee(math, accumulator, True, True, batch_invariant, False, bound, probable)
