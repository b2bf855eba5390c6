"""Linear cross entropy and its gradients in float64 (long double for f64), and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ....numerics.rounding import wide
from ....types import ElementKind
from .. import oracle as rows

__all__ = ["MEASURES", "backward", "forward"]

Array: TypeAlias = np.ndarray[Any, Any]


def _logits(desc: Any, hidden: Array, weight: Array) -> tuple[Array, Array, Array]:
    """The logits, and both operands, wide."""
    h, w = wide(hidden, desc.element), wide(weight, desc.element)
    return h @ w.T, h, w


def _written(desc: Any, results: dict[str, Array]) -> Any:
    return tuple(results[operand.name] for operand in desc.operands if operand.written)


def _pulled(desc: Any, grad: Array, x: Array, h: Array, w: Array, labels: Array, lse: Array) -> dict[str, Array]:
    slopes = rows.slopes(desc, grad, x, labels, lse)
    g = slopes["grad_logits"]
    return {"status": slopes["status"], "grad_hidden": g @ w, "grad_weight": g.T @ h}


def forward(desc: Any, hidden: Array, weight: Array, labels: Array) -> Any:
    """Every written operand, in order; gradients are those of the sum of the results."""
    with np.errstate(all="ignore"):
        x, h, w = _logits(desc, hidden, weight)
        results = rows.losses(desc, x, labels)
        if desc.gradients:
            results |= _pulled(desc, np.ones(desc.out_shape), x, h, w, labels, results["lse"])
        return _written(desc, results)


def backward(desc: Any, grad: Array, hidden: Array, weight: Array, labels: Array, lse: Array) -> Any:
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        return _written(desc, _pulled(desc, grad, *_logits(desc, hidden, weight), labels, lse))


# ---- measures ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sizes:
    """What the bounds name, with magnitudes of all; of rows [N, 1]."""

    desc: Any
    h: Array
    w: Array
    x: Array
    most: Array  # A, the largest |h| |w|
    lse: Array
    counts: Array
    target: Array  # [N, V]
    g: Array

    @property
    def log(self) -> Array:
        """At least |lse|."""
        return np.asarray(np.maximum(self.most + np.log(self.x.shape[1]), np.abs(self.lse)))

    @property
    def size(self) -> Array:
        return np.asarray(1 + self.log + np.abs(self.x - self.lse).max(axis=1, keepdims=True, initial=0))

    def reduced(self, terms: Array) -> Array:
        terms = np.where(self.counts, terms, 0)[:, 0]
        if self.desc.reduction == "none":
            return terms
        return np.asarray(terms.sum() / (self.counts.sum() if self.desc.reduction == "mean" else 1))

    def p(self) -> Array:
        """Probabilities as large as the kernel's may be: its own error of x - lse is below `far`."""
        unit, stored, k = _computed(self.desc).unit_roundoff, self.desc.element.unit_roundoff, self.h.shape[1]
        far = unit * ((4 * k + 64) * self.most + (4096 + 2 * self.x.shape[1]) * self.size) + 1.05 * stored * self.most
        return np.asarray(np.exp(self.x - self.lse + 2 * far))

    @property
    def factor(self) -> Array:
        return np.asarray(1 + 2 * abs(self.desc.z_loss) * (self.log + self.most))

    def products(self, output: str, terms: Array) -> Array:
        """Magnitudes [N, V] in the place of gradients of logits, times the other operand."""
        terms = np.where(self.counts & np.isfinite(terms), terms, 0)
        return terms @ self.w if output == "grad_hidden" else terms.T @ self.h

    def carried(self, output: str, error: Array) -> Array:
        """What an error of logits and of lse, [N, 1], is in a result."""
        if output == "lse":
            return error[:, 0]
        if output == "out":
            return self.reduced((1 + self.factor) * error)
        return self.products(output, self.g * error * 2 * self.p() * (self.factor + abs(self.desc.z_loss)))

    def gradient(self, output: str) -> Array:
        return self.products(output, self.g * (self.p() * self.factor + self.target))

    def losses(self) -> Array:
        return self.reduced(1 + self.most + self.log + abs(self.desc.z_loss) * self.log**2)

    def lost(self, output: str, kind: ElementKind) -> Array:
        """What is lost of numbers below the smallest normal one of a kind, in units roundoff."""
        tiny = self.x.dtype.type(kind.smallest_normal)
        found = self.carried(output, np.full_like(self.most, tiny))
        if output in self.desc.gradients:
            found = found + self.products(output, np.full_like(self.x, tiny)) + tiny
        return found

    def overflowing(self) -> bool:
        """Whether an operand is not finite, or anything on the way is beyond what it is stored in."""
        end = 0.25 * self.desc.element.largest
        sizes = self.most, self.g * (self.p() * self.factor + self.target), self.losses()
        found = [np.isfinite(each).all() and np.abs(each).max(initial=0) < end for each in sizes]
        return not all((*found, np.isfinite(self.h).all(), np.isfinite(self.w).all()))


def _computed(desc: Any) -> ElementKind:
    return ElementKind.F64 if desc.element is ElementKind.F64 else ElementKind.F32


def _sizes(
    desc: Any, hidden: Array, weight: Array, labels: Array, grad: Array | None = None, lse: Array | None = None
) -> _Sizes:
    x, h, w = _logits(desc, hidden, weight)
    columns, y = x.shape[1], np.asarray(labels, np.int64)[:, None]
    if lse is None:
        top = x.max(axis=1, keepdims=True, initial=-np.inf)
        total = top + np.log(np.exp(x - top).sum(axis=1, keepdims=True))
    else:
        total = wide(lse, desc.element)[:, None]
    counts = y != desc.ignore_index
    s = desc.label_smoothing
    target = (1 - s) * (np.arange(columns) == y) + s / columns
    g = np.ones(()) if grad is None else np.abs(wide(grad, desc.element))
    g = np.broadcast_to(g.reshape(-1, 1), y.shape) / (counts.sum() if desc.reduction == "mean" else 1)
    most = (np.abs(h) @ np.abs(w).T).max(axis=1, keepdims=True, initial=0)
    return _Sizes(desc, np.abs(h), np.abs(w), x, most, total, counts, target, g)


def _measure(of: Callable[[_Sizes, str], Any]) -> Callable[..., Array]:
    def measured(desc: Any, *, output: str, **arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            found = np.asarray(of(_sizes(desc, **arrays), output))
        return np.broadcast_to(found, desc.layout(output).shape)

    return measured


MEASURES: dict[str, Callable[..., Array]] = {
    "logits": _measure(lambda s, output: s.carried(output, s.most)),
    "ones": _measure(lambda s, output: s.carried(output, np.ones_like(s.most))),
    "sizes": _measure(lambda s, output: s.carried(output, s.size)),
    "underflow": _measure(lambda s, output: s.lost(output, _computed(s.desc))),
    "subnormal": _measure(lambda s, output: s.lost(output, s.desc.element)),
    "losses": _measure(lambda s, output: s.losses()),
    "gradient": _measure(_Sizes.gradient),
    "overflowing": _measure(lambda s, output: s.overflowing()),
}
