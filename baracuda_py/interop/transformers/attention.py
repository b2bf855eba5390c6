"""The attention function that `attn_implementation="baracuda"` names: transformers' interface over `attention` and
`attention_decode`."""

from __future__ import annotations

from typing import Any

import torch

from ...plan.registry import get_op
from ...types import UnsupportedError
from .masks import Bounds, bounds_of

__all__ = ["attention_forward"]

_attention, _attention_decode = get_op("attention").function, get_op("attention_decode").function


def attention_forward(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Any = None,
    position_bias: Any = None,
    **kwargs: Any,
) -> tuple[Any, None]:
    """Attention of queries [batch, heads, tokens, columns], as transformers' models call it; the result has tokens before heads.

    The mask says which keys are seen. Without one all are, or with `is_causal` (by default the module's) those up to the
    query's own, the last query being the last key. Weights are not returned.
    """
    _refuse(dropout, kwargs)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    options: dict[str, Any] = {"scale": scaling, "softcap": softcap, "sinks": s_aux}
    operands = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    queries, keys = query.shape[2], key.shape[2]
    bounds = Bounds(keys - queries, None) if attention_mask is None and causal else bounds_of(attention_mask)
    if position_bias is not None or (bounds is None and attention_mask is not None):
        options |= {"mask": _mask(attention_mask, position_bias, causal, query, key)}
    elif queries == 1 and not _is_recorded(*operands, s_aux) and _sees_last(bounds, keys):
        if bounds is not None:
            options |= {"lengths": bounds.lengths, "window": bounds.sides}
        return _attention_decode(*operands, layout="BSHD", **_given(options)), None
    elif bounds is not None and bounds.lengths is None:
        options |= {"causal": True, "window": bounds.sides}
        if not bounds.is_last(queries, keys):
            options |= {"offset": bounds.offset}
    elif bounds is not None:  # the keys in use are counted on the device, and only decoding reads that
        options |= {"mask": attention_mask}
    return _attention(*operands, layout="BSHD", **_given(options)), None


def _is_recorded(*operands: Any) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands)


def _sees_last(bounds: Bounds | None, keys: int) -> bool:
    """Whether one query sees the keys up to the last one in use."""
    return bounds is None or bounds.lengths is not None or bounds.is_last(1, keys)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: x for name, x in options.items() if x is not None}


def _refuse(dropout: float, kwargs: dict[str, Any]) -> None:
    """Raises UnsupportedError for what no kernel computes."""
    if dropout:
        raise UnsupportedError(
            f"attention_forward: dropout={dropout}: weights cannot be dropped",
            'set the config\'s attention_dropout to 0, or use attn_implementation="sdpa"',
        )
    if kwargs.get("output_attentions"):
        raise UnsupportedError(
            "attention_forward: output_attentions=True: weights are never in memory",
            'use attn_implementation="eager" to see them',
        )


def _mask(mask: Any, bias: Any, causal: bool, query: Any, key: Any) -> Any:
    """A mask of bools, or of what is added to scores, of as many keys as there are."""
    keys = key.shape[2]
    if mask is not None:
        mask = mask[..., :keys]
    if bias is None:
        return mask if mask.dtype in (torch.bool, query.dtype) else mask.to(query.dtype)
    bias = bias[..., :keys].to(query.dtype)
    if mask is None and not causal:
        return bias
    if mask is None:
        seen = torch.arange(keys, device=key.device)
        mask = seen[keys - query.shape[2] :, None] >= seen
    if mask.dtype != torch.bool:
        return bias + mask.to(query.dtype)
    return torch.where(mask, bias, torch.finfo(query.dtype).min)
