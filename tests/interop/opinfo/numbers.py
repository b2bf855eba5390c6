"""Elementwise, shape, reduction, scan, softmax and norm ops among PyTorch's OpInfos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import baracuda_py as bp

from .row import NotOurs, Row, taking

__all__ = ["ROWS", "WITHOUT"]

_EPS = {"give 0, or a positive number": "a negative eps may make the root of a negative number"}


def _reduction(ours: Callable[..., Any], correction: int | None = None) -> Callable[..., Any]:
    def call(x: Any, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
        if isinstance(dim, bool):  # the variant `unbiased` of torch's variance
            dim, kwargs = None, {"unbiased": dim}
        if dim in ((), []):
            raise NotOurs("dim=() is every axis to torch, and none to NumPy")
        if "dtype" in kwargs:
            raise NotOurs("the op takes no dtype of the result")
        given: dict[str, Any] = {}
        if correction is not None:
            given["correction"] = kwargs.pop("correction", int(kwargs.pop("unbiased", True)))
            if given["correction"] is None:
                given["correction"] = 1
            if not isinstance(given["correction"], int):
                raise NotOurs("the correction is a whole number here")
        if kwargs:
            raise NotOurs(f"{', '.join(kwargs)} is no argument of the op")
        return ours(x, tuple(dim) if isinstance(dim, list) else dim, keepdims=keepdim, **given)

    return call


def _along(ours: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Any, dim: int, dtype: Any = None) -> Any:
        if dtype is not None:
            raise NotOurs("the op takes no dtype of the result")
        return ours(x, dim)

    return call


def _norm(x: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    if isinstance(p, str) or kwargs:
        raise NotOurs("norms of matrices, and a dtype of the result, are not what the op computes")
    return bp.norm(x, float(p), tuple(dim) if isinstance(dim, list) else dim, keepdims=keepdim)


def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return bp.layer_norm(x, weight, bias, eps, normalized_shape=tuple(shape))


def _rms_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return bp.rms_norm(x, weight, eps=eps, normalized_shape=tuple(shape))


def _normalize(x: Any, p: float = 2, dim: int = 1, eps: float = 1e-12) -> Any:
    if p != 2:
        raise NotOurs("the op divides by the root of the sum of squares")
    return bp.normalize(x, dim, eps=eps)


def _batch_norm(
    x: Any, _mean: Any, _var: Any, weight: Any = None, bias: Any = None, training: bool = False, **kwargs: Any
) -> Any:
    if not training:
        raise NotOurs("the op computes the statistics of this batch; those that are given are a call of others")
    return bp.batch_norm(x, weight=weight, bias=bias, eps=kwargs.get("eps", 1e-5))


def _instance_norm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, **kwargs: Any) -> Any:
    if not kwargs.get("use_input_stats", True):
        raise NotOurs("the op computes the statistics of each instance; those that are given are a call of others")
    return bp.instance_norm(x, weight=weight, bias=bias, eps=eps)


def _pad(x: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    if min(pad, default=0) < 0:
        raise NotOurs("negative widths crop, which a slice does")
    pairs = [tuple(pad[i : i + 2]) for i in range(0, len(pad), 2)][::-1]
    widths = [(0, 0)] * (x.dim() - len(pairs)) + pairs
    modes = {"replicate": "edge", "circular": "wrap"}
    return bp.pad(x, widths, modes.get(mode, mode), 0 if value is None else value)


def _constant_pad(x: Any, pad: Any, value: float = 0) -> Any:
    return _pad(x, pad, "constant", value)


def _repeat_interleave(x: Any, repeats: Any, dim: Any = None, **_: Any) -> Any:
    if not isinstance(repeats, int):
        raise NotOurs("a count of each element makes a shape that only the device knows")
    return bp.repeat_interleave(x, repeats, dim)


def _one_hot(x: Any, num_classes: int = -1) -> Any:
    if num_classes < 0:
        raise NotOurs("classes that are counted on the device make a shape that only it knows")
    return bp.one_hot(x, num_classes)


def _prelu(x: Any, weight: Any) -> Any:
    return bp.prelu(x, weight.reshape(-1, *(1,) * (x.dim() - 2)) if x.dim() > 1 else weight.reshape(x.shape[:0]))


def _softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    """torch leaves the function above a threshold; the op computes it everywhere."""
    return torch.where(beta * x > threshold, x, bp.softplus(x, beta))


def _gelu(x: Any, approximate: str = "none") -> Any:
    return bp.gelu_tanh(x) if approximate == "tanh" else bp.gelu(x)


def _logit(x: Any, eps: Any = None) -> Any:
    if eps is not None:
        raise NotOurs("the op clamps nothing")
    return bp.logit(x)


def _round(x: Any, decimals: int = 0) -> Any:
    if decimals:
        raise NotOurs("the op rounds to whole numbers")
    return bp.round(x)


def _flip(x: Any, dims: Any) -> Any:
    return bp.flip(x, tuple(dims))


def _roll(x: Any, shifts: Any, dims: Any = ()) -> Any:
    return bp.roll(x, shifts, None if dims == () else dims)


def _diag(x: Any, diagonal: int = 0) -> Any:
    if x.dim() != 1:
        raise NotOurs("of a matrix, `diagonal` is the function, a view")
    return bp.diag(x, diagonal)


def _glu(x: Any, dim: int = -1) -> Any:
    return bp.glu(*x.chunk(2, dim))


def _where(x: Any, condition: Any, other: Any) -> Any:
    return bp.where(condition, x, other)


def _clamp(x: Any, low: Any = None, high: Any = None, **kwargs: Any) -> Any:
    low, high = kwargs.get("min", low), kwargs.get("max", high)
    if any(isinstance(b, torch.Tensor) and b.dtype != x.dtype for b in (low, high)):
        raise NotOurs("bounds of another kind widen the result, as in NumPy")
    return bp.clamp(x, low, high)


def _first(ours: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: ours(x)


_SAME = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos", "cosh", "digamma", "erf", "erfc",
    "erfinv", "exp", "exp2", "expm1", "floor", "frac", "isfinite", "isinf", "isnan", "lgamma", "log", "log10", "log1p", "log2",
    "logical_not", "neg", "reciprocal", "rsqrt", "sigmoid", "sign", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh",
    "trunc", "atan2", "floor_divide", "fmax", "fmin", "fmod", "hypot", "isclose", "logical_and", "logical_or",
    "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum", "nextafter", "pow", "addcdiv", "addcmul",
    "heaviside", "logaddexp", "xlogy",
)  # fmt: skip
_RENAMED = {
    "divide": "div:no_rounding_mode", "multiply": "mul", "mod": "remainder", "equal": "eq", "not_equal": "ne", "less": "lt",
    "less_equal": "le", "greater": "gt", "greater_equal": "ge", "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
}  # fmt: skip
_ACTIVATIONS = (
    "celu", "elu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu", "relu6", "selu", "silu",
    "softshrink", "softsign", "tanhshrink", "threshold",
)  # fmt: skip
_NN = "nn.functional."

ROWS: dict[str, Row] = {
    **{name: Row(name, taking(getattr(bp, name))) for name in _SAME},
    **{name: Row(info, taking(getattr(bp, name))) for name, info in _RENAMED.items()},
    **{name: Row(_NN + name, taking(getattr(bp, name), drop=("inplace",))) for name in _ACTIVATIONS},
    "add": Row("add", taking(bp.add, drop=("alpha",))),
    "subtract": Row("sub", taking(bp.subtract, drop=("alpha",))),
    # The gradient of the sign's operand is zero, and refused in place of being computed.
    "copysign": Row("copysign", lambda x1, x2: bp.copysign(x1, x2.detach() if isinstance(x2, torch.Tensor) else x2)),
    "lerp": Row("lerp", bp.lerp, rounds=True),
    "clamp": Row("clamp", _clamp),
    "where": Row("where", _where),
    "round": Row("round", _round),
    "logit": Row("logit", _logit),
    "gelu": Row(_NN + "gelu", _gelu),
    "glu": Row(_NN + "glu", _glu),
    "prelu": Row(_NN + "prelu", _prelu),
    "softplus": Row(_NN + "softplus", _softplus),
    "log_sigmoid": Row(_NN + "logsigmoid", _first(bp.log_sigmoid)),
    **{name: Row(name, _reduction(getattr(bp, name))) for name in (
        "all", "any", "argmax", "argmin", "count_nonzero", "mean", "nanmean", "nansum", "prod", "sum", "logsumexp", "aminmax")},
    "max": Row("amax", _reduction(bp.max)),
    "min": Row("amin", _reduction(bp.min)),
    **{name: Row(name, _reduction(getattr(bp, name), correction=1)) for name in ("std", "var", "var_mean")},
    "norm": Row("norm", _norm, {"p must be one of": "other norms are sums of powers, as the error says"}),
    "cumsum": Row("cumsum", _along(bp.cumsum)),
    "cumprod": Row("cumprod", _along(bp.cumprod)),
    "cummax": Row("cummax", _along(bp.cummax)),
    "cummin": Row("cummin", _along(bp.cummin)),
    # The gradient is made of the result, which is rounded to f32: near the samples' 10,000 by 5e-4.
    "logcumsumexp": Row("logcumsumexp", _along(bp.logcumsumexp), gradient=(1e-2, 1e-3)),
    "trace": Row("trace", bp.trace),
    "softmax": Row("softmax", _along(bp.softmax)),
    "log_softmax": Row("log_softmax", _along(bp.log_softmax)),
    "layer_norm": Row(_NN + "layer_norm", _layer_norm, _EPS),
    "rms_norm": Row(_NN + "rms_norm", _rms_norm, _EPS),
    "normalize": Row(_NN + "normalize", _normalize),
    "group_norm": Row(_NN + "group_norm", taking(bp.group_norm), _EPS),
    "batch_norm": Row(_NN + "batch_norm", _batch_norm, {"has no axis of channels": "an array of rank 1 has none"}),
    "instance_norm": Row(_NN + "instance_norm", _instance_norm),
    "flip": Row("flip", _flip),
    "roll": Row("roll", _roll),
    "tile": Row("tile", lambda x, dims: bp.tile(x, tuple(dims))),
    "diag": Row("diag", _diag),
    "triu": Row("triu", lambda x, diagonal=0: bp.triu(x, diagonal)),
    "tril": Row("tril", lambda x, diagonal=0: bp.tril(x, diagonal)),
    "pad": Row(_NN + "pad:constant", _pad),
    "pad reflect": Row(_NN + "pad:reflect", _pad),
    "pad edge": Row(_NN + "pad:replicate", _pad),
    "pad wrap": Row(_NN + "pad:circular", _pad),
    "repeat_interleave": Row("repeat_interleave", _repeat_interleave),
    "one_hot": Row(_NN + "one_hot", _one_hot),
    "concatenate": Row("cat", lambda arrays, dim=0: bp.concatenate(arrays, dim), {
        "is out of range": "torch passes over empty arrays of rank 1, whatever the rank of the others"}),
    "stack": Row("stack", lambda arrays, dim=0: bp.stack(arrays, dim)),
}  # fmt: skip
# Ops of the families of these rows that have no OpInfo, and why.
_GATED, _OWN = "torch has no such gated function; `glu` stands for them", "torch has no such function"
WITHOUT: dict[str, str] = {
    **dict.fromkeys(("silu_mul", "reglu", "geglu", "geglu_tanh"), _GATED),
    **dict.fromkeys((
        "affine", "cbrt", "clz", "ctz", "cube", "fma", "masked_softmax", "nanmax", "nanmin", "popcount", "step", "silu_mul_int8",
        "silu_mul_fp8", "rms_norm_int8", "rms_norm_fp8", "layer_norm_int8", "layer_norm_fp8"), _OWN),
    "ldexp": "the samples' exponents are floats, and ours are integers",
    "cast": "OpInfo has a method of each dtype in place of it",
    "gelu_tanh": "it is a sample of `gelu`",
    "join": "`concatenate` and `stack` are its functions",
}  # fmt: skip
