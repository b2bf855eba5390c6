"""Every variant of matmul on the device: repeats, batch invariance, odd extents, large sizes, NaN, torch's views."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.functional import plan_cache
from baracuda_py.plan import Plan, get_op
from baracuda_py.plan.select import assess
from baracuda_py.plan.tune import admissible
from baracuda_py.runtime.device import spec_of
from baracuda_py.samples import Sample
from baracuda_py.samples.gemm import EXTENTS
from baracuda_py.samples.sample import values
from baracuda_py.types import ElementKind, PlanPreference

from . import gauntlet
from .gauntlet import Problem, named

COVERS = ("matmul",)
pytestmark = pytest.mark.gpu
Array = np.ndarray[Any, Any]
REPEATS = 30
ANY = PlanPreference(deterministic=False)
FLOATS = (bp.BF16, bp.F16, bp.F32, bp.F64)
VARIANTS = [c.variant for c in bp.MatmulPlan.candidates]


def problem(shape: tuple[int, int, int], kind: ElementKind, *, seed: int = 0, **options: Any) -> Problem:
    m, n, k = shape
    rng = np.random.default_rng([seed, m, n, k])
    operands = {"a": values(rng, (m, k), kind, 1.0), "b": values(rng, (k, n), kind, 1.0)}
    return Problem(get_op("matmul"), Sample(f"{kind} {m}x{n}x{k} {options or ''}", operands, options), "cuda")


def best_of_each(desc: Any) -> list[Plan[Any]]:
    """The plan of every admissible variant, in its cheapest configuration."""
    best: dict[str, Any] = {}
    desc.validate()
    device = spec_of(None)
    for answer in assess(bp.MatmulPlan.candidates, desc.canonical(), ANY, device):
        held = best.get(answer.candidate.variant)
        if answer.feasibility and answer.cost and (held is None or answer.cost.seconds < held.cost.seconds):
            best[answer.candidate.variant] = answer
    assert best, f"no variant serves {desc}"
    return [bp.MatmulPlan._make(desc, ANY, device, answer, "model") for answer in best.values()]


# ---- repeats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(129, 255, 1023), (1, 1023, 1023), (64, 64, 16384), (1024, 512, 640)], ids=str)
def test_repeats_have_the_same_bits(kind: ElementKind, shape: tuple[int, int, int]) -> None:
    """Other work in between, so that CTAs finish in another order."""
    import cupy

    one = problem(shape, kind)
    noise = cupy.ones((2048, 2048), np.float32)
    aside = cupy.cuda.Stream(non_blocking=True)
    for plan in best_of_each(one.desc):
        if not plan.precision_guarantee.deterministic:
            continue
        with named(str(plan.sku)):
            plan.run(**one.operands)
            first = one.images()
            one.check_images(first, plan)
            for i in range(REPEATS):
                one.reset()
                if i % 2:
                    with aside:
                        noise += 1
                plan.run(**one.operands)
                assert np.array_equal(one.images()["out"], first["out"]), f"repeat {i} differs"


# ---- batch invariance ------------------------------------------------------------------------------------------------

ROWS = (1, 2, 7, 8, 9, 16, 63, 64, 65, 130, 300)
INVARIANT = [(4096, 1024), (72, 4096), (129, 1023)]  # N, K


def _rows_alike(kind: ElementKind, n: int, k: int, pref: PlanPreference) -> bool:
    """Whether any number of rows is admitted. Asserts that a row has the same bits among any number of others."""
    import cupy

    rng = np.random.default_rng(n)
    a = cupy.asarray(values(rng, (max(ROWS), k), kind, 1.0))
    b = cupy.asarray(values(rng, (k, n), kind, 1.0))
    whole: dict[str, Array] = {}
    for m in reversed(ROWS):
        part = cupy.ascontiguousarray(a[max(ROWS) - m :])  # the last rows, so that each takes another place in its tile
        try:
            plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(part, b), pref)
        except bp.UnsupportedError:
            continue
        got = plan.run(a=part, b=b).get()
        bits = got.view(f"u{got.itemsize}")
        reference = whole.setdefault("bits", bits)
        differing = int(np.count_nonzero(bits != reference[len(reference) - m :]))
        assert not differing, f"{plan.sku}: {differing} of {bits.size} elements of {m} rows have other bits"
    return bool(whole)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("size", INVARIANT, ids=str)
def test_a_row_does_not_depend_on_the_batch(kind: ElementKind, size: tuple[int, int]) -> None:
    """`batch_invariant=True` is met whatever M is, and by plans that agree with one another."""
    assert _rows_alike(kind, *size, PlanPreference(batch_invariant=True)), "nothing is batch-invariant"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_each_variant_keeps_the_batch_invariance_it_promises(variant: str, kind: ElementKind) -> None:
    admitted = [_rows_alike(kind, *size, PlanPreference(variant=variant, batch_invariant=True)) for size in INVARIANT]
    if not any(admitted):
        pytest.skip(f"{variant} promises none for {kind}")


def test_matrices_of_a_batch_do_not_depend_on_one_another() -> None:
    import cupy

    rng = np.random.default_rng(0)
    a = cupy.asarray(values(rng, (40, 33, 520), bp.BF16, 1.0))
    b = cupy.asarray(values(rng, (40, 520, 264), bp.BF16, 1.0))
    pref = PlanPreference(batch_invariant=True)
    every = bp.matmul(a, b, pref=pref)
    for i in (0, 17, 39):
        alone = bp.matmul(a[i], b[i], pref=pref)
        assert bool((alone.view(np.uint16) == every[i].view(np.uint16)).all()), f"matrix {i}"


# ---- odd extents -----------------------------------------------------------------------------------------------------


def mixes(count: int, kind: ElementKind) -> Iterator[tuple[int, int, int]]:
    rng = np.random.default_rng(FLOATS.index(kind))
    for _ in range(count):
        m, n, k = (int(x) for x in rng.choice(EXTENTS, 3))
        yield m, n, k


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_extents_mixed_at_random(kind: ElementKind, everything: bool) -> None:
    """Every variant that admits a mix, in its cheapest configuration, bias and all; `--all` takes 200 mixes."""
    taken = []
    rng = np.random.default_rng(1)
    for i, shape in enumerate(mixes(200 if everything else 40, kind)):
        m, n, _ = shape
        one = problem(shape, kind, **({"activation": "gelu", "alpha": 0.5} if i % 3 == 0 else {}))
        if i % 2:
            bias = values(rng, (n,), kind, 1.0)
            one = Problem(
                one.op, Sample(one.sample.label, {**one.sample.operands, "bias": bias}, one.sample.options), "cuda"
            )
        taken.append((one, best_of_each(one.desc) if m and n else [one.plan]))
    gauntlet.warm([plan for _, plans in taken for plan in plans])
    for one, plans in taken:
        for plan in plans:
            with named(f"{one.sample.label} {plan.sku}"):
                one.reset()
                plan.run(**one.operands, **one.values)
                one.check_images(one.images(), plan)


@pytest.mark.parametrize("options", [{}, {"math": "tf32"}], ids=str)
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_every_tile_of_tc_async_and_every_split(kind: ElementKind, options: dict[str, Any]) -> None:
    """All its configurations, not the cheapest alone: tiles that end within the operands and beyond, K in parts and whole."""
    if (kind is bp.F32) != bool(options):
        pytest.skip("tensor cores multiply f32 as tf32, and nothing else so")
    taken = []
    for shape in ((129, 264, 4104), (300, 257, 1031)):
        bias = values(np.random.default_rng(2), (shape[1],), kind, 1.0)
        one = problem(shape, kind, activation="silu", **options)
        one = Problem(
            one.op, Sample(one.sample.label, {**one.sample.operands, "bias": bias}, one.sample.options), "cuda"
        )
        plans = admissible(bp.MatmulPlan, one.desc, PlanPreference(variant="tc_async"), spec_of(None))
        assert any(len(plan.kernels) == 2 for plan in plans), "K is split nowhere"
        taken.append((one, plans))
    gauntlet.warm([plan for _, plans in taken for plan in plans])
    for one, plans in taken:
        for plan in plans:
            with named(f"{one.sample.label} {plan.sku}"):
                one.reset()
                plan.run(**one.operands, **one.values)
                one.check_images(one.images(), plan)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_not_a_number_comes_from_nowhere(kind: ElementKind) -> None:
    """Windows of arrays full of NaN, in every order: what a tile reads beyond an operand is not used."""
    import cupy

    for (m, n, k), orders in (((65, 63, 17), "CC"), ((129, 40, 72), "CF"), ((7, 129, 255), "FC"), ((255, 8, 64), "FF")):
        rng = np.random.default_rng(m)
        host, device = {}, {}
        for name, shape, order in (("a", (m, k), orders[0]), ("b", (k, n), orders[1])):
            rows, cols = shape if order == "C" else shape[::-1]
            around = np.full((rows + 16, cols + 16), np.nan, kind.dtype)
            around[8:-8, 8:-8] = values(rng, (rows, cols), kind, 1.0)
            window, there = around[8:-8, 8:-8], cupy.asarray(around)[8:-8, 8:-8]
            host[name], device[name] = (window, there) if order == "C" else (window.T, there.T)
        desc = bp.MatmulDescriptor.of(**device)
        for plan in best_of_each(desc):
            with named(f"{kind} {m}x{n}x{k} {orders} {plan.sku}"):
                wide = bp.MatmulPlan.reference(desc, **host)
                plan.precision_guarantee.check(plan.run(**device).get(), wide, host, measures=plan.measured())


def _special(kind: ElementKind) -> Problem:
    one = problem((150, 140, 200), kind)
    a, b = one.sample.operands["a"], one.sample.operands["b"]
    a[3, 5], a[70, 199], a[149, 0], b[9, 11], b[150, 139] = np.nan, np.inf, -np.inf, -np.inf, np.nan
    a[20], b[:, 30] = 0, 0  # zeros meet the infinities
    return one


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_not_a_number_and_infinities_propagate(kind: ElementKind) -> None:
    one = _special(kind)
    wide = one.wide["out"]
    assert np.isnan(wide[20, 11]) and np.isnan(wide[:, 139]).all() and np.isnan(wide[70, 30]) and np.isinf(wide[70, 0])
    for plan in best_of_each(one.desc):
        with named(str(plan.sku)):
            one.reset()
            plan.run(**one.operands)
            image = one.images()
            got = one.slots["out"].view(image["out"]).astype(np.float64)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(wide))
            np.testing.assert_array_equal(got[np.isinf(wide)], wide[np.isinf(wide)])
            one.check_images(image, plan)


# ---- large sizes -----------------------------------------------------------------------------------------------------

BLOCKS = 5  # blocks of 8 rows and 8 columns


def check_blocks(plan: Plan[Any], a: Any, b: Any, out: Any) -> None:
    """Sampled elements against float64, within the plan's own bound; the last row and column among them."""
    rng = np.random.default_rng(0)
    m, n = out.shape
    for i in range(BLOCKS):
        rows, cols = rng.integers(0, m, 8), rng.integers(0, n, 8)
        if not i:
            rows[-1], cols[-1] = m - 1, n - 1
        given = {"a": picked(a, rows, slice(None)), "b": picked(b.T, cols, slice(None)).T}
        block = bp.MatmulDescriptor.of(**given, out_dtype=plan.desc.layout("out").element)
        measures = {name: partial(measure, block) for name, measure in bp.MatmulPlan.measures.items()}
        got = picked(out, rows, cols)
        wide = bp.MatmulPlan.reference(block, **given)
        plan.precision_guarantee.check(got, wide, given, measures=measures)


