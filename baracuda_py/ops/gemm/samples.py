"""Samples of the matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import erf, pi, sqrt
from typing import Any

import numpy as np

from ...samples.sample import Sample, values
from ...types import ElementKind

__all__ = ["matmul", "matmul_backward"]

EXTENTS = (0, 1, 7, 8, 15, 16, 17, 63, 64, 65, 127, 129, 255, 1023)
ELEMENTS = (ElementKind.BF16, ElementKind.F16, ElementKind.F32, ElementKind.F64)
NAMED = {"matmul_tc": ElementKind.F16, "matmul_tc_async": ElementKind.F16}
RANDOM = 40  # mixes of extents


def _stored(rng: np.random.Generator, shape: tuple[int, ...], element: ElementKind, order: str, spare: int = 0) -> Any:
    """A matrix (batch) in row ("R") or column ("C") order, its rows or columns padded by `spare` elements."""
    *batch, rows, cols = shape
    if order == "C":
        return np.swapaxes(_stored(rng, (*batch, cols, rows), element, "R", spare), -1, -2)
    return values(rng, (*batch, rows, cols + spare), element, 1.0)[..., :cols]


def matmul(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Every mix of odd extents, every layout, pitches, batches, epilogues, vectors, and values that propagate."""
    rng = np.random.default_rng(seed)
    name = dict(fixed or {}).get("name", "matmul")
    plain = name == "matmul"
    elements = ELEMENTS if plain else (NAMED.get(name, ElementKind.BF16),)
    for element in elements:
        yield from _shapes(rng, element, RANDOM if full else RANDOM // 4)
        yield from _layouts(rng, element, plain)
        yield from _batches(rng, element)
        yield from _epilogues(rng, element, plain)
        yield from _corners(rng, element)
    if plain:
        a, b = values(rng, (65, 129), ElementKind.F32, 1.0), values(rng, (129, 72), ElementKind.F32, 1.0)
        yield Sample("tf32", {"a": a, "b": b}, {"math": "tf32"})
        yield Sample("tf32 columns", {"a": a, "b": np.asfortranarray(b)}, {"math": "tf32"})
        yield from _fp8(rng)
    for element in reversed(elements):
        yield from _cancelling(rng, element)


def matmul_backward(_fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:
    """Odd extents, layouts, vectors, batches, weights that a batch shares."""
    rng = np.random.default_rng(seed)
    shapes = [
        ((17, 65), (65, 9)),
        ((7,), (7, 5)),
        ((4, 9), (9,)),
        ((3, 20, 33), (33, 16)),
        ((2, 3, 8, 16), (2, 3, 16, 24)),
    ]
    shapes += [((130, 72), (72, 255)), ((0, 4), (4, 3)), ((3, 4), (4, 0))] if full else [((0, 4), (4, 3))]
    for element in ELEMENTS:
        for a, b in shapes:
            whole = np.matmul(np.zeros(a, bool), np.zeros(b, bool)).shape
            operands = {name: values(rng, s, element, 1.0) for name, s in (("grad", whole), ("a", a), ("b", b))}
            yield Sample(f"{element} {a} @ {b}", operands)
        columns = {
            name: _stored(rng, s, element, "C", 3) for name, s in (("grad", (24, 40)), ("a", (24, 56)), ("b", (56, 40)))
        }
        yield Sample(f"{element} columns", columns)


def _erf(x: Any) -> Any:
    return np.vectorize(erf, otypes=[np.float64])(x)


_NEARLY: dict[str, Callable[[Any], Any]] = {  # in float64: what is to cancel need only be near
    "identity": lambda x: x, "relu": lambda x: np.maximum(x, 0), "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))),
    "gelu": lambda x: x / 2 * (1 + _erf(x / sqrt(2))),
}  # fmt: skip


def _cancelling(rng: np.random.Generator, element: ElementKind) -> Iterator[Sample]:
    """Results that are differences of near equals, so that nothing hides an error ahead of the last addition: within K, between
    a product and c, and, of a single product each, between every activation and the residual. The last of them always runs."""
    half = _pair(rng, 40, 48, 60, element)
    nudged = half["a"] * np.asarray(1 + rng.standard_normal((40, 60)) / 64).astype(element.dtype)
    operands = {"a": np.concatenate([half["a"], -nudged], 1), "b": np.concatenate([half["b"], half["b"]])}
    yield Sample(f"{element} cancelling within K", operands)
    operands = _pair(rng, 40, 48, 60, element)
    product = operands["a"].astype(np.float64) @ operands["b"].astype(np.float64)
    yield Sample(f"{element} cancelling c", {**operands, "c": product.astype(element.dtype)}, {"beta": -1.0})
    for activation, nearly in _NEARLY.items():
        operands = _pair(rng, 48, 56, 1, element)
        near = nearly(operands["a"].astype(np.float64) @ operands["b"].astype(np.float64))
        label = f"{element} cancelling {activation}"
        yield Sample(label, {**operands, "residual": -near.astype(element.dtype)}, {"activation": activation})


EIGHTS = (ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)
BLOCK = 128


def _fp8(rng: np.random.Generator) -> Iterator[Sample]:
    """Both kinds and a mix of them, each way to sum, every kind of scale, layouts, batches and odd extents."""
    e4m3, e5m2 = EIGHTS

    def normal(shape: tuple[int, ...], element: ElementKind) -> Any:
        return rng.standard_normal(shape).astype(element.dtype)

    def scale(*shape: int) -> Any:
        return rng.uniform(0.25, 4.0, shape).astype(np.float32)

    for a, b in ((e4m3, e4m3), (e4m3, e5m2), (e5m2, e4m3), (e5m2, e5m2)):
        for math in ("fp8", "fp8_fast"):
            operands = {"a": normal((65, 272), a), "b": normal((96, 272), b).T}
            yield Sample(f"{a} {b} {math}", operands, {"math": math})
    for m, n, k in ((1, 16, 128), (130, 72, 384), (200, 129, 656), (17, 33, 67), (8, 8, 0), (64, 1023, 129)):
        whole, lines = {"scale_a": scale(1, 1), "scale_b": scale()}, {"scale_a": scale(m, 1), "scale_b": scale(1, n)}
        blocks = {"scale_a": scale(m, -(-k // BLOCK)), "scale_b": scale(-(-k // BLOCK), -(-n // BLOCK))}
        for name, scales in (("none", {}), ("tensor", whole), ("lines", lines), ("blocks", blocks)):
            b = normal((n, k), e4m3).T if k % 2 == 0 else normal((k, n), e4m3)
            yield Sample(f"fp8 {m}x{n}x{k} {name}", {"a": normal((m, k), e4m3), "b": b, **scales}, {"out_dtype": "f32"})
    lines = {"scale_a": scale(3, 40, 1), "scale_b": scale(1, 48)}
    yield Sample("fp8 batch", {"a": normal((3, 40, 144), e4m3), "b": normal((3, 48, 144), e4m3).mT, **lines})
    row, column = normal((144,), e4m3), normal((144,), e5m2)
    yield Sample(
        "fp8 vectors", {"a": row, "b": column, "scale_a": scale(1, 1), "scale_b": scale()}, {"out_dtype": "f32"}
    )
    left = {"a": row, "b": normal((3, 48, 144), e4m3).mT, "scale_a": scale(3, 1, 1), "scale_b": scale(1, 48)}
    yield Sample("fp8 vector left", left)
    right = {"a": normal((3, 40, 144), e4m3), "b": column, "scale_a": scale(40, 2), "scale_b": scale(3, 2, 1)}
    yield Sample("fp8 vector right", right)
    every = {
        "c": scale(40, 48),
        "bias": scale(48),
        "residual": scale(40, 48),
        "scale_a": scale(40, 1),
        "scale_b": scale(),
    }
    pair = {"a": normal((40, 144), e4m3), "b": normal((48, 144), e4m3).T}
    yield Sample(
        "fp8 everything", {**pair, **every}, {"alpha": 0.5, "beta": -2.0, "activation": "gelu", "out_dtype": "f16"}
    )
    swapped = {
        "a": normal((40, 144), e4m3),
        "b": normal((144, 48), e5m2),
        "out": np.asfortranarray(np.zeros((40, 48), np.float16)),
    }
    yield Sample("fp8 column-major result", {**swapped, "scale_a": scale(40, 1), "scale_b": scale(1, 48)})


def _pair(rng: np.random.Generator, m: int, n: int, k: int, element: ElementKind) -> dict[str, Any]:
    return {"a": values(rng, (m, k), element, 1.0), "b": values(rng, (k, n), element, 1.0)}


def _shapes(rng: np.random.Generator, element: ElementKind, count: int) -> Iterator[Sample]:
    listed = [
        (64, 64, 64),
        (128, 256, 128),
        (1, 129, 65),
        (129, 1, 65),
        (17, 33, 0),
        (0, 8, 8),
        (1, 1, 1023),
        (257, 136, 72),
    ]
    mixed = [tuple(int(x) for x in rng.choice(EXTENTS, 3)) for _ in range(count)]
    for m, n, k in (*listed, *mixed):
        yield Sample(f"{element} {m}x{n}x{k}", _pair(rng, m, n, k, element))


def _layouts(rng: np.random.Generator, element: ElementKind, plain: bool) -> Iterator[Sample]:
    for order in ("RR", "RC", "CR", "CC"):
        for m, n, k, spare in ((136, 72, 200, 0), (65, 130, 67, 0), (130, 264, 96, 8), (33, 40, 50, 3)):
            a = _stored(rng, (m, k), element, order[0], spare)
            b = _stored(rng, (k, n), element, order[1], spare)
            yield Sample(f"{element} {order} {m}x{n}x{k}+{spare}", {"a": a, "b": b})
    a, b = values(rng, (60, 82), element, 1.0)[::2, ::2], values(rng, (41, 66), element, 1.0)[:, ::-3]
    yield Sample(f"{element} stepped", {"a": a, "b": b})
    out = np.asfortranarray(np.zeros((72, 40), element.dtype if plain else np.float32))
    yield Sample(f"{element} column-major result", {**_pair(rng, 72, 40, 88, element), "out": out})


def _batches(rng: np.random.Generator, element: ElementKind) -> Iterator[Sample]:
    shapes = [
        ((3, 40, 72), (3, 72, 56)), ((3, 40, 72), (72, 56)), ((40, 72), (3, 72, 56)), ((2, 1, 33, 17), (1, 3, 17, 9)),
        ((5, 1, 64), (5, 64, 80)), ((0, 8, 8), (0, 8, 8)),
    ]  # fmt: skip
    for first, second in shapes:
        operands = {"a": values(rng, first, element, 1.0), "b": values(rng, second, element, 1.0)}
        yield Sample(f"{element} {list(first)}{list(second)}", operands)
    heads = values(rng, (2, 24, 3, 32), element, 1.0).transpose(0, 2, 1, 3)  # [B, H, S, D] of [B, S, H, D]
    yield Sample(f"{element} permuted batch", {"a": heads, "b": values(rng, (2, 3, 32, 40), element, 1.0)})
    yield Sample(f"{element} vectors", {"a": values(rng, (130,), element, 1.0), "b": values(rng, (130,), element, 1.0)})
    yield Sample(
        f"{element} vector left", {"a": values(rng, (72,), element, 1.0), "b": values(rng, (3, 72, 48), element, 1.0)}
    )
    yield Sample(
        f"{element} vector right", {"a": values(rng, (3, 48, 72), element, 1.0), "b": values(rng, (72,), element, 1.0)}
    )


def _epilogues(rng: np.random.Generator, element: ElementKind, plain: bool) -> Iterator[Sample]:
    m, n, k = 72, 136, 64
    bias = values(rng, (n,), element, 1.0)
    for activation in ("identity", "relu", "gelu", "gelu_tanh", "silu"):
        options = {"activation": activation, "alpha": 0.5}
        yield Sample(f"{element} bias {activation}", {**_pair(rng, m, n, k, element), "bias": bias}, options)
    c, residual = values(rng, (m, n), element, 1.0), values(rng, (m, n), element, 1.0)
    yield Sample(f"{element} beta c", {**_pair(rng, m, n, k, element), "c": c}, {"alpha": -1.5, "beta": 0.25})
    hollow = {**_pair(rng, m, n, k, element), "c": np.full((m, n), np.nan, element.dtype)}
    yield Sample(f"{element} beta 0", hollow, {"beta": 0.0})
    every = {**_pair(rng, 65, 31, 40, element), "c": c[:65, :31], "bias": bias[:31], "residual": residual[:65, 1:32]}
    yield Sample(f"{element} everything", every, {"alpha": 2.0, "beta": -0.5, "activation": "silu"})
    column = {**_pair(rng, m, n, 0, element), "bias": values(rng, (m, 1), element, 1.0)}
    yield Sample(f"{element} K=0 and a column bias", column)
    if plain and element is not ElementKind.F64:
        for out in ("f32", "f16", "bf16"):
            yield Sample(f"{element} to {out}", _pair(rng, 72, 40, 136, element), {"out_dtype": out})


def _corners(rng: np.random.Generator, element: ElementKind) -> Iterator[Sample]:
    """NaN and infinities reach exactly the rows and columns that IEEE arithmetic says."""
    operands = _pair(rng, 80, 72, 96, element)
    operands["a"][3, 5], operands["a"][17, 40], operands["b"][9, 11] = np.nan, np.inf, -np.inf
    operands["a"][20, :], operands["b"][:, 30] = 0, 0
    yield Sample(f"{element} nan and inf", operands)
    small = {"a": np.full((16, 24), 2.0**-13, element.dtype), "b": np.full((24, 16), 2.0**-12, element.dtype)}
    yield Sample(f"{element} small", small)
