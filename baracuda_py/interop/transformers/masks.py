"""The mask function that goes with `attention_forward`: no mask where causality alone says what is seen, and otherwise a mask of
bools that remembers its bounds, if it has no others than causality and a sliding window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...types import UnsupportedError

try:
    from transformers.masking_utils import causal_mask_function, sdpa_mask
except ImportError as error:
    import transformers

    raise UnsupportedError(
        f"interop.transformers: transformers {transformers.__version__} has no masking_utils.sdpa_mask",
        "use transformers 5, with which this was tested",
    ) from error

__all__ = ["Bounds", "attention_mask", "bounds_of"]


@dataclass(frozen=True)
class Bounds:
    """Query i sees the keys j with i + offset - window < j <= i + offset. Where the offset is a tensor, `lengths` are the keys
    in use of each sequence, and there is one query."""

    offset: int | None
    window: int | None
    lengths: Any = None

    @property
    def sides(self) -> tuple[int, int] | None:
        """The window as `attention` takes it."""
        return None if self.window is None else (self.window - 1, 0)

    def is_last(self, queries: int, keys: int) -> bool:
        """Whether the last query is the last key."""
        return self.offset == keys - queries


def bounds_of(mask: Any) -> Bounds | None:
    """The bounds of a mask that `attention_mask` made, as long as it is that very tensor."""
    return getattr(mask, "bounds", None)


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Any = None,
    allow_is_causal_skip: bool = True,
    **how: Any,
) -> Any:
    """The mask [batch, 1, queries, keys], True where a key is seen; None where that is causality alone."""
    bounds = None
    if allow_is_causal_skip or q_length == 1:
        bounds = _bounds(q_length, q_offset, kv_offset, mask_function, attention_mask)
    if bounds is not None and bounds.is_last(q_length, kv_length) and (bounds.window or kv_length) >= kv_length:
        return None
    mask = sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        mask_function=mask_function, attention_mask=attention_mask, allow_is_causal_skip=False, **how,
    )  # fmt: skip
    if bounds is None or mask is None:
        return mask
    if bounds.lengths is not None:
        bounds = Bounds(None, bounds.window, bounds.lengths.reshape(-1).expand(batch_size).contiguous())
    mask.bounds = bounds
    return mask


def _bounds(queries: int, q_offset: Any, kv_offset: Any, function: Any, padding: Any) -> Bounds | None:
    """What a mask function leaves visible, if it is causality and a window. None for others, and while torch traces."""
    if torch.compiler.is_compiling() or not isinstance(kv_offset, int):
        return None
    if function is causal_mask_function:
        window = None
    elif (window := _window_of(function)) is None:
        return None
    if padding is not None and not bool(padding.all()):
        return None
    if isinstance(q_offset, int):
        return Bounds(q_offset - kv_offset, window)
    if isinstance(q_offset, torch.Tensor) and queries == 1:
        return Bounds(None, window, (q_offset - kv_offset + 1).to(torch.int32))
    return None


def _window_of(function: Any) -> int | None:
    """The size of a causal sliding window, by the closures that transformers builds its function of; None for others."""
    parts = _closure(function).get("mask_functions", ())
    if len(parts) != 2 or parts[1] is not causal_mask_function:
        return None
    size = _closure(parts[0]).get("sliding_window")
    named = getattr(parts[0], "__qualname__", "").startswith("sliding_window_overlay.")
    return size if named and isinstance(size, int) else None


def _closure(function: Any) -> dict[str, Any]:
    cells = getattr(function, "__closure__", None) or ()
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return {name: cell.cell_contents for name, cell in zip(names, cells)}
