"""Norms over channels by the oracle of layer norm: x [N, C, *] is folded to [N, groups, elements of a group], for batch_norm to
[C, elements of a channel].

Measures are those of layer norm as well, with sums over items and positions for the gradients of weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from ....numerics.guarantee import widely
from ....numerics.rounding import wide
from ....types import ElementKind, PrecisionGuarantee
from .. import oracle as norms

__all__ = [
    "BACKWARD_MEASURES", "FIXED_BACKWARD_MEASURES", "FIXED_MEASURES", "MEASURES", "RUNNING_MEASURES", "backward", "fixed",
    "fixed_backward", "guarantee", "norm", "running",
]  # fmt: skip

Array: TypeAlias = np.ndarray[Any, Any]
Measure: TypeAlias = Callable[..., Array]


@dataclass(frozen=True)
class _Folded:
    """A layer norm's problem: rows of `length` elements, one per item and group."""

    desc: Any

    rank = 1
    centered = True

    @property
    def element(self) -> ElementKind:
        kind: ElementKind = self.desc.element
        return kind

    @property
    def eps(self) -> float:
        return float(getattr(self.desc, "eps", 0.0))

    @property
    def length(self) -> int:
        return int(self.desc.length)

    @property
    def row_shape(self) -> tuple[int, ...]:
        rows: tuple[int, ...] = self.desc.row_shape
        return rows

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.row_shape, self.length)

    @property
    def operands(self) -> tuple[Any, ...]:
        """Of a gradient: that of x alone."""
        return (SimpleNamespace(name="grad_x", written=True),)

    def fold(self, name: str, x: Array) -> Array:
        """An operand over `shape`: each element's weight, each row's statistics, or the elements themselves."""
        if name in ("weight", "bias"):
            return np.repeat(x, self.desc.positions).reshape(self.desc.groups, self.length)
        if name in ("mean", "rstd", "var", "running_mean", "running_var"):
            return x
        return np.reshape(np.swapaxes(x, 0, 1) if self.desc.batched else x, self.shape)

    def given(self, operands: dict[str, Array]) -> dict[str, Array]:
        return {name: self.fold(name, x) for name, x in operands.items() if x is not None}


def _unfolded(desc: Any, made: Array) -> Array:
    """Elements as x has them; statistics are unchanged."""
    if made.ndim == len(desc.row_shape):
        return made
    items, channels, *positions = desc.shape
    return np.swapaxes(made.reshape(channels, items, *positions), 0, 1) if desc.batched else made.reshape(desc.shape)


def norm(desc: Any, **operands: Array) -> Any:
    """Every written operand, in order."""
    folded = _Folded(desc)
    results = norms.normalized(folded, **folded.given(operands))
    return tuple(_unfolded(desc, results[o.name]) for o in desc.operands if o.written)


def running(desc: Any, running_mean: Array, running_var: Array, **operands: Array) -> Any:
    """Every written operand, in order."""
    folded = _Folded(desc)
    results = norms.normalized(folded, **folded.given(operands))
    with np.errstate(all="ignore"):
        h = wide(folded.fold("x", operands["x"]), desc.element)
        statistics = (
            ("running_mean", running_mean, _average(h)),
            ("running_var", running_var, _unbiased(h, _deviation(h))),
        )
        for name, old, new in statistics:
            results[name] = (1 - _momentum(desc)) * wide(old, desc.element) + _momentum(desc) * new
    return tuple(_unfolded(desc, results[o.name]) for o in desc.operands if o.written)


def _average(terms: Array) -> Array:
    """Along rows; 0 of none."""
    return np.asarray(terms.sum(axis=-1) / max(terms.shape[-1], 1))


def _deviation(h: Array) -> Array:
    """The mean square deviation of rows."""
    return _average((h - _average(h)[..., None]) ** 2)


def _unbiased(h: Array, variance: Array) -> Array:
    return np.asarray(variance * (h.shape[-1] / max(h.shape[-1] - 1, 1)))


def _momentum(desc: Any) -> Any:
    """As kernels take it."""
    return wide(np.asarray(desc.momentum, np.float64 if desc.element is ElementKind.F64 else np.float32), desc.element)


def fixed(
    desc: Any, x: Array, weight: Array | None = None, bias: Array | None = None, *, mean: Array, var: Array
) -> Array:
    """Batch norm by given statistics, wide."""
    with np.errstate(all="ignore"):
        y = (wide(x, desc.element) - _spread(desc, mean)) * _fixed_rstd(desc, var)
        y = y if weight is None else y * _spread(desc, weight)
        return np.asarray(y if bias is None else y + _spread(desc, bias))


