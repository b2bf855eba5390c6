"""Rows of elements at other places: joined, padded, rolled, flipped, tiled, triangles; beside torch, torch.compile and CuPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from .operands import Kit, itemsize
from .row import Calls, Row
from .row_families import calls_of, row_name
from .target import Target

__all__ = ["REARRANGE_ROWS"]

SHAPES = {"bfloat16": (16384, 8192), "float32": (16384, 4096)}  # 256 MiB
FLOOR = Target(1.06)
Call = Callable[..., Any]


@dataclass(frozen=True)
class Move:
    """One op: our arguments beside the operand, the result's extents per extent of the operand, and the same of torch and
    CuPy. `pieces` are operands that are joined along an axis."""

    op: str
    label: str
    options: dict[str, Any]
    torch: Call
    cupy: Call
    grown: tuple[float, float] = (1, 1)
    added: tuple[int, int] = (0, 0)
    pieces: int = 1
    share: float = 1  # of the operand's elements that are read

    def result(self, shape: tuple[int, int]) -> tuple[int, ...]:
        return tuple(int(n * by) + more for n, by, more in zip(shape, self.grown, self.added))

    def row(self, shape: tuple[int, int], dtype: str) -> Row:
        name, made = row_name(self.op, shape, dtype, self.label), self.result(shape)

        def make(kit: Kit) -> Calls:
            import baracuda_py as bp

            arrays, out = [kit.normal(shape, dtype) for _ in range(self.pieces)], kit.empty(made, dtype)
            given, ours, theirs = [arrays] if self.pieces > 1 else arrays, getattr(bp, self.op), self.torch
            calls = calls_of(
                kit,
                name,
                lambda: ours(*given, out=out, **self.options),
                lambda torch, *x: theirs(torch, *x),
                tuple(arrays),
            )
            calls["cupy"] = lambda: self.cupy(kit.xp, *arrays)
            return calls

        read, written = int(prod(shape) * self.pieces * self.share), prod(made)
        return Row(
            "rearrange", name, self.op, shape, dtype, read * itemsize(dtype), written * itemsize(dtype), make, FLOOR
        )


MOVES = (
    Move("concatenate", "axis 0", {"axis": 0}, lambda t, *x: t.cat(x, 0), lambda cp, *x: cp.concatenate(x, 0), (2, 1), pieces=2),
    Move("concatenate", "axis 1", {"axis": 1}, lambda t, *x: t.cat(x, 1), lambda cp, *x: cp.concatenate(x, 1), (1, 2), pieces=2),
    Move("pad", "constant", {"pad_width": ((0, 0), (3, 5))}, lambda t, x: t.nn.functional.pad(x, (3, 5)),
         lambda cp, x: cp.pad(x, ((0, 0), (3, 5))), added=(0, 8)),
    Move("pad", "reflect", {"pad_width": ((0, 0), (3, 5)), "mode": "reflect"},
         lambda t, x: t.nn.functional.pad(x, (3, 5), "reflect"), lambda cp, x: cp.pad(x, ((0, 0), (3, 5)), "reflect"),
         added=(0, 8)),
    Move("roll", "axis 1", {"shift": 3, "axis": 1}, lambda t, x: t.roll(x, 3, 1), lambda cp, x: cp.roll(x, 3, 1)),
    Move("roll", "axis 0", {"shift": 3, "axis": 0}, lambda t, x: t.roll(x, 3, 0), lambda cp, x: cp.roll(x, 3, 0)),
    Move("flip", "axis 1", {"axis": 1}, lambda t, x: t.flip(x, (1,)), lambda cp, x: cp.ascontiguousarray(cp.flip(x, 1))),
    Move("flip", "axis 0", {"axis": 0}, lambda t, x: t.flip(x, (0,)), lambda cp, x: cp.ascontiguousarray(cp.flip(x, 0))),
    Move("tile", "2×1", {"reps": (2, 1)}, lambda t, x: t.tile(x, (2, 1)), lambda cp, x: cp.tile(x, (2, 1)), (2, 1)),
    Move("tile", "1×3", {"reps": (1, 3)}, lambda t, x: t.tile(x, (1, 3)), lambda cp, x: cp.tile(x, (1, 3)), (1, 3)),
)  # fmt: skip
TRIU = Move("triu", "", {}, lambda t, x: t.triu(x), lambda cp, x: cp.triu(x), share=0.5)  # of a square, half is read
SQUARE = {"bfloat16": (12288, 12288), "float32": (8192, 8192)}


def _rows() -> Iterator[Row]:
    for move in MOVES:
        for dtype, (rows, columns) in SHAPES.items():
            yield move.row((rows // move.pieces, columns), dtype)
    for dtype, shape in SQUARE.items():
        yield TRIU.row(shape, dtype)


REARRANGE_ROWS: tuple[Row, ...] = tuple(_rows())
