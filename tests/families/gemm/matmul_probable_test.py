"""What shows in a product of random or whole numbers: missing work at the largest K, and nothing that kernels rightly do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.gemm.oracle import TF32_INFINITE
from baracuda_py.ops.products.guarantee import ROUNDED, TRUNCATED, guarantee_of, narrow_additions
from baracuda_py.plan.select import assess
from baracuda_py.types import MathPrecision, PlanPreference, PrecisionGuarantee

from .tensor_cores import MODES, Mode, summed, whole

COVERS = ("matmul",)
Array = np.ndarray[Any, Any]
H200 = bp.DeviceSpec.named("h200")
MATHS = tuple({mode.math: mode for mode in MODES}.values())
LARGEST = {MathPrecision.F64: 8192, MathPrecision.FP8_FAST: 8192}  # K; of the others:
LARGEST_K = 32768
ONE_PRODUCT = {MathPrecision.FP8_FAST: 2048}  # up to this K a product in every element shows in random numbers


def described(mode: Mode, m: int, n: int, k: int) -> Any:
    kind = mode.kind
    return bp.MatmulDescriptor((m, k), (k, n), kind, kind, math=mode.math, out_element=mode.out, b_strides=(1, k))


def operands(mode: Mode, m: int, n: int, k: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(k)
    return rng.standard_normal((m, k)).astype(mode.kind.dtype), rng.standard_normal((k, n)).astype(mode.kind.dtype)


def guarantees(desc: Any) -> list[PrecisionGuarantee]:
    """Those of all variants and configurations on an H200, each once."""
    answers = assess(bp.MatmulPlan.candidates, desc.canonical(), PlanPreference(deterministic=False), H200)
    found = {}
    for answer in answers:
        if answer.feasibility:
            each = answer.candidate.guarantee(desc.canonical(), H200, answer.config)
            found[str(each.bound), str(each.probable)] = each
    assert found
    return list(found.values())


def checks(desc: Any, a: Array, b: Array, wide: Array, each: list[PrecisionGuarantee]) -> Iterator[Any]:
    """What says whether a result is one, of every guarantee; the measures of the operands are taken once."""
    held: dict[str, Any] = {}

    def once(name: str, measure: Any, **arrays: Any) -> Any:
        if name not in held:
            held[name] = measure(desc, **arrays)
        return held[name]

    measures = {name: partial(once, name, measure) for name, measure in bp.MatmulPlan.measures.items()}
    for guarantee in each:
        yield partial(guarantee.check, reference=wide, operands={"a": a, "b": b}, measures=measures)


@pytest.mark.parametrize("mode", MATHS, ids=lambda mode: str(mode.math))
def test_missing_work_shows_at_the_largest_k(mode: Mode) -> None:
    """A product, 32, 64 or 128 of K left out of every element, and a scale 5 % off, break every candidate's guarantee; what is
    right does not."""
    for k in {LARGEST.get(mode.math, LARGEST_K), ONE_PRODUCT.get(mode.math, 1024)}:
        a, b = operands(mode, 24, 32, k)
        desc = described(mode, 24, 32, k)
        wide = bp.MatmulPlan.reference(desc, a=a, b=b)
        x, y = a.astype(wide.dtype), b.astype(wide.dtype)
        wrong = {
            f"{n} of K at {at}": wide - x[:, at : at + n] @ y[at : at + n] for n in (32, 64, 128) for at in (0, k - n)
        }
        wrong |= {"a scale": wide * 1.05, "zeros": wide * 0}
        if k <= ONE_PRODUCT.get(mode.math, k):
            wrong |= {f"product {at}": wide - x[:, at : at + 1] * y[at : at + 1] for at in (0, k // 2, k - 1)}
        for check in checks(desc, a, b, wide, guarantees(desc)):
            check(wide.astype(mode.out.dtype))
            for what, got in wrong.items():
                try:
                    check(got.astype(mode.out.dtype))
                except AssertionError:
                    continue
                pytest.fail(f"{what} left out of K = {k} does not show")


@pytest.mark.parametrize(("kind", "m", "n", "k", "kept"), [("bf16", 46, 8, 40344, 40320), ("f16", 24, 8, 57624, 57600)])
def test_library_tail_loss_breaks_guarantee(kind: str, m: int, n: int, k: int, kept: int) -> None:
    """Two products of which cuBLASLt 13.1 was seen to lose the end of K, with random operands."""
    mode = next(each for each in MODES if str(each.kind) == kind and each.out is bp.F32)
    a, b = operands(mode, m, n, k)
    desc = described(mode, m, n, k)
    wide = bp.MatmulPlan.reference(desc, a=a, b=b)
    short = a[:, :kept].astype(np.float64) @ b[:kept].astype(np.float64)
    for check in checks(desc, a, b, wide, guarantees(desc)):
        check(wide.astype(np.float32))
        with pytest.raises(AssertionError):
            check(short.astype(np.float32))


@pytest.mark.parametrize("mode", MATHS, ids=lambda mode: str(mode.math))
def test_missing_work_shows_in_whole_numbers(mode: Mode) -> None:
    """Which the accumulators hold exactly at the largest K, so that any difference is a fault: a product that is missing always
    makes one."""
    k, rng = LARGEST.get(mode.math, LARGEST_K), np.random.default_rng(1)
    a, b = (whole(rng, shape, mode.kind, mode.math) for shape in ((4, k), (k, 5)))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(summed(mode, a, b), wanted)
    for at in (0, k // 2, k - 1):
        assert (np.outer(a[:, at].astype(np.float64), b[at].astype(np.float64)) != 0).all()


def simulated(mode: Mode, k: int) -> PrecisionGuarantee:
    """The tightest guarantee of a kernel that sums like this."""
    desc = described(mode, 8, 8, k).canonical()
    additions: float = k
    if mode.kind.bits == 8:
        additions = narrow_additions(k, mode.promoted or k)
    return guarantee_of(desc, mode.math, additions, each=TRUNCATED if mode.at_once else ROUNDED)


def patterned(k: int) -> dict[str, tuple[Array, Array]]:
    """Operands that are not random: all alike, of one sign, a few that are large, sums that grow and shrink again."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((16, k)), rng.standard_normal((k, 16))
    turn = np.where(np.arange(k) < k // 2, 1.0, -1.0)
    huge = np.where(rng.random(k) < 2 / k, 1000.0, 1.0)
    return {
        "random": (a, b), "alike": (np.full_like(a, 0.1), np.full_like(b, 0.3)), "of one sign": (np.abs(a), np.abs(b)),
        "there and back": (np.abs(a), np.abs(b) * turn[:, None]),
        "in turns": (np.abs(a), np.abs(b) * (-1.0) ** np.arange(k)[:, None]),
        "large and small": (a * huge, b * huge[:, None]), "zeros": (a * (rng.random(k) < 0.05), b),
    }  # fmt: skip


def test_probable_bound_alone_is_named_in_the_error() -> None:
    """For a right result may break it, where the operands have a pattern."""
    mode = next(mode for mode in MODES if mode.math is MathPrecision.BF16)
    a, b = operands(mode, 24, 32, 8192)
    desc = described(mode, 24, 32, 8192)
    wide = bp.MatmulPlan.reference(desc, a=a, b=b)
    (check, *_) = checks(desc, a, b, wide, guarantees(desc))
    with pytest.raises(AssertionError, match="within the bound for any operands: work is missing, unless"):
        check((wide - 2.0).astype(np.float32))
    with pytest.raises(AssertionError, match="allowed") as broken:
        check((wide + 1e6).astype(np.float32))
    assert "within the bound" not in str(broken.value)


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("k", [1, 8, 33, 129, 2048])
def test_what_accumulators_do_keeps_the_probable_bound(mode: Mode, k: int) -> None:
    """Errors of twice the size too, but where sums grow and shrink again. No pattern of operands need be excused here."""
    desc, guarantee = described(mode, 16, 16, k), simulated(mode, k)
    assert guarantee.probable is not None
    for what, arrays in patterned(k).items():
        a, b = (np.clip(x, -400, 400).astype(mode.kind.dtype) for x in arrays)
        wide = bp.MatmulPlan.reference(desc, a=a, b=b)
        got = summed(mode, a, b).astype(wide.dtype)
        measures = {name: partial(measure, desc) for name, measure in bp.MatmulPlan.measures.items()}
        allowed = guarantee.probable.allowed(wide, mode.out, {"a": a, "b": b}, measures)
        worst = float(np.max(np.abs(got - wide) / np.maximum(allowed, 1e-300)))
        assert worst <= (1.0 if what == "there and back" else 0.5), f"{what}: {worst:.3g} of what is allowed"


@pytest.mark.parametrize("variant", ["wgmma", "tc", "tc_async", "cublas"])
def test_guarantee_states_the_tf32_range(variant: str) -> None:
    """From the middle between the largest TF32 and 2**128 on, an operand may count as infinite: nothing is promised of the
    elements it has a part in, and of others what is promised of all."""
    top = np.finfo(np.float32).max
    below = np.nextafter(np.float32(TF32_INFINITE), np.float32(0))
    a, b = np.full((4, 8), 2.0**-100, np.float32), np.full((8, 6), 2.0**-20, np.float32)
    a[1, 3], b[2, 4], a[2, 0], a[3, 1] = top, -TF32_INFINITE, below, np.inf
    mode = next(mode for mode in MODES if mode.math is MathPrecision.TF32)
    desc = replace(described(mode, 4, 6, 8), b_strides=None)
    device = replace(H200, libraries=frozenset({"cublas"})) if variant == "cublas" else H200
    plan = bp.MatmulPlan.select(desc, PlanPreference(variant=variant), device=device) if variant != "wgmma" else None
    plan = plan or bp.MatmulPlan.select(described(mode, 4, 6, 8), PlanPreference(variant=variant), device=device)
    wide = bp.MatmulPlan.reference(desc, a=a, b=b)
    check = partial(plan.precision_guarantee.check, reference=wide, operands={"a": a, "b": b}, measures=plan.measured())
    right = wide.astype(np.float32)
    check(right)
    for at in np.ndindex(4, 6):
        got = right.copy()
        got[at] = np.nan
        if at[0] == 1 or at[1] == 4:
            check(got)
        else:
            with pytest.raises(AssertionError, match=r"1 of 24 elements break .*, but for elements beyond_tf32"):
                check(got)


# ---- sums that lanes share out ------------------------------------------------------------------------------------------


def of_gemv(k: int, columns_along_k: bool) -> tuple[Any, list[PrecisionGuarantee]]:
    """A product of one row and the guarantees of all configurations that serve it."""
    strides = (1, k) if columns_along_k else None
    desc = bp.MatmulDescriptor((1, k), (k, 64), "f32", "f32", b_strides=strides)
    answers = assess(bp.MatmulPlan.candidates, desc.canonical(), PlanPreference(variant="gemv"), H200)
    served = [each for each in answers if each.feasibility and each.candidate.variant == "gemv"]
    return desc, [each.candidate.guarantee(desc.canonical(), H200, each.config) for each in served]


@pytest.mark.parametrize("columns_along_k", [False, True])
def test_missing_work_shows_in_a_product_of_one_row(columns_along_k: bool) -> None:
    for k in (1024, 16384, 65536):
        rng = np.random.default_rng(k)
        a, b = rng.standard_normal((1, k)).astype(np.float32), rng.standard_normal((k, 64)).astype(np.float32)
        desc, each = of_gemv(k, columns_along_k)
        wide = bp.MatmulPlan.reference(desc, a=a, b=b)
        short = {"zeros": wide * 0, "a scale": wide * 1.05}
        short |= {at: wide - a[:, at : at + 128].astype(float) @ b[at : at + 128] for at in (0, k - 128)}
        assert each
        for check in checks(desc, a, b, wide, each):
            check(wide.astype(np.float32))
            for what, got in short.items():
                try:
                    check(got.astype(np.float32))
                except AssertionError:
                    continue
                pytest.fail(f"{what} left out of K = {k} does not show")


@pytest.mark.parametrize("k", [16384, 65536])
def test_signs_that_a_lane_has_of_one_kind(k: int) -> None:
    """Four positive products, four negative ones: in order they cancel, and a lane of four neighbours has only one sign. The
    negative ones lose a little at each addition."""
    lanes, vector = 32, 4
    a, value = np.ones((1, k), np.float32), np.where(np.arange(k) // vector % 2, -1 - 0.49 * (k / 64) * 2.0**-23, 1)
    b = np.repeat(value[:, None], 64, 1).astype(np.float32)
    x, y = a.reshape(-1, lanes, vector, 1), b.reshape(-1, lanes, vector, 64).astype(np.float64)
    sums = np.zeros((lanes, 64), np.float32)
    for turn, v in np.ndindex(len(x), vector):
        sums = (sums + x[turn, :, v] * y[turn, :, v]).astype(np.float32)
    while len(sums) > 1:
        sums = sums[: len(sums) // 2] + sums[len(sums) // 2 :]
    desc, each = of_gemv(k, columns_along_k=True)
    loosest = max(each, key=lambda guarantee: guarantee.bound.terms[0].coefficient)  # type: ignore[union-attr]
    (check,) = checks(desc, a, b, bp.MatmulPlan.reference(desc, a=a, b=b), [loosest])  # one warp sums up a column
    check(sums)
