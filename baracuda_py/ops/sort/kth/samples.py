"""Samples of elements taken by rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, adversarial, layouts, values
from ....types import ElementKind
from ..whole.samples import KEYS

__all__ = ["kthvalue", "kthvalue_backward", "median"]


def _problems(seed: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Every kind, ties, corners, rows from one element to several tiles, any axis and layout."""
    rng = np.random.default_rng(seed)
    for i, element in enumerate(KEYS):
        x = adversarial(element)
        yield np.stack([x[rng.permutation(np.arange(3 * len(x)) % len(x))] for _ in range(3)]), {}
        yield values(rng, (5, 333 + i), element), {"keepdims": True}
        yield rng.integers(0, 3, (2, 2100)).astype(element.dtype), {}  # nearly all of them tie
    for shape in ((1,), (4, 1), (0, 5), (70, 64), (2, 1025), (2, 5003)):
        yield values(rng, shape, ElementKind.F32), {}
    for axis, keepdims in ((0, True), (1, False), (-1, True)):
        yield values(rng, (6, 9, 5), ElementKind.F32), {"axis": axis, "keepdims": keepdims}
    yield values(rng, (2500, 3), ElementKind.BF16), {"axis": 0}
    for view in layouts(values(rng, (3, 2200), ElementKind.F32)).values():
        yield view, {}
    yield np.full((2, 3000), np.nan, np.float32), {}
    rare = values(rng, (3, 6005), ElementKind.F32)
    rare[0, 5000], rare[1, 17::1700], rare[1, 3000:], rare[2, 7::1700] = np.nan, np.inf, np.nan, -np.inf
    yield rare, {}
    short = rare[:, 4990:5020].copy()
    yield short, {}


def _sample(x: Any, options: dict[str, Any]) -> Sample:
    said = " ".join(f"{name} {value}" for name, value in options.items())
    return Sample(f"{x.dtype}{list(x.shape)} {said}", {"x": x}, options)


def kthvalue(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Those problems, with a k at either end or in the middle."""
    for i, (x, options) in enumerate(_problems(seed)):
        n = x.shape[options.get("axis", -1)]
        yield _sample(x, {"k": (1, n, (n + 2) // 3, max(n - 1, 1))[i % 4], **options})
    rng = np.random.default_rng(seed + 1)
    for n, k in ((5003, 9), (5003, 4000), (20_011, 33)) if full else ((5003, 9),):
        yield _sample(values(rng, (2, n), ElementKind.F32), {"k": k})


def median(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Those problems."""
    for x, options in _problems(seed):
        yield _sample(x, options)


def kthvalue_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every float kind, any axis and layout, indices that a row lacks, no row."""
    rng = np.random.default_rng(seed)

    def sample(x: Any, axis: int = -1, keepdims: bool = False, indices: Any = None, grad: Any = None) -> Sample:
        n = x.shape[axis]
        shape = list(x.shape)
        shape[axis] = 1
        places = rng.integers(-1, n + 1, shape) if indices is None else indices
        given = values(rng, tuple(shape), ElementKind.of(x.dtype)) if grad is None else grad
        if not keepdims:
            places, given = np.squeeze(places, axis), np.squeeze(given, axis)
        options = {"axis": axis, "keepdims": keepdims}
        label = f"{x.dtype}{list(x.shape)} axis {axis} {keepdims}"
        return Sample(label, {"grad": given, "indices": places, "x": x}, options)

    for element in (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64):
        yield sample(values(rng, (5, 33), element))
        yield sample(values(rng, (3, 9, 7), element), 1, keepdims=True)
    for shape in ((1,), (4, 1), (0, 5), (3, 0), (300, 2)):
        yield sample(values(rng, shape, ElementKind.F32))
    yield sample(values(rng, (40, 3), ElementKind.F32), 0)
    corners = adversarial(ElementKind.F32)[:, None]
    yield sample(values(rng, (len(corners), 6), ElementKind.F32), grad=corners)
    far = np.array([[2**40], [-(2**63)], [2**63 - 1], [6], [0]])
    yield sample(values(rng, (5, 6), ElementKind.F16), indices=far)
    for grad in layouts(values(rng, (6, 1), ElementKind.F32)).values():
        yield sample(values(rng, (6, 50), ElementKind.F32), keepdims=True, grad=grad)
