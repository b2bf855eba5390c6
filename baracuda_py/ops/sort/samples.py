"""Samples of what orders rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...samples.sample import Sample, adversarial, layouts, values
from ...types import ElementKind

__all__ = ["topk"]

KEYS = (
    ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64, ElementKind.I32, ElementKind.U8, ElementKind.I64,
    ElementKind.I8, ElementKind.I16, ElementKind.U16, ElementKind.U32, ElementKind.U64,
)  # fmt: skip


def topk(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, either end, ties, corners, rows from one element to several tiles, any axis and layout, any k."""
    rng = np.random.default_rng(seed)

    def sample(x: Any, k: int, **options: Any) -> Sample:
        said = " ".join(f"{name} {value}" for name, value in options.items())
        return Sample(f"{x.dtype}{list(x.shape)} k {k} {said}", {"x": x}, {"k": k, **options})

    for i, element in enumerate(KEYS):
        x = adversarial(element)
        corners = np.stack([x[rng.permutation(np.arange(3 * len(x)) % len(x))] for _ in range(3)])
        for largest in (True, False):
            yield sample(corners, (1, 7, corners.shape[-1])[i % 3], largest=largest)
        yield sample(values(rng, (5, 333), element), 9, largest=bool(i % 2))
        few = rng.integers(0, 3, (2, 2100)).astype(element.dtype)  # nearly all of them tie
        yield sample(few, (3, 700, 1500)[i % 3], largest=bool((i + 1) % 2))
    for shape, k in (((1,), 1), ((4, 1), 1), ((3, 0), 0), ((0, 5), 2), ((6, 5), 0), ((70, 64), 8), ((2, 1025), 1025)):
        yield sample(values(rng, shape, ElementKind.F32), k)
    for element in (ElementKind.BF16, ElementKind.F32, ElementKind.F64):
        for n, k in ((2049, 5), (9001, 50), (4096, 1024)) if full else ((5003, 50),):
            yield sample(values(rng, (2, n), element), k)
            yield sample(values(rng, (2, n), element), k, sorted=False)
    yield sample(values(rng, (3, 70), ElementKind.F32), 9, sorted=False)
    for axis in (0, 1, -1):
        yield sample(values(rng, (6, 9, 5), ElementKind.F32), 3, axis=axis)
    yield sample(values(rng, (2500, 3), ElementKind.BF16), 11, axis=0)
    for name, view in layouts(values(rng, (3, 2200), ElementKind.F32)).items():
        yield Sample(f"f32 {name}", {"x": view}, {"k": 20})
    yield sample(np.full((2, 3000), np.nan, np.float32), 4)
    yield sample(np.broadcast_to(values(rng, (1, 2300), ElementKind.F16), (3, 2300)), 6)
    yield sample(rng.integers(0, 5000, (1, 20011)).astype(np.float32), 33)
    yield sample(np.arange(18_006).reshape(2, 9003).astype(np.float32), 9)
    rare = values(rng, (2, 6005), ElementKind.F32)
    rare[:, ::1500], rare[0, 7::1700], rare[1, 5::1700] = np.nan, np.inf, -np.inf
    yield sample(rare, 14)
    yield sample(rare, 14, largest=False)
    # Nearly all tie; and what a sample of every ninth or fourth vector holds is greater than the rest
    tied, above = np.zeros((2, 5003), np.float32), np.zeros((1, 20_000), np.float32)
    tied[:, ::1000], above[:, : 30 * 144 : 144] = 1, 1
    yield sample(tied, 40)
    yield sample(above, 50)