PERIOD = 4194301  # a prime: rows of a matrix filled with such a sequence over and over are all different


def random_on_device(shape: tuple[int, int], kind: ElementKind, seed: int) -> Any:
    """Normal values, made on the host and laid one copy after another: no limit on the size, whatever the dtype."""
    import cupy

    bits = np.dtype(f"u{kind.dtype.itemsize}")
    block = cupy.asarray(values(np.random.default_rng(seed), (PERIOD,), kind, 1.0).view(bits))
    flat = cupy.empty(shape[0] * shape[1], bits)
    for start in range(0, flat.size, PERIOD):
        part = flat[start : start + PERIOD]
        part[...] = block[: part.size]
    return flat.view(kind.dtype).reshape(shape)


def picked(x: Any, rows: Array, cols: Array | slice) -> Array:
    """Rows and columns of a device matrix, by their bits, on the host."""
    import cupy

    taken = x.view(f"u{x.itemsize}")[cupy.asarray(rows)]
    taken = taken[:, cols if isinstance(cols, slice) else cupy.asarray(cols)]
    return taken.get().view(x.dtype)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", [bp.BF16, bp.F16, bp.F32], ids=str)
@pytest.mark.parametrize("out", ["f32", None])
@pytest.mark.timeout(600)
def test_sampled_dot_products_of_large_matrices(kind: ElementKind, out: str | None) -> None:
    size = 8192 if kind.bits == 16 else 4096
    a, b = random_on_device((size, size), kind, 1), random_on_device((size, size), kind, 2)
    for plan in best_of_each(bp.MatmulDescriptor.of(a, b, out_dtype=out)):
        with named(str(plan.sku)):
            check_blocks(plan, a, b, plan.run(a=a, b=b))


