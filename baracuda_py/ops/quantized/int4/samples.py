"""Samples of int4 weights: every layout, group size, ragged extents, zero points, orders; codes that are all different."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from ....samples.sample import Sample, values
from ....types import ElementKind
from . import oracle

__all__ = ["dequantize_int4", "matmul_int4", "quantize_int4", "relayout_int4", "weight"]

HALVES = (ElementKind.F16, ElementKind.BF16)


def weight(
    rng: np.random.Generator, layout: str, k: int, n: int, group_size: int, scales: ElementKind = ElementKind.F16,
    *, zeros: bool = False, order: bool = False,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Arrays of a weight, and the options that describe it."""
    groups = k // group_size
    factors = (rng.random((groups, n)) * 0.2 + 0.01).astype(scales.dtype)
    tiled = layout == "tiled"
    made: dict[str, Any] = {
        "codes": oracle.from_codes(layout, rng.integers(0, 16, (k, n)).astype(np.uint8)),
        "scales": np.pad(factors, ((0, 0), (0, -n % 16))) if tiled else factors,
    }
    if layout in ("awq", "gptq"):
        made["codes"] = made["codes"].view(np.int32)
    if zeros:
        points = oracle.zeros_to(layout, rng.integers(1, 16, (groups, n)).astype(np.uint8))
        made["zeros"] = points.view(np.int32) if layout in ("awq", "gptq") else points
    if order:
        places = rng.permutation(k).astype(np.int32)
        made["order"] = places if tiled else (places // group_size).astype(np.int32)
    return made, {"shape": (k, n), "group_size": group_size, "layout": layout}


def matmul_int4(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Tokens 1 to 65, ragged N, K that ends within a tile, groups of each size, epilogues, foreign layouts."""
    rng = np.random.default_rng(seed)

    def sample(
        m: int,
        k: int,
        n: int,
        group: int,
        element: ElementKind,
        more: Mapping[str, Any] = MappingProxyType({}),
        **of: Any,
    ) -> Sample:
        layout = of.pop("layout", "tiled")
        arrays, options = weight(rng, layout, k, n, group, **of)
        x = values(rng, (m, k), element, 1.0)
        label = f"{element} {m}x{n}x{k} {layout} group={group}" + "".join(f" {name}" for name in of)
        return Sample(label, {"x": x, **arrays}, {**options, **more})

    f16, bf16 = HALVES
    row = sample(1, 256, 34, 128, f16)
    yield Sample(f"{row.label} vector", {**row.operands, "x": row.operands["x"][0]}, row.options)
    batch = sample(6, 192, 18, 64, bf16, zeros=True)
    yield Sample(f"{batch.label} batch", {**batch.operands, "x": batch.operands["x"].reshape(2, 3, 192)}, batch.options)
    yield sample(16, 96, 14, 32, f16, {"activation": "silu", "out_dtype": "f32"}, zeros=True, scales=bf16)
    yield sample(2, 13, 2, 13, bf16, {"out_dtype": "f16"})
    given = sample(3, 128, 30, 32, f16, {"activation": "gelu"}, order=True, zeros=True)
    yield Sample(given.label, {**given.operands, "bias": values(rng, (30,), f16, 1.0)}, given.options)
    yield sample(17, 256, 48, 128, bf16, zeros=True)
    yield sample(63, 64, 13, 32, f16)
    yield sample(65, 192, 34, 192, bf16)
    given = sample(3, 64, 24, 64, f16)
    stored = np.zeros((64, 9), np.float16)
    stored[:, :3] = given.operands["x"].T
    yield Sample(
        "columns",
        {**given.operands, "x": stored[:, :3].T, "out": np.zeros((3, 24), np.float16, order="F")},
        given.options,
    )
    foreign: dict[str, dict[str, Any]] = {"awq": {"zeros": True}, "gptq": {"zeros": True, "order": True}}
    for layout, of in foreign.items():
        yield sample(3, 64, 16, 32, f16, layout=layout, **of)
    if full:
        for m in (1, 2, 4, 8, 12, 16, 24, 31, 33, 47, 64, 96, 129):
            for group in (32, 64, 128, 512):
                yield sample(m, 512, 130, group, HALVES[m % 2], zeros=True)
    yield sample(0, 64, 16, 64, f16)


def relayout_int4(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every layout to tiles and back."""
    rng = np.random.default_rng(seed)
    for other, n in (("kaio", 13), ("awq", 24), ("gptq", 24), ("plain", 13)):
        for layout, to in ((other, "tiled"), ("tiled", other)):
            for zeros in (False, True):
                if zeros and other == "kaio":
                    continue
                arrays, options = weight(rng, layout, 96, n, 32, zeros=zeros)
                yield Sample(f"{layout} to {to}{' zeros' * zeros}", arrays, options | {"to": to})
    arrays, options = weight(rng, "gptq", 128, 16, 64, HALVES[1], zeros=True)
    arrays["gather"] = rng.permutation(128).astype(np.int32)
    yield Sample("gather", arrays, options | {"to": "tiled"})


def dequantize_int4(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every layout, into rows and columns."""
    rng = np.random.default_rng(seed)
    for layout, k, n in (("tiled", 96, 18), ("kaio", 96, 13), ("awq", 64, 16), ("gptq", 64, 16), ("plain", 64, 5)):
        arrays, options = weight(rng, layout, k, n, 32, zeros=layout != "kaio")
        yield Sample(layout, arrays, options)
        yield Sample(f"{layout} in columns", arrays | {"out": np.zeros((k, n), ml_dtypes.bfloat16, order="F")}, options)
    for layout in ("tiled", "gptq"):
        arrays, options = weight(rng, layout, 64, 16, 32, order=True)
        yield Sample(f"{layout} in order", arrays, options | {"out_dtype": "f32"})
    arrays, options = weight(rng, "tiled", 64, 16, 64)
    yield Sample("f32 in columns", arrays | {"out": np.zeros((64, 16), np.float32, order="F")}, options)


def quantize_int4(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Groups of each size, ragged N, columns, groups of one sign and of zeros."""
    rng = np.random.default_rng(seed)
    for element, k, n, group in (
        (ElementKind.F32, 128, 13, 64),
        (ElementKind.F16, 96, 18, 32),
        (ElementKind.BF16, 72, 16, 72),
    ):
        for symmetric in (True, False):
            w = values(rng, (k, n), element, 1.0)
            w[:group, 1], w[:group, 2] = 0, np.abs(w[:group, 2])
            yield Sample(
                f"{element} [{k}, {n}]{' symmetric' * symmetric}",
                {"w": w},
                {"group_size": group, "symmetric": symmetric},
            )
    w = values(rng, (64, 18), ElementKind.F32, 1.0)
    yield Sample(
        "columns",
        {"w": np.asfortranarray(w)},
        {"group_size": 64, "scales_dtype": "bf16", "symmetric": False, "least_zero": 1},
    )
