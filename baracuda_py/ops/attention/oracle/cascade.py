"""Attention over a shared prefix in float64: every sequence's keys are gathered, the prefix's first, and `attention` does the
rest.

A sequence with fewer keys of its own than tokens is filled up with keys that no token sees, between both, so that its last token
stands at its last key and all of its tokens behind the prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ....numerics.rounding import wide_dtype
from . import decode as decoding
from . import forward as attention

__all__ = ["CASCADE_MEASURES", "cascade"]

Array: TypeAlias = np.ndarray[Any, Any]
PREFIX_MISSING, PREFIX_LENGTH = 4, 5  # statuses beside those of `paged_attention`


class _Part:
    """The prefix, as one sequence, or the sequences' own keys: what `decode` asks about pages."""

    def __init__(self, desc: Any, table: Array) -> None:
        self.desc, self.table = desc, table
        self.most_k = table.shape[1] * desc.page_keys

    def __getattr__(self, name: str) -> Any:
        return getattr(self.desc, name)

    def used(self, lengths: Array) -> Array:
        return np.clip(np.asarray(lengths, np.int64), 0, self.most_k)


def _parts_of(
    desc: Any, prefix_table: Array, prefix_length: Array | None, page_table: Array, lengths: Array
) -> tuple[tuple[_Part, Array], tuple[_Part, Array]]:
    """The prefix and the sequences' own keys, with how many keys are in use."""
    prefix, own = _Part(desc, prefix_table[None]), _Part(desc, page_table)
    number = min(desc.prefix_keys, prefix.most_k) if prefix_length is None else np.asarray(prefix_length).reshape(-1)[0]
    return (prefix, prefix.used(np.array([number]))), (own, own.used(lengths))


def _starts_of(desc: Any, cu_seqlens_q: Array | None) -> Array:
    """Where the sequences' tokens begin, and the end of the last one's."""
    if cu_seqlens_q is None:
        return np.asarray(np.arange(desc.batch + 1) * desc.total_q)
    return np.asarray(np.clip(cu_seqlens_q, 0, desc.total_q), np.int64)


def _behind_one_another(
    desc: Any, q: Array, prefix_table: Array, page_table: Array, lengths: Array, *, prefix_length: Array | None = None,
    cu_seqlens_q: Array | None = None, sinks: Array | None = None, of_each: bool = True, **given: Array | None,
) -> tuple[Any, dict[str, Array]]:  # fmt: skip
    """The problem as one of ragged sequences, and its operands, multiplied with their scales; not `of_each`: but for those that
    each value has."""
    (prefix, shared), (own, used) = _parts_of(desc, prefix_table, prefix_length, page_table, lengths)
    starts = _starts_of(desc, cu_seqlens_q)
    filling = [max(int(tokens) - int(n), 0) for tokens, n in zip(np.diff(starts), used)]
    arrays: dict[str, Array] = {} if sinks is None else {"sinks": sinks}
    for name, cache in zip("kv", desc.caches):
        lines = _times_its_scales(desc, name, cache, given, prefix, shared, of_each=of_each)
        each = [
            _times_its_scales(desc, name, cache, given, _Part(desc, row[None]), n[None], of_each=of_each)
            for row, n in zip(own.table, used)
        ]
        unseen = [np.zeros((n, *lines.shape[1:]), lines.dtype) for n in filling]
        pieces = (piece for lot in zip(unseen, each) for piece in (lines, *lot))
        arrays[name] = np.concatenate([lines[:0], *pieces])
    gone = np.concatenate([np.zeros(0, bool), *decoding._missing(prefix, shared, prefix.table)])
    absent = decoding._missing(own, used, own.table)
    masked = (piece for n, row in zip(filling, absent) for piece in (gone, np.ones(n, bool), row))
    arrays["missing"] = np.concatenate([np.zeros(0, bool), *masked])
    queries = q if desc.ragged else q.reshape(desc.batch * desc.total_q, desc.heads, desc.d)
    ends = np.cumsum([0, *(int(shared[0]) + n + int(m) for n, m in zip(filling, used))])
    arrays |= {"q": queries, "cu_seqlens_q": starts, "cu_seqlens_k": ends}
    return decoding.described(desc, arrays), arrays


def _times_its_scales(
    desc: Any, name: str, cache: str, given: dict[str, Array | None], part: _Part, used: Array, *, of_each: bool
) -> Array:
    """Keys or values in use of a part, as wide numbers."""
    wide: Any = wide_dtype(desc.element)
    pages, scales = given[cache], given.get(f"{name}_scales")
    lines = decoding._in_use(part, np.asarray(pages), used, part.table).astype(wide)
    lines = lines * np.float32(getattr(desc, f"{name}_scale")).astype(wide)
    if scales is None:
        return np.asarray(lines)
    if scales.ndim == 1:
        return np.asarray(lines * scales.astype(wide)[:, None])
    if name == "v" and not of_each:
        return np.asarray(lines)
    return np.asarray(lines * decoding._in_use(part, scales[..., None], used, part.table).astype(wide))


def _cascade_status(
    desc: Any, prefix_table: Array, page_table: Array, lengths: Array, prefix_length: Array | None = None,
    cu_seqlens_q: Array | None = None, **_: Any,
) -> Array:  # fmt: skip
    """That of `paged_attention` over the sequences' own keys; where this is 0, what is wrong with the prefix."""
    (prefix, shared), (own, _used) = _parts_of(desc, prefix_table, prefix_length, page_table, lengths)
    found = decoding.status(own, page_table, lengths, cu_seqlens_q)
    wrong = 0
    if prefix_length is not None and shared[0] != np.asarray(prefix_length).reshape(-1)[0]:
        wrong = PREFIX_LENGTH
    elif any(gone.any() for gone in decoding._missing(prefix, shared, prefix.table)):
        wrong = PREFIX_MISSING
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