@pytest.mark.parametrize("layout", ["RRR", "RCR", "CRR", "CCR"])
def test_sampled_dot_products_in_every_layout(layout: str) -> None:
    m, n, k = 3000, 4104, 2050
    a = random_on_device((m, k) if layout[0] == "R" else (k, m), bp.BF16, 1)
    b = random_on_device((k, n) if layout[1] == "R" else (n, k), bp.BF16, 2)
    a, b = a if layout[0] == "R" else a.T, b if layout[1] == "R" else b.T
    for plan in best_of_each(bp.MatmulDescriptor.of(a, b)):
        with named(str(plan.sku)):
            assert str(plan.sku.layout) == layout.lower()
            check_blocks(plan, a, b, plan.run(a=a, b=b))


@pytest.mark.heavy
@pytest.mark.timeout(900)
@pytest.mark.parametrize("wide", ["a", "b", "out"])
def test_more_than_2_to_the_31_elements(wide: str) -> None:
    """One operand of more than 2**31 elements: its last row and column are as right as the first."""
    many, long, few = (1 << 16) + 70, 33000, 16
    m, n, k = {"a": (many, few, long), "b": (few, many, long), "out": (many, long, few)}[wide]
    a, b = random_on_device((m, k), bp.BF16, 1), random_on_device((k, n), bp.BF16, 2)
    assert max(a.size, b.size, m * n) > 1 << 31
    for plan in best_of_each(bp.MatmulDescriptor.of(a, b)):
        with named(str(plan.sku)):
            check_blocks(plan, a, b, plan.run(a=a, b=b))


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_a_batch_of_more_than_2_to_the_31_elements() -> None:
    a, b = (
        random_on_device((4200 * 512, 1024), bp.BF16, 1).reshape(4200, 512, 1024),
        random_on_device((1024, 24), bp.BF16, 2),
    )
    assert a.size > 1 << 31
    shared = bp.matmul(a[:, :511], b)  # rows that do not follow on: a batch
    column = random_on_device((4200, 1024), bp.BF16, 3)[:, :, None]
    apart = bp.matmul(a, column)
    for i in (0, 2100, 4199):
        for whole, first, second in ((shared[i], a[i, :511], b), (apart[i], a[i], column[i])):
            plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(first, second))
            check_blocks(plan, first, second, whole)


