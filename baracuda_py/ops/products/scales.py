"""Scales of fp8 operands: one a tensor, one a row of A or a column of B, or one a block (1 x 128 of A, 128 x 128 of B).

Blocks as in DeepSeek-V3 (arXiv:2412.19437), section 3.3.2.
"""

from __future__ import annotations

import enum
from typing import Any

from ...types import ElementKind, InvalidProblemError, OperandTypeError

__all__ = ["BLOCK", "SCALES", "Scaling", "accepted", "check_scales", "scaling_of"]

SCALES = ("scale_a", "scale_b")
BLOCK = 128
Shape = tuple[int, ...]


class Scaling(enum.Enum):
    """The form of both operands' scales."""

    LINES = "lines"  # constant along K: a tensor's, or a row's and a column's
    BLOCKS = "blocks"


def accepted(name: str, m: int, n: int, k: int) -> tuple[Shape, Shape, Shape]:
    """The last two extents of a scale: of the whole tensor, of lines, of blocks."""
    blocks = -(-k // BLOCK)
    return ((1, 1), (m, 1), (m, blocks)) if name == "scale_a" else ((1, 1), (1, n), (blocks, -(-n // BLOCK)))


def matrix_shape(shape: Shape) -> Shape:
    """The last two extents; a single number is a matrix of one."""
    return (1, 1) if shape in ((), (1,)) else shape[-2:]


def scaling_of(a: Shape | None, b: Shape | None, m: int, n: int, k: int) -> Scaling | None:
    """How scales of these shapes (None: absent) scale the product, or None where they do not go together."""
    if a is b is None:
        return Scaling.LINES
    sizes = [matrix_shape(() if s is None else s) for s in (a, b)]
    each = [accepted(name, m, n, k) for name in SCALES]
    if all(size in ok[:2] for size, ok in zip(sizes, each)):
        return Scaling.LINES
    return Scaling.BLOCKS if all(size == ok[2] for size, ok in zip(sizes, each)) else None


def check_scales(desc: Any, extents: tuple[int, int, int], *, scaled: bool) -> None:
    """Raises where the scales of a product of `extents` (M, N, K) do not fit its operands, or each other. `scaled`: whether
    the operands are of a type that has scales."""
    if desc.scale_a_shape is desc.scale_b_shape is None:
        return
    batch = desc.shape[: len(desc.shape) - (len(desc.a_shape) > 1) - (len(desc.b_shape) > 1)]
    for name in SCALES:
        given, element = getattr(desc, f"{name}_shape"), getattr(desc, f"{name}_element")
        if given is None:
            continue
        desc.layout(name)
        if not scaled:
            raise OperandTypeError(
                f"{desc.op}: {name} was given and the operands are {desc.a_element}: only fp8 is scaled",
                "use alpha, or multiply the operand",
            )
        if element is not ElementKind.F32:
            raise OperandTypeError(f"{desc.op}: {name} holds {element}", "scales are f32: cast it")
        lead, (whole, lines, blocks) = given[:-2], accepted(name, *extents)
        fits = len(lead) <= len(batch) and all(g in (1, e) for g, e in zip(lead[::-1], batch[::-1]))
        if not fits or matrix_shape(given) not in (whole, lines, blocks):
            each = "row" if name == "scale_a" else "column"
            raise InvalidProblemError(
                f"{desc.op}: {name} of shape {given} is no scale of this product",
                f"one number, {lines} for each {each}, or {blocks} for each block",
            )
    if scaling_of(desc.scale_a_shape, desc.scale_b_shape, *extents) is None:
        first, second = (accepted(name, *extents)[2] for name in SCALES)
        raise InvalidProblemError(
            f"{desc.op}: scale_a of shape {desc.scale_a_shape} and scale_b of shape {desc.scale_b_shape} are of different "
            "kinds: one changes along K and the other does not",
            f"pass scale_a of shape {first} and scale_b of shape {second}, or neither by blocks",
        )
