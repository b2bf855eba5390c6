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

__all__ = ["BACKWARD_MEASURES", "MEASURES", "backward", "guarantee", "norm"]

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
        if name in ("mean", "rstd"):
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
