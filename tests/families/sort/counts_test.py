"""bincount and histogram: NumPy's and torch's counts, both variants, edges, statuses, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.about import tune

from ...arena import Slot, host
from ...gauntlet import readable

COVERS = ("bincount", "histogram")
BF16 = np.dtype(ml_dtypes.bfloat16)


def variants(plan: Any, x: np.ndarray, backend: str, values: Any = None, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Every kernel's answer, on the device or emulated: its plan, and its result."""
    given = Slot(x, backend).operand
    desc = plan.descriptor.of(given, **options)
    device = plan.select(desc, device=None if backend == "cuda" else "ptx").device
    for each in tune.admissible(plan, desc, bp.PlanPreference(), device):
        yield each, each.run(x=given, **(values or {}))


@pytest.mark.parametrize(("count", "length"), [(1, 3), (5000, 300), (10_007, 12_288), (4099, 12_289)])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_bincount_is_that_of_numpy(dtype: Any, count: int, length: int, backend: str) -> None:
    x = np.random.default_rng(count).integers(0, min(length, 250), count).astype(dtype)
    seen = set()
    for plan, made in variants(bp.BincountPlan, x, backend, length=length):
        assert np.array_equal(host(made), np.bincount(x, minlength=length)), plan.sku
        seen.add(plan.sku.variant)
    assert seen == ({"shared", "global"} if length <= 12_288 else {"global"})


def test_bincount_is_that_of_torch_and_jax() -> None:
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    x = np.random.default_rng(1).integers(0, 70, 999).astype(np.int32)
    made = bp.bincount(x, 70, device="ptx")
    assert np.array_equal(made, torch.bincount(torch.from_numpy(x), minlength=70))
    assert np.array_equal(bp.bincount(x, 50, device="ptx"), jnp.bincount(x, length=50))


def test_bincount_of_equal_elements_in_every_part(backend: str) -> None:
    """Vectors, the tail, and views of any strides."""
    for n in (1, 15, 16, 17, 8191, 16_384, 16_401):
        x = np.full(2 * n, 3, np.uint8)
        for view in (x[:n], x[::2], x[1 : n + 1]):
            for plan, made in variants(bp.BincountPlan, view, backend, length=5):
                assert host(made).tolist() == [0, 0, 0, n, 0], (n, plan.sku)


def test_bincount_status_says_whether_an_element_was_left_out(backend: str) -> None:
    x = np.array([0, 1, 1, 4], np.int16)
    for extra, said in ((2, 0), (5, 1), (-1, 1), (-32768, 1), (32767, 1)):
        for plan, made in variants(
            bp.BincountPlan, np.append(x, x.dtype.type(extra)), backend, length=5, mode="status"
        ):
            counts, status = host(made.out), int(host(made.status))
            assert (counts.sum(), status) == (5 - said, said), plan.sku


def test_bincount_raises_before_it_writes() -> None:
    out = np.full(5, 7)
    for device in ("cpu", "ptx"):
        with pytest.raises(bp.InvalidProblemError) as caught:
            bp.bincount(np.array([[0, 5], [1, 1]]), 5, mode="raise", out=out, device=device)
        readable(caught.value, "bincount", "x[0, 1] = 5", "0 to 4")
    assert out.tolist() == [7] * 5


def test_bincount_of_values_that_32_bits_lack() -> None:
    x = np.array([2**32 + 1, 1, -(2**63), 2**63 - 1, 2**31])
    assert bp.bincount(x, 4, device="ptx").tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16, np.int32])
@pytest.mark.parametrize("bins", [1, 10, 777, 20_000])
def test_histogram_is_that_of_numpy(dtype: Any, bins: int, backend: str) -> None:
    """Of elements that are no edges: random, or the bounds themselves."""
    x = (np.random.default_rng(bins).standard_normal(5003) * 3).astype(dtype)
    low, high = -3.0 - 0.1**5, 5.0
    if x.dtype.kind not in "iu":
        x[::97], x[5::201], x[6::201] = np.nan, np.inf, 5.0
    wanted = np.histogram(x.astype(np.float64), bins, (low, high))[0]
    wide = np.nan_to_num(x.astype(np.float64), posinf=0.0)
    places = (wide - low) * (bins / (high - low))
    near = np.abs(places - np.round(places)) < 1e-9 * bins  # bounds, and small integers where there are many bins
    seen = set()
    for plan, made in variants(bp.HistogramPlan, x, backend, {"low": low, "high": high}, bins=bins):
        off = np.abs(host(made) - wanted)
        assert off.sum() <= 2 * (near & (wide < 5)).sum(), plan.sku
        seen.add(plan.sku.variant)
    assert seen == ({"shared", "global"} if bins <= 12_288 else {"global"})


