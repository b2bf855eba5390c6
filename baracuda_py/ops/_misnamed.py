"""Arguments that a function does not take, answered with the name that it has for them."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..types import OperandTypeError

__all__ = ["misnamed"]

# What PyTorch, NumPy and serving libraries call an argument that some function here has.
_NAMES = {
    "a_max": "max", "a_min": "min", "attn_mask": "mask", "axes": "axis", "block_table": "page_table",
    "block_tables": "page_table", "cache_seqlens": "lengths", "ddof": "correction", "dim": "axis", "dims": "axis",
    "dtype": "out_dtype", "epsilon": "eps", "index": "indices", "is_causal": "causal", "keepdim": "keepdims",
    "logits_soft_cap": "softcap", "seq_lens": "lengths", "sm_scale": "scale", "softmax_scale": "scale",
    "unbiased": "correction", "window_size": "window",
}  # fmt: skip
_ADVICE = {
    "approximate": 'leave it out: gelu is by erf; the approximation is matmul(..., activation="gelu_tanh")',
    "dtype": "cast the operand, or the result: bp.cast",
    "dropout_p": "leave it out: nothing is dropped here",
    "enable_gqa": "leave it out: query heads share the heads of keys where there are fewer of these",
    "inplace": "pass the input as out=",
}
_WHOLE_SEQUENCES = "call paged_attention with tables of the whole sequences, which has "
_ADVICE_OF = {  # to callers of one function
    ("cascade_attention", "alibi_slopes"): _WHOLE_SEQUENCES + "alibi_slopes",
    ("cascade_attention", "window"): _WHOLE_SEQUENCES + "windows",
}


def misnamed(function: str, signature: inspect.Signature, more: Sequence[Any], others: Mapping[str, Any]) -> Exception:
    """The error of a call with positional arguments too many, or with keywords that the signature has not."""
    named = signature.parameters
    positional = [name for name, p in named.items() if p.kind is not p.KEYWORD_ONLY]
    if others:
        keyword = next(iter(others))
        return OperandTypeError(
            f"{function}() got an unexpected keyword argument {keyword!r}",
            _ADVICE_OF.get((function, keyword)) or _advice(keyword, positional, named),
        )
    got = len(positional) + len(more)
    shape = "normalized_shape" in named and "pass normalized_shape=... and weight=... by name"
    return OperandTypeError(
        f"{function}() takes {len(positional)} positional arguments ({', '.join(positional)}), and {got} were given",
        shape or f"pass the others by name: {', '.join(name for name in named if name not in positional)}",
    )


def _advice(keyword: str, positional: Sequence[str], known: Iterable[str]) -> str:
    known = list(known)
    name = _NAMES.get(keyword, "")
    if name in known:
        return f"pass {name}="
    if keyword in _ADVICE:
        return _ADVICE[keyword]
    alike = [name for name in difflib.get_close_matches(keyword, known, 1) if name not in positional]
    return f"pass {alike[0]}=" if alike else f"it takes {', '.join(known)}"
