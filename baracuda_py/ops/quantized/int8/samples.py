"""Samples of codes of a byte: every scheme and type, odd extents, layouts, ranges of all sorts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample
from ....types import ElementKind

__all__ = ["dequantize", "matmul", "quantize"]

F16, BF16, F32 = ElementKind.F16, ElementKind.BF16, ElementKind.F32
I8, U8, E4M3 = ElementKind.I8, ElementKind.U8, ElementKind.FP8_E4M3


def _floats(rng: np.random.Generator, shape: tuple[int, ...], element: ElementKind) -> Any:
    """Rows of all sizes; a row of zeros, and one with what is not finite."""
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-12, 8, (*shape[:-1], 1)))
    if len(shape) == 2 and min(shape) > 3:
        x[1] = 0
        x[2, :3] = np.nan, np.inf, -np.inf
    return x.astype(element.dtype)


_SCHEMES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((5, 40), {"per": "row"}), ((4, 2, 21), {"per": "row"}), ((3, 96), {"per": "group", "group_size": 32}),
    ((37, 24), {"per": "column"}), ((9, 13), {"per": "column"}), ((70, 256), {"per": "column"}),
    ((6, 64), {"per": "tensor"}), ((77,), {"per": "tensor"}),
)  # fmt: skip


def _kinds(fixed: Any) -> tuple[tuple[ElementKind, bool], ...]:
    """Codes, and whether there are zero points."""
    if "fp8" in fixed.get("name", ""):
        return ((E4M3, False),)
    return ((I8, False), (I8, True), (U8, True), (U8, False))


def quantize(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    rng, kinds = np.random.default_rng(seed), _kinds(dict(fixed or {}))
    for i, (shape, scheme) in enumerate(_SCHEMES):
        for j, (kind, zero_points) in enumerate(kinds if full else (kinds[i % len(kinds)],)):
            element = (F32, BF16, F16)[(i + j) % 3]
            options = scheme | {"dtype": kind.value} | ({"zero_points": True} if zero_points else {})
            yield Sample(
                f"{element} {list(shape)} {scheme['per']} {kind}", {"x": _floats(rng, shape, element)}, options
            )
    kind, zero_points = kinds[-1]
    column_major = {"x": np.asfortranarray(_floats(rng, (6, 10), F32))}
    yield Sample("turned", column_major, {"dtype": kind.value})
    tiny = np.full((2, 8), 2.0**-149, np.float32)
    yield Sample("subnormal", {"x": tiny}, {"dtype": kinds[0][0].value})
    huge = np.full((2, 8), 3e38, np.float32) * np.array([[1], [-1]], np.float32)
    huge[:, ::2] *= -1
    yield Sample(
        "huge", {"x": huge}, {"dtype": kinds[0][0].value} | ({"zero_points": True} if kinds[0][0] is I8 else {})
    )
    yield Sample("empty", {"x": np.zeros((3, 0), np.float32)}, {"dtype": kinds[0][0].value})
    yield Sample("long", {"x": _floats(rng, (2, 9000), BF16)}, {"dtype": kinds[0][0].value})


def _scales_shape(shape: tuple[int, ...], scheme: dict[str, Any]) -> tuple[int, ...]:
    of = {"tensor": (), "row": shape[:-1], "column": shape[-1:]}
    return of[scheme["per"]] if scheme["per"] in of else (*shape[:-1], shape[-1] // scheme["group_size"])


def dequantize(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    rng, kinds = np.random.default_rng(seed), _kinds(dict(fixed or {}))
    for i, (shape, scheme) in enumerate(_SCHEMES):
        for j, (kind, zero_points) in enumerate(kinds if full else (kinds[i % len(kinds)],)):
            element, scales = (F32, BF16, F16)[(i + j) % 3], _scales_shape(shape, scheme)
            operands = {"codes": _codes(rng, shape, kind), "scales": rng.uniform(-2, 2, scales).astype(np.float32)}
            if zero_points:
                operands["zeros"] = _codes(rng, scales, kind)
            yield Sample(
                f"{kind} {list(shape)} {scheme['per']} to {element}", operands, scheme | {"dtype": element.value}
            )
    column_major = {"codes": np.asfortranarray(_codes(rng, (6, 10), kinds[0][0])), "scales": np.ones(6, np.float32)}
    yield Sample("turned", column_major)


def _codes(rng: np.random.Generator, shape: tuple[int, ...], kind: ElementKind) -> Any:
    codes = rng.integers(0, 256, shape, np.uint8, endpoint=False)
    return np.asarray(codes).view(kind.dtype).reshape(shape)


# ---- products ----------------------------------------------------------------------------------------------------------


def _along(x: Any, order: str, spare: int) -> Any:
    """x in rows ("R") or columns ("C"), its lines padded by `spare` bytes; or with gaps everywhere ("S")."""
    if order == "C":
        return np.swapaxes(_along(np.swapaxes(x, -1, -2), "R", spare), -1, -2)
    step = 2 if order == "S" else 1
    memory = np.zeros((*x.shape[:-1], x.shape[-1] * step + spare), x.dtype)
    view = memory[..., : x.shape[-1] * step : step]
    view[...] = x
    return view


def _operands(
    rng: np.random.Generator, m: int, n: int, k: int, a: ElementKind = I8, layout: str = "RC", spare: int = 0
) -> dict[str, Any]:
    """Codes of the whole range. Even and odd k's, and neighbouring rows, are of unlike sizes, so that no mix-up cancels."""
    left = rng.standard_normal((m, k)).astype(a.dtype) if a.is_float else _codes(rng, (m, k), a)
    return {"a": _along(left, layout[0], spare), "b": _along(_codes(rng, (k, n), I8), layout[1], spare)}


