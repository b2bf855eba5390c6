"""Rows of `normalize` and its gradient, beside torch: rows of whole words and odd ones, and axes that are not innermost."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from .operands import Kit, itemsize
from .row import Calls, Row
from .row_families import SHORT, calls_of
from .target import Target

__all__ = ["UNIT_ROWS"]

SHAPES = (
    ((16384, 4096), -1),
    ((4096, 1001), -1),
    ((4096, 4097), -1),
    ((1024, 4096), 0),
    ((64, 512, 256), 1),
    ((7, 999_999), -1),
)


def _unit(shape: tuple[int, ...], axis: int, dtype: str, *, backward: bool) -> Row:
    op = "normalize_backward" if backward else "normalize"

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, out = kit.normal(shape, dtype), kit.empty(shape, dtype)
        if not backward:
            return calls_of(
                kit,
                op,
                lambda: bp.normalize(x, axis, out=out),
                lambda torch, x: torch.nn.functional.normalize(x, dim=axis),
                (x,),
            )
        grad = kit.normal(shape, dtype)

        def theirs(torch: Any, grad: Any, x: Any) -> Any:
            norm = torch.linalg.vector_norm(x, dim=axis, keepdim=True)
            unit = x / norm
            return (grad - unit * (grad * unit).sum(axis, keepdim=True)) / norm

        return calls_of(kit, op, lambda: bp.normalize_backward(grad, x, axis, grad_x=out), theirs, (grad, x))

    nbytes = prod(shape) * itemsize(dtype)
    name = f"{op} {'x'.join(map(str, shape))} axis {axis} {SHORT[dtype]}"
    return Row(
        "norm", name, op, shape, dtype, nbytes * (1 + backward), nbytes, make, Target(1.12 if backward else 1.05)
    )


def _rows() -> Iterator[Row]:
    for shape, axis in SHAPES:
        for dtype in ("float32", "bfloat16"):
            for backward in (False, True):
                yield _unit(shape, axis, dtype, backward=backward)


UNIT_ROWS: tuple[Row, ...] = tuple(_rows())
