"""Activations copied ahead of a product where they do not lie as its kernels read them (kernels/quantized/tokens.cu)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.steps import Kernel, Launch, Ptr, Scratch
from .._launch import grid_of
from ..gemm._problem.gemm import Gemm, Matrix
from ._int4_weight import pointer

__all__ = ["MOST_STAGED", "StagedTokens", "staged_tokens"]

MOST_STAGED = 65535  # rows: along the grid's second axis
MOST_PITCH = 1 << 25  # elements: kernels count to the last token of a tile in 32 bits
THREADS, PIECE, ALIGN = 128, 8, 256


@dataclass(frozen=True)
class StagedTokens:
    """Rows of x, in the weight's order, a multiple of 16 bytes each."""

    desc: Any
    x: Matrix
    m: int
    k: int

    @property
    def pitch(self) -> int:
        """Elements from row to row."""
        return -(-self.k // PIECE) * PIECE

    def scratch(self, past: int) -> Scratch:
        """Where they lie, behind `past` bytes of other scratch."""
        return Scratch(-(-past // ALIGN) * ALIGN, self.m * self.pitch * self.x.itemsize)

    def launch(self, to: Scratch) -> Launch:
        args = (
            Ptr("x"), to, pointer(self.desc, "order"), np.int64(self.x.row), np.int64(self.x.col), np.uint32(self.k),
            np.uint32(self.pitch),
        )  # fmt: skip
        kernel = Kernel("quantized/tokens.cu", f"stage_tokens<{self.x.element.number}>")
        grid = (grid_of(self.pitch, PIECE * THREADS)[0], self.m, 1)
        return Launch(kernel, grid, (THREADS, 1, 1), args, overlapped=True)


def staged_tokens(desc: Any) -> StagedTokens | None:
    """The copy that a problem needs; None where kernels read x as it lies."""
    gemm: Gemm = desc.gemm
    as_it_lies = gemm.a.col == 1 and 0 <= gemm.a.row < MOST_PITCH
    ordered = "order" in desc.slot_of and desc.has("order")
    if as_it_lies and gemm.k % PIECE == 0 and gemm.a.aligned(16, along=1) and not ordered:
        return None
    return StagedTokens(desc, gemm.a, gemm.m, gemm.k)
