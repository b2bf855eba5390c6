"""What the ops on GGUF blocks have in common: the checks of rows of blocks, and what kernels get of them."""

from __future__ import annotations

import math
from typing import Any

from ....packed.gguf import PackedGguf
from ....packed.weight import refuse_packed
from ....types import BufferTooSmallError, ElementKind, InvalidProblemError
from ....types.errors import shown
from ....types.gguf import GgufFormat

__all__ = ["FLOATS", "block_align", "blocks_of", "check_columns", "check_row_bytes", "padded"]

FLOATS = (ElementKind.F16, ElementKind.BF16, ElementKind.F32)


def padded(weights: int, kind: GgufFormat) -> int:
    """The next multiple of the format's block."""
    return -(-weights // kind.block.weights) * kind.block.weights


def check_columns(op: str, name: str, columns: int, kind: GgufFormat) -> None:
    """Raises InvalidProblemError where a row's length is no multiple of the format's block."""
    block = kind.block
    if columns % block.weights:
        wanted = padded(columns, kind)
        raise InvalidProblemError(
            f"{op}: {name} has rows of {columns}, and a {block.name} block holds {block.weights} weights",
            f"pad them with zeros to {wanted}: weights by quantize_gguf(w, {block.name!r}, pad=True), activations to "
            f"{wanted} columns",
        )


def check_row_bytes(op: str, name: str, got: int, weights: int, kind: GgufFormat) -> None:
    """Raises BufferTooSmallError or InvalidProblemError where a row of blocks has not the bytes that its weights take."""
    block, needed = kind.block, kind.block.bytes_of(weights)
    if got < needed:
        raise BufferTooSmallError(
            f"{op}: {name} holds {got} bytes a row, and {weights} weights as {block.name} take {needed}", needed, got,
            f"pass whole blocks of {block.nbytes} bytes, or the format that {name} has",
        )  # fmt: skip
    if got > needed:
        raise InvalidProblemError(
            f"{op}: {name} holds {got} bytes a row, and {weights} weights as {block.name} take {needed}",
            f"pass the format that {name} has, or a row of the right length",
        )


def block_align(kind: GgufFormat, align: int) -> int:
    """Bytes that every block is aligned to, of a buffer that is aligned to `align`: 16, 8, 4, 2 or 1."""
    return math.gcd(kind.block.nbytes, align, 16)


def blocks_of(op: str, name: str, blocks: Any, format: Any, shape: Any = None) -> tuple[Any, Any, Any]:
    """The array of blocks, its format, and its shape where it is another: of a PackedGguf, or as given."""
    if not isinstance(blocks, PackedGguf):
        refuse_packed(op, blocks, "matmul_gguf")
        if format is None:
            raise InvalidProblemError(
                f"{op}: format is missing", f"name it: format='Q4_K', ...; or pass {name} as a PackedGguf, which has it"
            )
        return blocks, format, shape
    if format is not None and GgufFormat.of(format) is not blocks.format:
        raise InvalidProblemError(
            f"{op}: format={shown(format)}, and {name} is packed as {str(blocks.format)!r}", "leave format out"
        )
    if shape is not None:
        raise InvalidProblemError(f"{op}: shape was passed beside a PackedGguf", "leave shape out")
    return blocks.blocks, blocks.format, None
