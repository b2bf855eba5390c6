"""The requests of an append to a paged cache: which tokens are written where, their positions, and keys rotated by them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...position import oracle as position

__all__ = ["Written", "requests_of", "rope_operands", "rotated_keys", "rows_of"]

Array: TypeAlias = np.ndarray[Any, Any]
Given: TypeAlias = Mapping[str, Any]  # arrays by operand, None or nothing for those that are not there
TOO_SHORT, NO_PAGE, OFFSETS, OUTSIDE = 1, 2, 3, 4  # status
ANGLES = ("inv_freq", "cos", "sin")


class Written(NamedTuple):
    """Tokens [begin, end) of all, and the page and slot of each."""

    begin: int
    end: int
    place: tuple[Array, Array]


def rows_of(desc: Any, x: Array) -> Array:
    """[tokens, heads, columns] of k or v, or of what has their shape."""
    return x if desc.ragged else x.reshape(desc.tokens, *x.shape[2:])


def _spans(desc: Any, given: Given) -> list[tuple[int, int]]:
    """Each request's tokens; none where the offsets make no sense."""
    if not desc.ragged:
        return [(b * desc.k_shape[1], (b + 1) * desc.k_shape[1]) for b in range(desc.requests)]
    offsets = given["cu_seqlens"].astype(np.int64).tolist()
    spans = list(pairwise(offsets))
    return [] if offsets[0] < 0 or offsets[-1] > desc.tokens or any(a > b for a, b in spans) else spans


def _positions(desc: Any, given: Given) -> Array:
    """A token each; tokens of no request are at 0."""
    if given.get("positions") is not None:
        return np.asarray(given["positions"]).astype(np.int64).reshape(-1)
    at = np.zeros(desc.tokens, np.int64)
    for b, (begin, end) in enumerate(_spans(desc, given)):
        at[begin:end] = int(given["lengths"][b]) + np.arange(end - begin)
    return at


def requests_of(desc: Any, given: Given) -> tuple[list[Written], Array]:
    """What is written, and a status a request."""
    table, size, count = given["page_table"], desc.page_size, desc.k_pages_shape[0]
    status, made = np.zeros(desc.requests, np.int32), []
    spans = _spans(desc, given)
    if len(spans) < desc.requests:
        return [], np.full_like(status, OFFSETS)
    at = _positions(desc, given) if desc.tables else np.zeros(desc.tokens, np.int64)
    for b, (begin, end) in enumerate(spans):
        length, last = int(given["lengths"][b]), int(given["lengths"][b]) + end - begin - 1
        if begin == end:
            continue
        ids = table[b, max(length, 0) // size : last // size + 1].astype(np.int64)
        own = at[begin:end]
        if length < 0 or last >= table.shape[1] * size:
            status[b] = TOO_SHORT
        elif ((ids < 0) | (ids >= count)).any():
            status[b] = NO_PAGE
        elif desc.tables and ((own < 0) | (own >= desc.cos_shape[0])).any():
            status[b] = OUTSIDE
        else:
            slot = length + np.arange(end - begin)
            made.append(Written(begin, end, (ids[slot // size - length // size], slot % size)))
    return made, status


def rope_operands(desc: Any, given: Given) -> dict[str, Array]:
    """The operands of `rope`, as `desc.turning()` has them."""
    angles = {name: given[name] for name in ANGLES if given.get(name) is not None}
    return {"x": given["k"], "positions": _positions(desc, given).reshape(desc.tokens_shape), **angles}


def rotated_keys(desc: Any, given: Given) -> Array:
    """Keys as stored or quantised, before they are rounded, float64; those at no known position are 0."""
    made = position.rope(desc.turning(), **rope_operands(desc, given))
    return np.asarray(made[0] if isinstance(made, tuple) else made)
