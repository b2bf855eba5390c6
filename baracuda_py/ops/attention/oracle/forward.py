"""Attention in float64 (long double for f64), and the measures that its bounds name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ....numerics import rounding
from ....numerics.guarantee import widely
from ....types import PrecisionGuarantee
from ...gemm.oracle import TF32_INFINITE

__all__ = [
    "MEASURES",
    "OF_RANGE",
    "Head",
    "attention",
    "distant",
    "distant_on_host",
    "error_rate",
    "growth",
    "guarantee",
    "heads",
    "largest",
    "part_of",
    "wide",
    "written",
]

Array: TypeAlias = np.ndarray[Any, Any]
# Of a type's largest number: what rounded sums may come to, and sums of values whose weights are up to 2**8, until rescaled
OF_RANGE, OF_WEIGHTED_RANGE = 0.99, 2.0**-9
FIRST_ORDER = 0.25  # of an error of exp's argument: below, its square adds an eighth at most
PADDED = 16  # products that kernels may add to those of a score
OF_SCORE, TF32 = 10.0, 2.0**-11  # units roundoff of a score beside its products; unit roundoff of TF32


@dataclass(frozen=True)
class Head:
    """One head of one sequence: q [rows, d], k [keys, d], v [keys, d_v], wide; the address of its part of a result.

    `scores` are as they enter the softmax, -inf where they do not count; `magnitude` is |scale| sum|q k| + |alibi| + |mask|,
    which their errors are proportional to; `derivative` is that of a score by scale q k (softcap's).
    """

    batch: int
    head: int
    kv_head: int
    q: Array
    k: Array
    v: Array
    scores: Array
    magnitude: Array
    derivative: Array
    sink: Any
    rows: slice
    keys: slice
    factor: Any  # scale

    @property
    def top(self) -> Array:
        """The highest score of a row, a sink's too: -inf where nothing counts."""
        return np.asarray(np.maximum(self.scores.max(axis=1, initial=-np.inf), self.sink))

    @property
    def lse(self) -> Array:
        top, _, whole = self._terms
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(whole) + top)

    @property
    def weights(self) -> Array:
        """p: 0 in rows that see nothing."""
        _, terms, whole = self._terms
        return np.asarray(terms / np.where(whole == 0, 1, whole)[:, None])

    @property
    def _terms(self) -> tuple[Array, Array, Array]:
        """The highest score (0 where there is none), the exponentials relative to it, and their sum with the sink's."""
        top = np.where(np.isneginf(self.top), 0, self.top)
        terms = np.exp(self.scores - top[:, None])
        return top, terms, terms.sum(axis=1) + np.exp(self.sink - top)

    @property
    def out(self) -> Array:
        return np.asarray(self.weights @ self.v)


def wide(desc: Any, x: Array) -> Array:
    return rounding.wide(x, desc.element)


def part_of(desc: Any, x: Array, batch: int, head: int, rows: slice) -> Array:
    """[rows, columns] of one head of one sequence, a view."""
    if x.ndim == 2:
        return x
    if desc.order == "THD":
        return np.asarray(x[rows, head])
    return np.asarray(x[batch, head] if desc.order == "BHSD" else x[batch, :, head])


def _extent(starts: Array | None, batch: int, total: int) -> slice:
    if starts is None:
        return slice(0, total)
    first = min(max(int(starts[batch]), 0), total)
    return slice(first, max(first, min(int(starts[batch + 1]), total)))


