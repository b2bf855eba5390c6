"""Vectors divided by their lengths: corners, the ends of the range, axes, in place, gradients through torch."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, served

COVERS = ("normalize", "weight_norm", "normalize_backward", "weight_norm_backward")
BF16 = bp.BF16.dtype
rng = np.random.default_rng(11)


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_normalize_zeros_nan_and_inf(device: str) -> None:
    x = normal(4, 33)
    x[0], x[1, 5], x[2, 7] = 0, np.nan, np.inf
    got = bp.normalize(x, device=device)
    assert not got[0].any()
    assert np.isnan(got[1]).all()
    assert np.isnan(got[2, 7]) and not np.delete(got[2], 7).any()
    assert np.isnan(bp.normalize(x[:1], eps=0, device=device)).all()
    assert np.isclose(np.linalg.norm(got[3].astype(np.float64)), 1)
    of_zeros = bp.normalize_backward(x[3:], x[:1], device=device)
    assert np.allclose(of_zeros, x[3:] / np.float32(1e-12), rtol=1e-6)


@pytest.mark.parametrize("op", COVERS)
@pytest.mark.parametrize("kind", [np.float32, np.float64, BF16])
def test_unit_bounds_at_the_ends_of_the_range(op: str, kind: Any) -> None:
    """Squares and products that overflow, vanish, or are not normal numbers, and rows beside them that are as ever."""
    top, least = (float(getattr(ml_dtypes.finfo(kind), name)) for name in ("max", "smallest_normal"))
    scales = np.array([1, top / 64, top**0.6, top**0.3, least * 4, least**0.6, least**0.3])[:, None]
    for eps, turn in ((0.0, 0), (1e-12, 3), (1.0, 5)):
        x, grad = ((rng.standard_normal((7, 33)) * np.roll(scales, by, axis=0)).astype(kind) for by in (0, turn))
        operands: dict[str, Any] = {"x": x}
        if op.endswith("backward"):
            operands = {"grad": grad, **operands}
        if op.startswith("weight"):
            operands["g"] = (rng.standard_normal((7, 1)) * np.roll(scales, turn, axis=0) ** 0.5).astype(kind)
        options = {"axis": 0 if op.startswith("weight") else 1, "eps": eps}
        problem = Problem(get_op(op), Sample(f"{eps}", operands, options), "ptx")
        served(problem, [problem.plan])


@pytest.mark.parametrize("eps", [0.0, 2.0**-126, 1e-12])
def test_normalize_zeros_by_any_eps(eps: float) -> None:
    got = bp.normalize(np.zeros((1, 2), np.float32), eps=eps, device="ptx")
    assert np.isnan(got).all() if eps == 0 else not got.any()


def test_unit_gradients_of_opposite_infinities_promise_nothing() -> None:
    """The finite part of the sum overflows in f32, and grad has the other infinity."""
    x = np.array([[2e17, 9e16, 8e17], [1, 2, 3]], np.float32)
    grad = np.array([[1e19, 3e38, -np.inf], [4, 5, 6]], np.float32)
    problem = Problem(get_op("normalize_backward"), Sample("inf", {"grad": grad, "x": x}, {"eps": 0.0}), "ptx")
    served(problem, [problem.plan])


def test_unit_axes_in_memory_of_any_order() -> None:
    x = normal(3, 4, 5)
    for axis in (0, (0, 2), None, -2):
        wanted = x / np.sqrt((x.astype(np.float64) ** 2).sum(axis=axis, keepdims=True))
        assert np.allclose(bp.normalize(x, axis=axis, device="ptx"), wanted, rtol=1e-6)
        permuted = x.transpose(2, 0, 1).copy().transpose(1, 2, 0)
        assert np.allclose(bp.normalize(permuted, axis=axis, device="ptx"), wanted, rtol=1e-6)
    g = normal(1, 4, 1)
    wanted = g * x / np.sqrt((x.astype(np.float64) ** 2).sum(axis=(0, 2), keepdims=True))
    assert np.allclose(bp.weight_norm(x, g, axis=1, device="ptx"), wanted, rtol=1e-6)
    whole = bp.weight_norm(x, normal(1, 1, 1), axis=None, device="ptx")
    assert whole.shape == x.shape


@pytest.mark.parametrize("kind", [np.float32, np.float64, BF16])
@pytest.mark.parametrize("columns", [257, 513])
def test_unit_bits_are_the_same_at_any_alignment(kind: Any, columns: int) -> None:
    """The vectors of a row count from its start, wherever that and the result's are."""
    row, grad = normal(columns, dtype=kind), normal(columns, dtype=kind)
    found, steps = set(), 16 // row.itemsize
    for at in range(steps):
        held = [np.zeros((2, columns + steps), kind) for _ in range(3)]
        starts = [at * (1 + i) % steps for i in range(3)]
        views = [one[:, start : start + columns] for one, start in zip(held, starts)]
        views[0][:], views[1][:] = row, grad
        bp.normalize(views[0], out=views[2], device="ptx")
        made = views[2].tobytes()
        assert bp.normalize.plan(views[0], out=views[2], device="ptx").sku.variant == "unaligned"
        bp.normalize_backward(views[1], views[0], grad_x=views[2], device="ptx")
        found.add(made + views[2].tobytes())
        assert not held[2][:, : starts[2]].any() and not held[2][:, starts[2] + columns :].any()
    assert len(found) == 1


