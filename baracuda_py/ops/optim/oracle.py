"""Steps of optimizers in float64 (long double for f64), and the measures that their bounds name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...numerics.rounding import wide, wide_dtype
from ...types import ElementKind

__all__ = ["ADAM_MEASURES", "adam"]

Array: TypeAlias = np.ndarray[Any, Any]
LEAD = 2  # columns of a table ahead of the arrays' places


class _Parts:
    """The elements that a step updates, of every array, as vectors."""

    def __init__(self, desc: Any, given: Mapping[str, Array]) -> None:
        self.desc, self.given = desc, given
        self.at: dict[str, Any] = dict.fromkeys(desc.arrays, slice(None))
        if "table" in given:
            rows = given["table"].astype(np.int64)
            for column, name in enumerate(desc.arrays):
                size = desc.layout(name).element.bits // 8
                parts = [np.arange(n) + begin // size for n, begin in zip(rows[:, 0], rows[:, LEAD + column])]
                self.at[name] = np.concatenate(parts) if parts else np.zeros(0, np.int64)

    @property
    def skipped(self) -> bool:
        return "found_inf" in self.given and float(self.given["found_inf"]) != 0

    @property
    def step(self) -> Any:
        """The number of this step."""
        return wide_dtype(self.desc.element)(np.float32(self.given["step"]) + np.float32(1))

    @property
    def lr(self) -> Any:
        return wide_dtype(self.desc.element)(self.given.get("learning_rate", self.desc.lr))

    def of(self, name: str) -> Array:
        return wide(np.asarray(self.given[name]).reshape(-1)[self.at[name]], self.desc.element)

    @property
    def param(self) -> Array:
        return self.of("master" if "master" in self.given else "param")

    @property
    def grad(self) -> Array:
        scale = wide_dtype(self.desc.element)(self.given.get("grad_scale", 1))
        return self.of("grad") * ((-1 if self.desc.maximize else 1) / scale)

    def hyper(self) -> tuple[Any, ...]:
        """The run-time values behind lr."""
        return tuple(wide_dtype(self.desc.element)(getattr(self.desc, name)) for name in self.desc.hyper)

    def placed(self, name: str, values: Any, other: Any = None) -> Array:
        """`values` where the step updates an array, elsewhere what it holds, or `other`."""
        whole = wide(np.asarray(self.given[name]).reshape(-1), self.desc.element) if other is None else other
        whole = np.array(whole)
        whole[self.at[name]] = values
        return whole.reshape(self.desc.shape)

    def results(self, made: Mapping[str, Array], param: Array) -> tuple[Array, ...]:
        """Every written operand, in order."""
        found = {**made, "param": param, "master": param}
        written = [operand.name for operand in self.desc.operands if operand.written]
        whole = {n: self.given[n] if self.skipped else self.placed(n, found[n]) for n in written if n != "step"}
        step = np.float32(self.given["step"]) + np.float32(not self.skipped)
        return tuple(np.asarray(step if n == "step" else whole[n]) for n in written)


class _Adam(NamedTuple):
    """A step of Adam, with what it is made of."""

    p: Array
    g: Array  # with weight decay
    averages: tuple[Array, ...]
    decay: Any  # what the parameter is multiplied by
    step_size: Any
    root: Any  # of the second moment's bias correction

    @staticmethod
    def of(parts: _Parts) -> _Adam:
        desc = parts.desc
        beta1, beta2, _, weight_decay = parts.hyper()
        p, g = parts.param, parts.grad
        g = g if desc.decoupled else g + weight_decay * p
        first = parts.of("exp_avg") * beta1 + (1 - beta1) * g
        second = parts.of("exp_avg_sq") * beta2 + (1 - beta2) * g * g
        averages: tuple[Array, ...] = (first, second)
        if "max_exp_avg_sq" in parts.given:
            averages += (np.maximum(parts.of("max_exp_avg_sq"), second),)
        decay = 1 - parts.lr * weight_decay if desc.decoupled else 1
        root = np.sqrt(1 - beta2**parts.step)
        return _Adam(p, g, averages, decay, parts.lr / (1 - beta1**parts.step), root)

    def moved(self, eps: Any) -> Array:
        """What is taken from the parameter."""
        return np.asarray(self.step_size * (self.averages[0] / (np.sqrt(self.averages[-1]) / self.root + eps)))


def adam(desc: Any, **given: Array) -> tuple[Array, ...]:
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        parts = _Parts(desc, given)
        own = _Adam.of(parts)
        param = own.p * own.decay - own.moved(parts.hyper()[2])
        return parts.results(dict(zip(desc.states, own.averages)), param)


# ---- measures ------------------------------------------------------------------------------------------------------


class _AdamSizes:
    """What the bounds of Adam name, as magnitudes: `_guarantee` says how they follow."""

    def __init__(self, parts: _Parts) -> None:
        desc = parts.desc
        self.own = _Adam.of(parts)
        self.computed = ElementKind.F64 if desc.element is ElementKind.F64 else ElementKind.F32
        self.beta1, self.beta2, self.eps, decay = parts.hyper()
        self.step, self.p = parts.step, np.abs(self.own.p)
        self.a = np.abs(parts.grad) + (0 if desc.decoupled else decay * self.p)
        old = np.abs(parts.of("exp_avg"))
        self.first = old + (1 - self.beta1) * (self.a + old)
        self.second = self.beta2 * np.abs(parts.of("exp_avg_sq")) + (1 - self.beta2) * self.a**2

    @property
    def divisor(self) -> tuple[Array, Array]:
        """The divisor, and its error in unit roundoffs."""
        u, tiny = self.computed.unit_roundoff, wide_dtype(self.computed)(self.computed.smallest_normal)
        of_square = 13 * self.second + 4 * tiny
        root = np.sqrt(np.abs(self.own.averages[-1]))
        of_root = np.minimum(np.sqrt(of_square / u), of_square / root) + 3 * root
        divisor = root / self.own.root + self.eps
        return divisor, of_root / self.own.root + divisor + self.eps

    def param(self) -> Array:
        u, tiny = self.computed.unit_roundoff, wide_dtype(self.computed)(self.computed.smallest_normal)
        divisor, of_divisor = self.divisor
        least = divisor - u * of_divisor
        moved = np.abs(self.own.moved(self.eps))
        of_first = self.own.step_size * (9 * self.first + 5 * tiny) / least
        return np.asarray(of_first + moved * of_divisor / least + 8 * moved + 3 * self.p + 8 * tiny)

    def correction(self) -> Array:
        """What the powers of the decay rates lose, where 1 less such a power is small."""
        powers = (self.beta1**self.step, self.beta2**self.step)
        return np.asarray(np.abs(self.own.moved(self.eps)) * sum(x / (1 - x) + 1 for x in powers))

    def beyond(self) -> Array:
        """Whether the divisor's error exceeds half of it, or anything on the way is near the end of what is computed in."""
        u, (divisor, of_divisor) = self.computed.unit_roundoff, self.divisor
        large = 2.0**-10 / wide_dtype(self.computed)(self.computed.smallest_normal)
        sizes = (self.a, self.first, self.second, self.own.step_size * self.first / divisor, divisor)
        return np.asarray((2 * u * of_divisor > divisor) | np.any([size > large for size in sizes], axis=0))


def _measure(of: Callable[[_AdamSizes], Array]) -> Callable[..., Array]:
    def measured(desc: Any, output: str, **given: Array) -> Array:
        with np.errstate(all="ignore"):
            parts, nothing = _Parts(desc, given), np.zeros(math.prod(desc.shape), wide_dtype(desc.element))
            return nothing.reshape(desc.shape) if parts.skipped else parts.placed(output, of(_AdamSizes(parts)), nothing)

    return measured


ADAM_MEASURES: dict[str, Callable[..., Array]] = {
    "first": _measure(lambda sizes: np.asarray(sizes.first)),
    "second": _measure(lambda sizes: np.asarray(sizes.second)),
    "moved": _measure(_AdamSizes.param),
    "correction": _measure(_AdamSizes.correction),
    "beyond": _measure(_AdamSizes.beyond),
}
