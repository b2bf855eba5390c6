"""PackedGguf: weights in blocks of a GGUF format, with their format and shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..tensor import intake
from ..tensor.axes import as_ints
from ..types import BufferTooSmallError, ElementKind, InvalidProblemError, OperandTypeError
from ..types.errors import shown
from ..types.gguf import GgufFormat

__all__ = ["PackedGguf"]


@dataclass(frozen=True)
class PackedGguf:
    """Weights of `shape`, [..., K], in blocks of `format` ("Q4_K", a `GgufFormat`, or the `gguf` package's own member).

    `blocks`: u8 [..., bytes of K weights] in C order, as the package's reader gives a tensor's data; its `shape` has the axes the
    other way round. K is a multiple of the format's block.

    An array of CuPy, NumPy or PyTorch. Raises BufferTooSmallError, with `needed` and `got`, where bytes are missing,
    OperandTypeError where they are not u8, and InvalidProblemError where they are not what the format has for that shape.
    """

    blocks: Any
    format: GgufFormat | str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        kind = GgufFormat.of(self.format, "PackedGguf: format")
        object.__setattr__(self, "format", kind)
        try:
            object.__setattr__(self, "shape", as_ints(self.shape))
        except Exception:  # a foreign object's __index__ or __len__ may raise anything
            raise InvalidProblemError(f"PackedGguf: shape={shown(self.shape)}", "give the weights' extents") from None
        if not self.shape or min(self.shape) < 0:
            raise InvalidProblemError(f"PackedGguf: shape={self.shape}", "give extents of rows of weights, (N, K)")
        block, (*rows, columns) = kind.block, self.shape
        if columns % block.weights:
            raise InvalidProblemError(
                f"PackedGguf: shape={self.shape} has rows of {columns}, and a {block.name} block holds {block.weights} weights",
                f"quantize_gguf(w, {block.name!r}, pad=True) puts zeros behind them, to "
                f"{-(-columns // block.weights) * block.weights}",
            )
        if self.blocks is None:
            raise InvalidProblemError("PackedGguf: blocks is missing", "pass blocks=...")
        self._check_bytes((*rows, block.bytes_of(columns)))

    def _check_bytes(self, wanted: tuple[int, ...]) -> None:
        tensor = intake(self.blocks, what="PackedGguf: blocks")
        whole = f"weights {self.shape} as {GgufFormat.of(self.format).block.name}"
        if tensor.element is not ElementKind.U8:
            raise OperandTypeError(f"PackedGguf: blocks must hold u8, got {tensor.element}", "pass bytes: u8")
        needed, got = math.prod(wanted), math.prod(tensor.shape)
        if got < needed:
            raise BufferTooSmallError(
                f"PackedGguf: blocks holds {got} bytes, and {whole} take {needed}", needed, got,
                f"pass whole blocks, or the format and shape that the tensor has: {wanted}",
            )  # fmt: skip
        if tensor.shape != wanted:
            raise InvalidProblemError(
                f"PackedGguf: blocks has shape {tensor.shape}, and {whole} have {wanted}",
                "pass the format and shape that the tensor has; the package's reader has its axes the other way round",
            )

    @property
    def bits_per_weight(self) -> float:
        """Bits of memory that a weight takes, its share of scales included."""
        block = GgufFormat.of(self.format).block
        return 8 * block.nbytes / block.weights
