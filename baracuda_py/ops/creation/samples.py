"""Samples of arrays made of numbers: every width, odd extents, none, numbers at the ends of their kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ...samples.sample import Sample, values
from ...types import ElementKind

__all__ = ["fill", "fill_arange", "fill_eye", "fill_linspace", "one_hot"]

WIDTHS = ("f32", "bf16", "f64", "u8", "complex128")  # 4, 2, 8, 1 and 16 bytes an element
OTHERS = tuple(str(kind.value) for kind in ElementKind if not kind.packed and kind.value not in WIDTHS)
Problem = tuple[str, tuple[int, ...], dict[str, Any]]  # x's kind and shape, options


def _samples(seed: int, problems: Iterable[Problem]) -> Iterator[Sample]:
    rng = np.random.default_rng(seed)
    for kind, shape, options in problems:
        said = " ".join(f"{name}={value}" for name, value in options.items())
        yield Sample(f"{kind}{list(shape)} {said}", {"x": values(rng, shape, ElementKind.of(kind))}, options)


def fill(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every width, shapes of every rank, NaN."""
    made: list[Problem] = [(kind, (5, 37), {"value": 3}) for kind in WIDTHS]
    made += [(kind, (7,), {"value": 1}) for kind in (OTHERS if full else OTHERS[:1])]
    made += [("f64", (), {"value": -0.5}), ("u8", (0, 3), {"value": 1}), ("f32", (3, 700), {"value": float("nan")})]
    made += [("i64", (9,), {"value": 2**62 + 1})]
    yield from _samples(seed, made)


def fill_eye(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every width, wide and tall, diagonals inside and outside."""
    made: list[Problem] = [(kind, (37, 45), {}) for kind in WIDTHS]
    made += [(kind, (7, 7), {"k": 1}) for kind in (OTHERS if full else OTHERS[:1])]
    made += [
        ("u8", s, {"k": k})
        for s, k in (((64, 9), -3), ((1, 70), 5), ((300, 1), -299), ((9, 9), 10**9), ((3, 3), -(10**9)))
    ]
    made += [("f32", (0, 4), {}), ("f32", (4, 0), {})]
    yield from _samples(seed, made)


def one_hot(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every width, every kind of index, indices out of range, few and many classes."""
    rng = np.random.default_rng(seed)
    problems = (((5, 7), 37), ((40,), 3), ((), 5), ((2, 3), 1), ((3,), 700), ((0,), 4), ((4,), 0))
    for i, (shape, classes) in enumerate(problems):
        for kind in WIDTHS if full or not i else (WIDTHS[i % len(WIDTHS)],):
            indices = np.asarray(rng.integers(-2, classes + 2, shape))
            yield Sample(
                f"{kind}{list(shape)} of {classes}", {"indices": indices}, {"num_classes": classes, "dtype": kind}
            )
    for dtype in (np.int32, np.uint8, np.int16, np.uint64):
        top = np.iinfo(dtype)
        indices = np.array([0, 1, 5, top.max, top.min], dtype)
        yield Sample(f"{np.dtype(dtype)} indices", {"indices": indices}, {"num_classes": 6})


def fill_arange(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, both directions, none, the ends of kinds."""
    made: list[Problem] = [(kind, (193,), {"start": 2.5, "step": 0.3}) for kind in ("f32", "bf16", "f16", "f64")]
    made += [(kind, (15,), {"start": 3, "step": 7}) for kind in ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")]
    made += [("i64", (100,), {}), ("i32", (4, 6), {"start": 10, "step": -3}), ("f32", (0,), {}), ("f32", (2001,), {})]
    made += [("i64", (32,), {"start": -(2**62), "step": 2**58}), ("u64", (3,), {"start": 2**63 - 5, "step": 2**62})]
    yield from _samples(seed, made)


def fill_linspace(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, through zero, backwards, one, none, without the end."""
    made: list[Problem] = [(kind, (77,), {"start": -1.0, "stop": 2.0}) for kind in ("f32", "bf16", "f16", "f64")]
    made += [
        ("f64", (11,), {"start": 5.0, "stop": -5.0, "endpoint": False}),
        ("f32", (1,), {"start": 1.0, "stop": 9.0}),
    ]
    made += [("f32", (0,), {"start": 0.0, "stop": 1.0}), ("f32", (3, 1000), {"start": 0.1, "stop": 0.7})]
    yield from _samples(seed, made)
