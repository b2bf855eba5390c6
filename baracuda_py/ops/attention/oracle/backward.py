"""The gradients of attention in float64 (long double for f64) from the given out and lse, and the measures of their bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ....numerics.rounding import wide_dtype
from ....types import ElementKind
from .forward import OF_RANGE, Head, distant, distant_on_host, error_rate, growth, heads, largest, part_of, wide

__all__ = ["MEASURES", "backward"]

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Pulled:
    """One query head and what pulls at it: grad and out [rows, d_v], lse [rows], wide."""

    head: Head
    grad: Array
    out: Array
    lse: Array
    scale: Any

    @property
    def weights(self) -> Array:
        """p, 1 at most: 0 in rows whose lse is -inf."""
        weights = np.exp(self.head.scores - np.where(np.isneginf(self.lse), np.inf, self.lse)[:, None])
        return np.asarray(np.minimum(weights, 1))

    @property
    def delta(self) -> Array:
        return np.asarray((self.grad * self.out).sum(axis=1))

    @property
    def of_scores(self) -> Array:
        """ds: the gradient of scale q k; 0 where a score does not count by its place."""
        pull = self.grad @ self.head.v.T - self.delta[:, None]
        return np.where(np.isneginf(self.head.scores), 0, self.weights * pull * self.head.derivative)

    @property
    def added(self) -> Array:
        """The gradient of what is added to scores: ds without a softcap's derivative."""
        pull = self.grad @ self.head.v.T - self.delta[:, None]
        return np.where(np.isneginf(self.head.scores), 0, self.weights * pull)

    def distance(self, desc: Any) -> Array:
        """j - (i + offset), which a slope is multiplied with."""
        rows, keys = self.head.scores.shape
        offset = int(desc.offset) if desc.offset_given else keys - rows
        return np.asarray(np.arange(keys)[None, :] - (np.arange(rows)[:, None] + offset), self.grad.dtype)

    @property
    def size(self) -> Array:
        """h: sum|grad v| + sum|grad out|."""
        return np.asarray(np.abs(self.grad) @ np.abs(self.head.v).T + np.abs(self.grad * self.out).sum(axis=1)[:, None])

    @property
    def sink_weights(self) -> Array:
        weights = np.exp(self.head.sink - np.where(np.isneginf(self.lse), np.inf, self.lse))
        return np.asarray(np.minimum(weights, 1))


def _pulled(desc: Any, grad: Array, out: Array, lse: Array, **arrays: Array) -> Iterator[Pulled]:
    for head in heads(desc, **arrays):
        own_grad, own_out = (wide(desc, part_of(desc, x, head.batch, head.head, head.rows)) for x in (grad, out))
        yield Pulled(head, own_grad, own_out, wide(desc, _stats_of(desc, lse, head)), own_grad.dtype.type(desc.factor))


def _stats_of(desc: Any, x: Array, head: Head) -> Array:
    if x.ndim == 1:
        return x
    return np.asarray(x[head.head, head.rows] if desc.order == "THD" else x[head.batch, head.head])


def _gathered(desc: Any, output: str, arrays: dict[str, Array], of: Callable[[Pulled], Any]) -> Array:
    """An output that has `of`'s part of every head, the parts of heads that share keys added up."""
    result = np.zeros(desc.layout(output).shape, wide_dtype(desc.element))
    with np.errstate(all="ignore"):
        for pulled in _pulled(desc, **arrays):
            head = pulled.head
            if output == "grad_sinks":
                result[head.head] += of(pulled)
            elif output in ("grad_mask", "grad_alibi_slopes"):
                _spread(result, (head.batch, head.head), of(pulled))
            elif output == "grad_q":
                part_of(desc, result, head.batch, head.head, head.rows)[...] += of(pulled)
            else:
                part_of(desc, result, head.batch, head.kv_head, head.keys)[...] += of(pulled)
    return result


def _spread(result: Array, at: tuple[int, int], part: Any) -> None:
    """Adds a head's part, [rows, keys] or a number, to what is broadcast to [batch, heads(, rows, keys)]."""
    rank = 2 if np.ndim(part) == 0 else 4
    whole = result.reshape((1,) * (rank - result.ndim) + result.shape)
    one = whole[tuple(i if n > 1 else 0 for i, n in zip(at, whole.shape))]
    if rank == 4:
        part = part.sum(axis=tuple(a for a in (0, 1) if one.shape[a] == 1), keepdims=True)
    whole[tuple(i if n > 1 else 0 for i, n in zip(at, whole.shape))] = one + part


def _gradient(output: str, desc: Any) -> Callable[[Pulled], Any]:
    return {
        "grad_q": lambda x: x.scale * (x.of_scores @ x.head.k),
        "grad_k": lambda x: x.scale * (x.of_scores.T @ x.head.q),
        "grad_v": lambda x: x.weights.T @ x.grad,
        "grad_sinks": lambda x: -(x.sink_weights * x.delta).sum(),
        "grad_mask": lambda x: x.added,
        "grad_alibi_slopes": lambda x: (x.added * x.distance(desc)).sum(),
    }[output]


def backward(desc: Any, **arrays: Array) -> Any:
    """Every written operand, in order."""
    names = [operand.name for operand in desc.operands if operand.written]
    return tuple(_gathered(desc, name, arrays, _gradient(name, desc)) for name in names)


# ---- measures ------------------------------------------------------------------------------------------------------


def _terms(desc: Any, x: Pulled, output: str, of_pair: Array) -> Any:
    """The sum of magnitudes of an output's terms, [rows, keys] `of_pair` the weights."""
    if output == "grad_mask":
        return np.broadcast_to(of_pair, x.head.scores.shape)
    if output == "grad_alibi_slopes":
        return (of_pair * np.abs(x.distance(desc))).sum()
    if output == "grad_v":
        return of_pair.T @ np.abs(x.grad)
    return np.abs(x.scale) * (of_pair @ np.abs(x.head.k) if output == "grad_q" else of_pair.T @ np.abs(x.head.q))


