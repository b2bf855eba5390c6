"""Attention of e4m3 operands in float64: they are multiplied with their scales, and attention's oracle does the rest."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..attention.oracle import forward as attention
from ..attention.oracle.forward import guarantee

__all__ = ["MEASURES", "attend", "guarantee"]

Array: TypeAlias = np.ndarray[Any, Any]
# Of a score: Hopper aligns 32 products and their sum to 13 bits, and each of the 33 may lose 2**-13 of it twice (_guarantee.py);
# f32 roundings; the head dims that kernels fill up to
TRUNCATION, ROUNDINGS, FILLED = 2.0**-12, 26 * 2.0**-24, (64, 128, 256)
FIRST_ORDER = 0.25  # of an error of exp's argument: below, its square adds an eighth at most


def scaled(
    desc: Any, q: Array, k: Array, v: Array, q_scales: Array | None = None, k_scales: Array | None = None,
    v_scales: Array | None = None, **more: Array,
) -> dict[str, Array]:  # fmt: skip
    """The operands of attention, multiplied with their scales."""
    made = dict(more)
    for name, x, scales in (("q", q, q_scales), ("k", k, k_scales), ("v", v, v_scales)):
        wide = np.asarray(x).astype(np.float64) * float(getattr(desc, f"{name}_scale"))
        if scales is not None:
            starts = more.get("cu_seqlens_q" if name == "q" else "cu_seqlens_k")
            wide = wide * _beside(desc, x, np.asarray(scales).astype(np.float64), starts)
        made[name] = wide
    return made


def _beside(desc: Any, x: Array, scales: Array, starts: Array | None) -> Array:
    """Scales per head, or per sequence and head, such that they broadcast to an operand; of ragged sequences, which begin at
    `starts`, one per row."""
    if x.ndim == 2:
        return np.asarray(scales.reshape(1, 1))
    if not desc.ragged:
        each = scales if scales.ndim == 2 else scales[None]
        return np.asarray(each[:, :, None, None] if desc.head_axis == 1 else each[:, None, :, None])
    if scales.ndim == 1 or starts is None:
        return np.asarray(scales.reshape(1, -1, 1))
    of_rows = np.ones(x.shape[:2])
    for first, end, each in zip(starts[:-1], starts[1:], scales):
        of_rows[max(int(first), 0) : max(int(end), 0)] = each
    return of_rows[..., None]


def attend(desc: Any, **arrays: Any) -> Any:
    """Every written operand, in order."""
    return attention.attention(desc, **scaled(desc, **arrays))


# ---- measures ------------------------------------------------------------------------------------------------------


def _top(head: attention.Head) -> Array:
    """The largest magnitude of a row's scores."""
    return np.asarray(head.magnitude.max(axis=1, initial=0))


def error_rate(head: attention.Head) -> float:
    """What arguments of exp err by at most, per unit of the largest score: the coefficients of _guarantee.py together."""
    filled = next((n for n in FILLED if n >= head.q.shape[1]), head.q.shape[1])
    return 2 * (-(-filled // 32) * 33 * TRUNCATION + ROUNDINGS)


def _grown(head: attention.Head, measure: Array) -> Array:
    """An error of first order of weights, with what higher orders add: to the weights, and to their sum, which divides them."""
    argument = error_rate(head) * _top(head)
    of_sum = np.where(argument < FIRST_ORDER, np.expm1(np.minimum(argument, FIRST_ORDER)), 0)
    return np.asarray(measure * (attention.growth(argument) / (1 - of_sum))[:, None])


def _score_error(head: attention.Head) -> Array:
    mean = (head.weights * head.magnitude).sum(axis=1)[:, None]
    return _grown(head, (head.weights * (head.magnitude + mean)) @ np.abs(head.v))


def _top_error(head: attention.Head) -> Array:
    return _grown(head, (head.weights @ np.abs(head.v)) * 2 * _top(head)[:, None])


def _far(head: attention.Head) -> Array:
    """Rows whose scores' errors first order says too little about: a weight may be any number from 0 to 1."""
    return np.asarray(error_rate(head) * _top(head) >= FIRST_ORDER)


def _indistinct(head: attention.Head) -> Array:
    """What any two means of a row's values differ by at most, in such rows."""
    values = np.where(np.isneginf(head.scores)[:, :, None], 0, np.abs(head.v)[None]).max(axis=1, initial=0)
    return np.asarray(np.where(_far(head)[:, None], 2 * values, 0))


def _measured(measure: Callable[..., Array], desc: Any, **given: Any) -> Array:
    return measure(desc, **scaled(desc, **given))


def _of_heads(of: Callable[[attention.Head], Array], name: str, desc: Any, **given: Any) -> Array:
    """A measure of a head, as wide as out or as lse."""
    with np.errstate(all="ignore"):
        return np.asarray(attention.written(desc, scaled(desc, **given), **{name: of})[name], np.float64)


MEASURES: dict[str, Callable[..., Array]] = {
    **{name: partial(_measured, measure) for name, measure in attention.MEASURES.items() if "tf32" not in name},
    "score_error_fp8": partial(_of_heads, _score_error, "out"),
    "top_error_fp8": partial(_of_heads, _top_error, "out"),
    "indistinct_fp8": partial(_of_heads, _indistinct, "out"),
    "row_indistinct_fp8": partial(_of_heads, lambda head: np.where(_far(head), _top(head), 0), "lse"),
}
