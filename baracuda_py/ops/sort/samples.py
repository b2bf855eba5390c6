"""Samples of what orders rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...samples.sample import Sample, adversarial, layouts, values
from ...types import ElementKind

__all__ = ["searchsorted", "topk"]

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


def searchsorted(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, both sides, ties, corners, sequences of no element on, one for all values and one per row, layouts."""
    rng = np.random.default_rng(seed)

    def sample(sequence: Any, found: Any, label: str = "", **options: Any) -> Sample:
        said = " ".join((label, *(f"{name} {value}" for name, value in options.items())))
        operands = {"sorted_sequence": sequence, "values": found}
        return Sample(f"{sequence.dtype}{list(sequence.shape)}{list(found.shape)} {said}", operands, options)

    for i, element in enumerate(KEYS):
        corners = adversarial(element)
        yield sample(np.sort(corners), corners[::-1].copy(), "corners", right=bool(i % 2))
        few = rng.integers(0, 9, (3, 40)).astype(element.dtype)
        yield sample(np.sort(few[0, :33]), few, "ties", right=bool((i + 1) % 2))
    for shape, wanted in (
        ((0,), (5,)),
        ((1,), (3, 4)),
        ((1000,), ()),
        ((7,), (0, 3)),
        ((4, 0), (4, 3)),
        ((2, 1, 9), (2, 1, 5)),
    ):
        yield sample(np.sort(values(rng, shape, ElementKind.F32), -1), values(rng, wanted, ElementKind.F32))
    rows = np.sort(values(rng, (5, 333), ElementKind.F32), -1)
    for name, view in layouts(rows).items() if full else (("C", rows), ("F", np.asfortranarray(rows))):
        yield sample(view, values(rng, (5, 70), ElementKind.F32), name, right=True)
    for name, view in layouts(values(rng, (6, 50), ElementKind.F16)).items():
        yield sample(np.sort(values(rng, (300,), ElementKind.F16)), view, f"values {name}")
    one = sample(np.sort(values(rng, (100,), ElementKind.F32)), values(rng, (3, 50), ElementKind.F32), "int32")
    yield Sample(one.label, {**one.operands, "out": np.zeros((3, 50), np.int32)}, {})