def _measure(of_pair: Callable[[Any, Pulled], Any], of_sink: Callable[[Pulled], Any]) -> Callable[..., Array]:
    """`of_pair` is what p h is multiplied with (p alone for grad_v), `of_sink` what sinks' terms are."""

    def measured(desc: Any, output: str, **arrays: Array) -> Array:
        def of(x: Pulled) -> Any:
            if output == "grad_sinks":
                return (x.sink_weights * np.abs(x.grad * x.out).sum(axis=1) * of_sink(x)).sum()
            size = x.weights * (1 if output == "grad_v" else x.size)
            factor = of_pair(desc, x)
            return _terms(desc, x, output, np.where(size == 0, 0, size * factor))

        return np.asarray(_gathered(desc, output, arrays, of), np.float64)

    return measured


def _magnitude(desc: Any, x: Pulled) -> Any:
    """m, with what a softcap's derivative errs by beside the score."""
    return _grown(x) * x.head.magnitude * (1 + 2 / abs(desc.softcap) if desc.softcapped else 1)


def _lse(_: Any, x: Pulled) -> Array:
    return np.where(np.isfinite(x.lse), np.abs(x.lse), 0)[:, None]


def _grown(x: Pulled) -> Array:
    """What higher orders add to the errors of a pair's weight."""
    return growth(error_rate(x.head) * (x.head.magnitude + _lse(None, x)))


def _root(desc: Any, output: str, **arrays: Array) -> Array:
    """The root of the sum of squares of an output's terms."""

    def of(x: Pulled) -> Any:
        if output == "grad_v":
            return (x.weights**2).T @ x.grad**2
        squares = x.of_scores**2
        return x.scale**2 * (squares @ x.head.k**2 if output == "grad_q" else squares.T @ x.head.q**2)

    return np.sqrt(np.asarray(_gathered(desc, output, arrays, of), np.float64))


def _faint(desc: Any, output: str, **arrays: Array) -> Array:
    def of(x: Pulled) -> Any:
        return _terms(desc, x, output, np.where(np.isneginf(x.head.scores), 0, np.ones((), x.grad.dtype)))

    return np.asarray(_gathered(desc, output, arrays, of), np.float64)


def _whole(of_pair: Callable[[Pulled], Array], of_row: Callable[[Pulled], Array]) -> Callable[..., Array]:
    """An output's terms with 1 in the place of p, where pairs (of sinks: rows) count."""

    def measured(desc: Any, output: str, **arrays: Array) -> Array:
        def of(x: Pulled) -> Any:
            if output == "grad_sinks":
                return (np.abs(x.grad * x.out).sum(axis=1) * of_row(x)).sum()
            counts = of_pair(x) & ~np.isneginf(x.head.scores)
            return _terms(desc, x, output, np.where(counts, 1 if output == "grad_v" else x.size, 0))

        return np.asarray(_gathered(desc, output, arrays, of), np.float64)

    return measured


def _where_distant(size: Callable[[Head], float]) -> Callable[..., Array]:
    """An output's terms with 1 in the place of p, of pairs and sinks whose scores are as large as `size`."""

    def of_row(x: Pulled) -> Array:
        sink = 0 if np.isneginf(x.head.sink) else np.abs(x.head.sink)
        return np.asarray(sink + _lse(None, x)[:, 0] >= size(x.head))

    return _whole(lambda x: np.asarray(x.head.magnitude + _lse(None, x) >= size(x.head)), of_row)


def _beyond(desc: Any, output: str, **arrays: Array) -> Array:
    """Whether an operand of the head is not finite, or magnitudes, of sums on their way too, are beyond what they are computed or
    rounded in."""
    most = ElementKind.F16.largest if desc.element is ElementKind.F16 else 2.0**100

    def of(x: Pulled) -> Any:
        given = (x.head.q, x.head.k, x.head.v, x.grad, x.out)
        bad: Any = not all(np.isfinite(one).all() for one in given) or (x.head.magnitude > largest(x.head) / 2).any()
        bad = bad or (np.abs(x.weights) > most).any() or (np.abs(x.of_scores) > most).any()
        sums = [np.abs(x.head.q) @ np.abs(x.head.k).T, x.size]
        if output in ("grad_q", "grad_k", "grad_v"):
            sums.append(_terms(desc, x, output, x.weights * (1 if output == "grad_v" else x.size)))
        bad = bad or any((one > OF_RANGE * largest(x.head)).any() for one in sums)
        return np.full(x.head.scores.shape, float(bad)) if output == "grad_mask" else float(bad)

    return np.asarray(_gathered(desc, output, arrays, of) > 0)


MEASURES: dict[str, Callable[..., Array]] = {
    "weighted": _measure(lambda desc, x: 1, lambda x: 1),
    "score_error": _measure(_magnitude, lambda x: np.abs(np.where(np.isneginf(x.head.sink), 0, x.head.sink))),
    "lse_error": _measure(
        lambda desc, x: _grown(x) * _lse(desc, x), lambda x: np.where(np.isfinite(x.lse), np.abs(x.lse), 0)
    ),
    "capped": _measure(lambda desc, x: abs(desc.softcap) + 1, lambda x: 0),
    "root_weighted": _root,
    "faint": _faint,
    "flushed": _whole(lambda x: np.ones(x.head.scores.shape, bool), lambda x: ~np.isneginf(x.lse)),
    "indistinct": _where_distant(distant),
    "indistinct_on_host": _where_distant(distant_on_host),
    "beyond": _beyond,
}
