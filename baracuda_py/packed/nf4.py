"""PackedNf4: a matrix of NF4 codes and the largest magnitude of each block, as bitsandbytes keeps them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..types import ElementKind, InvalidProblemError
from ..types.keeping import complete
from .weight import PackedWeight

__all__ = ["BLOCK_SIZES", "CHUNK", "PackedNf4", "check_blocks", "check_double", "nf4_shapes"]

BLOCK_SIZES = (64, 128, 256, 512, 1024, 2048, 4096)
CHUNK = 64  # row lengths are multiples of this
OF_SCALE = 256  # magnitudes that share a scale
U8, F32 = ElementKind.U8, ElementKind.F32
KINDS = {"codes": (U8,), "absmax": (F32, U8), "scales": (F32,), "offset": (F32,)}


def nf4_shapes(shape: tuple[int, ...], block_size: int) -> dict[str, tuple[int, ...]]:
    """The shapes of `codes`, `absmax`, `scales` and `offset` of values [..., K], whose blocks continue across rows."""
    blocks = -(-math.prod(shape) // block_size)
    return {
        "codes": (*shape[:-1], shape[-1] // 2),
        "absmax": (blocks,),
        "scales": (-(-blocks // OF_SCALE),),
        "offset": (),
    }


def check_blocks(op: str, name: str, columns: int, block_size: int) -> None:
    """Raises InvalidProblemError for an unknown block size, or rows whose length is not a multiple of 64."""
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
    """Raises InvalidProblemError if magnitudes are codes and lack scales or offset, or are floats and have them."""
    double = absmax is U8
    for name, there in (("scales", scales), ("offset", offset)):
        if there is not double:
            said = f"absmax holds codes and {name} is missing" if double else f"absmax holds f32 and {name} was given"
            raise InvalidProblemError(f"{op}: {said}", f"pass {name}=..." if double else f"leave {name} out")


@dataclass(frozen=True, eq=False, repr=False)
class PackedNf4(PackedWeight):
    """A weight [N, K] of NF4 codes, K a multiple of 64: w[n, k] = NF4[code] absmax, with one absmax per block of `block_size`
    neighbours.

    `codes`: u8 [N, K/2], two codes per byte, the first in the high four bits; bitsandbytes' own shape [N K / 2, 1] is accepted
    as well. `absmax`: f32 [blocks]; the values in C order are split into blocks of 64, 128, ... 4096, the last of which may be
    short. With double quantisation `absmax` is u8 [blocks], codes of bitsandbytes' dynamic map. 256 codes share one of
    `scales`, f32 [blocks / 256, rounded up], and `offset`, a 0-d f32 array, is added: absmax = map[code] scale + offset.

    The arrays are CuPy's, NumPy's or PyTorch's, on one device, in C order. Otherwise InvalidProblemError or OperandTypeError is
    raised.
    """

    arrays = tuple(KINDS)
    needed = ("codes", "absmax")
    multiplied_by = "matmul_nf4"

    shape: tuple[int, int]
    codes: Any
    absmax: Any
    scales: Any = None
    offset: Any = None
    block_size: int = 64

    def __post_init__(self) -> None:
        self._settle("give (N, K) and an int", "block_size")
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise InvalidProblemError(f"PackedNf4: shape={self.shape}", "give (N, K), both at least 1")
        check_blocks("PackedNf4", "the weight", self.shape[1], self.block_size)
        n, k = self.shape
        if self._taken("codes").shape in ((n * k // 2, 1), (n * k // 2,)) and hasattr(self.codes, "reshape"):
            complete(self, codes=self.codes.reshape(n, k // 2))
        whole = f"a weight {self.shape} in blocks of {self.block_size} has"
        shapes = nf4_shapes(self.shape, self.block_size)
        said = "pass the shape and block_size that it was quantised with"
        for name in self.operands:
            self._check_shape(name, shapes[name], whole, said)
            self._check_element(name, KINDS[name])
            self._check_order(name)
        held = self._taken("absmax").element
        check_double("PackedNf4", held, scales=self.scales is not None, offset=self.offset is not None)

    @property
    def double_quant(self) -> bool:
        """Whether the blocks' magnitudes are quantised too."""
        return self.offset is not None