# ---- torch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_torch_tensors_and_their_transposed_views(dtype: str) -> None:
    """nn.Linear's product x @ w.T + bias: the view goes in as it lies, and a torch output comes back as itself."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    x, w = torch.randn(6, 31, 96, device="cuda").to(kind), torch.randn(130, 96, device="cuda").to(kind)
    bias, out = torch.randn(130, device="cuda").to(kind), torch.empty(6, 31, 130, device="cuda", dtype=kind)
    assert bp.matmul(x, w.T, bias=bias, out=out) is out
    fresh = bp.matmul(x, w.T, bias=bias)
    assert fresh.shape == (6, 31, 130)
    wanted = torch.nn.functional.linear(x.double(), w.double(), bias.double())
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(x, w.T, bias=bias, out=out))
    given = {"a": _numpy(x), "b": _numpy(w).T, "bias": _numpy(bias)}
    plan.precision_guarantee.check(_numpy(out), wanted.cpu().numpy(), given, measures=plan.measured())
    assert np.array_equal(_numpy(out).view(np.uint8), np.ascontiguousarray(fresh.get()).view(np.uint8))


def _numpy(x: Any) -> Array:
    """A torch tensor on the host, bf16 by way of its bits."""
    import torch

    if x.dtype is torch.bfloat16:
        return x.view(torch.int16).cpu().numpy().view(bp.BF16.dtype)  # type: ignore[no-any-return]
    return x.cpu().numpy()  # type: ignore[no-any-return]


def test_the_second_call_compiles_nothing_and_selects_nothing() -> None:
    import cupy

    a, b = cupy.ones((64, 72), np.float32), cupy.ones((72, 40), np.float32)
    plan_cache.clear()
    for _ in range(3):
        assert bool((bp.matmul(a, b) == 72).all())
    info = plan_cache.info()
    assert (info.plans, info.misses) == (1, 1)
