"""cumprod, cummax, cummin and logcumsumexp: lengths, both directions, corners, in place, threads, refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, admissible, served

THEIRS: dict[str, np.ufunc] = {
    "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum, "logcumsumexp": np.logaddexp,
}  # fmt: skip
INF, NAN = np.inf, np.nan
rng = np.random.default_rng(8)


def given(op: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    x = rng.standard_normal(shape)
    return (np.exp(x / 512) if op == "cumprod" else x).astype(dtype)


def called(op: str, x: Any, axis: int = -1, **options: Any) -> Any:
    return getattr(bp, op)(x, axis, **options)


def wanted(op: str, x: Any, axis: int = -1, *, reverse: bool = False) -> Any:
    ahead = np.flip(x, axis) if reverse else x
    with np.errstate(all="ignore"):
        made = THEIRS[op].accumulate(ahead.astype(np.float64), axis=axis)
    return np.flip(made, axis) if reverse else made


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("op", THEIRS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((3, 1), 1),
        ((2, 129), 1),
        ((2, 1025), 1),
        ((2, 33_001), 1),
        ((3, 40, 150), 1),
        ((3, 1030, 5), 1),
        ((1100, 36), 0),
    ],
)
def test_scans_of_any_length(op: str, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    """A warp's part, a CTA's, chunks of rows and of columns."""
    for dtype in (np.float32, bp.BF16.dtype):
        sample = Sample(f"{shape} {axis}", {"x": given(op, shape, dtype)}, {"axis": axis, "reverse": reverse})
        problem = Problem(get_op(op), sample, "ptx")
        served(problem, admissible(problem))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("op", THEIRS)
def test_corners_of_scans(op: str, reverse: bool, device: str, bounded: bool) -> None:
    """Kernels of the bounded suite in f32 and f16 alone."""
    x = np.array(
        [[INF, 0, 1], [0, INF, -INF], [NAN, 1, 2], [1, NAN, 2], [-INF, -INF, -INF], [-INF, 3, -INF], [-0.0, 0.0, -0.0]]
    )
    few = bounded and device == "ptx"
    for dtype in (np.float32, np.float16) if few else (np.float32, np.float64, np.float16, bp.BF16.dtype):
        values = x.astype(dtype)
        expected = wanted(op, values, reverse=reverse).astype(dtype).astype(np.float64)
        for got in (
            called(op, values, reverse=reverse, device=device),
            called(op, np.ascontiguousarray(values.T), 0, reverse=reverse, device=device).T,
        ):
            assert np.allclose(got.astype(np.float64), expected, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("op", ["cumprod", "cummax", "cummin"])
def test_scans_of_integers_are_exact(op: str, reverse: bool, bounded: bool) -> None:
    """In the bounded suite the narrowest with a sign and the widest without."""
    for dtype in (np.int8, np.uint64) if bounded else (np.int8, np.uint8, np.int32, np.int64, np.uint64):
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, (3, 300), dtype, endpoint=True)
        ahead = np.flip(x, 1) if reverse else x
        made = np.cumprod(ahead, axis=1) if op == "cumprod" else THEIRS[op].accumulate(ahead, axis=1)
        expected = np.flip(made, 1) if reverse else made
        for got in (
            called(op, x, reverse=reverse, device="ptx"),
            called(op, np.ascontiguousarray(x.T), 0, reverse=reverse, device="ptx").T,
        ):
            assert got.dtype == made.dtype
            assert np.array_equal(got, expected)


@pytest.mark.parametrize("op", THEIRS)
def test_scans_are_those_of_torch(op: str) -> None:
    torch = pytest.importorskip("torch")
    x = given(op, (4, 50, 6))
    for axis in (0, 1, 2):
        theirs = getattr(torch, op)(torch.from_numpy(x), axis)
        values = theirs.values if op in ("cummax", "cummin") else theirs
        assert np.allclose(called(op, x, axis, device="ptx"), values.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("op", THEIRS)
def test_scans_in_place_and_from_two_threads(op: str, reverse: bool) -> None:
    each = [(given(op, (5, 40)), axis) for axis in (0, 1)] * 3
    expected = [called(op, x.copy(), axis, reverse=reverse, device="ptx") for x, axis in each]
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(lambda e: called(op, e[0].copy(), e[1], reverse=reverse, device="ptx"), each))
    assert all(np.array_equal(a, b) for a, b in zip(got, expected))
    held = each[0][0].copy()
    assert called(op, held, 0, out=held, reverse=reverse, device="ptx") is held
    assert np.array_equal(held, expected[0])


@pytest.mark.parametrize("op", THEIRS)
def test_a_wrong_scan_is_refused(op: str) -> None:
    x = given(op, (3, 4))
    out = np.full((3, 4), 7.0)
    with pytest.raises(bp.OperandTypeError, match=f"{op}: out must hold f32"):
        called(op, x, out=out, device="ptx")
    assert (out == 7).all()
    with pytest.raises(bp.InvalidProblemError, match=f"{op}: axis 2 is out of range"):
        called(op, x, 2, device="ptx")
    for reverse in ("yes", None, 2):
        with pytest.raises(bp.InvalidProblemError, match=f"{op}: reverse must be True or False"):
            called(op, x, reverse=reverse, device="ptx")
    if op == "logcumsumexp":
        with pytest.raises(bp.OperandTypeError, match="logcumsumexp: i64 is not supported"):
            called(op, np.arange(4), device="ptx")
    assert called(op, x[:, :0], device="ptx").shape == (3, 0)
