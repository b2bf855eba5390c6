"""Right results at the ends of the accumulator's range, subnormal and overflowing, as kernels find them: simulated in NumPy."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.gemm._guarantee import ROUNDED, TRUNCATED, guarantee_of
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