def test_unit_long_axes_go_down_columns() -> None:
    """By vectors of any width, of a gradient that runs backwards, and in place."""
    x, grad = normal(3, 70, 24), normal(3, 70, 24)
    for columns in (24, 23, 1):
        part, given = x[..., :columns], grad[:, ::-1, :columns]
        plan = bp.normalize_backward.plan(given, part, axis=1, device="ptx")
        assert plan.sku.variant == ("columns" if columns > 1 else "rows")
        wanted = bp.normalize_backward(given, part, axis=1, device="cpu")
        got = bp.normalize_backward(given, part, axis=1, device="ptx")
        assert np.allclose(got, wanted, rtol=1e-5, atol=1e-7)
    wanted = bp.normalize(x, axis=1, device="ptx")
    assert bp.normalize(x, axis=1, out=x, device="ptx") is x
    assert np.array_equal(x, wanted)


@pytest.mark.parametrize("columns", [264, 1001, 9001])
def test_unit_in_place(columns: int) -> None:
    x, grad = normal(3, columns), normal(3, columns)
    wanted = bp.normalize(x, device="ptx"), bp.normalize_backward(grad, x, device="ptx")
    assert bp.normalize_backward(grad, x, grad_x=grad, device="ptx") is grad
    assert bp.normalize(x, out=x, device="ptx") is x
    assert np.array_equal(x, wanted[0])
    assert np.array_equal(grad, wanted[1])


def test_unit_gradients_through_torch() -> None:
    torch = pytest.importorskip("torch")
    v, g = normal(6, 3, 5), normal(6, 1, 1)
    ours, own = ([torch.tensor(a, requires_grad=True) for a in (v, g)] for _ in range(2))
    weights = torch.tensor(normal(6, 3, 5))
    (bp.weight_norm(*ours, device="ptx") * weights).sum().backward()
    (torch._weight_norm(*own, 0) * weights).sum().backward()
    for a, b in zip(ours, own):
        assert torch.allclose(a.grad, b.grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "args", "named", "said"),
    [
        ("normalize", (np.ones((2, 3)),), {"axis": 2}, "axis 2 is out of range for 2 axes"),
        ("normalize", (np.ones((2, 3)),), {"axis": (0, -2)}, "names an axis twice"),
        ("normalize", (np.ones((2, 3)),), {"eps": -1.0}, "give 0, or a normal number of f32"),
        ("normalize", (np.ones((2, 3)),), {"eps": 1e-39}, "give 0, or a normal number of f32"),
        ("weight_norm", (np.ones((2, 3)), np.ones((2, 1))), {"eps": 1e39}, "give 0, or a normal number of f32"),
        ("normalize", (np.ones((2, 3), np.int32),), {}, "normalize: x"),
        ("weight_norm", (np.ones((2, 3)), np.ones(2)), {}, r"g.* \(2, 1\)"),
        ("weight_norm", (np.ones((2, 3)), np.ones((1, 3))), {}, r"g.* \(2, 1\)"),
    ],
)
def test_unit_refusals(name: str, args: Any, named: dict[str, Any], said: str) -> None:
    out = np.zeros((2, 3))
    with pytest.raises(bp.BaracudaError, match=said):
        getattr(bp, name)(*args, **named, out=out, device="cpu")
    assert not out.any()
