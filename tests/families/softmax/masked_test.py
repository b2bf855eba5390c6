"""Softmax of masked rows: against plain softmax, hidden values, causal offsets, gradients by differences, refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, admissible, served

BF16 = bp.BF16.dtype
rng = np.random.default_rng(11)
Array = np.ndarray[Any, Any]


def normal(*shape: int, dtype: Any = np.float32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("columns", [1040, 4104])
def test_masked_softmax_every_configuration(columns: int) -> None:
    x, mask = normal(3, columns, dtype=BF16), rng.random((3, columns)) < 0.5
    problem = Problem(get_op("masked_softmax"), Sample("wide", {"x": x, "mask": mask}, {"scale": 0.3}), "ptx")
    plans = admissible(problem)
    assert len(plans) > 1
    served(problem, plans)


def test_masked_softmax_without_a_mask_is_softmax() -> None:
    x = normal(4, 264)
    assert np.array_equal(bp.masked_softmax(x, device="ptx"), bp.softmax(x, device="ptx"))


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("hidden", [np.nan, np.inf, -np.inf, 3e38])
def test_masked_softmax_hidden_values_have_no_effect(hidden: float, backend: str) -> None:
    x, mask = normal(3, 72), rng.random((3, 72)) < 0.6
    other = np.where(mask, x, np.float32(hidden))
    wanted = bp.masked_softmax(x, mask, scale=2.0, device=backend)
    assert np.array_equal(bp.masked_softmax(other, mask, scale=2.0, device=backend), wanted)
    assert (wanted[~mask] == 0).all()


@pytest.mark.parametrize("view", ["C", "swapped", "reversed"])
@pytest.mark.parametrize("offset", [0, 1, -1, 30, -50, 2**31 - 1])
def test_masked_softmax_causal_equals_its_mask(offset: int, view: str) -> None:
    x = normal(2, 3, 10, 40)
    if view == "swapped":
        x = normal(10, 3, 2, 40).swapaxes(0, 2)
    elif view == "reversed":
        x = x[::-1, ::-1, ::-1, ::-1]
    mask = np.arange(40) <= np.arange(10)[:, None] + offset
    for backend in ("cpu", "ptx"):
        got = bp.masked_softmax(x, causal=True, offset=offset, device=backend)
        wanted = bp.masked_softmax(x, mask, device=backend)  # rows with a mask are shared by more threads
        assert np.allclose(got, wanted, rtol=2e-6, atol=0)
        assert (got[..., ~mask] == 0).all()


def test_masked_softmax_rows_that_see_nothing_are_zero() -> None:
    x, mask = normal(4, 3, 40), np.ones((4, 1, 40), bool)
    mask[1] = False
    for backend in ("cpu", "ptx"):
        got = bp.masked_softmax(x, mask, device=backend)
        assert (got[1] == 0).all()
        assert np.allclose(got[[0, 2, 3]].sum(-1), 1)
        assert (bp.masked_softmax(x, np.full(40, -np.inf, np.float32), device=backend) == 0).all()


def test_masked_softmax_backward_central_differences() -> None:
    x, mask, grad = normal(3, 6, 9, dtype=np.float64), rng.random((6, 9)) < 0.8, normal(3, 6, 9, dtype=np.float64)
    how: dict[str, Any] = {"scale": 0.7, "causal": True, "offset": 4}
    y = bp.masked_softmax(x, mask, **how, device="ptx")
    got = bp.masked_softmax_backward(grad, y, scale=0.7, device="ptx")
    for at in [(0, 0, 0), (1, 3, 2), (2, 5, 8), (1, 1, 8)]:
        step = np.zeros_like(x)
        step[at] = 1e-6
        ends = [(bp.masked_softmax(x + way * step, mask, **how, device="cpu") * grad).sum() for way in (1, -1)]
        assert np.isclose(got[at], (ends[0] - ends[1]) / 2e-6, atol=1e-7)


def test_masked_softmax_torch_gradient() -> None:
    torch = pytest.importorskip("torch")

    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)
    mask, grad = torch.rand(5, 8) < 0.9, torch.randn(2, 5, 8, dtype=torch.float64)
    with bp.device("cpu"):
        bp.masked_softmax(x, mask, scale=0.5, causal=True, offset=3).backward(grad)
    other = x.detach().clone().requires_grad_()
    seen = mask & torch.ones(5, 8, dtype=torch.bool).tril(3)
    scores = (other * 0.5).masked_fill(~seen, -torch.inf)
    torch.softmax(scores, -1).nan_to_num().backward(grad)
    assert x.grad is not None
    assert other.grad is not None
    assert torch.allclose(x.grad, other.grad, atol=1e-12)


def test_masked_softmax_in_place_and_threads() -> None:
    x, mask = normal(5, 136, dtype=BF16), rng.random(136) < 0.5
    wanted = bp.masked_softmax(x, mask, device="ptx")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: bp.masked_softmax(x, mask, device="ptx"), range(6)))
    assert all(np.array_equal(got.view(np.uint16), wanted.view(np.uint16)) for got in found)
    assert bp.masked_softmax(x, mask, out=x, device="ptx") is x
    assert np.array_equal(x.view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mask": np.ones((3, 7), bool)}, "does not broadcast"),
        ({"mask": np.ones((2, 4, 8), bool)}, "does not broadcast"),
        ({"mask": np.ones((4, 8), np.int32)}, "mask"),
        ({"mask": np.ones((4, 8), np.float64)}, "mask must hold"),
        ({"scale": float("nan")}, "scale"),
        ({"scale": 1e39}, "scale"),
        ({"offset": 2**31, "causal": True}, "offset"),
        ({"out": np.zeros((4, 9), np.float32)}, "out"),
    ],
)
def test_masked_softmax_refusals(given: dict[str, Any], says: str) -> None:
    with pytest.raises((bp.InvalidProblemError, bp.OperandTypeError), match=says):
        bp.masked_softmax(normal(4, 8), **given, device="cpu")


def test_masked_softmax_refuses_too_few_axes() -> None:
    with pytest.raises(bp.InvalidProblemError, match="axis of queries"):
        bp.masked_softmax(normal(8), causal=True, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="no rows"):
        bp.masked_softmax(np.zeros((), np.float32), device="cpu")
