"""How calls of torch's functions are made with this library: for each name the functions of torch that it covers, and a function
with their parameters that makes the call, or raises `Passed` with the reason why torch must answer it. Dynamo traces these."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from ....plan.registry import get_op
from ....runtime.scope import default_device
from ....types import InvalidProblemError
from .report import Passed

__all__ = ["RULES", "Rule", "rules_of"]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HALVES = FLOATS[:2]

_rms_norm, _layer_norm = get_op("rms_norm").function, get_op("layer_norm").function
_softmax, _log_softmax = get_op("softmax").function, get_op("log_softmax").function
_silu, _gelu = get_op("silu").function, get_op("gelu").function
_matmul, _attention = get_op("matmul").function, get_op("attention").function


@dataclass(frozen=True)
class Rule:
    """`functions` are those of torch that the name covers, each with a function of the same parameters. `aten` is the operator
    that all of them go through, with a function of its parameters."""

    name: str
    functions: dict[Any, Callable[..., Any]] = field(repr=False)
    aten: str
    serve: Callable[..., Any] = field(repr=False)


# ---- checks --------------------------------------------------------------------------------------------------------------


def _host_is_served() -> bool:
    return default_device() is not None


_host_is_served._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo carries it out while it traces


def _check(x: Any, *others: Any) -> None:
    """Raises Passed for operands that the ops do not take together."""
    for tensor in (x, *others):
        if tensor is None:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise Passed("an operand is no tensor")
        if tensor.layout is not torch.strided:
            raise Passed(f"an operand has the layout {tensor.layout}")
        if tensor.dtype not in FLOATS:
            raise Passed(f"an operand holds {tensor.dtype}")
        if tensor.device != x.device:
            raise Passed(f"operands are on {x.device} and {tensor.device}")
        if tensor.dtype != x.dtype:
            raise Passed(f"operands hold {x.dtype} and {tensor.dtype}")
    if x.device.type not in ("cuda", "cpu"):
        raise Passed(f"operands are on {x.device}")
    if x.device.type == "cpu" and not _host_is_served():
        raise Passed("operands are on the CPU, and no `with bp.device(...)` names a device for them")


def _check_autocast(x: Any) -> None:
    """Raises Passed where autocast has a rule of its own: the dtype of the result would differ."""
    if torch.is_autocast_enabled(x.device.type):
        raise Passed("autocast has a rule of its own for this function")


# ---- norms ---------------------------------------------------------------------------------------------------------------


def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    _check(input, weight)
    _check_autocast(input)
    if eps is None:
        if input.dtype in HALVES:
            raise Passed("eps=None, whose value for 16 bits depends on torch's version")
        eps = torch.finfo(input.dtype).eps
    return _rms_norm(input, weight, eps=eps, normalized_shape=tuple(normalized_shape))


def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:  # fmt: skip
    del cudnn_enable
    _check(input, weight, bias)
    _check_autocast(input)
    return _layer_norm(input, weight, bias, eps, normalized_shape=tuple(normalized_shape))


# ---- softmax -------------------------------------------------------------------------------------------------------------


def softmax(input: Any, dim: Any, dtype: Any = None) -> Any:
    return _along(_softmax, input, dim, dtype)


def log_softmax(input: Any, dim: Any, dtype: Any = None) -> Any:
    return _along(_log_softmax, input, dim, dtype)


def _along(function: Callable[..., Any], x: Any, dim: Any, dtype: Any) -> Any:
    _check(x)
    _check_autocast(x)
    if not isinstance(dim, int):
        raise Passed(f"dim={dim!r}")
    if not x.dim():
        raise Passed("an operand without axes")
    if dtype is not None and dtype not in FLOATS:
        raise Passed(f"dtype={dtype}")
    return function(x if dtype is None else x.to(dtype), dim)


def _functional(serve: Callable[..., Any]) -> Callable[..., Any]:
    """The rule with the parameters of torch.nn.functional."""

    def called(input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
        return serve(input, dim, dtype)

    return called


# ---- activations ---------------------------------------------------------------------------------------------------------


def silu(input: Any, inplace: bool = False) -> Any:
    _check(input)
    if inplace:
        raise Passed("inplace=True")
    return _silu(input)


def gelu(input: Any, approximate: str = "none") -> Any:
    _check(input)
    if approximate != "none":
        raise Passed(f"approximate={approximate!r}")
    return _gelu(input)


# ---- products ------------------------------------------------------------------------------------------------------------


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    _check(input, weight, bias)
    if weight.dim() != 2 or not input.dim():
        raise Passed(f"a weight of {weight.dim()} axes and an operand of {input.dim()}")
    return _matmul(input, weight.mT, bias=bias)


def matmul(input: Any, other: Any) -> Any:
    _check(input, other)
    if not input.dim() or not other.dim():
        raise Passed("an operand without axes")
    return _matmul(input, other)


# ---- attention -----------------------------------------------------------------------------------------------------------


def attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Queries, keys and values are [batch, heads, tokens, columns], or [batch, tokens, columns] of one head."""
    _check(query, key, value)
    if dropout_p:
        raise Passed(f"dropout_p={dropout_p}")
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, query.dtype):
        raise Passed(f"attn_mask holds {attn_mask.dtype}, query {query.dtype}")
    if attn_mask is not None and is_causal:
        raise Passed("attn_mask and is_causal=True, which torch refuses")
    if not query.dim() == key.dim() == value.dim() or query.dim() not in (3, 4):
        raise Passed(f"operands of {query.dim()}, {key.dim()} and {value.dim()} axes")
    headless = query.dim() == 3
    if headless:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        attn_mask = attn_mask.unsqueeze(1) if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
    if not enable_gqa and not query.shape[1] == key.shape[1] == value.shape[1]:
        raise Passed(f"{query.shape[1]}, {key.shape[1]} and {value.shape[1]} heads without enable_gqa=True")
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    offset = 0 if is_causal else None  # torch's first query sees the first key alone, at any number of keys
    made = _attention(query, key, value, causal=is_causal, scale=scale, mask=attn_mask, offset=offset)
    return made.squeeze(1) if headless else made


