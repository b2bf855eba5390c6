"""Reductions and softmax beyond their samples: long rows in chunks, rows that do not depend on one another, what is refused."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import all_ops, get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, admissible, served

rng = np.random.default_rng(5)
OPS = ("sum", "mean", "max", "min", "argmax", "var", "logsumexp")


def normal(*shape: int, dtype: Any = np.float32) -> Any:
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("shape", "axis"), [((100_003,), 0), ((3, 70_000), 1), ((1100, 70), 0), ((5, 600, 33), 1)])
def test_long_rows_come_in_chunks(op: str, shape: tuple[int, ...], axis: int) -> None:
    sample = Sample(f"{shape} {axis}", {"x": normal(*shape)}, {"axis": axis})
    problem = Problem(get_op(op), sample, "ptx")
    plans = admissible(problem)
    assert len(problem.plan.kernels) == 2
    served(problem, plans)


def test_the_first_of_equals_in_any_chunk() -> None:
    x = np.zeros(100_000, np.float32)
    for places in ((99_999,), (40_000, 70_001), (3, 33_000)):
        x[:] = 0
        x[list(places)] = 1
        assert bp.argmax(x, device="ptx") == min(places)
        assert bp.argmax(x[:, None], axis=0, device="ptx")[0] == min(places)
    x[[50_000, 90_000]] = np.nan
    assert bp.argmax(x, device="ptx") == 50_000


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bp.BF16.dtype, np.float64])
def test_argmax_takes_the_first_of_several_nan(dtype: Any) -> None:
    """Several of them in one thread's vectors, within one vector, and in the vectors of several threads."""
    for length in (1024, 5000, 70_000):
        for places in ((3, 515, 1023), (3, 5), (515, 519), (200, 201, 900)):
            x = normal(2, length).astype(dtype)
            x[1, list(places)] = np.nan
            assert bp.argmax(x, axis=1, device="ptx").tolist() == [int(np.argmax(x[0])), places[0]]
            down = np.ascontiguousarray(x.T)
            assert bp.argmax(down, axis=0, device="ptx").tolist() == [int(np.argmax(x[0])), places[0]]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("shape", "axis"), [((7, 2999), 0), ((9, 1031), 0), ((129, 517), 0), ((3, 70, 261), 1), ((700, 264), 0)]
)
def test_columns_of_few_unaligned_rows(op: str, shape: tuple[int, ...], axis: int) -> None:
    """Rows of x that start at any address, and columns beyond whole vectors."""
    for dtype in (bp.BF16.dtype, np.float32):
        problem = Problem(
            get_op(op), Sample(f"{shape} {axis}", {"x": normal(*shape, dtype=dtype)}, {"axis": axis}), "ptx"
        )
        plans = admissible(problem)
        assert any(plan.sku.variant == "columns" for plan in plans)
        served(problem, plans)


@pytest.mark.parametrize("length", [640, 641, 1000, 2047, 2048])
def test_sums_of_short_rows(length: int) -> None:
    for dtype in (bp.BF16.dtype, np.float32, np.uint8):
        x = (normal(9, length) * 50).astype(dtype)
        problem = Problem(get_op("sum"), Sample(f"{dtype} {length}", {"x": x}, {"axis": 1}), "ptx")
        served(problem, admissible(problem))


@pytest.mark.gpu
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((700, 12_288), 0), ((7, 999_999), 0), ((50_000, 640), 1), ((333, 40_001), 0), ((30_011, 1000), 1)],
)
def test_large_reductions(op: str, shape: tuple[int, ...], axis: int) -> None:
    problem = Problem(
        get_op(op), Sample(f"{shape} {axis}", {"x": normal(*shape, dtype=bp.BF16.dtype)}, {"axis": axis}), "cuda"
    )
    served(problem, admissible(problem))


@pytest.mark.parametrize("op", ["sum", "var", "logsumexp", "softmax", "log_softmax"])
def test_a_row_does_not_depend_on_the_others(op: str) -> None:
    for length in (300, 9000, 40_000):
        x = normal(5, length)
        whole = getattr(bp, op)(x, axis=1, device="ptx")
        assert np.array_equal(getattr(bp, op)(x[2:3], axis=1, device="ptx"), whole[2:3])
    x = normal(700, 40)
    whole = getattr(bp, op)(x, axis=0, device="ptx")
    assert np.array_equal(getattr(bp, op)(np.ascontiguousarray(x[:, 8:24]), axis=0, device="ptx"), whole[..., 8:24])


@pytest.mark.parametrize("op", ["softmax", "log_softmax"])
def test_a_column_does_not_depend_on_how_many_there_are(op: str) -> None:
    """Few columns are shared out by narrower vectors."""
    x = normal(300, 61, 24) * np.float32(3)
    whole, few = (getattr(bp, op)(given, axis=1, device="ptx") for given in (x, x[:2].copy()))
    assert np.array_equal(whole[:2], few)


