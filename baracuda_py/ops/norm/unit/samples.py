"""Samples of vectors divided by their lengths: short and long rows, several axes, zeros, lengths about eps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, values
from ....types import ElementKind

__all__ = ["backward", "forward"]

KINDS = (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64)
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 5), (1,)), ((7, 2, 130), (1, 2)), ((4, 3, 9), (0, 2)), ((2, 9001), (1,)), ((5, 0), (1,)), ((6, 33), (0,)),
    ((2, 4096), (1,)),
)  # fmt: skip


def forward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """The samples of the backward op without the gradient of the result."""
    for sample in backward({"name": f"{fixed['name']}_backward"}, seed, full=full):
        yield Sample(sample.label, {n: x for n, x in sample.operands.items() if n != "grad"}, sample.options)


def backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind with every shape, and rows of zeros, of tiny numbers and of permuted axes."""
    rng = np.random.default_rng(seed)
    scaled = fixed["name"].startswith("weight_norm")

    def sample(label: str, grad: Any, x: Any, kind: ElementKind, axes: tuple[int, ...]) -> Sample:
        kept = tuple(a for a in range(x.ndim) if a not in axes)
        g_shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
        operands = {"grad": grad, "x": x} | ({"g": values(rng, g_shape, kind)} if scaled else {})
        options = {"axis": kept if scaled else axes, "eps": 0.0 if scaled else 1e-12}
        return Sample(f"{kind}{list(x.shape)} {label}".rstrip(), operands, options)

    for kind in KINDS:
        for shape, axes in SHAPES:
            grad, x = (values(rng, shape, kind) for _ in range(2))
            yield sample("" if axes == (len(shape) - 1,) else f"along {list(axes)}", grad, x, kind, axes)
    grad, x = (values(rng, (12, 6), ElementKind.F32) for _ in range(2))
    yield sample("transposed", grad.T, x.T, ElementKind.F32, (1,))
    small = values(rng, (5, 17), ElementKind.F32) * np.float32(1e-14)
    small[2] = 0
    for kind in KINDS:
        wide = [values(rng, (5, 150), kind) for _ in range(2)]
        yield sample("that start anywhere", wide[0][::-1, 3:144], wide[1][:, 1:142], kind, (1,))
        grad, x = (values(rng, (3, 70, 24), kind) for _ in range(2))
        yield sample("down", grad[:, ::-1], x, kind, (1,))
    if not scaled:
        yield sample("below eps", values(rng, (5, 17), ElementKind.F32), small, ElementKind.F32, (1,))
