"""Right results at the ends of the accumulator's range, subnormal and overflowing, as kernels find them: simulated in NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.products.guarantee import ROUNDED, TRUNCATED, guarantee_of
from baracuda_py.types import MathPrecision, PrecisionGuarantee

from .tensor_cores import MODES, summed

COVERS = ("matmul",)
Array = np.ndarray[Any, Any]
BY_MATH = {str(mode.math): mode for mode in MODES}


def described(a: Array, b: Array, math: str = "f32", **more: Any) -> Any:
    kind = BY_MATH[math].kind
    if "c" in more:
        more |= {"c_shape": more.pop("c").shape, "c_element": "f32"}
    return bp.MatmulDescriptor(a.shape, b.shape, kind, kind, math=math, out_element="f32", **more)


def promised(desc: Any) -> PrecisionGuarantee:
    """What a kernel promises that sums its products one after the other."""
    each = ROUNDED if desc.precision is MathPrecision.F32 else TRUNCATED
    return guarantee_of(desc.canonical(), desc.precision, desc.a_shape[-1], each=each)


def check(desc: Any, got: Array, **arrays: Array) -> None:
    measures = {name: partial(measure, desc) for name, measure in bp.MatmulPlan.measures.items()}
    promised(desc).check(got, bp.MatmulPlan.reference(desc, **arrays), arrays, measures=measures)


def refused(desc: Any, got: Array, **arrays: Array) -> None:
    with pytest.raises(AssertionError, match="break"):
        check(desc, got, **arrays)


def shapes_of(scales: dict[str, Array]) -> dict[str, Any]:
    return {f"{n}_shape": x.shape for n, x in scales.items()} | {f"{n}_element": "f32" for n in scales}


def full(shape: tuple[int, ...], value: float, dtype: Any = np.float32) -> Array:
    return np.full(shape, value, dtype)


@pytest.mark.parametrize(("alpha", "beta"), [(1.1e-42, 0.0), (1.0, 1.1e-42), (1e-50, 1e-46), (0.1, 0.3)])
def test_alpha_and_beta_are_what_f32_holds(alpha: float, beta: float) -> None:
    """A kernel gets them as f32: a subnormal one is off by more than a unit roundoff, and one too small counts as 0."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 8), (8, 6)))
    a, c = a * np.float32(1e6 if alpha < 1 else 1e-25), full((4, 6), 1e20)
    a[0, 0] = np.nan  # not read where alpha counts as 0
    desc = described(a, b, alpha=alpha, beta=beta, c=c)
    x, y = np.float32(alpha), np.float32(beta)
    right = (x * (a @ b) if x else full((4, 6), 0)) + (y * c if y else full((4, 6), 0))
    check(desc, right, a=a, b=b, c=c)
    refused(desc, right * np.float32(1.01) + np.float32(1e-40), a=a, b=b, c=c)


# ---- below the smallest normal number -----------------------------------------------------------------------------------


def in_order(a: Array, b: Array) -> Array:
    """A B as fused multiply-adds of f32 hold it."""
    return summed(BY_MATH["f32"], a, b)


@pytest.mark.parametrize("small", ["a", "b"])
def test_tf32_loses_bits_of_a_subnormal_operand(small: str) -> None:
    """2**-140 is 0 as TF32, whose subnormal numbers are multiples of 2**-136."""
    value = {"a": 2.0**100, "b": 2.0**100} | {small: 2.0**-140}
    a, b = full((2, 8), value["a"]), full((8, 3), value["b"])
    desc = described(a, b, "tf32")
    right = summed(BY_MATH["tf32"], a, b)
    assert not right.any()
    check(desc, right, a=a, b=b)
    refused(desc, right + np.float32(1e-6), a=a, b=b)


