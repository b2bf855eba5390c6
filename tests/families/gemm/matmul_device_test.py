"""Every variant of matmul on the device: repeats, batch invariance, odd extents, exact sums, accumulation in place, large
sizes, NaN, torch's views."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.cache import plan_cache
from baracuda_py.ops.gemm.samples import EXTENTS
from baracuda_py.plan import Plan, get_op
from baracuda_py.plan.about.tune import admissible
from baracuda_py.plan.select import assess
from baracuda_py.plan.selection import Selection
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.samples import Sample
from baracuda_py.samples.sample import values
from baracuda_py.types import ElementKind, PlanPreference

from ... import gauntlet
from ...extents import extent
from ...gauntlet import Part, Problem, in_parts, named

COVERS = ("matmul",)
pytestmark = pytest.mark.gpu
Array = np.ndarray[Any, Any]
REPEATS = 30
ANY = PlanPreference(deterministic=False)
FLOATS = (bp.BF16, bp.F16, bp.F32, bp.F64)
VARIANTS = [c.variant for c in bp.MatmulPlan.candidates]


def problem(shape: tuple[int, int, int], kind: ElementKind, *, bias: Array | None = None, **options: Any) -> Problem:
    m, n, k = shape
    rng = np.random.default_rng([0, m, n, k])
    operands = {"a": values(rng, (m, k), kind, 1.0), "b": values(rng, (k, n), kind, 1.0)}
    operands |= {} if bias is None else {"bias": bias}
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
    return [bp.MatmulPlan(Selection.of(bp.MatmulPlan, desc, ANY, device, answer)) for answer in best.values()]


# ---- repeats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(129, 255, 1023), (1, 1023, 1023), (64, 64, 16384), (1024, 512, 640)], ids=str)
def test_repeats_have_the_same_bits(kind: ElementKind, shape: tuple[int, int, int]) -> None:
    """Other work in between, so that CTAs finish in another order."""
    import cupy

    m, n, k = map(extent, shape)
    one = problem((m, n, k), kind)
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

    n, k = extent(n), extent(k)
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
        bias = values(rng, (n,), kind, 1.0) if i % 2 else None
        one = problem(shape, kind, bias=bias, **({"activation": "gelu", "alpha": 0.5} if i % 3 == 0 else {}))
        taken.append((one, best_of_each(one.desc) if m and n else [one.plan]))
    gauntlet.warm([plan for _, plans in taken for plan in plans])
    for one, plans in taken:
        with named(one.sample.label):
            gauntlet.served(one, plans)


@in_parts(2)
@pytest.mark.parametrize("options", [{}, {"math": "tf32"}], ids=str)
@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_every_tile_of_tc_async_and_every_split(kind: ElementKind, options: dict[str, Any], part: Part) -> None:
    """All its configurations, not the cheapest alone: tiles that end within the operands and beyond, K in parts and whole."""
    if (kind is bp.F32) != bool(options):
        pytest.skip("tensor cores multiply f32 as tf32, and nothing else so")
    taken = []
    for shape in ((129, 264, 4104), (300, 257, 1031)):
        bias = values(np.random.default_rng(2), (shape[1],), kind, 1.0)
        one = problem(shape, kind, bias=bias, activation="silu", **options)
        plans = admissible(bp.MatmulPlan, one.desc, PlanPreference(variant="tc_async"), spec_of(None))
        assert any(len(plan.kernels) == 2 for plan in plans), "K is split nowhere"
        taken.append((one, part.of(plans)))
    gauntlet.warm([plan for _, plans in taken for plan in plans])
    for one, plans in taken:
        with named(one.sample.label):
            gauntlet.served(one, plans)


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


def _special(kind: ElementKind, activation: str) -> Problem:
    m, n, k = 150, 140, 200
    rng = np.random.default_rng(0)
    shapes = {"a": (m, k), "b": (k, n), "bias": (n,), "residual": (m, n)}
    given = {name: values(rng, shape, kind, 1.0) for name, shape in shapes.items()}
    a, b, bias, residual = given.values()
    a[3, 5], a[70, 199], a[149, 0], b[9, 11], b[150, 139] = np.nan, np.inf, -np.inf, -np.inf, np.nan
    a[20], b[:, 30] = 0, 0  # zeros meet the infinities
    bias[77], residual[99, 98], residual[99, 99], residual[98, 77] = -np.inf, np.inf, np.nan, -np.inf
    return Problem(get_op("matmul"), Sample(f"{kind} {activation}", given, {"activation": activation}), "cuda")


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("activation", list(bp.Activation), ids=str)
def test_not_a_number_and_infinities_propagate(kind: ElementKind, activation: Any) -> None:
    one = _special(kind, str(activation))
    wide = one.wide["out"]
    assert (
        np.isnan(wide[20, 11]) and np.isnan(wide[:, 139]).all() and np.isnan(wide[70, 30]) and np.isinf(wide[70]).any()
    )
    for plan in best_of_each(one.desc):
        with named(str(plan.sku)):
            one.reset()
            plan.run(**one.operands)
            image = one.images()
            got = one.slots["out"].view(image["out"]).astype(np.float64)
            np.testing.assert_array_equal(np.isnan(got), np.isnan(wide))
            np.testing.assert_array_equal(got[np.isinf(wide)], wide[np.isinf(wide)])
            one.check_images(image, plan)


@pytest.mark.parametrize("alpha", [1.0, 0.0])
def test_not_a_number_and_infinities_in_a_plain_product(alpha: float) -> None:
    """Through cuBLAS as well, which fuses no epilogue. With alpha = 0 they do not count, as in BLAS."""
    for kind in FLOATS:
        whole = _special(kind, "identity").sample.operands
        one = Problem(get_op("matmul"), Sample(str(kind), {n: whole[n] for n in "ab"}, {"alpha": alpha}), "cuda")
        assert np.isnan(one.wide["out"][3]).all() == bool(alpha)
        for plan in best_of_each(one.desc):
            with named(str(plan.sku)):
                one.reset()
                plan.run(**one.operands)
                one.check_images(one.images(), plan)


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
    size = extent(8192 if kind.bits == 16 else 4096)
    a, b = random_on_device((size, size), kind, 1), random_on_device((size, size), kind, 2)
    for plan in best_of_each(bp.MatmulDescriptor.of(a, b, out_dtype=out)):
        with named(str(plan.sku)):
            check_blocks(plan, a, b, plan.run(a=a, b=b))


@pytest.mark.parametrize("layout", ["RRR", "RCR", "CRR", "CCR"])
def test_sampled_dot_products_in_every_layout(layout: str) -> None:
    m, n, k = map(extent, (3000, 4104, 2050))
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
    separate = bp.matmul(a, column)
    for i in (0, 2100, 4199):
        for whole, first, second in ((shared[i], a[i, :511], b), (separate[i], a[i], column[i])):
            plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(first, second))
            check_blocks(plan, first, second, whole)


# ---- exact sums ------------------------------------------------------------------------------------------------------

DEEP = (  # M, N, K, and what the pitches are multiples of
    (129, 255, 4113, 1), (129, 255, 4113, 16), (8, 1023, 4113, 1), (8, 1023, 4113, 16), (136, 264, 16400, 16),
)  # fmt: skip


def counting(rng: np.random.Generator, shape: tuple[int, int], kind: ElementKind, order: str, unit: int) -> Any:
    """A matrix of 1, 2, 3 and their negatives in row ("R") or column order, on the host and the same on the device."""
    import cupy

    rows, cols = shape if order == "R" else shape[::-1]
    whole = rng.choice((-3, -2, -1, 1, 2, 3), (rows, -(-cols // unit) * unit)).astype(kind.dtype)
    pair = whole[:, :cols], cupy.asarray(whole)[:, :cols]
    return pair if order == "R" else (pair[0].T, pair[1].T)


def plans_of(desc: Any, everything: bool) -> list[Plan[Any]]:
    """Every configuration of every variant, or the cheapest of each variant."""
    return admissible(bp.MatmulPlan, desc, ANY, spec_of(None)) if everything else best_of_each(desc)


@pytest.mark.parametrize("math", ["bf16", "f16", "f32", "tf32", "f64"])
@pytest.mark.parametrize("layout", ["RR", "RC", "CR", "CC"])
@pytest.mark.timeout(600)
def test_sums_of_small_integers_are_exact_however_long(math: str, layout: str, everything: bool) -> None:
    """No sum leaves the 24 bits that every accumulator keeps, tensor cores' truncating ones too: a product that is missing or
    counted twice changes the result, which a bound proportional to K no longer shows."""
    kind = bp.F32 if math == "tf32" else ElementKind.of(math)
    todo = []
    for *shape, unit in DEEP:
        m, n, k = map(extent, shape)
        rng = np.random.default_rng([m, n, k])
        first, a = counting(rng, (m, k), kind, layout[0], unit)
        second, b = counting(rng, (k, n), kind, layout[1], unit)
        wanted = first.astype(np.float64) @ second.astype(np.float64)
        assert np.abs(wanted).max() < 2**15, "the result must be in range in f16"
        for out in dict.fromkeys((kind, bp.F64 if kind is bp.F64 else bp.F32)):
            desc = bp.MatmulDescriptor.of(a, b, math=math, out_dtype=out)
            todo += [(plan, a, b, wanted.astype(out.dtype)) for plan in plans_of(desc, everything)]
    gauntlet.warm([plan for plan, *_ in todo])
    for plan, a, b, wanted in todo:
        with named(f"{a.shape} {b.shape} {plan.sku}"):
            np.testing.assert_array_equal(plan.run(a=a, b=b).get().astype(np.float64), wanted.astype(np.float64))


# ---- in place --------------------------------------------------------------------------------------------------------

ACCUMULATED = ((129, 255, 200), (5, 1000, 1024), (1, 520, 4104), (72, 64, 4096), (256, 264, 72), (33, 40, 0))


def bits(x: Any) -> Array:
    return np.ascontiguousarray(x.get()).view(np.uint8)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("names", [("c",), ("residual",), ("c", "residual")], ids="+".join)
def test_accumulating_in_place(kind: ElementKind, names: tuple[str, ...], everything: bool) -> None:
    """out = alpha a b + beta out by every variant has the bits that a copy of out as c gives, and is within the bound."""
    import cupy

    for (m, n, k), order in itertools.product(ACCUMULATED, "CF"):
        rng = np.random.default_rng([m, n, k])
        host = {"a": values(rng, (m, k), kind, 1.0), "b": values(rng, (k, n), kind, 1.0)}
        held = np.array(values(rng, (m, n), kind, 8.0), order=order)  # type: ignore[call-overload]
        a, b, out = cupy.asarray(host["a"]), cupy.asarray(host["b"]), cupy.asarray(held, order=order)
        given = dict.fromkeys(names, out)
        scale = {"alpha": -0.5} | ({"beta": 0.75} if "c" in names else {})
        desc = bp.MatmulDescriptor.of(a, b, out=out, activation="gelu", **given, **scale)
        inputs = {**host, **dict.fromkeys(names, held)}
        wide = bp.MatmulPlan.reference(desc, **inputs)
        plans = plans_of(desc, everything)
        gauntlet.warm(plans)
        for plan in plans:
            with named(f"{kind} {m}x{n}x{k} {order} {plan.sku}"):
                separate = cupy.asarray(held, order=order)
                plan.run(a=a, b=b, out=separate, **dict.fromkeys(names, cupy.asarray(held, order=order)))
                for _ in range(2):  # the second time by the short path
                    out.set(held)
                    assert plan.run(a=a, b=b, out=out, **given) is out
                    assert np.array_equal(bits(out), bits(separate))
                plan.precision_guarantee.check(out.get(), wide, inputs, measures=plan.measured(desc))


def test_the_function_accumulates_in_place_on_its_short_path() -> None:
    import cupy

    a, b = cupy.full((40, 72), 0.5, np.float32), cupy.ones((72, 136), np.float32)
    total = cupy.zeros((40, 136), np.float32)
    for i in range(1, 4):
        assert bp.matmul(a, b, c=total, out=total) is total
        assert bool((total == 36 * i).all())
    with pytest.raises(bp.OverlapError):
        bp.matmul(a[:39], b, c=total[:39], out=total[1:])


# ---- torch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_torch_tensors_and_their_transposed_views(dtype: str) -> None:
    """nn.Linear's product x @ w.T + bias: the view is used without a copy, and the results are torch tensors."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    x, w = torch.randn(6, 31, 96, device="cuda").to(kind), torch.randn(130, 96, device="cuda").to(kind)
    bias, out = torch.randn(130, device="cuda").to(kind), torch.empty(6, 31, 130, device="cuda", dtype=kind)
    assert bp.matmul(x, w.T, bias=bias, out=out) is out
    fresh = bp.matmul(x, w.T, bias=bias)
    assert fresh.shape == out.shape and fresh.dtype is kind
    wanted = torch.nn.functional.linear(x.double(), w.double(), bias.double())
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(x, w.T, bias=bias, out=out))
    given = {"a": _numpy(x), "b": _numpy(w).T, "bias": _numpy(bias)}
    plan.precision_guarantee.check(_numpy(out), wanted.cpu().numpy(), given, measures=plan.measured())
    assert torch.equal(out, fresh)


