"""The negative log-likelihood and its gradient in float64 (long double for f64), and the measures that their bounds name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....numerics.rounding import wide

__all__ = ["BACKWARD_MEASURES", "MEASURES", "backward", "forward"]

Array: TypeAlias = np.ndarray[Any, Any]


class _Rows(NamedTuple):
    """What labels and weights say of every row."""

    label: Array  # a class, 0 where there is none
    counts: Array
    wrong: Array
    weight: Array  # of the label: 0 of one that is ignored, NaN out of range

    @staticmethod
    def of(desc: Any, labels: Array, weight: Array | None) -> _Rows:
        classes, y = desc.shape[-1], np.asarray(labels, np.int64).reshape(-1)
        counts, fits = y != desc.ignore_index, (y >= 0) & (y < classes)
        label = np.where(counts & fits, y, 0)
        weights = wide(np.ones(classes) if weight is None else weight, desc.element)
        return _Rows(label, counts, counts & ~fits, np.where(counts, np.where(fits, weights[label], np.nan), 0))

    @property
    def status(self) -> Array:
        return np.asarray(self.wrong.any(), np.int32)

    def divisor(self, desc: Any) -> Any:
        return self.weight.sum() if desc.reduction == "mean" else self.weight.dtype.type(1)

    def reduced(self, desc: Any, terms: Array) -> Array:
        if desc.reduction == "none":
            return terms.reshape(desc.row_shape)
        return np.asarray(terms.sum() / self.divisor(desc))

    def terms(self, desc: Any, x: Array) -> Array:
        rows = wide(x, desc.element).reshape(-1, desc.shape[-1])
        picked = np.take_along_axis(rows, self.label[:, None], 1)[:, 0]
        return np.where(self.counts, -(self.weight * picked), 0)

    def spread(self, desc: Any, slopes: Array) -> Array:
        """Gradients [N] in the place of their labels; NaN in rows whose label is out of range."""
        here = (np.arange(desc.shape[-1]) == self.label[:, None]) & self.counts[:, None]
        found = np.where(here, slopes[:, None], 0)
        return np.where(self.wrong[:, None], np.nan, found).reshape(desc.shape)


def _written(desc: Any, results: dict[str, Array]) -> Any:
    found = tuple(results[operand.name] for operand in desc.operands if operand.written)
    return found if len(found) > 1 else found[0]


def forward(desc: Any, x: Array, labels: Array, weight: Array | None = None) -> Any:
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        rows = _Rows.of(desc, labels, weight)
        return _written(desc, {"out": rows.reduced(desc, rows.terms(desc, x)), "status": rows.status})


def _slopes(desc: Any, grad: Array, rows: _Rows) -> Array:
    return np.asarray(-(wide(grad, desc.element).reshape(-1) / rows.divisor(desc)) * rows.weight)


def backward(desc: Any, grad: Array, x: Array, labels: Array, weight: Array | None = None) -> Any:  # noqa: ARG001
    """Every written operand, in order."""
    with np.errstate(all="ignore"):
        rows = _Rows.of(desc, labels, weight)
        return _written(desc, {"grad_x": rows.spread(desc, _slopes(desc, grad, rows)), "status": rows.status})


# ---- measures ------------------------------------------------------------------------------------------------------


def _over(desc: Any, rows: _Rows) -> Any:
    """How far the sum of weights cancels: sum|w[y]| / |sum(w[y])|, where that divides."""
    return np.abs(rows.weight).sum() / np.abs(rows.weight.sum()) if desc.reduction == "mean" else 1.0


def _tiny(desc: Any) -> Any:
    return wide(np.asarray(desc.computed.smallest_normal), desc.element)


def _large(desc: Any, sizes: Array) -> Array:
    """Whether it is finite, and near the end of what is computed in or beyond."""
    return np.asarray(np.isfinite(sizes) & (sizes > desc.computed.largest / 8))


def _measure(of: Callable[[Any, _Rows, Array], Array]) -> Callable[..., Array]:
    """A measure of the sizes of the losses [N]."""

    def measured(desc: Any, x: Array, labels: Array, weight: Array | None = None) -> Array:
        with np.errstate(all="ignore"):
            rows = _Rows.of(desc, labels, weight)
            return np.asarray(of(desc, rows, np.abs(rows.terms(desc, x))))

    return measured


def _backward_measure(of: Callable[[Any, _Rows, Array], Array]) -> Callable[..., Array]:
    """A measure of the sizes of the slopes [N]."""

    def measured(desc: Any, grad: Array, x: Array, labels: Array, weight: Array | None = None) -> Array:  # noqa: ARG001
        with np.errstate(all="ignore"):
            rows = _Rows.of(desc, labels, weight)
            return rows.spread(
                desc, np.broadcast_to(of(desc, rows, np.abs(_slopes(desc, grad, rows))), rows.label.shape)
            )

    return measured


MEASURES: dict[str, Callable[..., Array]] = {
    "losses": _measure(lambda desc, rows, sizes: np.abs(rows.reduced(desc, sizes)) * _over(desc, rows)),
    "lost": _measure(
        lambda desc, rows, sizes: np.abs(rows.reduced(desc, np.ones_like(sizes))) * _over(desc, rows) * _tiny(desc)
    ),
    "overflowing": _measure(lambda desc, rows, sizes: _large(desc, np.maximum(rows.reduced(desc, sizes), sizes.sum()))),
}
BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {
    "slopes": _backward_measure(lambda desc, rows, sizes: sizes * _over(desc, rows)),
    "lost": _backward_measure(
        lambda desc, rows, sizes: (1 + np.abs(rows.weight)) * (1 + _over(desc, rows)) * _tiny(desc)
    ),
    "overflowing": _backward_measure(lambda desc, rows, sizes: _large(desc, sizes * _over(desc, rows))),
}
