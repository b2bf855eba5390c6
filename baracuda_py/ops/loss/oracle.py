"""Cross entropy and its gradient in float64 (long double for f64), and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...numerics.rounding import wide
from ...types import ElementKind

__all__ = ["BACKWARD_MEASURES", "MEASURES", "backward", "forward", "losses", "slopes"]

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Target:
    """What labels and weights say of every row; labels out of range weigh NaN."""

    label: Array  # a class, 0 where there is none
    counts: Array
    weight: Array  # of the label
    weights: Array  # [C]
    wrong: Array  # whether the label is out of range
    rest: Any  # 1 - label_smoothing
    even: Any  # label_smoothing / C

    @staticmethod
    def of(desc: Any, labels: Array, weight: Array | None) -> _Target:
        classes, y = desc.shape[-1], np.asarray(labels, np.int64).reshape(-1)
        weights = np.ones(classes) if weight is None else weight
        weights = wide(weights, desc.element)
        counts, fits = y != desc.ignore_index, (y >= 0) & (y < classes)
        label = np.where(counts & fits, y, 0)
        own = np.where(counts, np.where(fits, weights[label], np.nan), 0)
        smoothing = weights.dtype.type(desc.label_smoothing)
        return _Target(label, counts, own, weights, counts & ~fits, 1 - smoothing, smoothing / classes)

    @property
    def status(self) -> Array:
        return np.asarray(self.wrong.any(), np.int32)

    def reduced(self, desc: Any, terms: Array) -> Array:
        """What is of each row that counts, as the result has it."""
        terms = np.where(self.counts, terms, 0)
        if desc.reduction == "none":
            return terms.reshape(desc.row_shape)
        return np.asarray(terms.sum() / (self.weight.sum() if desc.reduction == "mean" else 1))

    def spread(self, terms: Array) -> Array:
        """The sum of `terms` [N, C] times each class's share of the target."""
        own = self.rest * self.weight * np.take_along_axis(terms, self.label[:, None], 1)[:, 0]
        return np.asarray(own + (self.even * (terms * self.weights).sum(axis=1) if self.even else 0))


def _rows(desc: Any, x: Array) -> Array:
    return wide(x, desc.element).reshape(-1, desc.shape[-1])


def _logs(desc: Any, logits: Array) -> tuple[Array, Array, Array]:
    """Rows less their maximum, that maximum, and the logarithm of the sum of exponentials, all with an axis of classes."""
    x = _rows(desc, logits)
    most = x.max(axis=1, keepdims=True, initial=-np.inf)
    shift = x - np.where(most == -np.inf, 0, most)
    return shift, most, np.log(np.exp(shift).sum(axis=1, keepdims=True))


def losses(desc: Any, logits: Array, labels: Array, weight: Array | None = None) -> dict[str, Array]:
    """The results of the forward op by name."""
    with np.errstate(all="ignore"):
        target, (shift, most, log_sum) = _Target.of(desc, labels, weight), _logs(desc, logits)
        lse = (most + log_sum)[:, 0]
        loss = target.spread(log_sum - shift) + lse.dtype.type(desc.z_loss) * lse * lse
        out = target.reduced(desc, loss)
    return {"out": out, "lse": lse.reshape(desc.row_shape), "status": target.status}


def forward(desc: Any, logits: Array, labels: Array, weight: Array | None = None) -> Any:
    """Every written operand, in order."""
    results = losses(desc, logits, labels, weight)
    return tuple(results[operand.name] for operand in desc.operands if operand.written)


def _pulled(desc: Any, grad: Array, logits: Array, labels: Array, lse: Array, weight: Array | None) -> tuple[Any, ...]:
    """The target, each row's gradient of its loss, x - lse, and the factors of softmax: of the target, and of z_loss."""
    target, x = _Target.of(desc, labels, weight), _rows(desc, logits)
    total = wide(lse, desc.element).reshape(-1, 1)
    g = wide(grad, desc.element).reshape(-1, 1) / (target.weight.sum() if desc.reduction == "mean" else 1)
    own = (target.rest * target.weight)[:, None]
    return target, g, x - total, own, 2 * total.dtype.type(desc.z_loss) * total


