"""Norms by other means: PyTorch on the CPU in float64. No oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from baracuda_py.types import ElementKind

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]


def _norm(problem: Problem) -> None:
    torch = pytest.importorskip("torch")

    given, desc, eps = given_of(problem), problem.desc, problem.values.get("eps", 1e-5)
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
        near(problem, "out", out.numpy(), 34, size + 1)


def _norm_backward(problem: Problem) -> None:
    """Automatic differentiation of the norm with the statistics held fixed where they are operands: by its formula in torch."""
    torch = pytest.importorskip("torch")

    given, desc = given_of(problem), problem.desc
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
            near(problem, name, result.numpy(), 40, size)


def _values_of(problem: Problem) -> np.ndarray[Any, Any]:
    """What is quantized, by torch in float64."""
    torch = pytest.importorskip("torch")

    given, desc = given_of(problem), problem.desc
    if desc.name.startswith("silu_mul"):
        x, y = (torch.from_numpy(np.ascontiguousarray(given[name])) for name in "xy")
        silu = torch.where(torch.isneginf(x), -0.0, torch.nn.functional.silu(x))  # torch's is NaN there
        return np.asarray((silu * y).numpy())
    x = given["x"]
    if "residual" in given:
        kinds = {ElementKind.BF16: torch.bfloat16, ElementKind.F16: torch.float16, ElementKind.F32: torch.float32}
        x = torch.from_numpy(x + given["residual"]).to(kinds[desc.element]).double().numpy()
        assert np.array_equal(problem.wide["residual_out"], x)
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    parts = [torch.from_numpy(given[name]) if name in given else None for name in ("weight", "bias")]
    eps = problem.values.get("eps", 1e-5)
    if desc.name.startswith("layer"):
        return np.asarray(torch.nn.functional.layer_norm(tensor, desc.normalized_shape, *parts, eps).numpy())
    return np.asarray(torch.nn.functional.rms_norm(tensor, desc.normalized_shape, parts[0], eps).numpy())


def _quantized(problem: Problem) -> None:
    """Scales and codes of torch's values, element by element; a code may be another where the value is near a tie."""
    most = 127.0 if problem.desc.name.endswith("int8") else 448.0
    if not problem.wide["codes"].size:
        return
    values, scales = _values_of(problem), problem.wide["scales"].reshape(-1)
    units = values.reshape(len(scales), -1)
    codes = problem.wide["codes"].reshape(units.shape)
    for row, found, scale in zip(units, codes, scales):
        size = max((abs(v) for v in row if math.isfinite(v)), default=0.0)
        assert math.isclose(scale, max(size / most, 2.0**-126) if size else 1.0, rel_tol=1e-9)
        for value, code in zip(row[:64], found[:64]):
            scaled = min(max(value / scale, -most), most)
            if math.isnan(value):
                assert code == 0 if most == 127 else math.isnan(code)
                continue
            step = 1.0 if most == 127 else 2.0 ** (max(math.frexp(scaled)[1] - 1, -6) - 3)
            assert abs(code - scaled) <= step / 2 * (1 + 1e-6)


def _channels(problem: Problem) -> None:
    torch = pytest.importorskip("torch")

    given, desc, eps = given_of(problem), problem.desc, problem.values.get("eps", 1e-5)
    x = given["x"]
    if not x.size or np.abs(x[np.isfinite(x)]).max() > 1e100:
        return
    tensor = torch.from_numpy(np.ascontiguousarray(x))
    parts = [torch.from_numpy(given[name]) if name in given else None for name in ("weight", "bias")]
    if desc.batched:
        last = (tensor.reshape(*desc.shape[:2], -1), None, None)
        out = (
            torch.nn.functional.batch_norm(*last, *parts, True, 0.0, eps or 1e-300).reshape(desc.shape)
            if desc.length > 1
            else None
        )
    elif desc.name == "instance_norm" and desc.length > 1:
        out = torch.nn.functional.instance_norm(tensor, None, None, *parts, eps=eps)
    else:
        out = torch.nn.functional.group_norm(tensor, desc.groups, *parts, eps)
    if out is None:  # torch refuses one element per channel
        return
    size = 1 + np.abs(x).max() / (np.abs(x - x.mean()).max() + 1e-30) * 64
    finite = np.isfinite(out.numpy())
    near(problem, "out", np.where(finite, out.numpy(), problem.wide["out"]), 34, size)
    assert not np.isfinite(problem.wide["out"][~finite]).any()
    if "rstd" in problem.written:
        rows = (tensor.swapaxes(0, 1) if desc.batched else tensor).reshape(*desc.row_shape, -1)
        near(problem, "mean", rows.mean(-1).numpy(), 40, size)
        near(problem, "rstd", (rows.var(-1, correction=0) + eps).rsqrt().numpy(), 34)