# ---- the table -----------------------------------------------------------------------------------------------------------

_T = torch.Tensor
RULES = {
    rule.name: rule
    for rule in (
        Rule("rms_norm", {F.rms_norm: rms_norm, torch.rms_norm: rms_norm}, "rms_norm", rms_norm),
        Rule("layer_norm", {F.layer_norm: layer_norm, torch.layer_norm: layer_norm}, "layer_norm", layer_norm),
        Rule(
            "softmax", {F.softmax: _functional(softmax), torch.softmax: softmax, _T.softmax: softmax},
            "softmax.int", softmax,
        ),
        Rule(
            "log_softmax",
            {F.log_softmax: _functional(log_softmax), torch.log_softmax: log_softmax, _T.log_softmax: log_softmax},
            "log_softmax.int", log_softmax,
        ),
        Rule("silu", {F.silu: silu}, "silu", silu),
        Rule("gelu", {F.gelu: gelu}, "gelu", gelu),
        Rule("linear", {F.linear: linear}, "linear", linear),
        Rule("matmul", {torch.matmul: matmul, _T.matmul: matmul, _T.__matmul__: matmul}, "matmul", matmul),
        Rule(
            "attention", {F.scaled_dot_product_attention: attention}, "scaled_dot_product_attention", attention,
        ),
    )
}  # fmt: skip


def rules_of(names: tuple[str, ...]) -> tuple[Rule, ...]:
    """The rules of these names. Raises InvalidProblemError for an unknown one."""
    known = ", ".join(RULES)
    if not names:
        raise InvalidProblemError("enable: no name was given", f"name some of {known}")
    for name in names:
        if name not in RULES:
            more = "; interop.transformers.swap puts it under a model's layers" if name in ("silu_mul", "rope") else ""
            raise InvalidProblemError(f"enable: {name!r} is no function of torch", f"name some of {known}{more}")
    return tuple(RULES[name] for name in dict.fromkeys(names))
