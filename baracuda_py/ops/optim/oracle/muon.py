"""Muon: the momentum of gradients, its Newton-Schulz iteration in a wide type, and what the kernel may lose in bf16.

With u the unit roundoff of bf16, s the spectral norm of an iterate X, ||.|| Frobenius' norm, and sums of K products in f32:

- X begins with the share of twice what the momentum loses beside its rounding to bf16, of itself and in its norm,
  and of 2 u: the norm's own rounding, and the quotient's.
- G errs by u ||G|| and by K roundoffs of f32 of ||X||^2; Y = b G + c G G by as much of its terms; and a X + Y X likewise. An
  error of G counts |b| + 2 |c| s^2 times in Y, and one of Y s times in the result.
- An error of X itself is multiplied by max |p'| at most, over 0 to s, of p(x) = a x + b x^3 + c x^5: a function of singular
  values is no less smooth than of numbers (R. Bhatia, *Matrix Analysis*, section X.3, for the matrix [[0, X], [X^T, 0]]).

Where this may be a quarter or more, nothing is said of the parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ....numerics.rounding import wide_dtype
from ....types import ElementKind
from .parts import Array, Parts

__all__ = ["MUON_MEASURES", "muon_update"]

MOST_LOST = 0.25
BF16 = ElementKind.BF16.unit_roundoff


def _lerp(a: Array, b: Array, weight: Any) -> Array:
    return np.asarray(a + weight * (b - a) if weight < 0.5 else b - (b - a) * (1 - weight))


def _norm(x: Array) -> float:
    return float(np.sqrt(np.sum(x * x)))


def _slope(coefficients: tuple[float, ...], s: float) -> float:
    """The largest |p'| between 0 and s."""
    a, b, c = coefficients
    at = [0.0, s * s]
    if c and 0 < -0.3 * b / c < s * s:
        at.append(-0.3 * b / c)
    return float(max(abs(a + 3 * b * t + 5 * c * t * t) for t in at))


def _iterated(x: Array, coefficients: tuple[float, ...]) -> Array:
    a, b, c = coefficients
    wide = x if x.shape[0] <= x.shape[1] else x.T
    gram = wide @ wide.T
    made = a * wide + (b * gram + c * gram @ gram) @ wide
    return np.asarray(made if wide is x else made.T)


def _lost_by(x: Array, lost: float, coefficients: tuple[float, ...]) -> float:
    """What the next iterate loses, of an x that lost so much, in Frobenius' norm."""
    a, b, c = map(abs, coefficients)
    size, spectral = _norm(x) + lost, float(np.linalg.norm(np.asarray(x, np.float64), 2)) + lost
    small, large = (2 * n * ElementKind.F32.unit_roundoff for n in sorted(x.shape))
    of_gram = BF16 * size * spectral + large * size**2
    terms = b * size * spectral + c * size * spectral**3
    of_polynomial = (BF16 + small) * terms + small * c * size**4 + of_gram * (b + 2 * c * spectral**2)
    of_result = (BF16 + small) * (a * size + terms * spectral) + small * terms * size
    return float(1.01 * (_slope(coefficients, spectral) * lost + of_result + of_polynomial * spectral))


class Momentum(NamedTuple):
    """The buffer, the update, and what the kernel may lose of each before the update is rounded to bf16."""

    buffer: Array
    buffer_lost: Array
    update: Array
    update_lost: Array


class _Stepped:
    """A step: its momentum, and the iterates X."""

    def __init__(self, desc: Any, given: dict[str, Array]) -> None:
        self.desc, self.parts = desc, Parts(desc, given)
        self.p = self.parts.param.reshape(desc.shape)
        self.momentum = self._momentum()
        update = self.momentum.update
        self.iterates = [update / max(_norm(update), self.parts.number("eps"))]
        for _ in range(desc.ns_steps):
            self.iterates.append(_iterated(self.iterates[-1], desc.ns_coefficients))
        self.decay = self.parts.lr * self.parts.number("weight_decay")
        self.adjusted = self.parts.lr * wide_dtype(desc.element)(desc.ratio)

    def _momentum(self) -> Momentum:
        momentum = self.parts.number("momentum")
        g, old = (self.parts.of(name).reshape(self.desc.shape) for name in ("grad", "momentum_buffer"))
        size = np.abs(g) + np.abs(old)
        buffer, lost = _lerp(old, g, 1 - momentum), 6 * (1 + momentum) * size + 3 * self.parts.tiny
        if not self.desc.nesterov:
            return Momentum(buffer, lost, buffer, lost)
        update_lost = (1 + momentum) * (lost + 6 * (np.abs(buffer) + size))
        return Momentum(buffer, lost, _lerp(g, buffer, momentum), update_lost)

    @property
    def values(self) -> dict[str, Array]:
        param = self.p * (1 - self.decay) - self.adjusted * self.iterates[-1]
        return {"param": param, "master": param, "momentum_buffer": self.momentum.buffer}

    def lost(self, output: str) -> Array:
        """In unit roundoffs of what is computed in."""
        if output == "momentum_buffer":
            return self.momentum.buffer_lost
        moved = np.abs(self.adjusted * self.iterates[-1])
        return np.asarray(3 * (np.abs(self.p) * (1 + self.decay) + moved) + 4 * self.parts.tiny)

    def iterated(self) -> float:
        """What the parameter loses by the iteration; infinite where that may be as large as X."""
        update, parts = self.momentum.update, self.parts
        norm, smallest = _norm(update), ElementKind.BF16.smallest_normal
        divisor = max(norm, parts.number("eps"))
        rounded = _norm(BF16 * (np.abs(update) + smallest) + parts.unit * self.momentum.update_lost)
        lost = float(2 * rounded / (divisor - rounded) + 2 * (BF16 + ElementKind.F32.unit_roundoff) * norm / divisor)
        lost = 1.01 * lost if lost >= 0 else np.inf
        for x in self.iterates[:-1]:
            if not lost < MOST_LOST:
                return np.inf
            lost = _lost_by(x, lost, self.desc.ns_coefficients)
        return float(self.adjusted) * lost if lost < MOST_LOST else np.inf

    def beyond(self, output: str) -> bool:
        """Whether nothing is said of an output."""
        sizes = [np.abs(self.parts.of(name)) for name in ("grad", "momentum_buffer")]
        large = bool(np.any(self.parts.large(*sizes)))
        return large or (output != "momentum_buffer" and not np.isfinite(self.iterated()))


def muon_update(desc: Any, **given: Array) -> tuple[Array, ...]:
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        values = _Stepped(desc, given).values
    if "master" in given:  # of which the parameter is a copy
        values["param"] = values["param"].astype(np.float32)
    return tuple(values[o.name] for o in desc.operands if o.written)


def _measure(of: Callable[[_Stepped, str], Any]) -> Callable[..., Array]:
    def measured(desc: Any, output: str, **given: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.broadcast_to(of(_Stepped(desc, given), output), desc.shape)

    return measured


def _iteration(stepped: _Stepped, _output: str) -> float:
    lost = stepped.iterated()
    return lost / BF16 if np.isfinite(lost) else 0.0


MUON_MEASURES: dict[str, Callable[..., Array]] = {
    "lost": _measure(_Stepped.lost),
    "iterated": _measure(_iteration),
    "beyond": _measure(_Stepped.beyond),
}
