"""The block formats of GGUF files, in one table for oracles, kernels and messages.

Every weight is ``scale * (code - less) - least``. A block holds its codes as bit planes and one or two scales as floats. The
larger formats also hold a small integer per sub-block, which multiplies the scale.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from .vocabulary import Named

__all__ = ["BLOCKS", "BOOKS", "Block", "Float", "GgufFormat", "Plane", "SixBits"]


class GgufFormat(Named):
    """A block format. Wherever one is expected, ``"Q4_K"`` or a member of the `gguf` package's ``GGMLQuantizationType`` is
    accepted.

    Q4_SIMPLE32 is not a format of GGUF files: 18 bytes for 32 weights, ``d * code``, two neighbours per byte.
    """

    Q4_0 = enum.auto()
    Q4_1 = enum.auto()
    Q5_0 = enum.auto()
    Q5_1 = enum.auto()
    Q8_0 = enum.auto()
    Q8_1 = enum.auto()
    Q2_K = enum.auto()
    Q3_K = enum.auto()
    Q4_K = enum.auto()
    Q5_K = enum.auto()
    Q6_K = enum.auto()
    Q8_K = enum.auto()
    IQ4_NL = enum.auto()
    IQ4_XS = enum.auto()
    MXFP4 = enum.auto()
    Q4_SIMPLE32 = enum.auto()

    @classmethod
    def of(cls, like: Any, what: str = "") -> Self:
        """The member for `like`: a member, its name, or an object whose `name` is a member's name."""
        try:
            named = like if isinstance(like, (str, cls)) else getattr(like, "name", like)
        except Exception:  # a foreign object's property may raise anything
            named = like
        return super().of(named, what or "format")

    @property
    def block(self) -> Block:
        return BLOCKS[self]


@dataclass(frozen=True)
class Plane:
    """Fields of `bits` bits from byte `at` on, lowest bits of a byte first. Bytes form groups: field i of byte l of group c
    belongs to code ``(c * 8 / bits + i) * group + l``."""

    bits: int
    at: int
    group: int

    def places(self, count: int) -> Iterator[tuple[int, int]]:
        """The byte of each code's field, and the field's lowest bit."""
        fields = 8 // self.bits
        for code in range(count):
            line, within = divmod(code, self.group)
            yield self.at + line // fields * self.group + within, line % fields * self.bits

    def __str__(self) -> str:
        return f"gguf::Plane<{self.bits}, {self.at}, {self.group}>"


@dataclass(frozen=True)
class Float:
    """A number at byte `at`: f16, f32, or e8m0, a power of two that counts halves (2**(e - 128))."""

    kind: str
    at: int

    def __str__(self) -> str:
        return f"gguf::Float<gguf::{self.kind.upper()}, {self.at}>"


@dataclass(frozen=True)
class SixBits:
    """Twelve bytes from `at` on, with eight scales and eight minima of six bits. Bytes 0 to 7 hold the first four of each in
    their low six bits. Bytes 8 to 11 hold the low four bits of the others, the scale's in the low half; their top two bits are
    the top bits of bytes 0 to 7."""

    at: int