def _channels_backward(problem: Problem) -> None:
    """PyTorch's formula with the statistics as operands."""
    torch = pytest.importorskip("torch")

    given, desc = given_of(problem), problem.desc
    if 0 in desc.shape:
        return
    grad, x = (torch.from_numpy(np.ascontiguousarray(given[name])) for name in ("grad", "x"))
    mean, rstd = (torch.from_numpy(given[name]) for name in ("mean", "rstd"))
    weight = torch.from_numpy(given["weight"]) if "weight" in given else torch.ones(desc.channels, dtype=torch.float64)
    items, channels, positions = desc.shape[0], desc.channels, desc.positions
    if desc.batched:
        made = torch.ops.aten.native_batch_norm_backward(grad, x, weight, None, None, mean, rstd, True, 0.0, [True] * 3)
    else:
        made = torch.ops.aten.native_group_norm_backward(
            grad, x, mean, rstd, weight, items, channels, positions, desc.groups, [True] * 3
        )
    size = (1 + np.abs(given["grad"]).max()) * (1 + np.abs(given["x"]).max()) ** 2 * (1 + given["rstd"].max()) ** 3 * 64
    for name, result in zip(("grad_x", "grad_weight", "grad_bias"), made):
        if name in problem.written:
            near(problem, name, result.numpy(), 40, size)


def _batch(problem: Problem) -> None:
    """PyTorch's batch_norm: by the batch's statistics, which updates running ones, or by given ones."""
    torch = pytest.importorskip("torch")

    given, desc = given_of(problem), problem.desc
    x, training = given["x"], desc.name == "batch_norm_running"
    if not x.size or np.abs(x[np.isfinite(x)]).max() > 1e100:
        return
    names = ("running_mean", "running_var") if training else ("mean", "var")
    kept = [torch.from_numpy(np.array(problem.slots[name].host(), np.float64)) for name in names]
    parts = [torch.from_numpy(given[name]) if name in given else None for name in ("weight", "bias")]
    options = training, problem.values.get("momentum", 0.1), problem.values.get("eps", 1e-5)
    out = torch.nn.functional.batch_norm(torch.from_numpy(np.ascontiguousarray(x)), *kept, *parts, *options).numpy()
    size = 64 * (1 + np.abs(x[np.isfinite(x)]).max()) ** 2
    near(problem, "out", np.where(np.isfinite(out), out, problem.wide["out"]), 34, size)
    for name, made in zip(names if training else (), kept):
        near(problem, name, made.numpy(), 34, size)


def _batch_backward(problem: Problem) -> None:
    torch = pytest.importorskip("torch")

    given, desc = given_of(problem), problem.desc
    if 0 in desc.shape:
        return
    grad, x, mean, var = (torch.from_numpy(np.ascontiguousarray(given[name])) for name in ("grad", "x", "mean", "var"))
    weight = torch.from_numpy(given["weight"]) if "weight" in given else torch.ones(desc.channels, dtype=torch.float64)
    eps = problem.values.get("eps", 1e-5)
    made = torch.ops.aten.native_batch_norm_backward(grad, x, weight, mean, var, None, None, False, eps, [True] * 3)
    size = (
        (1 + np.abs(given["grad"]).max()) * (1 + np.abs(given["x"]).max()) * (1 + (var + eps).rsqrt().max().item()) * 64
    )
    for name, result in zip(("grad_x", "grad_weight", "grad_bias"), made):
        if name in problem.written:
            near(problem, name, result.numpy(), 40, size)


def _unit(problem: Problem) -> None:
    """torch's functions and their automatic differentiation, in float64, over an axis made of those along which rows run."""
    torch = pytest.importorskip("torch")

    given, desc, eps = given_of(problem), problem.desc, problem.values["eps"]
    if 0 in desc.shape:
        return
    x = torch.from_numpy(np.ascontiguousarray(given["x"])).requires_grad_()
    last = [a for a in range(x.ndim) if a not in desc.along] + list(desc.along)
    rows = x.permute(last).reshape(-1, desc.length)
    if desc.scaled:
        g = torch.from_numpy(np.ascontiguousarray(given["g"])).requires_grad_()
        made = torch._weight_norm(rows, g.reshape(-1, 1), 0)
    else:
        made = torch.nn.functional.normalize(rows, dim=1, eps=eps)
    out = made.reshape([desc.shape[a] for a in last]).permute(np.argsort(last).tolist())
    if not desc.backward:
        near(problem, "out", out.detach().numpy(), 40)
        return
    out.backward(torch.from_numpy(np.ascontiguousarray(given["grad"])))
    factor = np.abs((out / x).detach().numpy()).max()
    size = factor * np.abs(given["grad"]).max() * desc.length
    near(problem, "grad_x", x.grad.numpy(), 40, size)
    if desc.scaled:
        near(problem, "grad_g", g.grad.numpy(), 40, np.abs(given["grad"]).sum())


CHECKS: dict[str, Callable[[Problem], None]] = {
    **dict.fromkeys(("rms_norm", "layer_norm"), _norm),
    **dict.fromkeys(("group_norm", "instance_norm", "batch_norm"), _channels),
    **dict.fromkeys(("group_norm_backward", "batch_norm_backward"), _channels_backward),
    **dict.fromkeys(("batch_norm_running", "batch_norm_inference"), _batch),
    "batch_norm_inference_backward": _batch_backward,
    **dict.fromkeys(("rms_norm_backward", "layer_norm_backward"), _norm_backward),
    **dict.fromkeys(("normalize", "weight_norm", "normalize_backward", "weight_norm_backward"), _unit),
    **{f"{op}_{kind}": _quantized for op in ("rms_norm", "layer_norm", "silu_mul") for kind in ("int8", "fp8")},
}
