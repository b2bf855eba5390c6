"""Softmax by other means: PyTorch on the CPU in float64. No oracle code."""

from __future__ import annotations

from collections.abc import Callable
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


CHECKS: dict[str, Callable[[Problem], None]] = {
    "softmax": _along(_softmax),
    "log_softmax": _along(_log_softmax),
    **dict.fromkeys(("softmax_backward", "log_softmax_backward"), _softmax_backward),
}