def test_histogram_counts_both_ends_and_nothing_outside(backend: str) -> None:
    x = np.array(
        [1, 3, np.nextafter(1, 0), np.nextafter(3, 4), np.nextafter(3, 0), np.nan, np.inf, -np.inf, 2], np.float64
    )
    for plan, made in variants(bp.HistogramPlan, x, backend, {"low": 1.0, "high": 3.0}, bins=4):
        assert host(made).tolist() == [1, 0, 1, 2], plan.sku


def test_histogram_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(2).random(4001)
    made = bp.histogram(x, 30, 0.25, 0.75, device="ptx")
    assert np.array_equal(made, torch.histc(torch.from_numpy(x), 30, 0.25, 0.75))


def test_histogram_ranges_are_of_one_plan() -> None:
    x = np.arange(10, dtype=np.float32)
    assert bp.histogram(x, 2, 0, 10, device="ptx").tolist() == [5, 5]
    before = bp.plan_cache.info()
    assert bp.histogram(x, 2, 0, 4, device="ptx").tolist() == [2, 3]
    assert bp.plan_cache.info().misses == before.misses


@pytest.mark.gpu
def test_counts_of_many_elements() -> None:
    x = np.random.default_rng(3).integers(0, 1000, 30_000_001).astype(np.int32)
    for plan, made in variants(bp.BincountPlan, x, "cuda", length=1000):
        assert np.array_equal(host(made), np.bincount(x, minlength=1000)), plan.sku
    values = {"low": -0.5, "high": 999.5}
    for plan, made in variants(bp.HistogramPlan, x.astype(np.float32), "cuda", values, bins=1000):
        assert np.array_equal(host(made), np.bincount(x, minlength=1000)), plan.sku


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], type[bp.BaracudaError], tuple[str, ...]]] = [
    ("bincount", (np.zeros(3, "i4"), -1), {}, bp.InvalidProblemError, ("length=-1", "number of bins")),
    ("bincount", (np.zeros(3, "i4"), 1.5), {}, bp.InvalidProblemError, ("length=1.5 is not an integer",)),
    ("bincount", (np.zeros(3, "f"), 4), {}, bp.OperandTypeError, ("x", "f32")),
    ("bincount", (np.zeros(3, "u8"), 4), {}, bp.OperandTypeError, ("x", "u64")),
    ("bincount", (np.zeros(3, "i4"), 4), {"mode": "clip"}, bp.InvalidProblemError, ("mode", "clip", "drop")),
    ("bincount", (np.zeros(3, "i4"), 4), {"out": np.zeros(4, "i4")}, bp.OperandTypeError, ("out", "i32")),
    ("bincount", (np.zeros(3, "i4"), 4), {"out": np.zeros(5, int)}, bp.InvalidProblemError, ("out", "(4,)", "(5,)")),
    ("histogram", (np.zeros(3, "f"), 0), {}, bp.InvalidProblemError, ("bins=0",)),
    ("histogram", (np.zeros(3, bool), 3), {}, bp.OperandTypeError, ("x", "bool")),
    ("histogram", (np.zeros(3, "f"), 3, 1.0, 1.0), {}, bp.InvalidProblemError, ("low=1.0", "high=1.0", "low < high")),
    ("histogram", (np.zeros(3, "f"), 3, 1.0, np.nan), {}, bp.InvalidProblemError, ("high=nan",)),
    ("histogram", (np.zeros(3, "f"), 3, -np.inf, 0.0), {}, bp.InvalidProblemError, ("low=-inf",)),
    ("histogram", (np.zeros(3, "f"), 3, 0.0, 1e-300), {}, bp.InvalidProblemError, ("high=1e-300", "1e-290")),
    ("histogram", (np.zeros(3, "f"), 3, -1.5e308, 1.5e308), {}, bp.InvalidProblemError, ("difference",)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arguments", "options", "error", "said"), REFUSED)
def test_counts_refuse(op: str, arguments: Any, options: Any, error: Any, said: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        getattr(bp, op)(*arguments, **options, device="cpu")
    readable(caught.value, op, *said)


def test_bincount_on_a_gpu_does_not_raise_what_it_finds_there() -> None:
    desc = bp.BincountDescriptor((3,), "i32", 4, mode="raise")
    with pytest.raises(bp.UnsupportedError) as caught:
        bp.BincountPlan.select(desc, device="h200")
    readable(caught.value, "bincount", "does not wait", "status")