@pytest.mark.parametrize(
    ("k", "x", "y", "alpha"), [(4096, 2.0**-76, 2.0**-76, 1.0), (8, 1e-25, 1e-20, 1e30), (1, 1e-22, 1e-23, 1e38)]
)
def test_products_below_the_smallest_number_vanish(k: int, x: float, y: float, alpha: float) -> None:
    a, b = full((2, k), x), full((k, 3), y)
    desc = described(a, b, alpha=alpha)
    right = np.float32(alpha) * in_order(a, b)
    check(desc, right, a=a, b=b)
    largest = float(k * max(1, alpha) * 2.0**-148)  # what is allowed is no more than a few such products
    refused(desc, right + np.float32(40 * largest), a=a, b=b)


@pytest.mark.parametrize("blocks", [False, True])
def test_scales_that_vanish_together(blocks: bool) -> None:
    """They are multiplied before the sums are: 1e-30 times 1e-30 is 0, whatever alpha makes of it."""
    a, b = (full(s, 2.0, bp.FP8_E4M3.dtype) for s in ((4, 256), (256, 6)))
    scales = {n: full((s if blocks else (1, 1)), 1e-30) for n, s in (("scale_a", (4, 2)), ("scale_b", (2, 1)))}
    desc = described(a, b, "fp8", alpha=1e30, **shapes_of(scales))
    together = np.float32(1e-30) * np.float32(1e-30)
    right = np.float32(1e30) * (in_order(a, b) * together)
    assert not right.any()
    check(desc, right, a=a, b=b, **scales)
    refused(desc, right + np.float32(1e-6), a=a, b=b, **scales)


# ---- beyond the largest number -----------------------------------------------------------------------------------------


def free(desc: Any, at: tuple[int, ...], **arrays: Array) -> None:
    """Nothing is promised of one element, and of the others what is promised of all."""
    right = bp.MatmulPlan.reference(desc, **arrays).astype(np.float32)
    check(desc, right, **arrays)
    for place in np.ndindex(right.shape):
        for wrong in (np.nan, np.inf, 0.0):
            got = right.copy()
            got[place] = wrong
            (check if place == at else refused)(desc, got, **arrays)


@pytest.mark.parametrize("math", ["f32", "tf32", "bf16"])
def test_sums_beyond_the_range_before_a_small_alpha(math: str) -> None:
    a, b = (full(s, 2.0, BY_MATH[math].kind.dtype) for s in ((3, 4), (4, 2)))
    a[1], b[:, 1] = 1e20, 1e20
    free(described(a, b, math, alpha=1e-10), (1, 1), a=a, b=b)


def test_sums_that_cancel_beyond_the_range() -> None:
    a, b = full((3, 4), 1.0), full((4, 2), 1e-3)
    a[1], b[:, 1] = (3e38, 3e38, -3e38, -3e38), (1, 1, 1, 0.5)
    b[3, 0] = 0.5e-3
    free(described(a, b), (1, 1), a=a, b=b)


def test_an_epilogue_that_cancels_beyond_the_range() -> None:
    a, b, c = full((3, 4), 1.0), full((4, 2), 1.0), full((3, 2), 1.0)
    a[1], b[:, 1], c[1, 1] = 1e19, 1e19, -1e38
    free(described(a, b, alpha=2.0, beta=8.0, c=c), (1, 1), a=a, b=b, c=c)


def test_scales_beyond_the_range_together() -> None:
    a, b = (full(s, 2.0, bp.FP8_E4M3.dtype) for s in ((3, 64), (64, 2)))
    scales = {"scale_a": full((3, 1), 1.0), "scale_b": full((1, 2), 1.0)}
    scales["scale_a"][1], scales["scale_b"][:, 1] = 1e20, 1e20
    free(described(a, b, "fp8", alpha=1e-30, **shapes_of(scales)), (1, 1), a=a, b=b, **scales)


def test_what_is_promised_says_where() -> None:
    a, b = full((2, 4), 1.0), full((4, 2), 1.0)
    text = str(promised(described(a, b)).bound)
    assert "+ 20 u(f32) underflow +" in text and text.endswith(", but for elements beyond_f32")
