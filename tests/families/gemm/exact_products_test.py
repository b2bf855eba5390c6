"""Whole numbers through every family of wgmma's tiles at full size, and random ones at the largest K, on the device.

A product of small integers is exact in every accumulator, and none of them is 0: one that is missing, counted twice or put
elsewhere changes a result, at any K. The oracle is CuPy's own integer product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.numerics.rounding import round_to
from baracuda_py.ops.gemm.oracle import TF32_INFINITE
from baracuda_py.plan import Plan
from baracuda_py.plan.about.tune import admissible
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.types import ArchSku, ElementKind, MathPrecision, PlanPreference

from ...extents import extent, launches
from ...gauntlet import named, warm
from .formulas import activated
from .matmul_guarantee_test import cancelling
from .matmul_probable_test import LARGEST, LARGEST_K, MATHS, checks, described, operands
from .tensor_cores import Mode, whole

COVERS = ("matmul",)
pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
Array = np.ndarray[Any, Any]
E4M3, E5M2 = ElementKind.FP8_E4M3, ElementKind.FP8_E5M2
FP8, FAST, TF32 = MathPrecision.FP8, MathPrecision.FP8_FAST, MathPrecision.TF32
# Operands' kind, how they are multiplied, and whether a and b are in row or column order.
WAYS = (
    (bp.BF16, None, "rr"), (bp.BF16, None, "cr"), (bp.F16, None, "rc"), (bp.F32, TF32, "rc"), (E4M3, FP8, "rc"),
    (E5M2, FAST, "rc"),
)  # fmt: skip
# M, N, K: of 64x256 and 128x128 tiles two and three per CTA of 132 with one k_block or two, others, and K over many stages.
SHAPES = ((2064, 2040, 64), (2064, 2040, 128), (3128, 2040, 64), (1040, 4168, 208), (2064, 2040, 4112))
FAMILIES = (
    "64x256 ping_pong", "64x256 ping_pong transposed", "64x256 cluster=2 ping_pong", "128x128 ping_pong",
    "128x128 ping_pong transposed", "128x128 cluster=2 ping_pong", "128x128 cluster=2 ping_pong transposed", "128x256",
    "256x128 cluster=2", "128x128 cluster=2", "128x128 cluster=2 transposed", "128x96 cluster=2", "128x224",
    "64x128 cluster=2", "64x64 cluster=2 transposed", "64x32 ctas_per_sm=2", "64x16 cluster=2 ctas_per_sm=2 transposed",
    "128x128", "128x160",
)  # fmt: skip


@pytest.fixture
def hopper() -> None:
    if spec_of(None).tier is not ArchSku.SM90A:
        pytest.skip("wgmma's tiles exist on sm_90a only")


def laid(x: Array, order: str) -> Any:
    """A host matrix on the device, in rows ("r") or columns ("c"); fp8 as its bytes under their name."""
    import cupy

    host = np.ascontiguousarray(x if order == "r" else x.T)
    kind = ElementKind.of(x.dtype)
    there = cupy.asarray(host.view(np.uint8) if kind.bits == 8 else host)
    there = there if order == "r" else there.T
    return bp.GpuBuffer.view(there, kind) if kind.bits == 8 else there


def product(a: Array, b: Array) -> Any:
    """The exact product of whole numbers, i32 on the device."""
    import cupy

    x, y = (cupy.asarray(z.astype(np.int8)).astype(np.int32) for z in (a, b))
    return cupy.dot(x, y)


def spread(desc: Any, everything: bool, variant: str = "wgmma") -> list[Plan[Any]]:
    """A plan of each family of tiles, of six split last waves and of eight splits; of every configuration where `everything`."""
    plans = admissible(bp.MatmulPlan, desc, PlanPreference(variant=variant, deterministic=False), spec_of(None))
    if everything:
        return plans
    names = [str(plan.sku.config) for plan in plans]
    tails = [name for name in names if "split_last_wave" in name][:6]
    splits = [name for name in names if "split_k" in name][:8]
    return [plan for plan, name in zip(plans, names) if name in FAMILIES or name in (*tails, *splits)]


def run_all(plans: list[Plan[Any]], arrays: dict[str, Any], wanted: Any, out: ElementKind) -> None:
    """Every plan writes every element right, over NaN: the very bits of `wanted`, rounded once."""
    import cupy

    assert plans
    warm(plans)
    bits = np.dtype(f"u{out.bits // 8}")
    nearest = cupy.asarray(round_to(wanted.get().astype(np.float64), out).view(bits))
    for plan in plans:
        with named(f"{plan.desc.a_shape} {plan.desc.b_shape} {plan.sku}"):
            got = cupy.empty(wanted.shape, out.dtype)
            got.view(np.uint8)[...] = 255
            plan.run(**arrays, out=got)
            held = got.view(bits)
            wrong = int(((held != nearest) & ((held | nearest) << 1 != 0)).sum())  # but for the sign of a zero
            assert not wrong, f"{wrong} of {got.size} elements are wrong"


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize(("kind", "math", "order"), WAYS, ids=str)
def test_whole_numbers(kind: ElementKind, math: Any, order: str, shape: tuple[int, int, int], everything: bool) -> None:
    m, n, k = map(extent, shape)
    rng = np.random.default_rng(shape)
    a, b = (whole(rng, size, kind, math) for size in ((m, k), (k, n)))
    arrays, wanted = {"a": laid(a, order[0]), "b": laid(b, order[1])}, product(a, b)
    for out in (bp.F32, bp.BF16) if k <= 128 else (bp.F32,):
        desc = bp.MatmulDescriptor.of(**arrays, math=math, out_dtype=out)
        run_all(spread(desc, everything), arrays, wanted, out)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("shape", [(136, 264, 4112), (2060, 2040, 4112), (333, 420, 8192)], ids=str)
def test_scales_by_blocks_that_are_powers_of_two(shape: tuple[int, int, int], everything: bool) -> None:
    """Exact at long K, with clusters, splits and split last waves."""
    import cupy

    m, n, k = map(extent, shape)
    blocks, wide = -(-k // 128), -(-n // 128)
    rng = np.random.default_rng(k)
    a, b = (whole(rng, size, E4M3, FAST) for size in ((m, k), (k, n)))
    of_a, of_b = 2 ** rng.integers(0, 3, (m, blocks)), 2 ** rng.integers(0, 3, (blocks, wide))
    lines = cupy.zeros((blocks, -(-m // 4) * 4), np.float32)
    lines[:, :m] = cupy.asarray(of_a.T.astype(np.float32))
    wanted = product(
        a.astype(np.int8) * np.repeat(of_a, 128, 1)[:, :k].astype(np.int8),
        b.astype(np.int8) * np.repeat(np.repeat(of_b, 128, 0)[:k], 128, 1)[:, :n].astype(np.int8),
    )
    scales = {"scale_a": lines[:, :m].T, "scale_b": cupy.asarray(of_b.astype(np.float32))}
    arrays = {"a": laid(a, "r"), "b": laid(b, "c"), **scales}
    desc = bp.MatmulDescriptor.of(**arrays, out_dtype="f32")
    every = admissible(bp.MatmulPlan, desc, PlanPreference(variant="wgmma"), spec_of(None))
    split = [plan for plan in every if "split" in str(plan.sku.config)]
    run_all([*spread(desc, everything), *split], arrays, wanted, bp.F32)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize(
    "shape", [(8192, 8192, 1024), (4096, 4096, 4096), (8192, 8191, 528), (4095, 4097, 1031)], ids=str
)
@pytest.mark.parametrize(("kind", "math", "order"), [WAYS[0], *WAYS[2:]], ids=str)
def test_whole_numbers_at_the_sizes_that_are_timed(
    kind: ElementKind, math: Any, order: str, shape: tuple[int, int, int]
) -> None:
    """Every variant's own choice: last waves, clusters and multicast."""
    m, n, k = map(extent, shape)
    rng = np.random.default_rng(shape)
    a, b = (whole(rng, size, kind, math) for size in ((m, k), (k, n)))
    arrays = {"a": laid(a, order[0]), "b": laid(b, order[1])}
    desc = bp.MatmulDescriptor.of(**arrays, math=math, out_dtype="f32")
    plans = []
    for variant in ("wgmma", "wgmma_padded", "tc_async"):
        try:
            plans.append(bp.MatmulPlan.select(desc, PlanPreference(variant=variant)))
        except bp.UnsupportedError:
            continue
    run_all(plans, arrays, product(a, b), bp.F32)


