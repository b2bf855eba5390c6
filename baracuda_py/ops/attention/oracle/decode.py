"""Decoding in float64: the keys in use are gathered, one sequence behind the other, and `attention` does the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ....numerics.rounding import wide_dtype
from . import forward as attention
from .forward import guarantee

__all__ = ["MEASURES", "decode", "guarantee"]

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Gathered:
    """What `attention` asks of a descriptor, of ragged sequences; `problem` is the one that they come from."""

    problem: Any
    batch: int
    total_q: int
    total_k: int
    out_shape: tuple[int, ...]
    stats_shape: tuple[int, ...]

    order = "THD"
    offset_given = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.problem, name)


def gathered(
    desc: Any, q: Array, lengths: Array | None = None, cu_seqlens_q: Array | None = None, page_table: Array | None = None,
    *, of_each: bool = True, **given: Any,
) -> tuple[Gathered, dict[str, Array]]:  # fmt: skip
    """The problem as one of ragged sequences, and its operands, multiplied with their scales; not `of_each`: but for those that
    each value has."""
    used = np.full(desc.batch, desc.most_k) if lengths is None else np.clip(lengths, 0, desc.most_k)
    arrays = {n: x for n, x in given.items() if n in ("alibi_slopes", "sinks")}
    wide: Any = wide_dtype(desc.element)
    for name, cache in zip("kv", desc.caches):
        lines = _in_use(desc, given[cache], used, page_table)
        scales = np.ones(1) if given.get(f"{name}_scales") is None else given[f"{name}_scales"]
        if scales.ndim > 1:
            scales = (
                _in_use(desc, scales[..., None], used, page_table)[..., 0] if of_each or name == "k" else np.ones(1)
            )
        number = np.float32(getattr(desc, f"{name}_scale"))
        made: Array = np.asarray(lines).astype(wide) * np.asarray(scales).astype(wide)[..., None] * number.astype(wide)
        arrays[name] = made
    if page_table is not None:
        arrays["missing"] = np.concatenate([np.zeros(0, bool), *_missing(desc, used, page_table)])
    starts = np.arange(desc.batch + 1) * desc.total_q if cu_seqlens_q is None else cu_seqlens_q
    tokens = (desc.batch * desc.total_q, desc.heads, desc.d)
    queries = q if desc.ragged else np.moveaxis(q, desc.head_axis, 2).reshape(tokens)
    arrays |= {"q": queries, "cu_seqlens_q": starts, "cu_seqlens_k": np.cumsum([0, *used])}
    return described(desc, arrays), arrays


def _in_use(desc: Any, x: Array, used: Array, page_table: Array | None) -> Array:
    """What caches or their scales hold of the keys in use, [all of them, kv_heads, columns]; 0 where a page is not there."""
    by_key = np.swapaxes(x, 1, 2) if desc.cache_axes == (1, 2) else x
    lines = [np.zeros((0, *by_key.shape[2:]), x.dtype)]
    if page_table is None:
        return np.concatenate(lines + [one[:n] for one, n in zip(by_key, used)])
    for table, n in zip(page_table, used):
        for at in range(n):
            page = int(table[at // desc.page_keys])
            there = 0 <= page < len(x)
            lines.append(
                by_key[page, at % desc.page_keys][None] if there else np.zeros((1, *by_key.shape[2:]), x.dtype)
            )
    return np.concatenate(lines)


def _missing(desc: Any, used: Array, page_table: Array) -> Iterator[Array]:
    """Of the keys in use of every sequence, which have no page."""
    for table, n in zip(page_table, used):
        pages = table[np.arange(n) // desc.page_keys]
        yield (pages < 0) | (pages >= desc.pages)


def status(desc: Any, page_table: Array, lengths: Array, cu_seqlens_q: Array | None = None) -> Array:
    """0: all is there; 1: a page that some token sees is not; 2: the length is not one that the table has room for; 3, for all:
    `cu_seqlens_q` decrease or reach outside of the tokens."""
    found = np.zeros(desc.batch, np.int32)
    starts = np.zeros(1) if cu_seqlens_q is None else cu_seqlens_q
    if starts[0] < 0 or starts[-1] > desc.total_q or (starts[1:] < starts[:-1]).any():
        return found + np.int32(3)
    tokens = np.diff(starts) if len(starts) > 1 else np.full(desc.batch, desc.total_q)
    left = desc.visible.left
    for at, (table, length) in enumerate(zip(page_table, lengths)):
        keys = min(max(int(length), 0), desc.most_k)
        first = 0 if left is None else min(max(keys - int(tokens[at]) - left, 0), keys)
        used = table[first // desc.page_keys : -(-keys // desc.page_keys)]
        found[at] = 2 if not 0 <= length <= desc.most_k else ((used < 0) | (used >= desc.pages)).any()
    return found


def described(desc: Any, arrays: dict[str, Array]) -> Gathered:
    total = len(arrays["q"])
    shape, stats = (total, desc.heads, desc.d_v), (desc.heads, total)
    return Gathered(desc, desc.batch, total, len(arrays["k"]), shape, stats)


def scattered(desc: Any, x: Array) -> Array:
    """A result of ragged sequences, as the problem has it."""
    if desc.ragged:
        return x
    if x.ndim == 3:
        return np.moveaxis(x.reshape(desc.batch, desc.total_q, *x.shape[1:]), 2, desc.head_axis)
    return np.moveaxis(x.reshape(desc.heads, desc.batch, desc.total_q), 0, 1)


def decode(desc: Any, **arrays: Any) -> Any:
    """Every written operand, in order."""
    ragged, operands = gathered(desc, **arrays)
    with np.errstate(all="ignore"):
        results = attention.written(ragged, operands, out=lambda head: head.out, lse=lambda head: head.lse)
    results = {name: scattered(desc, x) for name, x in results.items()}
    names = [operand.name for operand in desc.operands if operand.written]
    if "status" in names:
        results["status"] = status(desc, arrays["page_table"], arrays["lengths"], arrays.get("cu_seqlens_q"))
    return tuple(results[name] for name in names)


def _measured(measure: Callable[..., Array], desc: Any, **given: Any) -> Array:
    ragged, operands = gathered(desc, **given)
    x = np.asarray(measure(ragged, **operands))
    return scattered(desc, x) if x.ndim else x


MEASURES: dict[str, Callable[..., Array]] = {
    **{name: partial(_measured, measure) for name, measure in attention.MEASURES.items()},
    # A value's own scale is its weight's, before that is rounded
    "faint": partial(_measured, attention.MEASURES["faint"], of_each=False),
}
