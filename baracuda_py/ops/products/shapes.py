"""Shapes of a matrix product: what a and b multiply to, and what may be added to it."""

from __future__ import annotations

from ...tensor.axes import broadcast_shapes
from ...types import InvalidProblemError

__all__ = ["check_addend", "product_shape"]

Shape = tuple[int, ...]


def product_shape(op: str, a: Shape, b: Shape) -> Shape:
    """The result's shape, as NumPy has it: [..., M, N], without M where a is a vector and without N where b is. Raises
    InvalidProblemError where a and b do not agree."""
    if not a or not b:
        raise InvalidProblemError(f"{op}: a has shape {a} and b {b}", "pass arrays of rank 1 or more")
    rows = b[-2 if len(b) > 1 else 0]
    if a[-1] != rows:
        raise InvalidProblemError(
            f"{op}: a of shape {a} and b of shape {b} do not agree on K: {a[-1]} columns and {rows} rows",
            "make them equal, or transpose one",
        )
    try:
        batch = a[:-2] if a[:-2] == b[:-2] else broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise InvalidProblemError(
            f"{op}: the batch axes of a {a[:-2]} and b {b[:-2]} do not broadcast",
            "make each pair of extents equal, or one of them 1",
        ) from None
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def check_addend(op: str, name: str, given: Shape | None, shape: Shape) -> None:
    """Raises InvalidProblemError where an operand of shape `given` (None: absent) does not broadcast onto the result's."""
    if given is None:
        return
    if len(given) > len(shape) or any(g not in (1, n) for g, n in zip(given[::-1], shape[::-1])):
        raise InvalidProblemError(
            f"{op}: {name} of shape {given} does not broadcast onto the result's {shape}",
            f"pass {name} of shape {shape[-1:] if name == 'bias' else shape}",
        )
