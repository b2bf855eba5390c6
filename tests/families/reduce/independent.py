"""Reductions by other means: NumPy's own ufuncs in float64, and SciPy. No oracle code."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]

Array = np.ndarray[Any, Any]


def _reduced(of: Callable[..., Any], digits: float = 40.0) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        options = problem.sample.options
        x, axis, keepdims = given_of(problem)["x"], options.get("axis"), bool(options.get("keepdims", False))
        more = {"ddof": options["correction"]} if "correction" in options else {}
        if x.size == 0 and problem.op.name in ("var", "logsumexp"):
            return
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of nothing
            wanted = np.asarray(of(x, axis=axis, keepdims=keepdims, **more))
            if x.dtype.kind in "iu":
                assert np.array_equal(problem.wide["out"], wanted)
                return
            size = np.abs(x).sum(axis=axis, keepdims=keepdims) if problem.op.name in ("sum", "mean") else None
            if problem.op.name == "var":
                size = (x * x).sum(axis=axis, keepdims=keepdims)
                if (np.abs(x[np.isfinite(x)]) > 1e100).any():
                    return  # NumPy's squares overflow
            near(problem, "out", wanted, digits, size)

    return check


def _argmax(x: Array, *, axis: int | None, keepdims: bool) -> Array:
    return np.asarray(np.argmax(x, axis=axis, keepdims=keepdims))  # the first NaN where there is one


CHECKS: dict[str, Callable[[Problem], None]] = {
    "sum": _reduced(np.sum),
    "mean": _reduced(np.mean),
    "max": _reduced(np.max),
    "min": _reduced(np.min),
    "argmax": _reduced(_argmax),
    "var": _reduced(np.var),
    "logsumexp": _reduced(scipy.special.logsumexp),
}
