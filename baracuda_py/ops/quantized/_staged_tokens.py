"""Activations copied ahead of a product where its kernels cannot read their layout (kernels/quantized/tokens.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ...runtime.steps import Kernel, Launch, Ptr, Scratch
from ...types import DeviceSpec
from .._fitted import Fitted
from .._launch import grid_of, overlapped_overhead
from ..products.gemm import Gemm, Matrix
from ._arguments import pointer

__all__ = ["MOST_STAGED", "StagedTokens", "staged_tokens"]

MOST_STAGED = 65535  # rows a launch: along the grid's second axis
MOST_PITCH = 1 << 25  # elements: kernels count to the last token of a tile in 32 bits
THREADS, VECTOR, ALIGN = 128, 8, 256


class Costs(Fitted, table="quantized.staged_tokens"):
    latency_s: float


@dataclass(frozen=True)
class StagedTokens:
    """Rows of x, in the weight's order, a multiple of 16 bytes each."""

    desc: Any
    x: Matrix
    m: int
    k: int
    batch: tuple[int, ...] = ()  # matrices of so many rows, where these are not evenly spaced

    @property
    def pitch(self) -> int:
        """Elements from row to row."""
        return -(-self.k // VECTOR) * VECTOR

    def scratch(self, past: int) -> Scratch:
        """Their address, behind `past` bytes of other scratch."""
        return Scratch(-(-past // ALIGN) * ALIGN, math.prod(self.batch) * self.m * self.pitch * self.x.itemsize)

    def seconds(self, device: DeviceSpec) -> float:
        nbytes = 2 * math.prod(self.batch) * self.m * self.k * self.x.itemsize
        return overlapped_overhead(device) + Costs.of(device).latency_s + nbytes / device.bandwidth

    def launches(self, to: Scratch) -> Iterator[Launch]:
        kernel = Kernel("quantized/tokens.cu", f"stage_tokens<{self.x.element.number}>")
        line, size = self.pitch * self.x.itemsize, self.x.itemsize
        tiles = product(np.ndindex(*self.batch), range(0, max(self.m, 1), MOST_STAGED))
        for count, (matrix, first) in enumerate(tiles):
            rows = min(self.m - first, MOST_STAGED)
            begin = count // -(-max(self.m, 1) // MOST_STAGED) * self.m + first
            place = Scratch(to.offset + begin * line, rows * line)
            at = sum(i * step for i, step in zip(matrix, self.x.batch)) + first * self.x.row
            args = (
                Ptr("x", at * size), place, pointer(self.desc, "order"), np.int64(self.x.row),
                np.int64(self.x.col), np.uint32(self.k), np.uint32(self.pitch),
            )  # fmt: skip
            grid = (grid_of(self.pitch, VECTOR * THREADS)[0], rows, 1)
            yield Launch(kernel, grid, (THREADS, 1, 1), args, pdl=True)


def staged_tokens(desc: Any) -> StagedTokens | None:
    """The copy that a problem needs; None where kernels read x without a copy."""
    gemm: Gemm = desc.gemm
    without_copy = gemm.a.col == 1 and 0 <= gemm.a.row < MOST_PITCH
    ordered = "order" in desc.slot_of and desc.has("order")
    if without_copy and gemm.k % VECTOR == 0 and gemm.a.aligned(16, along=1) and not ordered:
        return None
    return StagedTokens(desc, gemm.a, gemm.m, gemm.k, gemm.batch)
