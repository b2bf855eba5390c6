"""Elements under a mask by NumPy's masks, on bytes: NaN payloads come through untouched."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["masked_scatter", "masked_scatter_backward", "masked_select", "masked_select_backward"]

Array: TypeAlias = np.ndarray[Any, Any]


def masked_select(desc: Any, x: Array, mask: Array) -> tuple[Array, Array]:
    """The elements under the mask with zero bytes behind them, and how many are under it."""
    shape = desc.common_shape
    found = np.broadcast_to(x, shape)[np.broadcast_to(mask, shape)]
    return _filled(found, desc.capacity), np.array([found.size], np.int64)


def masked_select_backward(desc: Any, grad: Array, mask: Array, x: Array) -> Array:  # noqa: ARG001
    """grad's elements at the places of those under the mask, as many as it has."""
    return _replaced(np.zeros(desc.common_shape, grad.dtype), mask, grad)[0]


def masked_scatter(desc: Any, x: Array, mask: Array, source: Array) -> Any:
    """x with source's elements under the mask, and the status where the problem has one."""
    out, missing = _replaced(np.array(np.broadcast_to(x, desc.common_shape), order="C"), mask, source)
    return (out, np.asarray(missing > 0, np.int32)) if desc.has_status else out


def masked_scatter_backward(desc: Any, grad: Array, mask: Array, source: Array) -> tuple[Array, Array]:  # noqa: ARG001
    """grad where no element of source went, and grad where they went, in order."""
    own, _ = _replaced(grad.copy("C"), mask, np.zeros(source.size, grad.dtype))
    return own, _filled(grad[np.broadcast_to(mask, grad.shape)], source.size).reshape(source.shape)


def _replaced(base: Array, mask: Array, source: Array) -> tuple[Array, int]:
    """`base` with the elements under the mask replaced as far as source has any, and how many of them it lacks."""
    places = np.flatnonzero(np.broadcast_to(mask, base.shape))
    kept = places[: source.size]
    base.reshape(-1)[kept] = source.reshape(-1)[: kept.size]
    return base, places.size - kept.size


def _filled(found: Array, size: int) -> Array:
    """The first `size` elements, zeros where there are fewer."""
    made = np.zeros(size, found.dtype)
    made[: found.size] = found[:size]
    return made
