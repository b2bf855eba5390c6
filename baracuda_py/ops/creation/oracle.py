"""Constants by NumPy's functions, sequences in long double, and the measure that their bound names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...types import ElementKind, MathPrecision, PrecisionGuarantee, Ulp

__all__ = ["MEASURES", "fill", "fill_arange", "fill_eye", "fill_linspace", "guarantee", "one_hot"]

Array: TypeAlias = np.ndarray[Any, Any]


def fill(desc: Any, x: Array) -> Array:
    """numpy.full."""
    return np.full(x.shape, np.frombuffer(desc.elements[0], desc.element.dtype)[0], desc.element.dtype)


def fill_eye(desc: Any, x: Array) -> Array:
    """numpy.eye."""
    return np.eye(*x.shape, desc.diagonal).astype(desc.element.dtype)


def one_hot(desc: Any, indices: Array) -> Array:
    """Comparisons of each index with each class."""
    return np.asarray(indices[..., None] == np.arange(desc.num_classes)).astype(desc.element.dtype)


def fill_arange(desc: Any, x: Array) -> Array:
    """start + i * step, of integers exactly."""
    if desc.element.is_integer:
        return np.array([desc.start + i * desc.step for i in range(x.size)], desc.element.dtype).reshape(x.shape)
    steps = np.arange(x.size, dtype=np.longdouble).reshape(x.shape)
    return np.asarray(np.longdouble(desc.start) + steps * np.longdouble(desc.step))


def fill_linspace(desc: Any, x: Array) -> Array:
    """numpy.linspace in long double."""
    ends = np.longdouble(desc.start), np.longdouble(desc.stop)
    return np.linspace(*ends, x.size, endpoint=desc.endpoint, dtype=np.longdouble).reshape(x.shape)


def guarantee(desc: Any) -> PrecisionGuarantee:
    """The oracle's own results: computed wide, rounded once."""
    if desc.element.is_integer:
        return PrecisionGuarantee.exact(desc.element)
    return PrecisionGuarantee.fixed_order(MathPrecision.F64, ElementKind.F64, Ulp(1.0))


def _span(desc: Any, **_: Any) -> Array:
    start, step, _last = desc.numbers
    return np.asarray(abs(start) + np.arange(desc.count).reshape(desc.shape) * abs(step), np.float64)


MEASURES: dict[str, Callable[..., Any]] = {"span": _span}
