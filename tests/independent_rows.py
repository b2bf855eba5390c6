"""Norms, softmax and reductions by other means: PyTorch on the CPU in float64, SciPy, and NumPy's own ufuncs. No oracle code."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from baracuda_py.types import ElementKind

from .gauntlet import Problem

__all__ = ["ROWS"]

Array = np.ndarray[Any, Any]


def _given(problem: Problem) -> dict[str, Array]:
    """What the problem reads, in float64; integers as they are."""
    arrays = {o.name: problem.slots[o.name].host() for o in problem.desc.operands if o.role == "in"}
    return {n: x if x.dtype.kind in "iu" else x.astype(np.float64) for n, x in arrays.items()}


def _near(problem: Problem, name: str, wanted: Any, digits: float = 40.0, size: Any = None) -> None:
    """The oracle's answer within so many bits of `size`, by default of |wanted|; corners alike."""
    wide, wanted = np.asarray(problem.wide[name], np.float64), np.asarray(wanted, np.float64)
    assert wide.shape == wanted.shape, f"{name}: shape {wide.shape}, independent {wanted.shape}"
    size = np.abs(wanted) if size is None else np.asarray(size, np.float64) + np.abs(wanted)
    with np.errstate(all="ignore"):
        alike = (wide == wanted) | (np.isnan(wide) & np.isnan(wanted))
        bad = ~(alike | (np.abs(wide - wanted) <= size * 2.0**-digits + 1e-300))
    assert not bad.any(), f"{name}: {int(bad.sum())} of {bad.size} differ, first {wide[bad][0]!r}, {wanted[bad][0]!r}"


def _norm(problem: Problem) -> None:
    torch = pytest.importorskip("torch")

    given, desc, eps = _given(problem), problem.desc, problem.values.get("eps", 1e-5)
    x = given["x"]
    if not x.size:
        return
    if "residual" in given:  # of f32 and less, the sum is exact in float64 but for its last rounding
        kinds = {ElementKind.BF16: torch.bfloat16, ElementKind.F16: torch.float16, ElementKind.F32: torch.float32}
        x = torch.from_numpy(x + given["residual"]).to(kinds[desc.element]).double().numpy()
        assert np.array_equal(problem.wide["residual_out"], x)
    weight = given.get("weight")
    shape = x.shape if weight is None else weight.shape
    last = shape[-1:] if weight is None else shape
    if not np.isfinite(x).all():
        rows = x.reshape(-1, int(np.prod(last)))
        assert np.isnan(problem.wide["out"].reshape(rows.shape)[~np.isfinite(rows).all(axis=1)]).any()
        return
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    scale = None if weight is None else torch.from_numpy(np.ascontiguousarray(weight))
    if desc.name == "layer_norm":
        bias = torch.from_numpy(given["bias"]) if "bias" in given else None
        out = torch.nn.functional.layer_norm(tensor, last, scale, bias, eps)
        size = np.abs(x).mean(axis=-1, keepdims=True) / (x.std(axis=-1, keepdims=True) + 1e-30) * 16
    else:
        out, size = torch.nn.functional.rms_norm(tensor, last, scale, eps), np.zeros_like(x)
    biggest = np.abs(x).max()
    if biggest < 1e100:  # squares stay finite
        _near(problem, "out", out.numpy(), 34, size + 1)


def _norm_backward(problem: Problem) -> None:
    """Automatic differentiation of the norm with the statistics held fixed where they are operands: by its formula in torch."""
    torch = pytest.importorskip("torch")

    given, desc = _given(problem), problem.desc
    if 0 in desc.shape:
        return
    last, column = desc.normalized_shape, (..., *(None,) * desc.rank)
    x = torch.from_numpy(np.ascontiguousarray(given["x"]))
    grad = torch.from_numpy(np.ascontiguousarray(given["grad"]))
    weight = torch.from_numpy(given["weight"]) if "weight" in given else torch.ones(last, dtype=torch.float64)
    rstd = torch.from_numpy(given["rstd"])[column]
    mean = torch.from_numpy(given["mean"])[column] if "mean" in given else torch.zeros_like(rstd)
    if desc.name == "layer_norm_backward":
        made = torch.ops.aten.native_layer_norm_backward(grad, x, last, mean, rstd, weight, weight, [True] * 3)
    else:  # rstd = (mean(x^2) + eps)^(-1/2): d rstd / d x = -rstd^3 x / n
        n = x * rstd
        along = (grad * weight * n).mean(tuple(range(-desc.rank, 0)), keepdim=True)
        made = (rstd * (grad * weight) - rstd * n * along, (grad * n).sum(tuple(range(x.ndim - desc.rank))), None)
    size = float(
        np.abs(given["grad"]).max() * (1 + np.abs(given["x"]).max()) ** 2 * (1 + given["rstd"].max()) ** 3 * 64
    )
    for name, result in zip(("grad_x", "grad_weight", "grad_bias"), made):
        if name in problem.written and result is not None:
            _near(problem, name, result.numpy(), 40, size)


def _along(of: Callable[..., Array]) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        x = _given(problem)["x"]
        if x.size and x.ndim:
            with np.errstate(all="ignore"):
                _near(problem, "out", of(x, axis=problem.desc.axis), 40, np.abs(x[np.isfinite(x)]).max(initial=1))

    return check


def _softmax(x: Array, axis: int) -> Array:
    torch = pytest.importorskip("torch")

    return np.asarray(torch.softmax(torch.from_numpy(np.ascontiguousarray(x)), axis).numpy())


def _log_softmax(x: Array, axis: int) -> Array:
    torch = pytest.importorskip("torch")

    return np.asarray(torch.log_softmax(torch.from_numpy(np.ascontiguousarray(x)), axis).numpy())


def _softmax_backward(problem: Problem) -> None:
    torch = pytest.importorskip("torch")

    given = {n: torch.from_numpy(np.ascontiguousarray(x)) for n, x in _given(problem).items()}
    if given["y"].numel() and given["y"].ndim:
        function = getattr(torch.ops.aten, f"_{problem.desc.name}_data")
        wanted = function(given["grad"], given["y"], problem.desc.axis, torch.float64)
        _near(problem, "grad_x", wanted.numpy(), 40, float(given["grad"].abs().sum()))


def _reduced(of: Callable[..., Any], digits: float = 40.0) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        options = problem.sample.options
        x, axis, keepdims = _given(problem)["x"], options.get("axis"), bool(options.get("keepdims", False))
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
            _near(problem, "out", wanted, digits, size)

    return check


def _argmax(x: Array, *, axis: int | None, keepdims: bool) -> Array:
    return np.asarray(np.argmax(x, axis=axis, keepdims=keepdims))  # the first NaN where there is one


ROWS: dict[str, Callable[[Problem], None]] = {
    "rms_norm": _norm,
    "layer_norm": _norm,
    "rms_norm_backward": _norm_backward,
    "layer_norm_backward": _norm_backward,
    "softmax": _along(_softmax),
    "log_softmax": _along(_log_softmax),
    "softmax_backward": _softmax_backward,
    "log_softmax_backward": _softmax_backward,
    "sum": _reduced(np.sum),
    "mean": _reduced(np.mean),
    "max": _reduced(np.max),
    "min": _reduced(np.min),
    "argmax": _reduced(_argmax),
    "var": _reduced(np.var),
    "logsumexp": _reduced(scipy.special.logsumexp),
}
