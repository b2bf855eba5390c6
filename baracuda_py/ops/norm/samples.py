"""Samples of the norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...samples.sample import Sample, adversarial, layouts, strided_like, values
from ...types import ElementKind

__all__ = ["norm", "norm_backward"]

FLOATS = (ElementKind.BF16, ElementKind.F32, ElementKind.F16, ElementKind.F64)
SHAPES = ((1, 1), (3, 5), (2, 130), (5, 1024), (0, 8), (3, 0), (2, 3, 72), (1, 4104), (7, 33))


def norm(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Rows of every length class and dtype, layouts, offsets far from zero, corners."""
    rng = np.random.default_rng(seed)
    centered = dict(fixed or {}).get("name") == "layer_norm"

    def scaled(x: Any, element: ElementKind, rank: int = 1, **options: Any) -> Sample:
        operands = {"x": x, "weight": values(rng, x.shape[x.ndim - rank :], element)}
        if centered:
            operands["bias"] = values(rng, x.shape[x.ndim - rank :], element)
        return Sample(f"{ElementKind.of(x.dtype)}{list(x.shape)} {rank}", operands, options)

    for element in FLOATS:
        for shape in SHAPES if full or element is ElementKind.BF16 else SHAPES[2:4]:
            yield scaled(values(rng, shape, element), element)
        yield Sample(f"{element} plain", {"x": values(rng, (6, 200), element)}, {"eps": 1e-3})
        yield Sample(f"{element} corners", {"x": np.stack([np.roll(adversarial(element), i) for i in range(3)])})
        wide = values(rng, (4, 41), element)
        wide[:, 3] = np.nan
        wide[1:, 3] = 1
        yield scaled(wide, element)
        for name, view in layouts(values(rng, (6, 40), element)).items():
            yield Sample(f"{element} {name}", {"x": view})
    yield scaled(values(rng, (3, 4, 40), ElementKind.F32), ElementKind.F32, 2)
    yield scaled(values(rng, (5, 264), ElementKind.BF16), ElementKind.F32)
    for element in (ElementKind.F32, ElementKind.F64):
        yield scaled(values(rng, (3, 500), element) + element.dtype.type(1000), element, eps=0.0)
    for element, shape in ((ElementKind.BF16, (5, 72)), (ElementKind.F16, (3, 4104)), (ElementKind.F32, (2, 33000))):
        x, residual = values(rng, shape, element), values(rng, shape, element) * element.dtype.type(3)
        rstd = np.zeros(shape[:-1], np.float32)
        statistics = {"mean": rstd.copy(), "rstd": rstd} if centered else {"rstd": rstd}
        weight = values(rng, shape[-1:], element)
        operands = {"x": x, "residual": residual, "weight": weight, "residual_out": np.zeros_like(x), **statistics}
        yield Sample(f"{element}{list(shape)} residual and statistics", operands)
    yield Sample("bf16 streamed", {"x": values(rng, (2, 40000), ElementKind.BF16)})
    yield Sample("f32 odd rows, streamed", {"x": values(rng, (2, 16391), ElementKind.F32)})
    yield Sample("f32 broadcast rows", {"x": np.broadcast_to(values(rng, (1, 40), ElementKind.F32), (5, 40))})


def norm_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """As `norm`, many rows and few among them; the statistics are some, not x's own."""
    rng = np.random.default_rng(seed)
    centered = dict(fixed or {}).get("name") == "layer_norm_backward"

    def sample(
        shape: tuple[int, ...],
        element: ElementKind,
        weighted: bool | ElementKind = True,
        view: str = "C",
        rank: int = 1,
    ) -> Sample:
        computed = ElementKind.F64 if element is ElementKind.F64 else ElementKind.F32
        x, grad = (layouts(values(rng, shape, element))[view] for _ in range(2))
        operands = {"grad": grad, "x": x}
        if weighted:
            operands["weight"] = values(rng, shape[-rank:], element if weighted is True else weighted)
        if centered:
            operands["mean"] = values(rng, shape[:-rank], computed)
        operands["rstd"] = np.abs(values(rng, shape[:-rank], computed)) + computed.dtype.type(0.1)
        return Sample(f"{element}{list(shape)} {view} {'weighted' if weighted else 'plain'}", operands)

    for element in FLOATS:
        for shape in SHAPES if full or element is ElementKind.BF16 else SHAPES[2:4]:
            yield sample(shape, element)
        yield sample((7, 136), element, weighted=False)
        for view in ("padded", "stepped", "reversed", "F"):
            yield sample((6, 40), element, view=view)
    for view in ("C", "F"):
        given = sample((4, 6, 10), ElementKind.F32, view=view, rank=2)
        x = given.operands["x"]
        yield Sample(f"{given.label} of two axes", {**given.operands, "grad_x": strided_like(np.zeros_like(x), x)})
    yield sample((700, 40), ElementKind.BF16)
    yield sample((700, 264), ElementKind.F16, ElementKind.F32)
    yield sample((300, 1040), ElementKind.F32)
    yield sample((70, 20000), ElementKind.BF16)
    yield sample((3, 8201), ElementKind.F32)