@dataclass(frozen=True)
class Block:
    """A format. `planes` are the codes' bits, lowest first. `less` is subtracted from a code; a `signed` code is a two's
    complement byte; `book`, if any, is a look-up table of codes. `sub` weights share a scale: d times one of `scales`, which
    are planes minus `scales_less`, signed bytes, or six-bit fields. `least` is added (Q4_1), or multiplied by its own integer
    and subtracted (Q4_K)."""

    name: str
    ggml: int | None  # its number in files
    weights: int
    nbytes: int
    d: Float
    planes: tuple[Plane, ...]
    less: int = 0
    signed: bool = False
    book: str = ""
    sub: int = 32
    scales: tuple[Plane, ...] | SixBits = ()
    scales_less: int = 0
    scales_signed: bool = False
    least: Float | None = None

    @property
    def has_minima(self) -> bool:
        """Whether `least` is multiplied by an integer of each sub-block and subtracted."""
        return self.least is not None and bool(self.scales)

    @property
    def subs(self) -> int:
        return self.weights // self.sub

    @property
    def align(self) -> int:
        """The alignment in bytes of every block in a buffer that is aligned to 16 bytes."""
        return min(16, self.nbytes & -self.nbytes)

    def bytes_of(self, weights: int) -> int:
        """The bytes of a row of that many weights, in whole blocks."""
        return weights // self.weights * self.nbytes

    @cached_property
    def cuda(self) -> str:
        """The type of kernels/include/quantized/gguf/format.cuh."""
        planes = ", ".join(map(str, self.planes))
        if self.book:
            codes = f"gguf::Looked<gguf::{self.book.upper()}, {planes}>"
        else:
            codes = f"gguf::Codes<{self.less}, {str(self.signed).lower()}, {planes}>"
        return f"gguf::Format<{self.weights}, {self.nbytes}, {self.sub}, {codes}, {self._cuda_scales}>"

    @property
    def _cuda_scales(self) -> str:
        if not self.scales:
            return f"gguf::Whole<{self.d}>" if self.least is None else f"gguf::WholeAndSum<{self.d}, {self.least}>"
        if isinstance(self.scales, SixBits):
            integers = f"gguf::SixBits<{self.scales.at}>"
        else:
            planes = ", ".join(map(str, self.scales))
            integers = f"gguf::Integers<{self.scales_less}, {str(self.scales_signed).lower()}, {planes}>"
        return f"gguf::Each<{self.d}, {self.least or 'gguf::Nothing'}, {integers}, {self.subs}>"


BOOKS: dict[str, tuple[int, ...]] = {
    "iq4": (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113),
    "e2m1": (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12),  # twice the numbers
}

_D = Float("f16", 0)
_NIBBLES = (Plane(4, 2, 16),)
_TABLE = (
    Block("Q4_0", 2, 32, 18, _D, _NIBBLES, less=8),
    Block("Q4_1", 3, 32, 20, _D, (Plane(4, 4, 16),), least=Float("f16", 2)),
    Block("Q5_0", 6, 32, 22, _D, (Plane(4, 6, 16), Plane(1, 2, 1)), less=16),
    Block("Q5_1", 7, 32, 24, _D, (Plane(4, 8, 16), Plane(1, 4, 1)), least=Float("f16", 2)),
    Block("Q8_0", 8, 32, 34, _D, (Plane(8, 2, 32),), signed=True),
    Block("Q8_1", 9, 32, 36, _D, (Plane(8, 4, 32),), signed=True),
    Block("Q2_K", 10, 256, 84, Float("f16", 80), (Plane(2, 16, 32),), sub=16, scales=(Plane(4, 0, 16),), least=Float("f16", 82)),
    Block("Q3_K", 11, 256, 110, Float("f16", 108), (Plane(2, 32, 32), Plane(1, 0, 32)), less=4, sub=16,
          scales=(Plane(4, 96, 8), Plane(2, 104, 4)), scales_less=32),
    Block("Q4_K", 12, 256, 144, _D, (Plane(4, 16, 32),), scales=SixBits(4), least=Float("f16", 2)),
    Block("Q5_K", 13, 256, 176, _D, (Plane(4, 48, 32), Plane(1, 16, 32)), scales=SixBits(4), least=Float("f16", 2)),
    Block("Q6_K", 14, 256, 210, Float("f16", 208), (Plane(4, 0, 64), Plane(2, 128, 32)), less=32, sub=16,
          scales=(Plane(8, 192, 16),), scales_signed=True),
    Block("Q8_K", 15, 256, 292, Float("f32", 0), (Plane(8, 4, 256),), signed=True),
    Block("IQ4_NL", 20, 32, 18, _D, _NIBBLES, book="iq4"),
    Block("IQ4_XS", 23, 256, 136, _D, (Plane(4, 8, 16),), book="iq4", scales=(Plane(4, 4, 1), Plane(2, 2, 1)), scales_less=32),
    Block("MXFP4", 39, 32, 17, Float("e8m0", 0), (Plane(4, 1, 16),), book="e2m1"),
    Block("Q4_SIMPLE32", None, 32, 18, _D, (Plane(4, 2, 1),)),
)  # fmt: skip
BLOCKS: dict[GgufFormat, Block] = {GgufFormat.of(block.name): block for block in _TABLE}
