"""The norm of gradients, and gradients scaled to a norm at most."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....numerics.rounding import wide
from ....types import ElementKind
from .parts import Array, places_of

__all__ = ["NORM_MEASURES", "gradient_clip", "gradient_norm"]

CLEARANCE = 1e-6


def _norm(desc: Any, given: dict[str, Array]) -> tuple[Array, Any, Any]:
    """The elements that count, their norm, and the scale that it is over."""
    x = wide(np.asarray(given["grad"]).reshape(-1)[places_of(desc, given)["grad"]], desc.element)
    scale = x.dtype.type(given.get("grad_scale", 1))
    return x, np.sqrt(np.sum(x * x)) / scale, scale


def gradient_norm(desc: Any, **given: Array) -> tuple[Array, Array, Array]:
    """norm, scale, found_inf."""
    with np.errstate(all="ignore"):
        _, norm, scale = _norm(desc, given)
        over = (norm + CLEARANCE) / desc.max_norm if desc.max_norm else np.inf
        fits = np.isfinite(norm.astype(desc.computed.dtype))
        made = norm, scale if over <= 1 else scale * over, np.float32(not fits)
        return tuple(np.asarray(x) for x in made)  # type: ignore[return-value]


def gradient_clip(desc: Any, **given: Array) -> tuple[Array, Array]:
    """grad, norm."""
    with np.errstate(all="ignore"):
        x, norm, _ = _norm(desc, given)
        share = desc.max_norm / (norm + CLEARANCE)
        whole = wide(np.asarray(given["grad"]).reshape(-1), desc.element).copy()
        whole[places_of(desc, given)["grad"]] = x * (1 if share >= 1 else share)
        return whole.reshape(desc.shape), np.asarray(norm)


def _beyond(desc: Any, **given: Array) -> Array:
    """Whether squares are beyond f64, which those of shorter kinds are not."""
    if desc.element is not ElementKind.F64:
        return np.asarray(False)
    size = np.abs(np.asarray(given["grad"], np.longdouble))
    return np.asarray(bool(np.any((size > 1e150) & np.isfinite(size)) or 0 < np.max(size, initial=0) < 1e-140))


NORM_MEASURES = {"beyond": _beyond}
