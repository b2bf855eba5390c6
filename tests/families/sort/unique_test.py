"""unique and unique_consecutive: torch's, NumPy's and JAX's answers, runs across tiles, capacity, trimming, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.sort.unique import _runs as runs_module

from ...arena import Slot, host
from ...gauntlet import readable

COVERS = ("unique", "unique_consecutive")
BF16 = np.dtype(ml_dtypes.bfloat16)
ALL = {"return_inverse": True, "return_counts": True, "return_index": True}


def device_of(backend: str) -> Any:
    return "cpu" if backend == "cpu" else None


def of_kind(rng: np.random.Generator, count: int, dtype: Any) -> np.ndarray:
    """Numbers of which many are equal, of floats also NaN of either sign, both zeros and infinities, in short runs."""
    x = rng.integers(0, 90, count).astype(dtype)
    if x.dtype.kind not in "iu":
        x -= np.asarray(40, dtype)
        for number in (np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf):
            x[rng.random(count) < 0.05] = number
    return np.repeat(x, rng.integers(1, 4, count))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16, np.int32, np.uint8, np.int64, np.int16])
@pytest.mark.parametrize("op", COVERS)
def test_unique_is_that_of_torch(op: str, dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    x = of_kind(np.random.default_rng(3), 200, dtype)
    given = torch.from_numpy(x.view(np.int16)).view(torch.bfloat16) if x.dtype == BF16 else torch.from_numpy(x)
    out, inverse, counts = getattr(torch, op)(given, return_inverse=True, return_counts=True)
    made = getattr(bp, op)(given, return_inverse=True, return_counts=True, device="cpu")
    assert made._fields == ("out", "inverse", "counts") and made.out.dtype == given.dtype
    assert torch.equal(made.out[made.out == made.out], out[out == out])
    assert len(made.out) == len(out) and torch.equal(made.counts, counts)
    numbers = ~given.isnan() if given.is_floating_point() else slice(None)
    assert torch.equal(made.inverse[numbers], inverse[numbers])  # torch does not say which NaN is which
    assert torch.equal(getattr(bp, op)(given, device="cpu")[: len(out)].isnan(), out.isnan())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint64, np.int8])
def test_unique_equal_nan_is_that_of_numpy(backend: str, dtype: Any) -> None:
    x = of_kind(np.random.default_rng(4), 90, dtype)[:160].reshape(2, 80)
    out, index, inverse, counts = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    slot = Slot(x, backend)
    made = bp.unique(slot.operand, equal_nan=True, **ALL, device=device_of(backend))
    assert np.array_equal(host(made.out), out, equal_nan=x.dtype.kind == "f")
    for name, wanted in (("index", index), ("inverse", inverse.reshape(x.shape)), ("counts", counts)):
        assert np.array_equal(host(getattr(made, name)), wanted), name


@pytest.mark.parametrize("fill", [None, 7])
@pytest.mark.parametrize("size", [3, 40])
def test_unique_of_a_size_is_that_of_jax(size: int, fill: int | None) -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = np.random.default_rng(5).integers(0, 20, 300).astype(np.int32)
    wanted = jnp.unique(x, size=size, fill_value=fill, return_counts=True)
    made = bp.unique(x, size=size, fill_value=fill, return_counts=True, device="cpu")
    assert np.array_equal(made.out, wanted[0]) and np.array_equal(made.counts, wanted[1])
    assert made.count.tolist() == [len(np.unique(x))]


@pytest.mark.parametrize("op", COVERS)
def test_unique_runs_across_tiles(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """Runs of several tiles, tiles in which none begins, and more tiles than the scan has threads."""
    monkeypatch.setattr(runs_module, "SCAN_THREADS", 32)
    x = np.repeat(np.array([5, 1, 9, 2, 4], np.uint8), [4096, 8192 + 70, 1, 3 * 4096, 29 * 4096])
    for size in (None, 2):
        made = getattr(bp, op)(x, **ALL, trim=False, size=size, device="ptx")
        wanted = getattr(bp, op)(x, **ALL, trim=False, size=size, device="cpu")
        for name in made._fields:
            assert np.array_equal(getattr(made, name), getattr(wanted, name)), name


@pytest.mark.parametrize("op", COVERS)
def test_unique_trimmed_and_whole(backend: str, op: str) -> None:
    x = np.array([[3, 3, 1], [1, 1, 3]], np.float32)
    right = {"unique": [1, 3], "unique_consecutive": [3, 1, 3]}[op]
    slot, device = Slot(x, backend), device_of(backend)
    assert host(getattr(bp, op)(slot.operand, device=device)).tolist() == right
    for given in ({"trim": False}, {"size": 6}):
        whole = getattr(bp, op)(slot.operand, **given, device=device)
        assert host(whole.out).tolist() == right + [right[0]] * (6 - len(right))
        assert host(whole.count).tolist() == [len(right)]
    assert host(getattr(bp, op)(slot.operand, size=0, device=device).count).tolist() == [len(right)]


def test_unique_of_nothing(backend: str) -> None:
    x = Slot(np.zeros((0, 3), np.int16), backend).operand
    made = bp.unique(x, **ALL, device=device_of(backend))
    assert [host(part).shape for part in made] == [(0,), (0, 3), (0,), (0,)]


def test_unique_writes_results_that_are_given() -> None:
    x = np.array([2, 2, 1], np.int32)
    out, counts, inverse = np.full(3, 9, np.int32), np.full(3, 9), np.full(3, 9)
    made = bp.unique(
        x, return_counts=True, return_inverse=True, trim=False, out=out, counts=counts, inverse=inverse, device="ptx"
    )
    assert made.out is out and made.counts is counts and made.inverse is inverse
    assert (out.tolist(), counts.tolist(), inverse.tolist()) == ([1, 2, 1], [1, 2, 0], [1, 1, 0])


def test_unique_in_a_recording_waits_for_nothing() -> None:
    x = np.array([2, 2, 1], np.int32)
    with bp.record() as step:
        with pytest.raises(bp.UnsupportedError, match=r"unique: a recording .* pass trim=False"):
            bp.unique(x, device="cpu")
        made = bp.unique(x, size=2, device="cpu")
    x[:] = 5, 4, 5
    step()
    assert made.out.tolist() == [4, 5]


REFUSED: list[tuple[Any, dict[str, Any], type[bp.BaracudaError], tuple[str, ...]]] = [
    (np.zeros(3), {"size": -1}, bp.InvalidProblemError, ("size=-1", "0 or more")),
    (np.zeros(0), {"size": 2}, bp.InvalidProblemError, ("no elements", "size=2", "size=0")),
    (np.zeros(3), {"fill_value": 7}, bp.InvalidProblemError, ("fill_value", "trim=False")),
    (np.zeros(3), {"trim": None}, bp.InvalidProblemError, ("trim must be True or False",)),
    (np.zeros(3, np.uint8), {"size": 3, "fill_value": 256}, bp.InvalidProblemError, ("fill_value=256", "0 to 255")),
    (np.zeros(3, np.uint8), {"size": 3, "fill_value": "x"}, bp.OperandTypeError, ("fill_value", "str")),
    (np.zeros(3, bool), {}, bp.OperandTypeError, ("x", "bool")),
    (np.zeros(3, np.complex64), {}, bp.OperandTypeError, ("x", "complex64")),
    (np.zeros(3), {"return_counts": 2}, bp.InvalidProblemError, ("return_counts", "True or False")),
    (np.zeros(3), {"equal_nan": None}, bp.InvalidProblemError, ("equal_nan", "True or False")),
]


@pytest.mark.parametrize("op", COVERS)
@pytest.mark.parametrize(("x", "options", "error", "said"), REFUSED)
def test_unique_refuses(op: str, x: Any, options: Any, error: Any, said: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        getattr(bp, op)(x, **options, device="cpu")
    readable(caught.value, op, *said)


def test_unique_of_more_than_is_counted() -> None:
    for descriptor, plan in (
        (bp.UniqueDescriptor, bp.UniquePlan),
        (bp.UniqueConsecutiveDescriptor, bp.UniqueConsecutivePlan),
    ):
        with pytest.raises(bp.UnsupportedError, match="elements"):
            plan.select(descriptor(((1 << 31) + 1,), "u8"), device="ptx")
        assert plan.select(descriptor((1 << 31,), "u8"), device="ptx")
