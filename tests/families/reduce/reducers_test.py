"""prod, std, norm, any, all, count_nonzero, argmin and those that skip NaN: corners, chunks, threads, refusals."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, admissible, served

OPS = ("prod", "argmin", "std", "nansum", "nanmean", "nanmax", "nanmin", "any", "all", "count_nonzero", "norm")
EMPTY: dict[str, Any] = {
    "prod": 1, "std": np.nan, "nansum": 0, "nanmean": np.nan, "any": False, "all": True, "count_nonzero": 0, "norm": 0,
}  # fmt: skip
PS = (0, 1, 2, np.inf, -np.inf, 3, 0.5, -2)
INF, NAN = np.inf, np.nan
CORNERS = np.array(
    [
        [INF, 0, 1],
        [INF, -INF, 2],
        [NAN, NAN, NAN],
        [-INF, NAN, -0.0],
        [0.0, -0.0, 0.0],
        [3, 3, 3],
        [-1, NAN, 5],
        [1e-30, 1e-30, 0.0],
    ]
)
DTYPES = (np.float32, np.float64, np.float16, bp.BF16.dtype)
rng = np.random.default_rng(7)


def called(op: str, x: Any, **options: Any) -> Any:
    return getattr(bp, op)(x, **options)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("op", OPS)
def test_corners_are_those_of_numpy(op: str, device: str, bounded: bool) -> None:
    """Of rows and of columns, in every float. Kernels of the bounded suite in f32 alone: those of the other floats are made of
    the same templates, which widen 16 bits to f32 when they load."""
    theirs: Any = {"norm": np.linalg.norm}.get(op, getattr(np, op, None))
    for dtype in DTYPES[:1] if bounded and device == "ptx" else DTYPES:
        x = CORNERS.astype(dtype)
        for p in PS if op == "norm" else (None,):
            more, numpys = ({"p": p}, {"ord": p}) if op == "norm" else ({}, {})
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of NaN alone
                wanted = np.asarray(theirs(x.astype(np.float64), axis=1, **numpys))
            if wanted.dtype.kind == "f":
                wanted = wanted.astype(dtype).astype(np.float64)
            for axis, given in ((1, x), (0, np.ascontiguousarray(x.T))):
                got = called(op, given, axis=axis, device=device, **more)
                assert np.allclose(got.astype(np.float64), wanted, rtol=1e-6, atol=1e-19, equal_nan=True), (
                    dtype,
                    p,
                    axis,
                )


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("shape", "axis"), [((3, 70_000), 1), ((1100, 70), 0), ((5, 600, 33), 1)])
def test_chunks_of_the_further_reducers(op: str, shape: tuple[int, ...], axis: int) -> None:
    x = rng.standard_normal(shape).astype(np.float32)
    if op == "prod":
        x = np.exp(x / 4096).astype(np.float32)
    x[rng.random(shape) < 0.25] = {"any": 0, "all": 1, "count_nonzero": 0}.get(
        op, np.nan if op.startswith("nan") else 1
    )
    problem = Problem(get_op(op), Sample(f"{shape} {axis}", {"x": x}, {"axis": axis}), "ptx")
    plans = admissible(problem)
    assert len(problem.plan.kernels) == 2
    served(problem, plans)


@pytest.mark.parametrize("op", ["any", "all"])
def test_one_element_of_another_kind_decides(op: str, bounded: bool) -> None:
    """At any place of a row, of a column, and of a row in chunks; a bool's byte, and a subnormal. In the bounded suite one alone:
    a subnormal is what most ways to compare with 0 lose."""
    usual = op == "all"
    for dtype in (np.float16,) if bounded else (np.bool_, np.float16, np.uint64):
        for length in (7, 300, 40_000):
            for place in (0, length // 2, length - 1):
                x = np.full(length, usual, dtype)
                assert bool(called(op, x, device="ptx")) is usual
                x[place] = 0 if usual else np.finfo(dtype).smallest_subnormal if dtype is np.float16 else 1
                assert bool(called(op, x, device="ptx")) is not usual
                assert called(op, x[:, None].repeat(3, 1), axis=0, device="ptx").tolist() == [not usual] * 3


def test_argmin_takes_the_first_of_several() -> None:
    for length in (5, 1024, 70_000):
        for places in ((length - 1,), (2, length - 2), (1, 3)):
            x = np.zeros((2, length), np.float32)
            x[:, list(places)] = -1
            x[1, list(places)] = np.nan
            assert bp.argmin(x, axis=1, device="ptx").tolist() == [places[0]] * 2
            assert bp.argmin(np.ascontiguousarray(x.T), axis=0, device="ptx").tolist() == [places[0]] * 2
    for dtype in (np.int8, np.int64, np.uint8, np.uint64):
        info = np.iinfo(dtype)
        x = np.array([info.max, info.min, 3, info.min, info.max], dtype)
        assert bp.argmin(x, device="ptx") == 1
        assert bp.argmin(x[:, None], axis=0, device="ptx")[0] == 1


def test_products_of_integers_wrap() -> None:
    for dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint64):
        x = values = rng.integers(1, 100, (4, 40)).astype(dtype) * dtype(2) + dtype(1)
        assert np.array_equal(bp.prod(x, axis=1, device="ptx"), np.prod(values, axis=1))
        assert bp.prod(x, device="ptx").dtype == np.prod(values).dtype


def test_a_standard_deviation_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(5, 7, 11, generator=torch.Generator().manual_seed(2))
    for dim in (0, (0, 2), None):
        for correction in (0, 1):
            got = bp.std(x.numpy(), axis=dim, correction=correction, device="ptx")
            assert np.allclose(got, torch.std(x, dim=dim, correction=correction).numpy(), rtol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("op", EMPTY)
def test_a_reduction_of_nothing(op: str, device: str) -> None:
    for x, axis in ((np.zeros((4, 0), np.float32), 1), (np.zeros((0, 4), np.float32), 0)):
        assert np.array_equal(called(op, x, axis=axis, device=device), np.full(4, EMPTY[op]), equal_nan=True)
        assert called(op, x, axis=1 - axis, device=device).shape == (0,)


@pytest.mark.parametrize("op", OPS)
def test_reducers_from_two_threads(op: str) -> None:
    x = rng.standard_normal((3, 9, 5)).astype(np.float32)
    each = [{"axis": axis, "keepdims": keepdims} for axis in (0, 1, 2, None) for keepdims in (False, True)]
    wanted = [called(op, x, device="ptx", **how) for how in each]
    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(lambda how: called(op, x, device="ptx", **how), each))
    assert all(np.array_equal(a, b) for a, b in zip(got, wanted))


FLOATS_ALONE = ("std", "nansum", "nanmean", "nanmax", "nanmin", "norm")
WRONG_OUT: dict[str, Any] = {"any": np.uint8, "all": np.float32, "count_nonzero": np.int32, "argmin": np.int32}


@pytest.mark.parametrize("op", OPS)
def test_a_wrong_reduction_is_refused(op: str) -> None:
    x = rng.standard_normal((3, 4)).astype(np.float32)
    out = np.full(3, 7, WRONG_OUT.get(op, np.float64))
    with pytest.raises(bp.OperandTypeError, match=f"{op}: out must hold"):
        called(op, x, axis=1, out=out, device="ptx")
    assert (out == 7).all()
    for axis, says in ((2, "axis 2 is out of range"), ((0, -2), "twice")):
        with pytest.raises(bp.InvalidProblemError, match=f"^{op}: .*{says}"):
            called(op, x, axis=axis, device="ptx")
    with pytest.raises(bp.InvalidProblemError, match="out must have shape"):
        called(op, x, axis=0, out=called(op, x, axis=1, device="cpu"), device="ptx")
    if op in FLOATS_ALONE:
        with pytest.raises(bp.OperandTypeError, match=f"^{op}: .*i64"):
            called(op, np.arange(4), device="ptx")
    if op not in EMPTY:
        with pytest.raises(bp.InvalidProblemError, match="at least one element"):
            called(op, x[:, :0], axis=1, device="ptx")


def test_a_norm_without_a_number_p_is_refused() -> None:
    x = rng.standard_normal((3, 4)).astype(np.float32)
    for p in (1e31, 10**400, -1e-31, np.nan, "fro", None, True):
        with pytest.raises(bp.InvalidProblemError, match="norm: p must be 0, inf, -inf, or of a magnitude"):
            bp.norm(x, p, device="ptx")
    for p in (INF, -INF, -0.5):
        with pytest.raises(bp.InvalidProblemError, match="at least one element"):
            bp.norm(x[:, :0], p, axis=1, device="ptx")