def _scale(rng: np.random.Generator, *shape: int) -> Any:
    return (rng.uniform(0.5, 2.0, shape) / 64).astype(np.float32)


def matmul(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Few tokens and many, both layouts of weights, ragged extents, every epilogue, zero points, floats beside weights."""
    rng = np.random.default_rng(seed)
    yield from _few_tokens(rng)
    yield from _tiles(rng)
    yield from _epilogues(rng)
    yield from _floats_beside(rng)
    if full:
        for m in (1, 7, 63, 65):
            for n in (2, 13, 14, 18, 30, 34):
                for k in (31, 64, 200):
                    for a, layout in ((I8, "RC"), (U8, "RR"), (I8, "CR"), (BF16, "RC")):
                        scale = {"scale_b": _scale(rng, n)} if a is BF16 else {}
                        yield Sample(f"{a} {m}x{n}x{k} {layout}", {**_operands(rng, m, n, k, a, layout), **scale})


def _few_tokens(rng: np.random.Generator) -> Iterator[Sample]:
    for m, n, k, a, layout in (
        (1, 34, 192, I8, "RC"), (7, 18, 100, U8, "RC"), (16, 30, 65, I8, "RC"), (3, 144, 48, I8, "RR"), (9, 14, 36, U8, "RR"),
        (2, 13, 31, I8, "RR"), (33, 20, 128, I8, "RC"),
    ):  # fmt: skip
        yield Sample(f"{a} {m}x{n}x{k} {layout}", _operands(rng, m, n, k, a, layout))
    row = _operands(rng, 1, 40, 64)
    yield Sample("vector", {"a": row["a"][0], "b": row["b"]})


def _tiles(rng: np.random.Generator) -> Iterator[Sample]:
    for m, n, k, a, layout, spare in (
        (65, 34, 200, I8, "RC", 0), (70, 66, 67, U8, "RC", 1), (65, 13, 31, U8, "CS", 3),
        (66, 40, 0, I8, "RC", 0),
    ):  # fmt: skip
        yield Sample(f"{a} {m}x{n}x{k} {layout}+{spare}", _operands(rng, m, n, k, a, layout, spare))
    deep = _operands(rng, 65, 64, 1100)
    yield Sample("long sums", {**deep, "scale_a": _scale(rng, 65), "scale_b": _scale(rng, 64)}, {"out_dtype": "bf16"})
    most = {"a": np.full((66, 512), -128, np.int8), "b": np.full((20, 512), -128, np.int8).T}
    yield Sample("largest", most)
    batch = _operands(rng, 6, 20, 64)
    yield Sample("leading axes", {"a": batch["a"].reshape(2, 3, 64), "b": batch["b"], "scale_a": _scale(rng, 2, 3, 1)})


def _zeros(rng: np.random.Generator, m: int, n: int, a: ElementKind) -> dict[str, Any]:
    return {"zero_a": _codes(rng, (m,), a), "zero_b": _codes(rng, (1, n), I8)}


def _epilogues(rng: np.random.Generator) -> Iterator[Sample]:
    n, k = 18, 84
    bias = rng.standard_normal(n).astype(np.float32)
    of_integers = rng.integers(-(2**31), 2**31 - 1, n).astype(np.int32)
    of_integers[:2] = 2**31 - 1, -(2**31)
    for m in (5, 66):
        scales = {"scale_a": _scale(rng, m, 1), "scale_b": _scale(rng, 1, n)}
        every = {**_operands(rng, m, n, k, U8), **scales, **_zeros(rng, m, n, U8), "bias": bias.astype(np.float16)}
        yield Sample(f"{m} everything", every, {"activation": "silu", "out_dtype": "f16"})
    few = {"scale_a": _scale(rng, 5, 1), "scale_b": _scale(rng, 1, n)}
    yield Sample("i8", {**_operands(rng, 5, n, k), **few, "bias": bias}, {"out_dtype": "i8"})
    yield Sample("i32 relu", {**_operands(rng, 66, n, k), "bias": of_integers}, {"activation": "relu"})
    one = {"scale_b": _scale(rng), "zero_a": np.array(-7, np.int8)}
    yield Sample("one scale", {**_operands(rng, 5, n, k), **one}, {"activation": "gelu", "out_dtype": "bf16"})
    column_major = np.asfortranarray(np.zeros((6, 24), np.float32))
    yield Sample("column-major result", {**_operands(rng, 6, 24, 32), "scale_a": _scale(rng), "out": column_major})


def _floats_beside(rng: np.random.Generator) -> Iterator[Sample]:
    for m, n, k, a, layout in (
        (1, 34, 128, BF16, "RC"), (3, 18, 100, F16, "RC"), (9, 20, 64, BF16, "RR"), (4, 144, 36, F16, "RR"),
        (70, 24, 64, F16, "RC"), (70, 16, 40, BF16, "RR"),
    ):  # fmt: skip
        yield Sample(f"{a} {m}x{n}x{k} {layout}", {**_operands(rng, m, n, k, a, layout), "scale_b": _scale(rng, n)})
    for m in (2, 70):
        groups = {**_operands(rng, m, 20, 256, BF16), "scale_b": np.asfortranarray(_scale(rng, 2, 20))}
        yield Sample(f"{m} groups", groups, {"out_dtype": "f32"})
        bias = rng.standard_normal(20).astype(np.float32)
        dynamic = {**_operands(rng, m, 20, 80, BF16), "scale_b": _scale(rng, 20), "bias": bias}
        yield Sample(f"{m} dynamic", dynamic, {"dynamic": True, "activation": "gelu_tanh"})
