"""Softmax by other means: PyTorch on the CPU in float64. No oracle code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]

Array = np.ndarray[Any, Any]


def _along(of: Callable[..., Array]) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        x = given_of(problem)["x"]
        if x.size and x.ndim:
            with np.errstate(all="ignore"):
                near(problem, "out", of(x, axis=problem.desc.axis), 40, np.abs(x[np.isfinite(x)]).max(initial=1))

    return check


def _softmax(x: Array, axis: int) -> Array:
    torch = pytest.importorskip("torch")

    return np.asarray(torch.softmax(torch.from_numpy(np.ascontiguousarray(x)), axis).numpy())


def _log_softmax(x: Array, axis: int) -> Array:
    torch = pytest.importorskip("torch")

    return np.asarray(torch.log_softmax(torch.from_numpy(np.ascontiguousarray(x)), axis).numpy())


def _softmax_backward(problem: Problem) -> None:
    torch = pytest.importorskip("torch")

    given = {n: torch.from_numpy(np.ascontiguousarray(x)) for n, x in given_of(problem).items()}
    if given["y"].numel() and given["y"].ndim:
        function = getattr(torch.ops.aten, f"_{problem.desc.name}_data")
        wanted = function(given["grad"], given["y"], problem.desc.axis, torch.float64)
        near(problem, "grad_x", wanted.numpy(), 40, float(given["grad"].abs().sum()))


def _masked_softmax(problem: Problem) -> None:
    """torch's softmax of scores that are masked by `masked_fill`."""
    torch = pytest.importorskip("torch")

    desc, values = problem.desc, problem.values
    x = torch.from_numpy(np.ascontiguousarray(given_of(problem)["x"]))
    if not x.numel():
        return
    scale = float(np.float32(values.get("scale", 1.0))) if desc.element.bits < 64 else values.get("scale", 1.0)
    scores = x * scale
    if "mask" in problem.slots:
        mask = problem.slots["mask"].host()
        if mask.dtype == bool:
            scores = scores.masked_fill(~torch.from_numpy(np.ascontiguousarray(mask)), -torch.inf)
        else:
            scores = scores + torch.from_numpy(mask.astype(np.float64))
    if desc.causal:
        seen = torch.ones(x.shape[-2:], dtype=torch.bool).tril(values.get("offset", 0))
        scores = scores.masked_fill(~seen, -torch.inf)
    wanted = torch.softmax(scores, -1)
    wanted = torch.where(torch.isneginf(scores).all(-1, keepdim=True), 0.0, wanted)
    finite = scores[torch.isfinite(scores)].abs()
    near(problem, "out", wanted.numpy(), 40, float(finite.max()) if finite.numel() else 1.0)


def _masked_softmax_backward(problem: Problem) -> None:
    """torch's own gradient of softmax, scaled."""
    torch = pytest.importorskip("torch")

    given = {n: torch.from_numpy(np.ascontiguousarray(x)) for n, x in given_of(problem).items()}
    if not given["y"].numel():
        return
    scale = problem.values.get("scale", 1.0)
    scale = float(np.float32(scale)) if problem.desc.element.bits < 64 else scale
    wanted = scale * torch.ops.aten._softmax_backward_data(given["grad"], given["y"], -1, torch.float64)
    near(problem, "grad_x", wanted.numpy(), 40, float(given["grad"].abs().sum()))


def _sparse(x: Array, axis: int, power: int) -> Array:
    """The threshold by bisection, of which the result is that of sums of 1."""
    z = x / power
    low = z.max(axis=axis, keepdims=True) - 1
    high = low + 1
    for _ in range(60):
        middle = (low + high) / 2
        above = (np.maximum(z - middle, 0) ** power).sum(axis=axis, keepdims=True) >= 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(np.where(np.isfinite(low), np.maximum(z - low, 0) ** power, np.nan))


def _sparse_backward(problem: Problem) -> None:
    """The Jacobian diag(w) - w w' / sum(w), as a matrix."""
    given, desc = given_of(problem), problem.desc
    if not given["y"].size or not desc.shape or desc.extent > 2000:
        return
    rows = {name: np.moveaxis(x, desc.axis, -1).reshape(-1, desc.extent) for name, x in given.items()}
    wanted = []
    for grad, y in zip(rows["grad"], rows["y"]):
        w = np.sqrt(y) if desc.name.startswith("entmax15") else (y > 0).astype(y.dtype)
        jacobian = np.diag(w) - np.outer(w, w) / max(w.sum(), 1e-300)
        wanted.append(jacobian @ grad)
    found = np.moveaxis(problem.wide["grad_x"], desc.axis, -1).reshape(-1, desc.extent)
    assert np.allclose(np.asarray(found, np.float64), wanted, rtol=1e-10, atol=1e-10)


CHECKS: dict[str, Callable[[Problem], None]] = {
    "masked_softmax": _masked_softmax,
    "masked_softmax_backward": _masked_softmax_backward,
    "softmax": _along(_softmax),
    "log_softmax": _along(_log_softmax),
    "sparsemax": _along(partial(_sparse, power=1)),
    "entmax15": _along(partial(_sparse, power=2)),
    **dict.fromkeys(("sparsemax_backward", "entmax15_backward"), _sparse_backward),
    **dict.fromkeys(("softmax_backward", "log_softmax_backward"), _softmax_backward),
}
