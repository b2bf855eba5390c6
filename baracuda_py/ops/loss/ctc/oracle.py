"""The CTC loss and its gradient in float64 (long double for f64), and the measures that their bounds name.

alpha(t, s) = log(sum of exp(alpha(t - 1, r)) over the states r before s) + log_probs(t, s). The logarithm of the sum errs by
12 u + u |entered| of its own (the differences u / e each, two exponentials of 2 ulps, two additions, a logarithm below log 3, and
the addition of the maximum), and the addition by u |alpha|. Where the terms' logarithms err by e(r) at most, that of their sum
errs by log(sum of w(r) exp(e(r))) at most, w(r) the terms' shares: that is what the same recursion of alpha + e exceeds
alpha by (the other way Jensen's inequality gives less). So the errors are carried along with the values, state by state. The
posterior exp(ahead + back - total) errs by expm1 of the errors of its argument and 4 u more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....numerics.rounding import wide

__all__ = ["MEASURES", "evaluate"]

Array: TypeAlias = np.ndarray[Any, Any]
LOCAL = 12.0  # roundings of a log-sum-exp besides that of its result


class _Along(NamedTuple):
    """Of each step and state: what is entered, alpha (that with log_probs), their errors, and those of the total."""

    entered: Array
    alpha: Array
    entered_error: Array
    alpha_error: Array
    total: Any
    total_error: Any


def _summed(rows: list[Array]) -> Array:
    found = rows[0]
    for row in rows[1:]:
        found = np.logaddexp(found, row)
    return found


def _moved(row: Array, by: int) -> Array:
    """The row with its states that much later."""
    return np.concatenate([np.full(min(by, row.size), -np.inf, row.dtype), row[: max(row.size - by, 0)]])


def _recursion(log_probs: Array, labels: Array, unit: float) -> _Along:
    """log_probs of the states [T, states], whose labels are `labels`."""
    steps, states = log_probs.shape
    skips = np.zeros(states, bool)
    skips[2:] = (np.arange(2, states) % 2 == 1) & (labels[2:] != labels[:-2])
    entered, alpha, high_entered, high = (np.full((steps, states), -np.inf, log_probs.dtype) for _ in range(4))
    for t in range(steps):
        if t == 0:
            entered[0, :2] = high_entered[0, :2] = 0
        else:
            for before, found in ((alpha[t - 1], entered), (high[t - 1], high_entered)):
                found[t] = _summed([before, _moved(before, 1), np.where(skips, _moved(before, 2), -np.inf)])
            high_entered[t] += unit * (LOCAL + _size(entered[t]))
        alpha[t] = entered[t] + log_probs[t]
        high[t] = high_entered[t] + log_probs[t] + unit * _size(alpha[t])
    if not steps:
        total = np.asarray(0 if states == 1 else -np.inf, log_probs.dtype)
        return _Along(entered, alpha, entered, alpha, total, np.zeros((), log_probs.dtype))
    total, most = (_summed(list(rows[-1, -2:])) for rows in (alpha, high))
    errors = (_error(high_entered, entered), _error(high, alpha), _error(most, total))
    return _Along(entered, alpha, *errors[:2], total, errors[2] + unit * (LOCAL + _size(total)))


def _error(high: Any, value: Any) -> Any:
    return np.where(np.isfinite(value) & np.isfinite(high), high - value, 0)


def _size(x: Any) -> Any:
    """|x| where that is finite, else 0: infinities err by nothing."""
    return np.abs(np.where(np.isfinite(x), x, 0))


class _Sequence(NamedTuple):
    """A sequence of the batch; `wrong` where its lengths or labels are out of range, and it has no steps then."""

    wrong: bool
    steps: int
    size: int
    labels: Array  # of the states
    log_probs: Array  # [steps, states]

    def along(self, unit: float) -> _Along:
        return _recursion(self.log_probs, self.labels, unit)

    def back(self, unit: float) -> _Along:
        found = _recursion(self.log_probs[::-1, ::-1], self.labels[::-1], unit)
        return found._replace(**{name: getattr(found, name)[::-1, ::-1] for name in found._fields[:4]})


def _sequences(desc: Any, arrays: dict[str, Array]) -> Iterator[_Sequence]:
    log_probs, (steps, count, classes) = wide(arrays["log_probs"], desc.element), desc.shape
    for n in range(count):
        length, size = int(arrays["input_lengths"][n]), int(arrays["target_lengths"][n])
        wrong = not (0 <= length <= steps and 0 <= size <= desc.targets_shape[-1])
        own = np.asarray(arrays["targets"][n, : 0 if wrong else size], np.int64)
        if wrong or ((own < 0) | (own >= classes)).any():
            yield _Sequence(True, 0, 0, np.full(1, desc.blank), log_probs[:0, n, :1])
            continue
        labels = np.full(2 * size + 1, desc.blank, np.int64)
        labels[1::2] = own
        yield _Sequence(False, length, size, labels, log_probs[:length, n][:, labels])


def _shares(desc: Any, sequences: list[_Sequence], dtype: Any) -> Array:
    """What each loss is divided by for the mean, before the mean over sequences."""
    return np.asarray([max(one.size, 1) if desc.reduction == "mean" else 1 for one in sequences], dtype)


def _reduced(desc: Any, values: Array) -> Array:
    if desc.reduction == "none":
        return values
    return np.asarray(values.sum() / np.asarray(desc.divisor, values.dtype))


def _loss(desc: Any, one: _Sequence, total: Any) -> Any:
    if one.wrong:
        return np.nan
    return 0 if desc.zero_infinity and total == -np.inf else -total


def _pulls(desc: Any, grad: Array, sequences: list[_Sequence]) -> Array:
    """What a posterior of each sequence is multiplied by."""
    grads = wide(grad, desc.element)
    return np.asarray(grads / np.asarray(desc.divisor, grads.dtype) / _shares(desc, sequences, grads.dtype))


def _spread(desc: Any, sequences: list[_Sequence], of: Callable[[int, _Sequence], Any], empty: Any) -> Array:
    """What `of` finds of each sequence's states, added up by class; `empty` for a sequence without alignments, or wrong."""
    found = np.zeros(desc.shape, np.longdouble)
    for n, one in enumerate(sequences):
        if one.wrong:
            found[:, n] = empty
            continue
        values = of(n, one)
        if values is None:
            found[: one.steps, n] = 0 if desc.zero_infinity else empty
            continue
        for state, label in enumerate(one.labels):
            found[: one.steps, n, label] += values[:, state]
        if np.isnan(values).any():
            found[: one.steps, n] = empty
    return found


