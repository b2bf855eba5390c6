"""Samples of the ops that move elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Packed, Sample, layouts, values
from ....types import ElementKind

__all__ = ["contiguize", "kv_append", "write_slice"]

WIDE = tuple(k for k in ElementKind if not k.packed)
NIBBLES = (ElementKind.S4, ElementKind.U4)

# (dest shape, window): the paths of the seeds' own tests, and those their list names as missing.
WINDOWS = (
    ((32, 4, 64), ((7, 8), (0, 4), (0, 64))),
    ((16, 20), ((4, 9), (8, 15))),
    ((32,), ((10, 18),)),
    ((12, 8), ((0, 12), (0, 8))),
    ((5, 7), ((2, 2), (0, 7))),
    ((2, 3, 4, 5, 6), ((0, 2), (1, 3), (0, 4), (2, 3), (0, 6))),
    ((2, 4, 33, 16), ((0, 2), (0, 4), (9, 20), (0, 16))),
    ((9, 130), ((1, 8), (1, 128))),
    ((0, 4), ((0, 0), (1, 3))),
    ((2, 1, 3, 1, 2, 1, 2, 3), ((0, 2), (0, 1), (1, 3), (0, 1), (0, 2), (0, 1), (1, 2), (0, 2))),
    ((300, 257), ((3, 290), (5, 250))),
)


def write_slice(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every byte width and every path; strided sides; nibbles at odd bounds; a device start in and out of range."""
    rng = np.random.default_rng(seed)
    for shape, ranges in WINDOWS:
        extents = tuple(b - a for a, b in ranges)
        for element in (
            WIDE if full or shape in ((16, 20), (9, 130)) else (ElementKind.F32, ElementKind.BF16, ElementKind.U8)
        ):
            operands = {"dest": values(rng, shape, element), "source": values(rng, extents, element)}
            yield Sample(f"{element}{list(shape)}{list(ranges)}", operands, {"ranges": ranges})
    for name, view in layouts(values(rng, (24, 40), ElementKind.BF16)).items():
        for other, source in layouts(values(rng, (10, 24), ElementKind.BF16)).items():
            yield Sample(f"bf16 {other} into {name}", {"dest": view, "source": source}, {"ranges": ((3, 13), (9, 33))})
    for element in NIBBLES:
        for columns, (a, b) in (
            (8, (2, 6)),
            (8, (1, 5)),
            (7, (0, 7)),
            (9, (3, 9)),
            (16, (5, 6)),
            (33, (1, 32)),
            (8, (3, 3)),
        ):
            dest = rng.integers(0, 256, (4, (columns + 1) // 2), dtype=np.uint8)
            source = rng.integers(0, 256, (2, (b - a + 1) // 2), dtype=np.uint8)
            packed = {"dest": Packed(dest, element, (4, columns)), "source": Packed(source, element, (2, b - a))}
            yield Sample(f"{element} columns {a} to {b} of {columns}", packed, {"ranges": ((1, 3), (a, b))})
    for axis, shape, ranges in (
        (0, (9, 2, 8), ((0, 1), (0, 2), (0, 8))),
        (2, (1, 3, 16, 5), ((0, 1), (0, 3), (0, 2), (1, 4))),
    ):
        extents = tuple(b - a for a, b in ranges)
        for start in (0, 3, shape[axis] - extents[axis], shape[axis], -1):
            operands = {
                "dest": values(rng, shape, ElementKind.F16), "source": values(rng, extents, ElementKind.F16),
                "start": np.array(start, np.int64), "status": np.array(-7, np.int32),
            }  # fmt: skip
            yield Sample(f"start {start} on axis {axis}", operands, {"ranges": ranges, "dynamic_axis": axis})


def contiguize(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Views of every sort: transposed, permuted, reversed, stepped, broadcast, empty; nibbles at any stride."""
    rng = np.random.default_rng(seed)
    for element in WIDE:
        base = values(rng, (6, 10), element)
        yield Sample(f"{element} transposed", {"x": base.T})
        if full or element in (ElementKind.BF16, ElementKind.F32, ElementKind.COMPLEX128):
            for name, view in layouts(base).items():
                yield Sample(f"{element} {name}", {"x": view})
    for element in (ElementKind.U8, ElementKind.BF16, ElementKind.F32, ElementKind.F64, ElementKind.COMPLEX128):
        for rows, columns in ((64, 64), (65, 63), (128, 256), (1, 40), (200, 8), (264, 72)):
            yield Sample(f"{element} {rows}x{columns} transposed", {"x": values(rng, (columns, rows), element).T})
        cube = values(rng, (4, 24, 40), element)
        for order in ((0, 2, 1), (2, 1, 0), (1, 0, 2), (2, 0, 1)):
            yield Sample(f"{element} axes {order}", {"x": cube.transpose(order)})
        yield Sample(f"{element} window of a transpose", {"x": cube[:, 3:21, 1:39].transpose(0, 2, 1)})
    f32 = values(rng, (2, 4), ElementKind.F32)
    views = {
        "scalar": f32[1, 2], "zero stride": np.broadcast_to(f32[:, None, :], (2, 3, 4)),
        "all zero strides": np.broadcast_to(f32[0, 0], (5, 6)),
        "reversed rows": f32[::-1], "broadcast and reversed": np.broadcast_to(f32[::-1, None, ::-1], (2, 7, 4)),
        "empty": f32[:, 4:],
        "size-1 axes": f32[:, None, :, None][::-1],
    }  # fmt: skip
    for name, view in views.items():
        yield Sample(f"f32 {name}", {"x": np.asarray(view)})
    deep = values(rng, (2,) * 10, ElementKind.I16)
    yield Sample("i16 rank 10 permuted", {"x": deep.transpose(*range(1, 10), 0)})
    for element in NIBBLES:
        data = rng.integers(0, 256, 40, dtype=np.uint8)
        for shape, strides, offset in (
            ((5, 8), (8, 1), 0),
            ((7,), (-1,), 12),
            ((6, 4), (2, 12), 1),
            ((3, 5), (0, 2), 3),
            ((4, 7), (9, 1), 1),
        ):
            operands = {
                "x": Packed(data, element, shape, strides, offset),
                "out": Packed(np.zeros((*shape[:-1], (shape[-1] + 1) // 2), np.uint8), element, shape),
            }
            yield Sample(f"{element} strides {strides} from {offset}", operands)


def kv_append(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Both layouts, one token and several, aligned and odd head dims, positions at both ends and beyond."""
    rng = np.random.default_rng(seed)
    for layout in ("BHSD", "BSHD"):
        for element, tokens, dim in (
            (ElementKind.BF16, 1, 64),
            (ElementKind.BF16, 3, 5),
            (ElementKind.F16, 4, 128),
            (ElementKind.U8, 1, 7),
            (ElementKind.F32, 2, 8),
            (ElementKind.FP8_E4M3, 1, 64),
        ):
            axes = dict(zip(layout, (4, 3, 17, dim) if layout == "BHSD" else (4, 17, 3, dim)))
            new = [tokens if axis == "S" else axes[axis] for axis in layout]
            shapes = {
                "k_cache": tuple(axes.values()),
                "v_cache": tuple(axes.values()),
                "k": tuple(new),
                "v": tuple(new),
            }
            operands: dict[str, Any] = {name: values(rng, shape, element) for name, shape in shapes.items()}
            operands["positions"] = np.array([0, 17 - tokens, 18 - tokens, -1], np.int64 if tokens % 2 else np.int32)
            yield Sample(f"{element} {layout} {tokens} tokens", operands, {"layout": layout})
            if tokens > 1 and element.bits != 8:
                operands = {**operands, "positions": np.array([17 - tokens + 1, 16, 2**31 + 5, -1], np.int64)}
                yield Sample(f"{element} {layout} {tokens} tokens, wrapped", operands, {"layout": layout, "wrap": True})