def test_long_columns_are_counted_in_64_bits() -> None:
    desc = bp.SoftmaxDescriptor((2**32 - 40, 2), "f16", axis=0)
    (launch,) = bp.SoftmaxPlan.select(desc, device="h200", pref=bp.PlanPreference(variant="columns")).selection.steps
    assert np.uint64(2**32 - 40) in launch.args
    assert "u64" in str(launch.kernel)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_the_sum_of_an_infinite_exponential(backend: str) -> None:
    inf = np.inf
    x = np.array([[inf, 0, 1], [inf, -inf, inf], [-inf, -inf, -inf], [-inf, 0, -inf], [inf, np.nan, 0]])
    wanted = np.array([inf, inf, -inf, 0, np.nan])
    for dtype in (np.float32, np.float64, np.float16, bp.BF16.dtype):
        given = x.astype(dtype)
        for axis, view in ((1, given), (0, np.ascontiguousarray(given.T))):
            got = bp.logsumexp(view, axis=axis, device=backend).astype(np.float64)
            assert np.array_equal(got, wanted, equal_nan=True)


def test_a_variance_about_a_mean_whose_square_overflows() -> None:
    x = np.float32(1e20) + np.float32(1e14) * np.arange(-300, 300, dtype=np.float32).reshape(1, -1)
    wanted = x.astype(np.float64).var()
    for given, axis in ((x, 1), (np.repeat(x.T, 3, axis=1), 0)):
        assert np.allclose(bp.var(given, axis=axis, device="ptx"), wanted, rtol=1e-3)
    assert not bp.var(np.full((2, 5000), 1e30, np.float32), axis=1, device="ptx").any()


@pytest.mark.parametrize("op", ["logsumexp", "softmax", "log_softmax"])
def test_exponentials_that_all_vanish(op: str) -> None:
    for shape, axis in (((3, 40), 1), ((2, 9001), 1), ((300, 8), 0)):
        x = normal(*shape, dtype=bp.BF16.dtype) - np.asarray(200, bp.BF16.dtype)
        problem = Problem(get_op(op), Sample(f"{shape}", {"x": x}, {"axis": axis}), "ptx")
        served(problem, admissible(problem))


@pytest.mark.parametrize("op", ["softmax", "log_softmax", "sum", "logsumexp"])
def test_where_a_row_starts_changes_no_bit(op: str) -> None:
    for length in (2049, 20_001):
        x = normal(3, length, dtype=np.float16)
        whole = getattr(bp, op)(x, axis=1, device="ptx")
        for offset in (1, 3, 4):
            row = normal(length + 8, dtype=np.float16)[offset : offset + length]
            row[:] = x[2]
            assert np.array_equal(getattr(bp, op)(row, axis=0, device="ptx"), whole[2])


def test_softmax_in_place() -> None:
    for length in (264, 9001, 40_000):
        x = normal(3, length)
        wanted = bp.softmax(x, device="ptx")
        assert bp.softmax(x, out=x, device="ptx") is x
        assert np.array_equal(x, wanted)


@pytest.mark.parametrize("op", OPS)
def test_results_of_an_unaligned_view(op: str) -> None:
    """Whole vectors and the tail beyond them."""
    for offset, length in ((1, 1003), (4, 1001), (8, 1015)):
        x = normal(offset + length, dtype=np.float16)[offset:]
        problem = Problem(get_op(op), Sample(f"{offset} {length}", {"x": x}, {"axis": 0}), "ptx")
        served(problem, admissible(problem))


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_a_variance_of_less_than_nothing(backend: str) -> None:
    """As in PyTorch: a count that is corrected away is none."""
    x = np.array([[1, 2], [3, 3]], np.float32)
    for correction in (2, 3, 2**31 - 1):
        got = bp.var(x, axis=1, correction=correction, device=backend)
        assert np.array_equal(got, [np.inf, np.nan], equal_nan=True)
    assert bp.var(x, axis=1, correction=-(2**31), device=backend)[0] < 1e-9


@pytest.mark.parametrize("op", ["softmax", "log_softmax", *OPS])
def test_an_axis_that_there_is_not_is_refused(op: str) -> None:
    for axis in (2, -3):
        with pytest.raises(bp.InvalidProblemError, match=f"axis {axis} is out of range"):
            getattr(bp, op)(normal(3, 4), axis=axis, device="cpu")
    if op in OPS:
        with pytest.raises(bp.InvalidProblemError, match="twice"):
            getattr(bp, op)(normal(3, 4), axis=(1, -1), device="cpu")


@pytest.mark.parametrize("op", ["max", "min", "argmax"])
def test_nothing_has_no_extremum(op: str) -> None:
    with pytest.raises(bp.InvalidProblemError, match="at least one element"):
        getattr(bp, op)(normal(3, 0), axis=1, device="cpu")
    assert getattr(bp, op)(normal(0, 3), axis=1, device="cpu").shape == (0,)