def _spread(desc: Any, of_channels: Array) -> Array:
    """Values of channels, over x's axes, wide."""
    return wide(of_channels, desc.element).reshape(-1, *(1,) * (len(desc.shape) - 2))


def _fixed_rstd(desc: Any, var: Array) -> Array:
    spread = _spread(desc, var)
    return np.asarray(1 / np.sqrt(spread + spread.dtype.type(desc.eps)))


def fixed_backward(desc: Any, grad: Array, x: Array, weight: Array | None = None, *, mean: Array, var: Array) -> Any:
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        raw, r = wide(grad, desc.element), _fixed_rstd(desc, var)
        n = (wide(x, desc.element) - _spread(desc, mean)) * r
        axes = (0, *range(2, len(desc.shape)))
        results = {
            "grad_x": raw * r * (1 if weight is None else _spread(desc, weight)),
            "grad_weight": np.asarray((raw * n).sum(axis=axes)),
            "grad_bias": np.asarray(raw.sum(axis=axes)),
        }
    return tuple(results[o.name] for o in desc.operands if o.written)


def _over_items(desc: Any, terms: Array) -> Array:
    """Sums over items and positions."""
    return np.asarray(terms.reshape(desc.items, desc.channels, desc.positions).sum(axis=(0, 2)))


def _raw_and_normal(desc: Any, grad: Array, x: Array, mean: Array, rstd: Array) -> tuple[Array, Array, Array]:
    """grad, n = (x - mean) rstd and rstd, each folded and wide."""
    folded, kind = _Folded(desc), desc.element
    m, r = (np.asarray(wide(s, kind))[..., None] for s in (mean, rstd))
    raw, values = (wide(folded.fold("x", a), kind) for a in (grad, x))
    return raw, np.asarray((values - m) * r), np.asarray(r + 0 * raw)


def backward(desc: Any, grad: Array, x: Array, weight: Array | None = None, *, mean: Array, rstd: Array) -> Any:
    """Every written operand, in order."""
    folded = _Folded(desc)
    given = {"grad": grad, "x": x, "mean": mean, "rstd": rstd} | ({} if weight is None else {"weight": weight})
    (grad_x,) = norms.backward(folded, **folded.given(given))
    with np.errstate(all="ignore"):
        raw, n, _ = _raw_and_normal(desc, grad, x, mean, rstd)
        results = {
            "grad_x": _unfolded(desc, grad_x),
            "grad_weight": _over_items(desc, raw * n),
            "grad_bias": _over_items(desc, raw),
        }
    return tuple(results[o.name] for o in desc.operands if o.written)


def guarantee(desc: Any, kernel: PrecisionGuarantee) -> PrecisionGuarantee:
    """What the oracle itself promises of each output."""
    return widely(kernel, desc, max(desc.length, desc.items * desc.positions))


# ---- measures ------------------------------------------------------------------------------------------------------


def _along(measure: Measure) -> Measure:
    """A measure of layer norm, of the elements of a group."""

    def measured(desc: Any, **operands: Array) -> Array:
        folded = _Folded(desc)
        return _unfolded(desc, measure(folded, **folded.given(operands)))

    return measured


def _down(of: Callable[[Any, Array, Array, Array], Array]) -> Measure:
    """The sum of a measure of grad, n and rstd over items and positions."""

    def measured(desc: Any, grad: Array, x: Array, *, mean: Array, rstd: Array, **_: Array) -> Array:
        with np.errstate(all="ignore"):
            terms = of(desc, *_raw_and_normal(desc, grad, x, mean, rstd))
            return np.asarray(_over_items(desc, terms), np.float64)

    return measured


def _least(desc: Any) -> Any:
    """The smallest normal number of what is computed in."""
    return np.longdouble(2) ** (-1022 if desc.element is ElementKind.F64 else -126)


def _overflowing(desc: Any, **operands: Array) -> Array:
    """Whether anything on the way to a channel's sums is beyond what is computed in."""
    size = _down(lambda _, raw, n, r: np.abs(raw * n) + np.abs(raw) + np.abs(n) * np.maximum(1, 1 / r))(
        desc, **operands
    )
    return np.asarray(np.isfinite(size) & (size > 1 / _least(desc)))


MEASURES: dict[str, Measure] = {name: _along(measure) for name, measure in norms.MEASURES.items()}
BACKWARD_MEASURES: dict[str, Measure] = {
    **{
        name: _along(norms.BACKWARD_MEASURES[name])
        for name in ("g_scaled", "plain_scaled", "along_scaled", "lost", "overflowing")
    },
    "weight_terms": _down(lambda _, raw, n, r: np.abs(raw * n)),
    "bias_terms": _down(lambda _, raw, n, r: np.abs(raw)),
    "lost_down": _down(lambda desc, raw, n, r: (1 + np.abs(raw)) * _least(desc)),
    "overflowing_down": _overflowing,
    "smallest_normal": norms.BACKWARD_MEASURES["smallest_normal"],
}