def heads(
    desc: Any, q: Array, k: Array, v: Array, mask: Array | None = None, block_mask: Array | None = None,
    alibi_slopes: Array | None = None, sinks: Array | None = None, cu_seqlens_q: Array | None = None,
    cu_seqlens_k: Array | None = None, missing: Array | None = None, **_: Array,
) -> Iterator[Head]:  # fmt: skip
    """Every head of every sequence. `missing`: keys, of all sequences, that are not seen."""
    for batch in range(desc.batch):
        rows, keys = _extent(cu_seqlens_q, batch, desc.total_q), _extent(cu_seqlens_k, batch, desc.total_k)
        i, j = np.arange(rows.stop - rows.start)[:, None], np.arange(keys.stop - keys.start)[None, :]
        distance = j - (i + (int(desc.offset) if desc.offset_given else j.size - i.size))
        left, right = desc.visible
        counts = np.ones(distance.shape, bool) if left is None else distance >= -left
        counts = counts if right is None else counts & (distance <= right)
        counts = counts if missing is None else counts & ~missing[None, keys]
        for head in range(desc.heads):
            kv_head = head // desc.group
            q2 = wide(desc, part_of(desc, q, batch, head, rows))
            k2, v2 = (wide(desc, part_of(desc, x, batch, kv_head, keys)) for x in (k, v))
            seen, added = counts, np.zeros(counts.shape, q2.dtype)
            if alibi_slopes is not None:
                slopes = np.broadcast_to(alibi_slopes, (desc.batch, desc.heads))
                added = added + wide(desc, slopes[batch, head]) * distance
            if mask is not None:
                whole = (desc.batch, desc.heads, *counts.shape)
                one = np.broadcast_to(mask, whole)[batch, head]
                seen = seen & one if one.dtype == bool else seen
                added = added if one.dtype == bool else added + wide(desc, one)
            if block_mask is not None:
                whole = (desc.batch, desc.heads, *block_mask.shape[-2:])
                a, b = desc.block_size
                seen = seen & np.broadcast_to(block_mask, whole)[batch, head][i // a, j // b]
            past = int(np.flatnonzero(counts.any(axis=0)).max(initial=-1)) + 1
            k2[past:] = v2[past:] = 0  # what no query sees by its place, at the end, need not be written
            factor = q2.dtype.type(desc.factor)
            sink = q2.dtype.type(-np.inf) if sinks is None else wide(desc, sinks[head])
            with np.errstate(all="ignore"):
                s, derivative = factor * (q2 @ k2.T), np.ones((), q2.dtype)
                if desc.softcapped:
                    c = q2.dtype.type(desc.softcap)
                    s = c * np.tanh(s / c)
                    derivative = 1 - (s / c) ** 2
                size = abs(factor) * (np.abs(q2) @ np.abs(k2).T) + np.abs(added)
                scores = np.where(seen, s + added, -np.inf)
            size = np.where(np.isneginf(scores), 0, size)
            yield Head(
                batch, head, kv_head, q2, k2, v2, scores, size, derivative + 0 * scores, sink, rows, keys, factor
            )


def attention(desc: Any, **arrays: Array) -> Any:
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        results = written(desc, arrays, out=lambda head: head.out, lse=lambda head: head.lse)
    return tuple(results[operand.name] for operand in desc.operands if operand.written)


def written(desc: Any, arrays: dict[str, Array], **of: Callable[[Head], Array]) -> dict[str, Array]:
    """Results made of every head's: `out` and its like ([rows, columns] a head), `lse` and its like ([rows])."""
    kind = rounding.wide_dtype(desc.element)
    results = {name: np.zeros(desc.stats_shape if name == "lse" else desc.out_shape, kind) for name in of}
    for head in heads(desc, **arrays):
        for name, function in of.items():
            whole = results[name]
            if name != "lse":
                part_of(desc, whole, head.batch, head.head, head.rows)[...] = function(head)
            elif whole.ndim == 1:
                whole[...] = function(head)
            elif desc.order == "THD":
                whole[head.head, head.rows] = function(head)
            else:
                whole[head.batch, head.head] = function(head)
    return results


def guarantee(desc: Any, kernel: PrecisionGuarantee) -> PrecisionGuarantee:
    """What the oracle itself promises: the terms of a `kernel` that adds in the oracle's order, in the oracle's arithmetic.

    Scores are as large before they are "indistinct" as its arithmetic is finer.
    """
    return widely(kernel, desc, fixed={"indistinct": "indistinct_on_host", "indistinct_tf32": "indistinct_on_host"})


# ---- measures ------------------------------------------------------------------------------------------------------


def _measure(of: Callable[[Head], Array], *, row: bool = False) -> Callable[..., Array]:
    """A measure of a head, as wide as out or (`row`) as lse."""

    def measured(desc: Any, **arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            name = "lse" if row else "out"
            return np.asarray(written(desc, arrays, **{name: of})[name], np.float64)

    return measured


def _mean(head: Head, size: Array) -> Array:
    """sum p size along a row, with a sink's share."""
    sink = np.where(np.isneginf(head.sink), 0, np.abs(head.sink) * np.exp(head.sink - head.lse))
    return np.asarray((head.weights * size).sum(axis=1) + np.where(np.isneginf(head.lse), 0, sink))


def _top(head: Head) -> Array:
    """M: the largest magnitude of a row's scores."""
    sink = 0 if np.isneginf(head.sink) else np.abs(head.sink)
    return np.asarray(np.maximum(head.magnitude.max(axis=1, initial=0), sink))


def _weighted(head: Head) -> Array:
    return np.asarray(head.weights @ np.abs(head.v))


def _score_error(head: Head) -> Array:
    mean = _mean(head, head.magnitude)[:, None]
    return np.asarray((head.weights * (head.magnitude + mean)) @ np.abs(head.v))


def _top_error(head: Head) -> Array:
    return np.asarray(_weighted(head) * 2 * _top(head)[:, None])


def _faint(head: Head) -> Array:
    counts = ~np.isneginf(head.scores)
    faint = np.where(np.isneginf(head.lse), 0, np.exp(head.top - head.lse))
    return np.asarray((counts @ np.abs(head.v)) * faint[:, None])


def largest(head: Head) -> float:
    """The largest number of what is computed in."""
    return float(np.finfo(np.float64 if head.v.dtype == np.longdouble else np.float32).max)


def _overflows(head: Head) -> Array:
    """Whether a sum of weighted values may leave the range that it is kept in, on its way."""
    return np.asarray(~np.isneginf(head.scores) @ np.abs(head.v) > OF_WEIGHTED_RANGE * largest(head))


def _beyond(head: Head) -> Array:
    """Whether some operand of the head is not finite, or products of q and k, or scores times log2 e, may be beyond what they are
    computed in."""
    bad = not all(np.isfinite(x).all() for x in (head.q, head.k, head.v))
    bad = bad or bool((np.abs(head.q) @ np.abs(head.k).T > OF_RANGE * largest(head)).any())
    return np.full(head.scores.shape[0], bad or bool((head.magnitude > largest(head) / 2).any()))


def _beyond_tf32(head: Head) -> Array:
    """The same, or some operand's are beyond TF32, or so large that others of theirs below its normal numbers matter."""
    products = any((np.abs(x) > 2.0**100).any() for x in (head.q, head.k))
    return np.asarray(_beyond(head) | products | (np.abs(head.v) >= TF32_INFINITE).any())


def error_rate(head: Head, tf32: bool = False) -> float:
    """What arguments of exp err by at most, per unit of the largest score: the coefficients of _problem/guarantee.py together."""
    unit = float(np.finfo(np.float64 if head.v.dtype == np.longdouble else np.float32).eps) / 2
    products = 2 * (max(head.q.shape[1], head.v.shape[1]) + PADDED) + 2 * OF_SCORE
    return float(products * unit + (2 * TF32 if tf32 else 0.0))


def distant(head: Head, tf32: bool = False) -> float:
    """Sizes of scores from which on arguments of exp may err by more than FIRST_ORDER, and errors of first order say too little:
    a weight may be any number from 0 to 1."""
    return FIRST_ORDER / error_rate(head, tf32)


def growth(argument: Array) -> Array:
    """What expm1 of an error of exp's argument is at most, over the error; 1 where errors are more than FIRST_ORDER."""
    error = np.where(argument < FIRST_ORDER, argument, 0)
    return np.asarray(np.where(error > 0, np.expm1(error) / np.where(error > 0, error, 1), 1))


def _grown(head: Head, measure: Array, tf32: bool) -> Array:
    """An error of first order of weights, with what higher orders add: to the weights, and to their sum, which divides them."""
    argument = error_rate(head, tf32) * _top(head)
    of_sum = np.where(argument < FIRST_ORDER, np.expm1(np.minimum(argument, FIRST_ORDER)), 0)
    return np.asarray(measure * (growth(argument) / (1 - of_sum))[:, None])


def distant_on_host(head: Head) -> float:
    """Sizes of scores from which on the oracle's own errors are 2**-4 and more, and errors of first order say nothing."""
    return float(2.0 ** (np.finfo(head.v.dtype).nmant - 3) / (max(head.q.shape[1], head.v.shape[1]) + 20))


def _indistinct(head: Head, distant: float) -> Array:
    """What any two means of a row's values differ by at most, where its scores are as large as `distant`."""
    values = np.where(np.isneginf(head.scores)[:, :, None], 0, np.abs(head.v)[None]).max(axis=1, initial=0)
    return np.asarray(np.where(_top(head)[:, None] >= distant, 2 * values, 0))


def _root_score(head: Head) -> Array:
    """The root of sum p**2 r**2 (v - out)**2, r = |scale| root(sum q**2 k**2)."""
    square = head.weights**2 * (head.factor**2 * (head.q**2 @ head.k.T**2))
    spread = square @ head.v**2 - 2 * head.out * (square @ head.v) + head.out**2 * square.sum(axis=1)[:, None]
    return np.asarray(np.sqrt(np.maximum(spread, 0)))


def _capped(desc: Any, **arrays: Array) -> Array:
    return np.asarray(abs(desc.softcap) * 2 * MEASURES["weighted"](desc, **arrays))


MEASURES: dict[str, Callable[..., Array]] = {
    "weighted": _measure(_weighted),
    "root_weighted": _measure(lambda head: np.sqrt(head.weights**2 @ head.v**2)),
    "score_error": _measure(lambda head: _grown(head, _score_error(head), False)),
    "score_error_tf32": _measure(lambda head: _grown(head, _score_error(head), True)),
    "top_error": _measure(lambda head: _grown(head, _top_error(head), False)),
    "top_error_tf32": _measure(lambda head: _grown(head, _top_error(head), True)),
    "faint": _measure(_faint),
    "indistinct": _measure(lambda head: _indistinct(head, distant(head))),
    "indistinct_tf32": _measure(lambda head: _indistinct(head, distant(head, True))),
    "indistinct_on_host": _measure(lambda head: _indistinct(head, distant_on_host(head))),
    "row_indistinct": _measure(lambda head: np.where(_top(head) >= distant(head), _top(head), 0), row=True),
    "row_indistinct_tf32": _measure(lambda head: np.where(_top(head) >= distant(head, True), _top(head), 0), row=True),
    "root_score": _measure(_root_score),
    "flushed": _measure(_faint),
    "beyond": _measure(lambda head: _beyond(head)[:, None] | _overflows(head)),
    "beyond_tf32": _measure(lambda head: _beyond_tf32(head)[:, None] | _overflows(head)),
    "capped": _capped,
    "mean_score": _measure(lambda head: _mean(head, head.magnitude), row=True),
    "top_score": _measure(_top, row=True),
    "one": _measure(lambda head: np.ones(head.scores.shape[0]), row=True),
    "row_beyond": _measure(_beyond, row=True),
    "row_beyond_tf32": _measure(_beyond_tf32, row=True),
    "mean_capped": lambda desc, **_: np.asarray(abs(desc.softcap)),
}