def test_what_else_is_refused() -> None:
    with pytest.raises(bp.OperandTypeError, match="mean"):
        bp.mean(np.arange(4), device="cpu")
    with pytest.raises(bp.OperandTypeError, match="out must hold i64"):
        bp.sum(np.arange(4, dtype=np.int32), out=np.zeros((), np.int32), device="cpu")
    for keepdims in (2, None, "yes", 1.0):
        with pytest.raises(bp.InvalidProblemError, match="keepdims must be True or False"):
            bp.sum(normal(3), keepdims=keepdims, device="cpu")
    for correction in (2**31, -(2**31) - 1):
        with pytest.raises(bp.InvalidProblemError, match="more than 32 bits"):
            bp.var(normal(3), correction=correction, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="several axes"):
        bp.argmax(normal(2, 3, 4), axis=(0, 1), device="cpu")


@pytest.mark.parametrize("name", ["max", "min", "argmax"])
def test_docstring_of_a_choice_names_no_rounding(name: str) -> None:
    doc, of_sum = str(getattr(bp, name).__doc__), str(bp.sum.__doc__)
    assert "rounded" not in doc and "exact" in doc
    assert "rounded once" in of_sum and "integers are summed exactly" in of_sum


@pytest.mark.parametrize(
    "op", [name for name, op in all_ops().items() if "keepdims" in signature(op.function).parameters]
)
def test_keepdims_is_a_bool(op: str) -> None:
    """As other flags are: a number is not taken for one, and nothing is written."""
    wanted = [p.name for p in signature(getattr(bp, op)).parameters.values() if p.default is p.empty]
    given = [1 if name == "k" else np.ones((1, 4), np.float32) for name in wanted]
    for wrong in (1, 0, 1.0, "yes", None):
        with pytest.raises(bp.InvalidProblemError, match=f"^{op}: keepdims must be True or False"):
            getattr(bp, op)(*given, axis=0, keepdims=wrong, device="cpu")


@pytest.mark.parametrize("axis", [(0, 0), (0, -1)])
def test_axis_of_a_number_named_twice_is_refused(axis: tuple[int, ...]) -> None:
    x = np.array(2.5)
    assert bp.sum(x, axis=(-1,), device="cpu") == x
    with pytest.raises(bp.InvalidProblemError, match="names an axis twice"):
        bp.sum(x, axis=axis, device="cpu")


ZEROS = np.array([[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0], [0.0, 0.0]], np.float32)
FREE_SIGNS: dict[str, Any] = {
    **{op: lambda x, _op=op, **how: getattr(bp, _op)(x[:, 0], x[:, 1], **how) for op in ("maximum", "minimum")},
    "clip": lambda x, **how: bp.clip(x, -0.0, 1.0, **how),
    "relu6": lambda x, **how: bp.relu6(x, **how),
    **{op: lambda x, _op=op, **how: getattr(bp, _op)(x, axis=1, **how) for op in ("max", "min", "nanmax", "nanmin")},
    "aminmax": lambda x, **how: bp.aminmax(x, axis=1, **how),
    **{op: lambda x, _op=op, **how: getattr(bp, _op)(x, 1, **how) for op in ("cummax", "cummin")},
    **{
        op: lambda x, _op=op, **how: getattr(bp, _op)(x, np.array([0, 2, 4]), **how)
        for op in ("segment_max", "segment_min")
    },
    "embedding_bag": lambda x, **how: bp.embedding_bag(np.array([[0, 1], [3, 2]]), x, reduce="max", **how),
    "scatter": lambda x, **how: bp.scatter(x, np.array([[1], [0], [0], [1]]), -x[:, :1], -1, reduce="max", **how),
}
KEPT_SIGNS: dict[str, Any] = {
    "sort": lambda x, **how: bp.sort(x, **how),
    "topk": lambda x, **how: bp.topk(x, 2, **how),
    "median": lambda x, **how: bp.median(x, axis=1, **how),
    "kthvalue": lambda x, **how: bp.kthvalue(x, 2, axis=1, **how),
    "unique": lambda x, **how: bp.unique(x, **how),
    "relu": lambda x, **how: bp.relu(x, **how),
}


def _zero_results(of: Any, device: str) -> list[np.ndarray[Any, Any]]:
    made = of(ZEROS, device=device)
    return [np.asarray(x) for x in (made if isinstance(made, tuple) else (made,))]


@pytest.mark.parametrize("op", FREE_SIGNS)
def test_zero_extremum_is_a_zero_of_either_sign(op: str) -> None:
    """Of zeros alone; and the page that says so names the op."""
    for device in ("cpu", "ptx"):
        assert all((x == 0).all() for x in _zero_results(FREE_SIGNS[op], device)[: 1 if op.startswith("cum") else None])
    page = (Path(__file__).resolve().parents[3] / "docs/exactness.md").read_text(encoding="utf-8")
    assert f"`{op}`" in page.partition("zeros of both signs")[2].partition("move elements")[0]


@pytest.mark.parametrize("op", KEPT_SIGNS)
def test_zero_that_is_moved_keeps_its_sign(op: str) -> None:
    for got, wanted in zip(_zero_results(KEPT_SIGNS[op], "ptx"), _zero_results(KEPT_SIGNS[op], "cpu")):
        assert got.tobytes() == wanted.tobytes()
