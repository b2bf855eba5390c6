"""aminmax and var_mean: each result beside the op of that name, outputs of any layout, threads, refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

RESULTS = {"aminmax": ("min", "max"), "var_mean": ("var", "mean")}
SHAPES = (
    ((5, 77), 1),
    ((77, 5), 0),
    ((2, 33_001), 1),
    ((1100, 7), 0),
    ((3, 4, 5), (0, 2)),
    ((4, 6), None),
    ((0, 3), 1),
)
INF, NAN = np.inf, np.nan
rng = np.random.default_rng(3)


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("op", RESULTS)
def test_pairs_are_the_results_of_two_ops(op: str, shape: tuple[int, ...], axis: Any) -> None:
    """In the last places: wider states may take another order of terms."""
    x = rng.standard_normal(shape).astype(np.float32) + np.float32(2)
    for got, name in zip(getattr(bp, op)(x, axis=axis, device="ptx"), RESULTS[op]):
        wanted = getattr(bp, name)(x, axis=axis, device="ptx")
        assert got.shape == wanted.shape
        assert np.allclose(got, wanted, rtol=1e-6, atol=0), name


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_pairs_at_corners(device: str) -> None:
    x = np.array([[INF, 0, 2], [NAN, 1, 2], [-INF, INF, 0], [3, 3, 3]], np.float32)
    low, high = bp.aminmax(x, axis=1, device=device)
    assert np.array_equal(low, [0, NAN, -INF, 3], equal_nan=True)
    assert np.array_equal(high, [INF, NAN, INF, 3], equal_nan=True)
    var, mean = bp.var_mean(x, axis=1, device=device)
    assert np.array_equal(mean, [INF, NAN, NAN, 3], equal_nan=True)
    assert np.array_equal(var, [NAN, NAN, NAN, 0], equal_nan=True)


def test_pairs_of_64_bit_integers_are_exact() -> None:
    for dtype in (np.int64, np.uint64):
        info = np.iinfo(dtype)
        x = np.array([[info.max - 1, info.max], [info.min + 1, info.min]], dtype)
        low, high = bp.aminmax(x, axis=1, device="ptx")
        assert np.array_equal(low, x.min(1))
        assert np.array_equal(high, x.max(1))


@pytest.mark.parametrize("op", RESULTS)
def test_pairs_of_nothing(op: str) -> None:
    empty = np.zeros((2, 0), np.float32)
    if op == "aminmax":
        with pytest.raises(bp.InvalidProblemError, match="nothing"):
            bp.aminmax(empty, axis=1, device="ptx")
    else:
        assert all(np.isnan(made).all() for made in bp.var_mean(empty, axis=1, device="ptx"))


@pytest.mark.parametrize("op", RESULTS)
def test_pairs_into_outputs_of_any_strides(op: str) -> None:
    """Twice, and nothing beside them is written."""
    x = rng.standard_normal((4, 9, 6)).astype(np.float16)
    first, second = np.full((6, 8), 7, np.float16), np.full((4, 12), 7, np.float16)
    outs = dict(zip(RESULTS[op], (first[:, ::2].T, second[:, ::-2])))
    wanted = getattr(bp, op)(x, axis=1, device="ptx")
    for _ in range(2):
        getattr(bp, op)(x, axis=1, device="ptx", **outs)
    for made, out in zip(wanted, outs.values()):
        assert np.array_equal(made, out)
    assert (first[:, 1::2] == 7).all()
    assert (second[:, ::2] == 7).all()


def test_pairs_correction_is_of_the_variance_alone() -> None:
    x = rng.standard_normal((3, 10))
    var, mean = bp.var_mean(x, axis=1, correction=1, keepdims=True, device="ptx")
    assert np.allclose(var, x.var(1, ddof=1, keepdims=True))
    assert np.allclose(mean, x.mean(1, keepdims=True))


def test_pairs_from_two_threads() -> None:
    x = rng.standard_normal((3, 40_000)).astype(np.float32)
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda _: bp.aminmax(x, axis=1, device="ptx"), range(4)))
    for low, high in made:
        assert np.array_equal(low, x.min(1))
        assert np.array_equal(high, x.max(1))


def test_pairs_refuse_what_has_no_result() -> None:
    x = np.ones((2, 3), np.int32)
    with pytest.raises(bp.OperandTypeError, match="var_mean"):
        bp.var_mean(x, device="ptx")
    with pytest.raises(bp.InvalidProblemError, match="axis"):
        bp.aminmax(x, axis=2, device="ptx")
    wrong = np.full((3,), 7, np.int32)
    with pytest.raises(bp.BaracudaError):
        bp.aminmax(x, axis=1, min=wrong, device="ptx")
    assert (wrong == 7).all()
