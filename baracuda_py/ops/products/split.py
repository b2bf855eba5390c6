"""Split K in two passes: raw partial products in the plan's scratch, then one sum that finishes them.

The first pass is any kernel that stores through an epilogue. It takes the one of `partial_epilogue` in place of the problem's
own, and for split s moves `epilogue.out` on by s * `partial_size(gemm)` elements before it enters the batch. Every split stores
every element of its partial product, zeros where its part of K is empty. `reduce_step` is the second pass, for the same `gemm`.
The parts are added in order, so that the result depends on the number of splits and on nothing else.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ...runtime.steps import Kernel, Launch, Packed, Scratch, Struct
from ...types import Activation, DeviceSpec
from .._fitted import Fitted
from .._launch import THREADS, divisor, grid_of, index_scalar, index_type, overlapped_overhead
from .epilogue import accumulator, batch_struct, epilogue_args, epilogue_type, packed_strides
from .gemm import Gemm, Matrix

__all__ = [
    "SplitCosts",
    "partial_epilogue",
    "partial_size",
    "parts_latency",
    "reduce_step",
    "scratch_of",
    "second_pass",
]

_WORD = 16


def partial_size(gemm: Gemm) -> int:
    """Elements of one split's partial products."""
    return gemm.batches * gemm.m * gemm.n


def scratch_of(gemm: Gemm, splits: int) -> Scratch:
    """The partial products: [splits][batches][M][N] of the accumulator, without gaps."""
    return Scratch(0, scratch_bytes(gemm, splits))


def scratch_bytes(gemm: Gemm, splits: Any) -> Any:
    """Bytes of the partial products; `splits` may be an array."""
    return splits * (partial_size(gemm) * accumulator(gemm).bits // 8)


def _partial(gemm: Gemm) -> Gemm:
    """The problem whose result is the partial product of one split."""
    steps = tuple(gemm.m * gemm.n * math.prod(gemm.batch[axis + 1 :]) for axis in range(len(gemm.batch)))
    return replace(gemm, out=Matrix("", accumulator(gemm), gemm.n, 1, steps, _WORD), addends={})


def partial_epilogue(gemm: Gemm, splits: int) -> tuple[str, Struct]:
    """The C++ type and the argument of an epilogue that stores accumulators unchanged for the first split."""
    partial = _partial(gemm)
    scalar = accumulator(gemm).dtype.type
    absent = (Packed(bytes(8)),) * 3
    all_strides = (packed_strides(partial.out), *(Packed(bytes(40)),) * 3)
    fields = (scratch_of(gemm, splits), *absent, scalar(1), scalar(0), *all_strides)
    return epilogue_type(partial, Activation.IDENTITY), Struct(fields)


class SplitCosts(Fitted, table="gemm.split_k"):
    latency_s: float
    part_latency_s: float


def parts_latency(splits: Any, device: DeviceSpec) -> Any:
    """Seconds until the second pass of a product on tensor cores has read its parts, beyond its overhead and their bytes;
    `splits` may be an array."""
    costs = SplitCosts.of(device)
    return costs.latency_s + splits * costs.part_latency_s


def second_pass(gemm: Gemm, splits: Any, device: DeviceSpec, latency: Any) -> Any:
    """Seconds that writing the partial products and summing them takes; 0 where K is whole. `splits` may be an array."""
    nbytes = scratch_bytes(gemm, splits * 1.0)
    return (splits > 1) * (overlapped_overhead(device) + latency + 2 * nbytes / device.bandwidth)


def reduce_step(desc: Any, gemm: Gemm, splits: int) -> Launch:
    """The second pass."""
    acc = accumulator(gemm)
    vector = _WORD * 8 // acc.bits
    while gemm.n % vector:
        vector //= 2
    vectors = partial_size(gemm) // vector
    index = index_type(vectors)
    entry = f"reduce<{acc.number}, {vector}, {THREADS}, {index}, {epilogue_type(gemm, desc.activation)}>"
    return Launch(
        Kernel("gemm/reduce.cu", entry), grid_of(vectors, THREADS), (THREADS, 1, 1),
        (scratch_of(gemm, splits), epilogue_args(gemm), batch_struct(gemm), index_scalar(vectors, index), np.uint32(splits),
         np.uint32(gemm.m), divisor(gemm.n // vector, index), divisor(gemm.m, index)),
        pdl=True,
    )  # fmt: skip
