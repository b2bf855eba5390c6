"""PackedGguf: weights in blocks of a GGUF format, with their format and shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..types import BufferTooSmallError, ElementKind, InvalidProblemError
from ..types.gguf import GgufFormat
from ..types.keeping import complete
from .weight import PackedWeight

__all__ = ["PackedGguf"]


@dataclass(frozen=True, eq=False, repr=False)
class PackedGguf(PackedWeight):
    """Weights of `shape`, [..., K], in blocks of `format` ("Q4_K", a `GgufFormat`, or the `gguf` package's own member).

    `blocks`: u8 [..., bytes of K weights] in C order, as the package's reader returns a tensor's data; the reader's `shape` has
    the axes in reverse order. K is a multiple of the format's block.

    The array is CuPy's, NumPy's or PyTorch's. Raises BufferTooSmallError, with `needed` and `got`, if bytes are missing,
    OperandTypeError if they are not u8, and InvalidProblemError if the format has another number of bytes for that shape.
    """

    arrays = needed = ("blocks",)
    multiplied_by = "matmul_gguf"

    blocks: Any
    format: GgufFormat | str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        kind = GgufFormat.of(self.format, "PackedGguf: format")
        complete(self, format=kind)
        self._settle("give the weights' extents")
        if not self.shape or min(self.shape) < 0:
            raise InvalidProblemError(f"PackedGguf: shape={self.shape}", "give extents of rows of weights, (N, K)")
        block, (*rows, columns) = kind.block, self.shape
        if columns % block.weights:
            raise InvalidProblemError(
                f"PackedGguf: shape={self.shape} has rows of {columns}, and a {block.name} block holds {block.weights} weights",
                f"quantize_gguf(w, {block.name!r}, pad=True) puts zeros behind them, to "
                f"{-(-columns // block.weights) * block.weights}",
            )
        self._check_bytes((*rows, block.bytes_of(columns)))

    def _check_bytes(self, wanted: tuple[int, ...]) -> None:
        self._check_element("blocks", (ElementKind.U8,))
        whole = f"weights {self.shape} as {GgufFormat.of(self.format).block.name}"
        needed, got = math.prod(wanted), math.prod(self._taken("blocks").shape)
        if got < needed:
            raise BufferTooSmallError(
                f"PackedGguf: blocks holds {got} bytes, and {whole} take {needed}", needed, got,
                f"pass whole blocks, or the format and shape that the tensor has: {wanted}",
            )  # fmt: skip
        said = "pass the format and shape that the tensor has; the package's reader has its axes the other way round"
        self._check_shape("blocks", wanted, f"{whole} have", said)
        self._check_order("blocks")

    @property
    def bits_per_weight(self) -> float:
        """Bits of memory per weight, including its share of scales."""
        block = GgufFormat.of(self.format).block
        return 8 * block.nbytes / block.weights
