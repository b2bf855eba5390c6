"""PackedNf4: a matrix of NF4 codes and the largest magnitude of each block, as bitsandbytes keeps them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..tensor import intake
from ..tensor.axes import as_ints, index_of
from ..types import ElementKind, InvalidProblemError, OperandTypeError
from ..types.errors import shown

__all__ = ["BLOCK_SIZES", "CHUNK", "PackedNf4", "check_blocks", "check_double", "nf4_shapes"]

BLOCK_SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
CHUNK = 64  # what rows are multiples of
OF_SCALE = 256  # magnitudes that share a scale
ARRAYS = ("codes", "absmax", "scales", "offset")
U8, F32 = ElementKind.U8, ElementKind.F32


def nf4_shapes(shape: tuple[int, ...], block_size: int) -> dict[str, tuple[int, ...]]:
    """The shapes of `codes`, `absmax`, `scales` and `offset` of values [..., K], whose blocks run on from row to row."""
    blocks = -(-math.prod(shape) // block_size)
    return {
        "codes": (*shape[:-1], shape[-1] // 2),
        "absmax": (blocks,),
        "scales": (-(-blocks // OF_SCALE),),
        "offset": (),
    }


def check_blocks(op: str, name: str, columns: int, block_size: int) -> None:
    """Raises InvalidProblemError for a block size that there is not, or rows that do not end with 64 values."""
    if block_size not in BLOCK_SIZES:
        known = ", ".join(map(str, BLOCK_SIZES))
        raise InvalidProblemError(f"{op}: block_size={block_size}", f"one of {known}")
    if columns % CHUNK:
        wanted = -(-columns // CHUNK) * CHUNK
        raise InvalidProblemError(
            f"{op}: {name} has rows of {columns}, no multiple of {CHUNK}",
            f"pad them with zeros to {wanted} by numpy.pad, then pack_nf4; activations to {wanted} columns",
        )


def check_double(op: str, absmax: ElementKind, *, scales: bool, offset: bool) -> None:
    """Raises InvalidProblemError where magnitudes are codes without what they are codes for, or floats with it."""
    double = absmax is U8
    for name, there in (("scales", scales), ("offset", offset)):
        if there is not double:
            said = f"absmax holds codes and {name} is missing" if double else f"absmax holds f32 and {name} was given"
            raise InvalidProblemError(f"{op}: {said}", f"pass {name}=..." if double else f"leave {name} out")


@dataclass(frozen=True)
class PackedNf4:
    """A weight [N, K] of NF4 codes, K a multiple of 64: w[n, k] = NF4[code] absmax, of blocks of `block_size` neighbours.

    `codes`: u8 [N, K/2], two a byte, the first in the high four bits; bitsandbytes' own shape [N K / 2, 1] is taken as well.
    `absmax`: f32 [blocks], all values in C order being cut into blocks of 64, 128, ... 4096, the last of which may be short.
    With double quantisation `absmax` is u8 [blocks], codes of bitsandbytes' dynamic map, of which 256 share one of `scales`, f32
    [blocks / 256, rounded up], and `offset`, f32 of no axis, is added: absmax = map[code] scale + offset.

    Arrays of CuPy, NumPy or PyTorch, on one device, in C order. Raises InvalidProblemError or OperandTypeError where they are
    not this.
    """

    shape: tuple[int, int]
    codes: Any
    absmax: Any
    scales: Any = None
    offset: Any = None
    block_size: int = 64

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "shape", as_ints(self.shape))
            object.__setattr__(self, "block_size", index_of(self.block_size))
        except Exception:  # a foreign object's __index__ or __len__ may raise anything
            raise InvalidProblemError(
                f"PackedNf4: shape={shown(self.shape)} and block_size={shown(self.block_size)}",
                "give (N, K) and an int",
            ) from None
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise InvalidProblemError(f"PackedNf4: shape={self.shape}", "give (N, K), both at least 1")
        check_blocks("PackedNf4", "the weight", self.shape[1], self.block_size)
        for name in ("codes", "absmax"):
            if getattr(self, name) is None:
                raise InvalidProblemError(f"PackedNf4: {name} is missing", f"pass {name}=...")
        n, k = self.shape
        if intake(self.codes, what="PackedNf4: codes").shape in ((n * k // 2, 1), (n * k // 2,)):
            object.__setattr__(self, "codes", self.codes.reshape(n, k // 2))
        kinds = {"codes": (U8,), "absmax": (F32, U8), "scales": (F32,), "offset": (F32,)}
        for name, wanted in nf4_shapes(self.shape, self.block_size).items():
            if getattr(self, name) is not None:
                self._check(name, wanted, kinds[name])
        held = intake(self.absmax, what="PackedNf4: absmax").element
        check_double("PackedNf4", held, scales=self.scales is not None, offset=self.offset is not None)

    def _check(self, name: str, shape: tuple[int, ...], kinds: tuple[ElementKind, ...]) -> None:
        tensor = intake(getattr(self, name), what=f"PackedNf4: {name}")
        if tensor.shape != shape:
            raise InvalidProblemError(
                f"PackedNf4: {name} has shape {tensor.shape}; of {self.shape} in blocks of {self.block_size} it is {shape}",
                "pass the shape and block_size that it was quantised with",
            )
        if tensor.element not in kinds:
            named = " or ".join(map(str, kinds))
            raise OperandTypeError(f"PackedNf4: {name} must hold {named}, got {tensor.element}", f"pass {named}")

    @property
    def operands(self) -> Mapping[str, Any]:
        """The arrays that there are, by name."""
        return {name: x for name in ARRAYS if (x := getattr(self, name)) is not None}

    @property
    def double_quant(self) -> bool:
        """Whether the blocks' magnitudes are codes themselves."""
        return self.offset is not None

    @property
    def bits_per_weight(self) -> float:
        """Bits of memory that a weight takes, its share of magnitudes and scales included."""
        held = (intake(x, what=f"PackedNf4: {name}") for name, x in self.operands.items())
        return sum(math.prod(x.shape) * x.element.bits for x in held) / math.prod(self.shape)
