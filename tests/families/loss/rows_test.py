"""Losses of rows against torch on the host, over every option; labels out of range; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op

rng = np.random.default_rng(8)
CALLS: dict[str, tuple[dict[str, Any], ...]] = {
    "cosine_embedding_loss": ({}, {"margin": 0.3}),
    "triplet_margin_loss": (
        {},
        {"swap": True, "margin": 0.2},
        {"p": 1.0, "swap": True},
        {"p": 3.0, "eps": 1e-3},
        {"p": 1.5, "swap": True},
    ),
    "multi_margin_loss": ({}, {"p": 2, "margin": 0.4}, {"weight": True}),
    "multilabel_soft_margin_loss": ({}, {"weight": True}),
}


def operands(name: str, shape: tuple[int, ...] = (9, 13)) -> dict[str, Any]:
    x, other, third = (rng.standard_normal(shape) for _ in range(3))
    if name == "triplet_margin_loss":
        other[0] = x[0]  # their distance is eps's
        return {"anchor": x, "positive": other, "negative": 2 * third}
    if name == "cosine_embedding_loss":
        other[0] = 3 * x[0]  # no row of zeros: the 1e-12 of torch is rounded to f32
        return {"x1": x, "x2": other, "target": rng.choice([-1.0, 1.0], shape[:-1])}
    if name == "multi_margin_loss":
        return {"x": x, "target": rng.integers(0, shape[-1], shape[:-1])}
    return {"x": 3 * x, "target": rng.random(shape)}


def compared(name: str, options: dict[str, Any], shape: tuple[int, ...], backend: str) -> None:
    """The loss and its gradients beside torch's."""
    torch = pytest.importorskip("torch")
    given, numbers = operands(name, shape), {n: x for n, x in options.items() if n != "weight"}
    weight = {"weight": rng.random(shape[-1])} if "weight" in options else {}
    gradients = get_op(name).gradient.gradients  # type: ignore[union-attr]
    held = {n: torch.tensor(x, requires_grad=n in gradients) for n, x in given.items()}
    function = getattr(torch.nn.functional, get_op(name).peers["torch"])
    wanted = function(*held.values(), **numbers, **{n: torch.tensor(x) for n, x in weight.items()})
    got = getattr(bp, name)(*given.values(), **weight, **numbers, device=backend)
    assert np.allclose(got, wanted.detach().numpy(), rtol=1e-13, atol=1e-14), options
    grad = np.asarray(rng.standard_normal(got.shape))
    wanted.backward(torch.tensor(grad))
    if "target" in gradients:
        numbers["return_grad_target"] = True
    got = getattr(bp, f"{name}_backward")(grad, *given.values(), **weight, **numbers, device=backend)
    slopes = [x.grad.numpy() for n, x in held.items() if n in gradients]
    for mine, theirs in zip(got if len(slopes) > 1 else (got,), slopes, strict=True):
        assert np.allclose(mine, theirs, rtol=1e-12, atol=1e-14), options


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("name", CALLS)
def test_row_losses_are_those_of_torch(name: str, backend: str) -> None:
    for options in CALLS[name]:
        for reduction in ("mean", "sum", "none"):
            compared(name, {"reduction": reduction} | options, (9, 13), backend)
    compared(name, {}, (13,), backend)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_triplet_margin_of_equal_rows_has_no_slope_there(backend: str) -> None:
    """Where a distance is 0, or two are equal, gradients are torch's."""
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((2, 5))
    for p in (1.0, 2.0, 3.0):
        options: dict[str, Any] = {"p": p, "eps": 0.0, "swap": True, "reduction": "sum"}
        given = {"anchor": x, "positive": x.copy(), "negative": x + 0.25}
        held = {n: torch.tensor(one, requires_grad=True) for n, one in given.items()}
        torch.nn.functional.triplet_margin_loss(*held.values(), **options).backward()
        got = bp.triplet_margin_loss_backward(np.ones(()), *given.values(), **options, device=backend)
        for mine, theirs in zip(got, held.values(), strict=True):
            assert np.allclose(mine, theirs.grad.numpy(), rtol=1e-12, atol=1e-14), p


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("label", [-1, 7, 2**40, -(2**63)])
def test_multi_margin_label_out_of_range(label: int, backend: str) -> None:
    x, target = rng.standard_normal((5, 7)).astype(np.float32), rng.integers(0, 7, 5)
    target[1], grad, out = label, np.ones(5, np.float32), np.full((), 7, np.float32)
    slopes, status = np.full((5, 14), 3, np.float32), np.full((), 9, np.int32)
    with pytest.raises(bp.InvalidProblemError, match=rf"target\[1\] = {label} is no class, 0 to 6"):
        bp.multi_margin_loss(x, target, out=out, device=backend)
    assert out == 7
    bp.multi_margin_loss_backward(
        grad, x, target, reduction="none", grad_x=slopes[:, :7], status=status, device=backend
    )
    assert status == 1 and (slopes[:, 7:] == 3).all()
    assert np.isnan(slopes[:, :7]).all(axis=1).tolist() == [False, True, False, False, False]
    got, _ = bp.multi_margin_loss(x, target, reduction="none", status=status, device=backend)
    assert np.isnan(got).tolist() == [False, True, False, False, False]
    got, status = bp.multi_margin_loss(x, target, reduction="none", return_status=True, device=backend)
    assert status == 1 and np.isnan(got).tolist() == [False, True, False, False, False]
    got, status = bp.multi_margin_loss(x, np.clip(target, 0, 6), return_status=True, device=backend)
    assert status == 0 and np.isfinite(got)


