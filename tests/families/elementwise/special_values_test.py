"""isclose and nextafter, bit by bit; erfinv, lgamma and digamma where they are hard; lerp, addcmul and addcdiv where terms
cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types.precision import ulp_of

COVERS = ("isclose", "nextafter", "fma", "affine", "erfinv", "lgamma", "digamma", "lerp", "addcmul", "addcdiv")
Array = np.ndarray[Any, Any]
KINDS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
CORNERS = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 3e4)


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_signs_of_zero_of_a_product_and_sum(kind: str) -> None:
    """fma(-0, 0, -0) is -0; of a sum of two zeros with different signs, and of one that cancels, +0."""
    zeros = np.array([0.0, -0.0, 1.0, -1.0], KINDS[kind])
    a, b, c = (x.ravel() for x in np.meshgrid(zeros, zeros, zeros))
    with np.errstate(all="ignore"):
        wanted = (a * b + c).tobytes()  # the product is exact
    for device in ("cpu", "ptx"):
        assert bp.fma(a, b, c, device=device).tobytes() == wanted
        assert bp.affine(zeros, -0.0, -0.0, device=device).tobytes() == (zeros * zeros[1] + zeros[1]).tobytes()


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_isclose_at_its_tolerance_matches_numpy(kind: str) -> None:
    """Differences within three roundoffs of the tolerance: an operation that is contracted shows."""
    rng, dtype = np.random.default_rng(0), KINDS[kind]
    b = (np.exp(rng.uniform(-12, 12, 20000)) * rng.choice([-1, 1], 20000)).astype(dtype)
    steps = rng.integers(-3, 4, 20000).astype(dtype) * np.finfo(dtype).eps
    a = (b + (dtype(1e-8) + dtype(1e-5) * np.abs(b)) * (1 + steps)).astype(dtype)
    wanted = np.isclose(a, b)
    assert 0.3 < wanted.mean() < 0.7
    assert (bp.isclose(a, b, device="ptx") == wanted).all()
    b = rng.uniform(0.25, 0.5, 20000).astype(dtype)
    a = (b - (dtype(0.3) + dtype(0.7) * b) * (1 + steps)).astype(dtype)  # with digits below those of the tolerance
    assert (bp.isclose(a, b, 0.7, 0.3, device="ptx") == np.isclose(a, b, 0.7, 0.3)).all()


@pytest.mark.parametrize("equal_nan", [False, True])
def test_isclose_of_special_values_matches_numpy(equal_nan: bool) -> None:
    x = np.array(CORNERS, np.float32)
    wanted = np.isclose(x[:, None], x[None], rtol=0.1, atol=0.5, equal_nan=equal_nan)
    assert (bp.isclose(x[:, None], x[None], 0.1, 0.5, equal_nan, device="ptx") == wanted).all()


@pytest.mark.parametrize("kind", KINDS)
def test_nextafter_of_all_codes_is_the_next_code(kind: str) -> None:
    dtype = np.dtype(KINDS[kind])
    words = np.dtype(f"u{dtype.itemsize}")
    codes = np.arange(1 << 16, dtype=np.uint64) << (8 * dtype.itemsize - 16)
    x = codes.astype(words).view(dtype)
    with np.errstate(invalid="ignore"):
        x = x[np.isfinite(x.astype(np.float64))]
        up, down = (bp.nextafter(x, np.array([end], dtype), device="ptx") for end in (np.inf, -np.inf))
    of, zero, top = x.view(words).astype(object), x == 0, 1 << (8 * dtype.itemsize - 1)
    wanted = np.where(zero, 1, np.where(of < top, of + 1, of - 1))
    assert (up.view(words).astype(object) == wanted).all()
    wanted = np.where(zero, top + 1, np.where(of < top, of - 1, of + 1))
    assert (down.view(words).astype(object) == wanted).all()
    assert (np.signbit(bp.nextafter(np.zeros(2, dtype), np.array([0.0, -0.0], dtype), device="ptx")) == [0, 1]).all()


EXACT: dict[str, Callable[[Any], Any]] = {
    "erfinv": mpmath.erfinv,
    "lgamma": lambda x: mpmath.re(mpmath.loggamma(x)),
    "digamma": mpmath.digamma,
}


def hard(name: str, dtype: Any) -> Array:
    """Both tails of erfinv; around the zeros and the poles of the gamma functions, and between them."""
    rng, digits = np.random.default_rng(3), np.finfo(dtype).nmant
    small = 2.0 ** -rng.uniform(1, digits, 100)
    if name == "erfinv":
        return np.concatenate([1 - small, small - 1, small, rng.uniform(-1, 1, 200)]).astype(dtype)
    zeros = np.array(
        [1.4616321449683623, 1, 2, -0.5040830082644554, -2.4570247382208006, -2.7476826467274126, -3.1435808883]
    )
    near = (zeros[:, None] * (1 + rng.standard_normal(20) * 2.0 ** -rng.integers(2, digits, 20))).ravel()
    poles = (-np.arange(1, 12)[:, None] + rng.choice([-1, 1], (11, 6)) * 2.0 ** -rng.uniform(1, 20, (11, 6))).ravel()
    return np.concatenate([near, poles, rng.uniform(-9, 40, 200), -(10 ** rng.uniform(0, 4, 60))]).astype(dtype)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", EXACT)
def test_functions_where_they_are_hard_against_mpmath(name: str, kind: str) -> None:
    x = hard(name, KINDS[kind])
    x = x[(x != np.rint(x)) & (np.abs(x) > 0)]
    function = getattr(bp, name)
    bound = function.plan(x, device="ptx").precision_guarantee.bound
    got = function(x, device="ptx")
    with mpmath.workdps(50):
        exact = [EXACT[name](mpmath.mpf(float(value))) for value in x]
        off = np.array([abs(mpmath.mpf(float(y)) - of) for y, of in zip(got, exact)], np.float64)
    units = ulp_of(np.array([float(of) for of in exact]), bp.F32 if kind == "f32" else bp.F64).astype(np.float64)
    assert (off <= bound.n * units + bound.absolute).all(), f"{x[np.argmax(off / units)]}: {(off / units).max()} ulps"
    positive = x > 0
    if name == "digamma":  # no absolute error where it cancels nothing
        assert (off <= bound.n * units)[positive].all()


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_functions_beyond_their_domains_and_at_their_poles(kind: str) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2], KINDS[kind])
    inf, nan = np.inf, np.nan
    for name, wanted in (
        ("erfinv", (0, -0.0, nan, nan, nan, inf, -inf, nan)),
        ("lgamma", (inf, inf, inf, inf, nan, 0, inf, 0)),
        ("digamma", (-inf, inf, inf, nan, nan, -np.euler_gamma, nan, 1 - np.euler_gamma)),
    ):
        got = getattr(bp, name)(x, device="ptx").astype(np.float64)
        np.testing.assert_allclose(got, wanted, rtol=1e-2 if kind != "f64" else 1e-15, err_msg=name)


def test_digamma_has_no_gradient_and_says_so() -> None:
    assert bp.get_op("digamma").gradient is None
    assert bp.get_op("lgamma").gradient is not None


def test_lerp_gives_both_ends() -> None:
    """Bit by bit, where one is a million times the other; the middle is between them."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal(5000).astype(np.float32)
    b = (rng.standard_normal(5000) * 2.0 ** rng.integers(-20, 20, 5000)).astype(np.float32)
    assert (bp.lerp(a, b, 0.0, device="ptx") == a).all()
    assert (bp.lerp(a, b, 1.0, device="ptx") == b).all()
    middle = bp.lerp(a, b, 0.25, device="ptx")
    assert ((np.minimum(a, b) <= middle) & (middle <= np.maximum(a, b))).all()


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", ["lerp", "addcmul", "addcdiv"])
def test_sums_that_cancel_are_within_their_bound(name: str, kind: str) -> None:
    """The result is a rounding of a term, and the bound is no wider than a few of them."""
    rng, dtype = np.random.default_rng(1), KINDS[kind]
    a, b = (rng.uniform(1, 2, 4096).astype(dtype) for _ in range(2))
    first = {"lerp": a, "addcmul": (-a * b).astype(dtype), "addcdiv": (-a / b).astype(dtype)}[name]
    args = (first, (-a * 3).astype(dtype), np.full_like(a, 0.25)) if name == "lerp" else (first, a, b)
    desc = bp.get_op(name).of(**dict(zip(("x1", "x2", "x3"), args)))
    plan = bp.TernaryPlan.select(desc, device="ptx")
    operands = dict(zip(("x1", "x2", "x3"), args))
    got = plan.run(**operands)
    wide = plan.reference(desc, **operands)
    plan.precision_guarantee.check(got, np.asarray(wide), operands, measures=plan.measured(desc))
    bound = plan.precision_guarantee.bound.allowed(np.asarray(wide), bp.F32, operands, plan.measured(desc))
    roundoff = np.finfo(dtype).eps
    assert (bound <= 16 * roundoff).all(), bound.max() / roundoff
    worse = (np.asarray(wide) + 17 * roundoff).astype(dtype)
    with pytest.raises(AssertionError, match="elements break"):
        plan.precision_guarantee.check(worse, np.asarray(wide), operands, measures=plan.measured(desc))


def test_fused_functions_take_them() -> None:
    rng = np.random.default_rng(2)
    x, y = (rng.uniform(0.1, 0.9, 513).astype(np.float32) for _ in range(2))

    def function(x: Any, y: Any) -> Any:
        mixed = bp.addcmul(bp.lerp(x, y, 0.3), x, y, 0.5)
        return bp.where(bp.isclose(x, y, 0.5), bp.lgamma(mixed + 1.0), bp.erfinv(mixed * 0.4) + bp.digamma(y))

    fused = bp.fuse(function)
    step = {"device": "ptx"}
    mixed = bp.addcmul(bp.lerp(x, y, 0.3, **step), x, y, 0.5, **step)
    other = bp.add(bp.erfinv(mixed * np.float32(0.4), **step), bp.digamma(y, **step), **step)
    wanted = np.where(np.isclose(x, y, 0.5), bp.lgamma(mixed + np.float32(1), **step), other)
    np.testing.assert_allclose(fused(x, y, device="ptx"), wanted, rtol=3e-5, atol=3e-6)
    next_up = bp.fuse(lambda x, y: bp.nextafter(x, y))
    assert (next_up(x, y, device="ptx") == np.nextafter(x, y)).all()
