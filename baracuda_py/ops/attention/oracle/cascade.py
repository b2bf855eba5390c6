"""Attention over a shared prefix in float64: every sequence's keys are gathered, the prefix's first, and `attention` does the
rest.

A sequence with fewer keys of its own than tokens is filled up with keys that no token sees, between both, so that its last token
stands at its last key and all of its tokens behind the prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....numerics.rounding import wide_dtype
from . import decode as decoding
from . import forward as attention

__all__ = ["CASCADE_MEASURES", "cascade"]

Array: TypeAlias = np.ndarray[Any, Any]
PREFIX_MISSING, PREFIX_LENGTH = 4, 5  # statuses beside those of `paged_attention`


class _Keys(NamedTuple):
    """Keys in the order of a table: their pages, slots, and whether they are not there."""

    pages: Array
    slots: Array
    gone: Array

    @staticmethod
    def of(desc: Any, table: Array, count: int) -> _Keys:
        at = np.arange(count)
        pages = np.asarray(table[at // desc.page_keys], np.int64)
        return _Keys(pages, at % desc.page_keys, (pages < 0) | (pages >= desc.pages))

    def of_pages(self, desc: Any, x: Array) -> Array:
        """What pages or their scales hold, [keys, kv_heads, columns]; 0 where a page is not there."""
        by_key = np.swapaxes(x, 1, 2) if desc.cache_axes == (1, 2) else x
        found = np.zeros((len(self.slots), *by_key.shape[2:]), x.dtype)
        there = ~self.gone
        found[there] = by_key[self.pages[there], self.slots[there]]
        return found


@dataclass(frozen=True)
class _OwnKeys:
    """The sequences' own keys, as the problem of `paged_attention` whose status they have."""

    problem: Any
    most_k: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)


def _prefix_of(desc: Any, prefix_table: Array, prefix_length: Array | None) -> tuple[_Keys, int]:
    """The keys of the prefix that are in use, and how many were asked for."""
    capacity = len(prefix_table) * desc.page_keys
    asked = min(desc.prefix_keys, capacity) if prefix_length is None else int(np.reshape(prefix_length, -1)[0])
    return _Keys.of(desc, prefix_table, min(max(asked, 0), capacity)), asked


def _of_sequences(desc: Any, page_table: Array, lengths: Array) -> list[_Keys]:
    capacity = page_table.shape[1] * desc.page_keys
    return [_Keys.of(desc, row, min(max(int(n), 0), capacity)) for row, n in zip(page_table, lengths)]


def _behind_one_another(
    desc: Any, q: Array, prefix_table: Array, page_table: Array, lengths: Array, *, prefix_length: Array | None = None,
    cu_seqlens_q: Array | None = None, sinks: Array | None = None, of_each: bool = True, **given: Array | None,
) -> tuple[Any, dict[str, Array]]:  # fmt: skip
    """The problem as one of ragged sequences, and its operands, multiplied with their scales; not `of_each`: but for those that
    each value has."""
    prefix, _ = _prefix_of(desc, prefix_table, prefix_length)
    each = _of_sequences(desc, page_table, lengths)
    starts = np.arange(desc.batch + 1) * desc.total_q if cu_seqlens_q is None else cu_seqlens_q
    queries = q if desc.ragged else q.reshape(desc.batch * desc.total_q, desc.heads, desc.d)
    tokens = np.diff(np.clip(starts, 0, len(queries)))
    filling = [max(int(n) - len(own.gone), 0) for n, own in zip(tokens, each)]
    arrays: dict[str, Array] = {} if sinks is None else {"sinks": sinks}
    for name, cache in zip("kv", desc.caches):
        read = partial(_times_scales_of, desc, name, given[cache], given.get(f"{name}_scales"), of_each=of_each)
        lines = read(prefix)
        pieces = [x for n, own in zip(filling, each) for x in (lines, np.zeros((n, *lines.shape[1:])), read(own))]
        arrays[name] = np.concatenate([lines[:0], *pieces])
    masks = [x for n, own in zip(filling, each) for x in (prefix.gone, np.ones(n, bool), own.gone)]
    arrays["missing"] = np.concatenate([np.zeros(0, bool), *masks])
    keys = [len(prefix.gone) + n + len(own.gone) for n, own in zip(filling, each)]
    arrays |= {"q": queries, "cu_seqlens_q": starts, "cu_seqlens_k": np.cumsum([0, *keys])}
    return decoding.described(desc, arrays), arrays


def _times_scales_of(desc: Any, name: str, pages: Any, scales: Array | None, keys: _Keys, *, of_each: bool) -> Array:
    """Keys or values as wide numbers, times their scales."""
    wide: Any = wide_dtype(desc.element)
    lines = keys.of_pages(desc, np.asarray(pages)).astype(wide)
    lines = np.asarray(lines * np.float32(getattr(desc, f"{name}_scale")).astype(wide))
    if scales is None or (scales.ndim > 1 and name == "v" and not of_each):
        return lines
    by = scales[:, None] if scales.ndim == 1 else keys.of_pages(desc, scales[..., None])
    return np.asarray(lines * by.astype(wide))


def _cascade_status(
    desc: Any, prefix_table: Array, page_table: Array, lengths: Array, prefix_length: Array | None = None,
    cu_seqlens_q: Array | None = None, **_: Any,
) -> Array:  # fmt: skip
    """That of `paged_attention` over the sequences' own keys; where this is 0, what is wrong with the prefix."""
    found = decoding.status(_OwnKeys(desc, page_table.shape[1] * desc.page_keys), page_table, lengths, cu_seqlens_q)
    prefix, asked = _prefix_of(desc, prefix_table, prefix_length)
    wrong = PREFIX_LENGTH if asked != len(prefix.gone) else PREFIX_MISSING if prefix.gone.any() else 0
    return np.where(found == 0, np.int32(wrong), found).astype(np.int32)


def cascade(desc: Any, **arrays: Any) -> Any:
    """Every written operand, in order."""
    ragged, operands = _behind_one_another(desc, **arrays)
    with np.errstate(all="ignore"):
        results = attention.written(ragged, operands, out=lambda head: head.out, lse=lambda head: head.lse)
    results = {name: decoding.scattered(desc, x) for name, x in results.items()}
    names = [operand.name for operand in desc.operands if operand.written]
    if "status" in names:
        results["status"] = _cascade_status(desc, **arrays)
    return tuple(results[name] for name in names)


def _cascade_measured(measure: Callable[..., Array], desc: Any, **given: Any) -> Array:
    ragged, operands = _behind_one_another(desc, **given)
    x = np.asarray(measure(ragged, **operands))
    return decoding.scattered(desc, x) if x.ndim else x


CASCADE_MEASURES: dict[str, Callable[..., Array]] = {
    **{name: partial(_cascade_measured, measure) for name, measure in attention.MEASURES.items()},
    # A value's own scale is its weight's, before that is rounded
    "faint": partial(_cascade_measured, attention.MEASURES["faint"], of_each=False),
}