def test_row_losses_refuse_what_has_no_meaning() -> None:
    x, labels = np.zeros((2, 3), np.float32), np.zeros(2, np.int64)
    with pytest.raises(bp.InvalidProblemError, match=r"p=3\.0: give 1 or 2"):
        bp.multi_margin_loss(x, labels, p=3, device="cpu")
    for p in (0.5, np.inf, np.nan):
        with pytest.raises(bp.InvalidProblemError, match="is no finite norm: give a number of 1 or more"):
            bp.triplet_margin_loss(x, x, x, p=p, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="swap must be True or False"):
        bp.triplet_margin_loss(x, x, x, swap="yes", device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="margin=nan: give finite numbers"):
        bp.cosine_embedding_loss(x, x, x[:, 0], margin=np.nan, device="cpu")
    with pytest.raises(bp.OperandTypeError, match="weight must hold f32, as x does, got f64"):
        bp.multilabel_soft_margin_loss(x, x, np.ones(3), device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="x1 must have shape"):
        bp.cosine_embedding_loss(x[None], x[None], x[:, :1].T, device="cpu")


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_row_losses_of_no_rows(backend: str) -> None:
    x = np.zeros((0, 3), np.float32)
    assert np.isnan(bp.multilabel_soft_margin_loss(x, x, device=backend))
    assert bp.triplet_margin_loss(x, x, x, reduction="sum", device=backend) == 0


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_gradients_at_the_margins_are_those_of_torch(backend: str) -> None:
    """Where a loss is 0 and begins to grow: cosines of 0, distances that differ by the margin, scores that do."""
    torch = pytest.importorskip("torch")
    flat, steep = np.eye(2, 4), np.eye(2, 4)[::-1].copy()
    given: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "cosine_embedding_loss": ({"x1": flat, "x2": steep, "target": -np.ones(2)}, {}),
        "triplet_margin_loss": ({"anchor": 0 * flat, "positive": flat, "negative": 2 * flat}, {"eps": 0.0}),
        "multi_margin_loss": ({"x": flat, "target": np.arange(2)}, {}),
    }
    for name, (arrays, options) in given.items():
        options["reduction"] = "sum"
        held = {n: torch.tensor(x, requires_grad=n != "target") for n, x in arrays.items()}
        getattr(torch.nn.functional, name)(*held.values(), **options).backward()
        got = getattr(bp, f"{name}_backward")(np.ones(()), *arrays.values(), **options, device=backend)
        slopes = [x.grad.numpy() for n, x in held.items() if n != "target"]
        for mine, theirs in zip(got if len(slopes) > 1 else (got,), slopes, strict=True):
            assert np.allclose(mine, theirs, rtol=1e-9, atol=1e-9), name