def _numpy(x: Any) -> Array:
    """A torch tensor on the host, bf16 by way of its bits."""
    import torch

    if x.dtype is torch.bfloat16:
        return x.view(torch.int16).cpu().numpy().view(bp.BF16.dtype)  # type: ignore[no-any-return]
    return x.cpu().numpy()  # type: ignore[no-any-return]


def test_a_split_product_takes_the_short_path_on_any_stream() -> None:
    """Scratch is of the stream that the call is on; a plan takes none in a capture."""
    import cupy

    a, b = cupy.ones((1, 16384), np.float32), cupy.ones((16384, 64), np.float32)
    pref = PlanPreference(variant="gemv")
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b), pref)
    assert plan.workspace_size
    plan_cache.clear()
    side = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    cupy.cuda.runtime.deviceSynchronize()
    results = [bp.matmul(a, b, pref=pref, stream=stream) for _ in range(50) for stream in (None, *side)]
    assert plan_cache.info().calls == 1
    cupy.cuda.runtime.deviceSynchronize()
    assert all(bool((x == 16384).all()) for x in results)
    out = cupy.empty((1, 64), np.float32)
    plan.run(a=a, b=b, out=out)
    with side[0]:
        side[0].begin_capture()
        try:
            with pytest.raises(bp.UnsupportedError, match="allocates nothing during a capture, and workspace was"):
                plan.run(a=a, b=b, out=out)
        finally:
            side[0].end_capture()