def _momentary(of: Callable[[Array], Array]) -> Measure:
    """momentum times a measure of a channel's elements."""

    def measured(desc: Any, x: Array, **_: Array) -> Array:
        with np.errstate(all="ignore"):
            h = wide(_Folded(desc).fold("x", x), desc.element)
            return np.asarray(_momentum(desc) * of(h), np.float64)

    return measured


RUNNING_MEASURES: dict[str, Measure] = {
    **MEASURES,
    "momentum_mean": _momentary(lambda h: _average(np.abs(h))),
    "momentum_var": _momentary(lambda h: _unbiased(h, _deviation(h))),
    "momentum_mean_squared": _momentary(lambda h: _unbiased(h, _average(np.abs(h)) ** 2)),
}


def _fixed_measure(of: Callable[..., Array]) -> Measure:
    """A measure of |x - mean|, rstd, |weight| and the unit of what is lost."""

    def measured(desc: Any, x: Array, weight: Array | None = None, *, mean: Array, var: Array, **_: Array) -> Array:
        with np.errstate(all="ignore"):
            size = np.abs(wide(x, desc.element) - _spread(desc, mean))
            scale = np.ones((), size.dtype) if weight is None else np.abs(_spread(desc, weight))
            return np.asarray(of(desc, size, _fixed_rstd(desc, var), scale), np.float64)

    return measured


def _fixed_outside(desc: Any, size: Array, r: Array, scale: Array) -> Array:
    """Whether anything on the way is beyond what is computed in, or var + eps no normal number."""
    most = np.maximum(np.maximum(size, size * r), np.maximum(size * r * scale, 4 * r * r))
    return np.asarray(np.isfinite(most) & (most > 1 / _least(desc) / 4) & np.isfinite(size))


FIXED_MEASURES: dict[str, Measure] = {
    "scaled": _fixed_measure(lambda desc, size, r, scale: size * r * scale),
    "lost": _fixed_measure(lambda desc, size, r, scale: (1 + scale * (1 + r) + 0 * size) * _least(desc)),
    "out_of_range": _fixed_measure(_fixed_outside),
}


def _fixed_gradient(of: Callable[..., Array]) -> Measure:
    """A measure of |grad|, |n|, rstd and |weight|."""

    def measured(
        desc: Any, grad: Array, x: Array, weight: Array | None = None, *, mean: Array, var: Array, **_: Array
    ) -> Array:
        with np.errstate(all="ignore"):
            raw, r = np.abs(wide(grad, desc.element)), _fixed_rstd(desc, var)
            n = np.abs(wide(x, desc.element) - _spread(desc, mean)) * r
            scale = np.ones((), raw.dtype) if weight is None else np.abs(_spread(desc, weight))
            return np.asarray(of(desc, raw, n, r, scale))

    return measured


def _channel_sum(desc: Any, terms: Array) -> Array:
    return np.asarray(terms.sum(axis=(0, *range(2, len(desc.shape)))), np.float64)


def _beyond(desc: Any, size: Array) -> Array:
    return np.asarray(np.isfinite(size) & (size > 1 / _least(desc) / 4))


FIXED_BACKWARD_MEASURES: dict[str, Measure] = {
    "g_scaled": _fixed_gradient(lambda desc, raw, n, r, scale: raw * scale * r),
    "lost": _fixed_gradient(lambda desc, raw, n, r, scale: (1 + r + 0 * raw) * _least(desc)),
    "overflowing": _fixed_gradient(
        lambda desc, raw, n, r, scale: _beyond(desc, np.maximum(raw * scale * np.maximum(1, r), 4 * r * r + 0 * raw))
    ),
    "weight_terms": _fixed_gradient(lambda desc, raw, n, r, scale: _channel_sum(desc, raw * n)),
    "bias_terms": _fixed_gradient(lambda desc, raw, n, r, scale: _channel_sum(desc, raw)),
    "lost_down": _fixed_gradient(lambda desc, raw, n, r, scale: _channel_sum(desc, (1 + raw) * (1 + r)) * _least(desc)),
    "overflowing_down": _fixed_gradient(
        lambda desc, raw, n, r, scale: _beyond(
            desc, _channel_sum(desc, raw * n + raw + n * np.maximum(1, 1 / r) + 4 * r * r + 0 * n)
        )
    ),
}
