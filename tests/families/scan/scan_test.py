"""cumsum beyond its samples: chunks, every length class, rows that do not depend on one another, infinities, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.scan import _candidates
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, admissible, served

COVERS = ("cumsum",)
rng = np.random.default_rng(6)


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return rng.standard_normal(shape).astype(dtype)


def checked(x: Any, axis: int) -> Problem:
    problem = Problem(get_op("cumsum"), Sample(f"{x.shape} {axis}", {"x": x}, {"axis": axis}), "ptx")
    served(problem, admissible(problem))
    return problem


@pytest.mark.parametrize("length", [1, 2, 3, 4, 9, 31, 127, 128, 129, 255, 513, 2047, 4097, 32_768, 32_769, 49_152])
def test_rows_of_any_length(length: int) -> None:
    problem = checked(normal(3, length), 1)
    assert len(problem.plan.selection.steps) == (1 if length <= 32_768 else 3)


@pytest.mark.parametrize("extent", [1, 3, 4, 5, 31, 33, 1024, 1025, 1600])
def test_columns_of_any_extent(extent: int) -> None:
    problem = checked(normal(2, extent, 34), 1)
    assert problem.plan.sku.variant == "columns"
    assert len(problem.plan.selection.steps) == (1 if extent <= 1024 else 3)


def test_more_chunks_than_a_tile_has_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LONGEST": 64, "CHUNK": 32, "TALLEST": 8, "CHUNK_DOWN": 4}.items():
        monkeypatch.setattr(_candidates, name, value)
    x = rng.integers(-9, 9, (2, 5003)).astype(np.int32)
    for given, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        desc = bp.CumsumDescriptor.of(given, axis=axis)
        got = bp.CumsumPlan.select(desc, device="ptx").run(x=given)
        assert np.array_equal(got, np.cumsum(given, axis=axis))


def test_a_row_does_not_depend_on_the_others() -> None:
    for length in (20, 300, 9000, 40_000):
        x = normal(5, length)
        whole = bp.cumsum(x, device="ptx")
        assert np.array_equal(bp.cumsum(x[2:3], device="ptx"), whole[2:3])
    for extent in (70, 1500):
        x = normal(extent, 40)
        whole = bp.cumsum(x, 0, device="ptx")
        assert np.array_equal(bp.cumsum(np.ascontiguousarray(x[:, 8:21]), 0, device="ptx"), whole[:, 8:21])


def test_a_row_does_not_depend_on_where_it_lies() -> None:
    x = normal(2, 9001)
    assert np.array_equal(bp.cumsum(x[:, 1:], device="ptx"), bp.cumsum(np.ascontiguousarray(x[:, 1:]), device="ptx"))


def test_in_place() -> None:
    for shape, axis in (((3, 264), 1), ((40_000,), 0), ((1100, 24), 0)):
        x = normal(*shape)
        wanted = bp.cumsum(x, axis, device="ptx")
        assert bp.cumsum(x, axis, out=x, device="ptx") is x
        assert np.array_equal(x, wanted)


def test_an_infinity_changes_nothing_before_it() -> None:
    for shape, axis in (((9000,), 0), ((40_000,), 0), ((1500, 3), 0)):
        x = normal(*shape)
        x[700] = np.inf
        got = bp.cumsum(x, axis, device="ptx")
        assert np.isfinite(got[:700]).all()
        assert np.isposinf(got[700:]).all()


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_cumsum_of_integers_matches_numpy(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, (3, 500), dtype=dtype, endpoint=True)
    got, wanted = bp.cumsum(x, device="ptx"), np.cumsum(x, axis=1)
    assert got.dtype == wanted.dtype
    assert np.array_equal(got, wanted)


def test_what_is_refused() -> None:
    for axis in (2, -3):
        with pytest.raises(bp.InvalidProblemError, match=f"axis {axis} is out of range"):
            bp.cumsum(normal(3, 4), axis, device="cpu")
    with pytest.raises(bp.OperandTypeError, match="out must hold i64"):
        bp.cumsum(np.arange(4, dtype=np.int32), out=np.zeros(4, np.int32), device="cpu")
    with pytest.raises(bp.OperandTypeError, match="cumsum"):
        bp.cumsum(np.zeros(4, np.complex64), device="cpu")
    assert bp.cumsum(np.full((), 3.0), device="cpu") == 3