@pytest.mark.usefixtures("hopper")
@pytest.mark.parametrize("k", [16, 64, 128])
@pytest.mark.parametrize(
    ("m", "n", "config"),
    [
        (2060, 2040, "64x256 ping_pong"),
        (2060, 2040, "128x128 ping_pong"),
        (2060, 2040, "128x128 cluster=2 ping_pong"),
        (4160, 2040, "64x256 cluster=2 ping_pong"),
    ],
)
def test_consumers_that_take_turns(m: int, n: int, config: str, k: int) -> None:
    """Two tiles per CTA and one k_block or two, 400 launches: the last consumer writes where the other's products read."""
    import cupy

    rng = np.random.default_rng(k)
    a, b = (whole(rng, size, bp.BF16, MathPrecision.BF16) for size in ((m, k), (k, n)))
    arrays = {"a": laid(a, "r"), "b": laid(b, "c")}
    every = spread(bp.MatmulDescriptor.of(**arrays), everything=True)
    plan = next((plan for plan in every if str(plan.sku.config) == config), None)
    if plan is None:
        pytest.skip(f"{config} does not serve it here")
    out, nearest = cupy.empty((m, n), bp.BF16.dtype), round_to(product(a, b).get().astype(np.float64), bp.BF16)
    bits, bound = cupy.asarray(nearest.view(np.uint16)), plan.bind(**arrays, out=out)
    wrong = cupy.zeros((), np.int64)
    for _ in range(launches(400)):
        bound()
        wrong += (out.view(np.uint16) != bits).sum()
    assert int(wrong) == 0


