"""Decoding in float64: the keys in use are gathered, one sequence behind the other, and `attention` does the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from . import attention
from .attention import guarantee

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


def lengths_of(desc: Any, lengths: Array | None) -> Array:
    return np.full(desc.batch, desc.most_k) if lengths is None else np.clip(lengths, 0, desc.most_k)


def gathered(
    desc: Any, q: Array, k: Array, v: Array, lengths: Array | None = None, **others: Array
) -> tuple[Gathered, dict[str, Array]]:
    """The problem as one of ragged sequences, and its operands."""
    used = lengths_of(desc, lengths)

    def lines(x: Array, counts: Array) -> Array:
        by_row = np.moveaxis(np.asarray(x, np.float64), desc.head_axis, 2)
        return np.concatenate([one[:n] for one, n in zip(by_row, counts)])

    tokens = np.full(desc.batch, desc.total_q)
    arrays = {"q": lines(q, tokens), "k": lines(k, used), "v": lines(v, used)}
    arrays |= {"cu_seqlens_q": np.cumsum([0, *tokens]), "cu_seqlens_k": np.cumsum([0, *used])}
    return described(desc, arrays), arrays | others


def described(desc: Any, arrays: dict[str, Array]) -> Gathered:
    total = len(arrays["q"])
    shape, stats = (total, desc.heads, desc.d_v), (desc.heads, total)
    return Gathered(desc, desc.batch, total, len(arrays["k"]), shape, stats)


def scattered(desc: Any, x: Array) -> Array:
    """A result of ragged sequences, as the problem has it."""
    if x.ndim == 3:
        return np.moveaxis(x.reshape(desc.batch, -1, *x.shape[1:]), 2, desc.head_axis)
    return np.moveaxis(x.reshape(desc.heads, desc.batch, -1), 0, 1)


def decode(desc: Any, **arrays: Array) -> Any:
    """Every written operand, in order."""
    ragged, operands = gathered(desc, **arrays)
    return tuple(scattered(desc, x) for x in attention.attention(ragged, **operands))


def _measured(measure: Callable[..., Array], desc: Any, **arrays: Array) -> Array:
    ragged, operands = gathered(desc, **arrays)
    x = np.asarray(measure(ragged, **operands))
    return scattered(desc, x) if x.ndim else x


MEASURES = {name: partial(_measured, measure) for name, measure in attention.MEASURES.items()}
