"""Samples of what picks elements by index, and of what finds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...samples.sample import Sample, layouts, values
from ...types import ElementKind

__all__ = ["embedding", "index_add_backward", "index_select", "nonzero", "take_along_axis"]

PICKED = (
    ElementKind.F32, ElementKind.BF16, ElementKind.U8, ElementKind.F64, ElementKind.COMPLEX128, ElementKind.BOOL,
    ElementKind.FP8_E4M3, ElementKind.I16,
)  # fmt: skip
FLOATS = (ElementKind.F32, ElementKind.BF16, ElementKind.F16, ElementKind.F64)
MODES = ("status", "clip", "wrap")
PAIRS = (  # x, indices, axis
    ((7, 33), (7, 5), 1),
    ((33, 7), (40, 7), 0),
    ((1023,), (2000,), -1),
    ((5, 1, 9), (1, 6, 4), -1),
    ((3, 8, 5), (3, 1, 5), 1),
    ((4, 6), (0, 6), 0),
    ((4, 0), (4, 0), 1),
    ((2, 3, 2, 3, 4), (2, 1, 2, 3, 6), 4),
)


def take_along_axis(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every width, both kinds of index, every mode, broadcasts, layouts, and indices out of range at either end."""
    rng = np.random.default_rng(seed)

    def sample(x: Any, shape: tuple[int, ...], axis: int, mode: str, dtype: Any = np.int64, beyond: int = 0) -> Sample:
        n = x.shape[axis]
        indices = rng.integers(-n - beyond, n + beyond, shape, dtype) if n + beyond else np.zeros(shape, dtype)
        label = f"{x.dtype}{list(x.shape)}{list(shape)} axis {axis} {mode} {np.dtype(dtype)} beyond {beyond}"
        return Sample(label, {"x": x, "indices": indices}, {"axis": axis, "mode": mode})

    for i, (shape, taken, axis) in enumerate(PAIRS):
        for element in PICKED if full or not i else (PICKED[i % len(PICKED)],):
            for mode in MODES if shape[axis] else ("status",):
                yield sample(values(rng, shape, element), taken, axis, mode, (np.int64, np.int32)[i % 2])
    for mode in MODES:
        for beyond in (1, 50):
            yield sample(values(rng, (6, 13), ElementKind.F32), (6, 21), 1, mode, np.int32, beyond)
        x = values(rng, (6, 9), ElementKind.U8)
        ends = np.array([[-(2**63), 2**63 - 1, 9, -10, 8, -9, 0, -1]] * 6, np.int64)
        yield Sample(f"ends of i64 {mode}", {"x": x, "indices": ends}, {"axis": 1, "mode": mode})
    yield Sample(
        "nothing to take",
        {"x": np.zeros((4, 0), np.float32), "indices": np.zeros((4, 3), np.int64)},
        {"mode": "status"},
    )
    x, indices = values(rng, (6, 40), ElementKind.F32), rng.integers(-40, 40, (6, 24))
    for name, view in layouts(x).items():
        yield Sample(f"x {name}", {"x": view, "indices": indices}, {"axis": 1, "mode": "status"})
    for name, view in layouts(indices).items():
        yield Sample(f"indices {name}", {"x": x, "indices": view}, {"axis": -1, "mode": "clip"})
    out = np.zeros((6, 48), np.float32)[:, ::2]
    yield Sample("out stepped", {"x": x, "indices": indices, "out": out}, {"axis": 1, "mode": "wrap"})
    broadcast = np.broadcast_to(values(rng, (1, 40), ElementKind.BF16), (70, 40))
    yield Sample(
        "x of equal rows", {"x": broadcast, "indices": rng.integers(0, 40, (70, 33))}, {"axis": 1, "mode": "status"}
    )


SELECTED = (  # x, index, axis
    ((9, 64), (5,), 0),
    ((7, 33), (2, 3), 0),
    ((3, 11, 24), (4,), 1),
    ((5, 6), (7, 1), -1),
    ((4, 3, 2), (), 1),
    ((6,), (9,), 0),
    ((4, 6), (0,), 1),
)