@pytest.mark.parametrize("mode", MATHS, ids=lambda mode: str(mode.math))
def test_random_numbers_at_the_largest_k(mode: Mode, everything: bool) -> None:
    """Every variant (each configuration of it where `everything`) within its guarantee, which a lost block of K breaks."""
    k = LARGEST.get(mode.math, LARGEST_K)
    m, n = (48, 40) if mode.kind is bp.F64 else (192, 160)
    a, b = operands(mode, m, n, k)
    arrays = {"a": laid(a, "r"), "b": laid(b, "c")}
    desc = bp.MatmulDescriptor.of(**arrays, math=mode.math, out_dtype=mode.out)
    plans = admissible(bp.MatmulPlan, desc, PlanPreference(deterministic=False), spec_of(None))
    if not everything:
        plans = list({plan.sku.variant: plan for plan in sorted(plans, key=lambda p: -p.cost.seconds)}.values())
    warm(plans)
    wide = bp.MatmulPlan.reference(desc, a=a, b=b)
    given = described(mode, m, n, k)
    for plan, check in zip(plans, checks(given, a, b, wide, [plan.precision_guarantee for plan in plans])):
        with named(str(plan.sku)):
            got = plan.run(**arrays).get()
            check(got)
            with pytest.raises(AssertionError, match="break"):
                check((got - a[:, -64:].astype(np.float64) @ b[-64:].astype(np.float64)).astype(got.dtype))


@pytest.mark.parametrize("activation", list(bp.Activation), ids=str)
@pytest.mark.parametrize("kind", [bp.BF16, bp.F16, bp.F32, bp.F64], ids=str)
def test_a_result_that_cancels(kind: ElementKind, activation: Any) -> None:
    """Nothing but errors is left next to a residual: each variant's are within its guarantee."""
    for k in (1, 8):
        desc, _, arrays = cancelling(str(activation), kind, kind, k, activated)
        wide = bp.MatmulPlan.reference(desc, **arrays)
        there = {name: laid(x, "r") for name, x in arrays.items()}
        own = bp.MatmulDescriptor.of(**there, activation=str(activation), out_dtype=kind)
        plans = admissible(bp.MatmulPlan, own, PlanPreference(deterministic=False), spec_of(None))
        plans = list({plan.sku.variant: plan for plan in plans}.values())
        warm(plans)
        for plan in plans:
            with named(f"K = {k} {plan.sku}"):
                plan.precision_guarantee.check(plan.run(**there).get(), wide, arrays, measures=plan.measured())


def test_tf32_range_on_the_device() -> None:
    """Operands below the middle between the largest TF32 and 2**128 do not become infinite, by any variant; the larger may."""
    a, b = np.zeros((64, 32), np.float32), np.zeros((32, 64), np.float32)
    a[:, 0], b[0] = np.nextafter(np.float32(TF32_INFINITE), np.float32(0)), 2.0**-100
    for top in (None, np.finfo(np.float32).max):
        if top is not None:
            a[7, 0] = top
        arrays = {"a": laid(a, "r"), "b": laid(b, "c")}
        desc = bp.MatmulDescriptor.of(**arrays, math="tf32")
        wide = bp.MatmulPlan.reference(desc, a=a, b=b)
        plans = admissible(bp.MatmulPlan, desc, PlanPreference(deterministic=False), spec_of(None))
        for plan in {plan.sku.variant: plan for plan in plans}.values():
            with named(str(plan.sku)):
                got = plan.run(**arrays).get()
                assert np.isfinite(np.delete(got, 7, 0)).all()
                plan.precision_guarantee.check(got, wide, {"a": a, "b": b}, measures=plan.measured())
