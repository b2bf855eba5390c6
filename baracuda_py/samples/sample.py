"""What a sample is, and how its arrays are made: random bits or values, laid out with given strides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from ..types import ElementKind

__all__ = ["Packed", "Sample", "adversarial", "labels_of", "layouts", "meant", "strided_like", "values"]

Array: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Packed:
    """Bytes to be read as a packed kind of `shape`; with `strides`, a view of them in elements."""

    data: Array
    element: ElementKind
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    offset: int = 0


@dataclass(frozen=True)
class Sample:
    """One problem: operands by name (outputs that are allocated left out), and the function's other arguments."""

    label: str
    operands: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


def labels_of(samples: Iterable[Sample]) -> list[str]:
    """Their labels, made distinct: the second of a name is ``"name (2)"``."""
    seen: Counter[str] = Counter()
    labels = []
    for sample in samples:
        seen[sample.label] += 1
        labels.append(sample.label if seen[sample.label] == 1 else f"{sample.label} ({seen[sample.label]})")
    return labels


def meant(labels: Sequence[str], text: str) -> list[int]:
    """The places of the labels that `text` means: of the one that it spells, else of all that it is a part of."""
    return [i for i, label in enumerate(labels) if label == text] or [
        i for i, label in enumerate(labels) if text in label
    ]


def values(rng: np.random.Generator, shape: tuple[int, ...], element: ElementKind, scale: float = 3.0) -> Array:
    """Random values: normal for floats, the whole range for integers, raw bits for the rest."""
    dtype = element.dtype
    if element.is_float and element.bits >= 16:
        return np.asarray(rng.standard_normal(shape) * scale).astype(dtype)
    if element.is_integer and not element.packed:
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, size=shape, dtype=dtype, endpoint=True)
    if element is ElementKind.BOOL:
        return rng.integers(0, 2, size=shape).astype(bool)
    raw = rng.integers(0, 256, size=(*shape, max(dtype.itemsize, 1)), dtype=np.uint8)
    return raw.view(dtype).reshape(shape)


def adversarial(element: ElementKind) -> Array:
    """Every float corner: both zeros, infinities, NaN, subnormals, extremes, values around 1; integers' ends."""
    if not element.is_float:
        info = np.iinfo(element.dtype)
        return np.array([0, 1, 2, 3, info.max, info.max - 1, info.min, info.min + 1], element.dtype)
    import ml_dtypes

    info = ml_dtypes.finfo(element.dtype)
    tiny, sub, top, eps = float(info.smallest_normal), float(info.smallest_subnormal), float(info.max), float(info.eps)
    positive = [
        0.0,
        sub,
        3 * sub,
        tiny - sub,
        tiny,
        1 - eps / 2,
        1.0,
        1 + eps,
        0.1,
        0.25,
        0.5,
        2.0,
        3.0,
        10.0,
        87.0,
        88.9,
        top / 2,
        top,
        np.inf,
    ]
    return np.array([*positive, *(-v for v in positive), np.nan], dtype=np.float64).astype(element.dtype)


def layouts(data: Array) -> dict[str, Array]:
    """The same values in several layouts: C, Fortran, padded rows, every other column, reversed."""
    views = {"C": np.ascontiguousarray(data)}
    if data.ndim:
        last = data.shape[-1]
        padded = np.empty((*data.shape[:-1], last + 3), data.dtype)
        padded[..., :last] = data
        views["padded"] = padded[..., :last]
        wide = np.empty((*data.shape[:-1], 2 * last), data.dtype)
        wide[..., ::2] = data
        views["stepped"] = wide[..., ::2]
        views["reversed"] = np.ascontiguousarray(np.flip(data))[tuple(slice(None, None, -1) for _ in data.shape)]
    if data.ndim > 1:
        views["F"] = np.asfortranarray(data)
    return views


def strided_like(data: Array, view: Array) -> Array:
    """`data` copied into fresh memory with the strides of `view`."""
    low = sum(min(0, s * (n - 1)) for n, s in zip(view.shape, view.strides))
    high = sum(max(0, s * (n - 1)) for n, s in zip(view.shape, view.strides)) + view.itemsize
    memory = np.empty(high - low, np.uint8)
    fresh = np.ndarray(view.shape, view.dtype, memory.data, -low, view.strides)
    fresh[...] = data
    return fresh