def index_select(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every width, both kinds of index, every mode, layouts, words of many lengths, and indices out of range."""
    rng = np.random.default_rng(seed)
    for i, (shape, taken, axis) in enumerate(SELECTED):
        for element in PICKED if full or not i else (PICKED[i % len(PICKED)],):
            for mode in MODES:
                low, high = (0, shape[axis]) if mode == "status" else (-2 * shape[axis], 2 * shape[axis])
                index = rng.integers(low, high, taken, (np.int64, np.int32)[i % 2])
                label = f"{element}{list(shape)}{list(taken)} axis {axis} {mode}"
                operands = {"x": values(rng, shape, element), "index": index}
                yield Sample(label, operands, {"axis": axis, "mode": mode})
    x, index = values(rng, (9, 40), ElementKind.BF16), rng.integers(0, 9, (12, 8))
    for name, view in layouts(x).items():
        yield Sample(f"x {name}", {"x": view, "index": index}, {"axis": 0})
    for name, view in layouts(index).items():
        yield Sample(f"index {name}", {"x": x, "index": view}, {"axis": 0})
    ends = np.array([3, -1, 8, 9, -9, 2**63 - 1, -(2**63), 0])
    yield Sample("ends of i64", {"x": x, "index": ends}, {})
    yield Sample("in range", {"x": x, "index": index}, {})
    out = np.zeros((4, 48), np.float32)[:, ::2]
    stepped = {"x": values(rng, (5, 24), ElementKind.F32), "index": np.array([4, 0, 0, 2]), "out": out}
    yield Sample("out stepped", stepped, {"axis": 0})
    yield Sample("out transposed", {**stepped, "out": np.zeros((24, 4), np.float32).T}, {"axis": 0})
    yield Sample("nothing to index", {"x": np.zeros((0, 3), np.float32), "index": np.zeros(0, np.int32)}, {})


def index_add_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Floats, both kinds of index, every mode, any axis, indices out of range, and layouts."""
    rng = np.random.default_rng(seed)
    for i, (shape, taken, axis) in enumerate(SELECTED):
        for element in FLOATS if full or not i else (FLOATS[i % len(FLOATS)],):
            mode = MODES[i % len(MODES)]
            index = rng.integers(-shape[axis], 2 * shape[axis], taken, (np.int64, np.int32)[i % 2])
            operands = {"grad": values(rng, shape, element), "index": index}
            yield Sample(
                f"{element}{list(shape)}{list(taken)} axis {axis} {mode}", operands, {"axis": axis, "mode": mode}
            )
    grad, index = values(rng, (9, 40), ElementKind.F32), rng.integers(0, 9, (12, 8))
    for name, view in layouts(grad).items():
        yield Sample(f"grad {name}", {"grad": view, "index": index}, {})


def embedding(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Tables of floats and bytes, ids of several axes, rows of odd lengths, ids out of range, and a row for padding."""
    rng = np.random.default_rng(seed)
    for i, (shape, ids) in enumerate((((50, 64), (3, 7)), ((11, 33), (40,)), ((300, 8), (2, 3, 5)), ((4, 520), (6,)))):
        for element in PICKED if full else (PICKED[i], PICKED[-1 - i]):
            for mode in MODES:
                low, high = (0, shape[0]) if mode == "status" else (-shape[0] - 3, 2 * shape[0])
                given = rng.integers(low, high, ids, (np.int64, np.int32)[i % 2])
                yield Sample(
                    f"{element}{list(shape)}{list(ids)} {mode}",
                    {"weight": values(rng, shape, element), "ids": given},
                    {"mode": mode},
                )
    weight = values(rng, (20, 40), ElementKind.F32)
    beyond = {"weight": weight, "ids": np.array([[0, 19, 20], [-1, 3, 3]], np.int32)}
    yield Sample("ids out of range", beyond, {})
    yield Sample("padding", {"weight": weight, "ids": np.array([0, 3, 19])}, {"padding_idx": -1})
    for name, view in layouts(weight).items():
        yield Sample(f"weight {name}", {"weight": view, "ids": np.array([5, 0, 5])}, {})
    yield Sample("no ids", {"weight": weight, "ids": np.zeros((2, 0), np.int64)}, {})


def nonzero(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, densities from none to all, odd sizes, tiles and more than one of them, layouts, zeros of either sign."""
    rng = np.random.default_rng(seed)
    whole = {"trim": False}

    def sparse(shape: tuple[int, ...], element: ElementKind, share: float) -> Any:
        x = values(rng, shape, element)
        raw = x.view(np.uint8).reshape(*shape, x.itemsize).copy()
        raw[rng.random(shape) >= share] = 0
        return raw.view(x.dtype).reshape(shape)

    for element in ElementKind:
        if not element.packed:
            yield Sample(f"{element} 7x33", {"x": sparse((7, 33), element, 0.4)}, whole)
    for share in (0.0, 0.01, 0.5, 1.0):
        yield Sample(
            f"bool 9001, {share}", {"x": sparse((9001,), ElementKind.U8, share).astype(bool) | (share == 1)}, whole
        )
    for shape in ((1,), (0,), (3, 0, 5), (4096,), (4097,), (2, 3, 129), (5, 1, 4, 8), (67, 129)):
        for element in (ElementKind.F32, ElementKind.BOOL, ElementKind.F64) if full else (ElementKind.F32,):
            yield Sample(f"{element}{list(shape)}", {"x": sparse(shape, element, 0.3)}, whole)
    for element in (ElementKind.F32, ElementKind.U8, ElementKind.COMPLEX64):
        for name, view in layouts(sparse((37, 130), element, 0.2)).items():
            yield Sample(f"{element} {name}", {"x": view}, whole)
    signed = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, 1e-45, -1e-45, 1.0], np.float32)
    yield Sample("zeros of either sign", {"x": signed}, whole)
    yield Sample(
        "complex zeros", {"x": np.array([0, -0.0, 1j, complex(-0.0, -0.0), complex(0, np.nan)], np.complex128)}, whole
    )
    yield Sample("equal rows", {"x": np.broadcast_to(sparse((1, 40), ElementKind.I32, 0.5), (130, 40))}, whole)