def slopes(
    desc: Any, grad: Array, logits: Array, labels: Array, lse: Array, weight: Array | None = None
) -> dict[str, Array]:
    """The results of the backward op by name."""
    with np.errstate(all="ignore"):
        target, g, shift, own, pull = _pulled(desc, grad, logits, labels, lse, weight)
        found = np.exp(shift) * (own + pull + (target.even * target.weights.sum() if target.even else 0))
        found = found - np.where(np.arange(desc.shape[-1]) == target.label[:, None], own, 0)
        found = g * (found - (target.even * target.weights if target.even else 0))
        found = np.where(target.counts[:, None], found, 0).reshape(desc.shape)
    return {"grad_logits": found, "status": target.status}


def backward(desc: Any, grad: Array, logits: Array, labels: Array, lse: Array, weight: Array | None = None) -> Any:
    """Every written operand, in order."""
    results = slopes(desc, grad, logits, labels, lse, weight)
    return tuple(results[operand.name] for operand in desc.operands if operand.written)


# ---- measures ------------------------------------------------------------------------------------------------------


class _Loss(NamedTuple):
    """What the bounds of a loss name, with magnitudes of all: t = x - max(x), E, log(sum(exp(t))), lse and z lse."""

    desc: Any
    target: _Target
    t: Array  # [N, C]
    expected: Array  # [N, 1], as those that follow
    log: Array
    lse: Array
    pull: Array

    def reduced(self, terms: Array) -> Array:
        """Magnitudes [N, 1] of rows, as errors of the result."""
        size = np.where(self.target.counts, terms[:, 0], 0)
        if self.desc.reduction == "none":
            return size.reshape(self.desc.row_shape)
        return np.asarray(size.sum() / (np.abs(self.target.weight.sum()) if self.desc.reduction == "mean" else 1))

    def spread(self, terms: Array) -> Array:
        """As `_Target.spread`, with magnitudes of weights."""
        return _size(self.target).spread(terms)[:, None]

    def terms(self) -> Array:
        """What is lost of each term, whatever the order of the sum: 3 u t and so on, as `_guarantee` counts them."""
        of_lse = 2 * (3 * self.expected + 4 * self.log + self.lse) + 5 * self.lse
        return self.reduced(self.spread(3 * self.t + 3 * self.expected + 10 * self.log) + self.pull * of_lse)

    def shares(self) -> Array:
        """What the error of the sum of exponentials is multiplied by."""
        return self.reduced(self.spread(np.ones_like(self.t)) + 2 * self.pull)

    def losses(self) -> Array:
        """The terms of the loss."""
        return self.reduced(self.spread(self.t + self.log) + self.pull * self.lse)

    def cancelled(self) -> Array:
        """The terms of the loss times sum|weight[y]| / |sum(weight[y])|: what the sum of weights loses."""
        return np.asarray(self.losses() * _cancellation(self.target))

    def lost(self) -> Array:
        """What is less than the smallest normal number on the way, times what follows."""
        factors = 8 + 4 * self.spread(np.ones_like(self.t)) + 8 * np.abs(self.target.weight)[:, None]
        factors = factors + self.pull + self.t.max(axis=1, keepdims=True, initial=0) + self.log + self.lse
        return np.asarray(self.reduced(factors * self.t.shape[1]) * _tiny(self.desc))

    def overflowing(self) -> Array:
        """Whether anything on the way to a loss is beyond what is computed in."""
        shift = np.where(np.isfinite(self.t), self.t, 0).max(axis=1, keepdims=True, initial=0)
        return _large(self.desc, np.maximum(self.reduced(shift), self.terms()))

    def lse_terms(self) -> Array:
        return np.asarray((3 * self.expected + 4 * self.log).reshape(self.desc.row_shape))


def _size(target: _Target) -> _Target:
    """The same target with magnitudes of weights."""
    return replace(target, weight=np.abs(target.weight), weights=np.abs(target.weights))


def _cancellation(target: _Target) -> Any:
    return np.abs(target.weight).sum() / np.abs(target.weight.sum())


def _tiny(desc: Any) -> Any:
    """The smallest normal number of what is computed in."""
    return np.longdouble(2) ** -1022 if desc.element is ElementKind.F64 else 2.0**-126