def evaluate(desc: Any, **arrays: Array) -> Any:
    """The losses, their sum, or the gradient; and the status: in the order of outputs."""
    with np.errstate(all="ignore"):
        sequences = list(_sequences(desc, arrays))
        dtype = wide(arrays["log_probs"], desc.element).dtype
        if not desc.gradient:
            losses = np.asarray([_loss(desc, one, one.along(0.0).total) for one in sequences], dtype)
            found = {"out": _reduced(desc, losses / _shares(desc, sequences, dtype))}
        else:
            pulls = _pulls(desc, arrays["grad"], sequences)
            found = {"grad_log_probs": _spread(desc, sequences, lambda n, one: _posterior(one, -pulls[n]), np.nan)}
    found["status"] = np.asarray(any(one.wrong for one in sequences), np.int32)
    written = tuple(found[operand.name] for operand in desc.operands if operand.written)
    return written if len(written) > 1 else written[0]


def _posterior(one: _Sequence, pull: Any) -> Any:
    """The posteriors of states, times `pull`; None where there is no alignment."""
    along, back = one.along(0.0), one.back(0.0)
    return None if along.total == -np.inf else pull * np.exp(along.alpha + back.entered - along.total)


# ---- measures ------------------------------------------------------------------------------------------------------


def _erring(desc: Any, one: _Sequence) -> Any:
    """The errors of the posteriors of a sequence's states, and of their sums, in units of the unit roundoff."""
    unit = float(desc.computed.unit_roundoff)
    along, back = one.along(unit), one.back(unit)
    if along.total == -np.inf:
        return None
    both = along.alpha + back.entered
    rest = _size(both) + _size(both - along.total) + 5
    error = along.alpha_error + back.entered_error + along.total_error + unit * rest
    posterior = np.exp(both - along.total)
    sums = np.expm1(1.01 * error) / unit + desc.targets_shape[-1] + desc.states // 256 + 24
    return np.nan_to_num(posterior * sums) + 8 * np.longdouble(desc.computed.smallest_normal)


def _propagated(desc: Any, **arrays: Array) -> Array:
    sequences, unit = list(_sequences(desc, arrays)), float(desc.computed.unit_roundoff)
    tiny = 8 * np.longdouble(desc.computed.smallest_normal)
    if desc.gradient:
        pulls = np.abs(_pulls(desc, arrays["grad"], sequences))
        found = _spread(desc, sequences, lambda n, one: None if (e := _erring(desc, one)) is None else pulls[n] * e, 0)
        return np.asarray(np.nan_to_num(found) + tiny)
    errors = []
    for one in sequences:
        along = one.along(unit)
        errors.append(1.01 * along.total_error / unit + 2 * _size(along.total))
    return _reduced(desc, np.asarray(errors, np.longdouble) / _shares(desc, sequences, np.longdouble)) + tiny


def _losses(desc: Any, **arrays: Array) -> Array:
    sequences = list(_sequences(desc, arrays))
    sizes = np.asarray([np.abs(_loss(desc, one, one.along(0.0).total)) for one in sequences], np.longdouble)
    return _reduced(desc, sizes / _shares(desc, sequences, np.longdouble))


def _overflowing(desc: Any, **arrays: Array) -> Array:
    """Whether the logarithms of a path may leave the range of what is computed in, or a gradient that of its kind."""
    sequences, most = list(_sequences(desc, arrays)), desc.computed.largest / 8
    sums = [_size(one.log_probs).max(axis=-1).sum() for one in sequences]
    beyond = np.asarray(sums, np.longdouble).reshape(-1) > most
    if not desc.gradient:
        return np.asarray(beyond if desc.reduction == "none" else beyond.any() | (np.sum(sums) > most))
    pulls = np.broadcast_to(np.abs(_pulls(desc, arrays["grad"], sequences)), beyond.shape)
    beyond = beyond | (np.isfinite(pulls) & (pulls > float(desc.result.largest) / 8))
    return np.broadcast_to(beyond[:, None], desc.shape)


def _quiet(measure: Callable[..., Array]) -> Callable[..., Array]:
    def measured(desc: Any, **arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(measure(desc, **arrays))

    return measured


MEASURES: dict[str, Callable[..., Array]] = {
    "propagated": _quiet(_propagated), "losses": _quiet(_losses), "overflowing": _quiet(_overflowing)
}  # fmt: skip