def _large(desc: Any, x: Array) -> Array:
    """Whether it is finite, and near the end of what is computed in or beyond."""
    return np.asarray(np.isfinite(x) & (x > 2.0**-10 / _tiny(desc)))


def _measure(of: Callable[[_Loss], Array]) -> Callable[..., Array]:
    def measured(desc: Any, logits: Array, labels: Array, weight: Array | None = None, **_: Array) -> Array:
        with np.errstate(all="ignore"):
            shift, most, log_sum = _logs(desc, logits)
            p, t, lse = np.exp(shift - log_sum), np.abs(shift), np.abs(most + log_sum)
            expected = np.where(p > 0, p * t, 0).sum(axis=1, keepdims=True)
            target = _Target.of(desc, labels, weight)
            return np.asarray(of(_Loss(desc, target, t, expected, log_sum, lse, abs(desc.z_loss) * lse)), np.float64)

    return measured


MEASURES: dict[str, Callable[..., Array]] = {
    "terms": _measure(_Loss.terms),
    "shares": _measure(_Loss.shares),
    "losses": _measure(_Loss.losses),
    "cancelled": _measure(_Loss.cancelled),
    "lost": _measure(_Loss.lost),
    "overflowing": _measure(_Loss.overflowing),
    "lse_terms": _measure(_Loss.lse_terms),
    "one": lambda desc, **_: np.ones(desc.row_shape),
}


class _Slope(NamedTuple):
    """What the bounds of a gradient name, with magnitudes of all: g, p = exp(x - lse), |x - lse|, the factor of p, the target."""

    desc: Any
    g: Array
    p: Array
    shift: Array
    factor: Array
    q: Array
    every: Any  # the part of the factor that is a sum over classes
    over: Any  # sum|weight[y]| / |sum(weight[y])| where that divides

    def shifted(self) -> Array:
        return np.asarray(self.g * self.p * self.factor * np.where(self.p > 0, self.shift, 0))

    def pulled(self) -> Array:
        return np.asarray(self.g * (self.p * self.factor + self.q))

    def cancelled(self) -> Array:
        return np.asarray(self.pulled() * self.over)

    def spread(self) -> Array:
        return np.asarray(self.g * self.p * self.every)

    def lost(self) -> Array:
        """What is less than the smallest normal number on the way, times what follows."""
        most = 1 + self.g * (1 + self.p) * (1 + self.factor + self.q)
        return np.asarray(most * (1 + self.over) * _tiny(self.desc))

    def overflowing(self) -> Array:
        """Whether anything on the way is beyond what is computed in."""
        most = np.maximum(1, self.g) * (1 + self.p) * (self.factor + self.q)
        return _large(self.desc, np.maximum(np.maximum(self.p, np.where(self.p > 0, self.shift, 0)), most) * self.over)


def _backward_measure(of: Callable[[_Slope], Array]) -> Callable[..., Array]:
    def measured(
        desc: Any, grad: Array, logits: Array, labels: Array, lse: Array, weight: Array | None = None, **_: Array
    ) -> Array:
        with np.errstate(all="ignore"):
            target, g, shift, own, pull = _pulled(desc, grad, logits, labels, lse, weight)
            size, here = _size(target), np.arange(desc.shape[-1]) == target.label[:, None]
            every, even = (size.even * size.weights.sum(), size.even * size.weights) if size.even else (0, 0)
            factor, q = np.abs(own) + np.abs(pull) + every, np.where(here, np.abs(own), 0) + even
            over = _cancellation(target) if desc.reduction == "mean" else 1.0
            found = of(_Slope(desc, np.abs(g), np.exp(shift), np.abs(shift), factor, q, every, over))
            return np.where(target.counts[:, None], found, 0).reshape(desc.shape)

    return measured


BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {
    "shifted": _backward_measure(_Slope.shifted),
    "pulled": _backward_measure(_Slope.pulled),
    "cancelled": _backward_measure(_Slope.cancelled),
    "spread": _backward_measure(_Slope.spread),
    "lost": _backward_measure(_Slope.lost),
    "overflowing": _backward_measure(_Slope.overflowing),
}
