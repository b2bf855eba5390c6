"""Products of bytes on tensor cores, mma.sync of s8: gemm's cp.async pipeline, whose bytes are the same whatever they hold.

Both operands are K-major. Others are copied ahead of the product (`staged`). Where tiles are few, K is split.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....runtime.steps import Arg, Kernel, Launch, Ptr, Scratch, Step, Struct
from ....types import DeviceSpec, MathPrecision, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import grid_of, overlapped_overhead
from ...products.mma import NARROW, Tile
from ._finish import BATCH, HEADER, NULL, Finish, partial_finish, reduce_parts, second_pass, side_strides
from .guarantee import guarantee
from .problem import CODES, Product, Side, across

__all__ = ["LAUNCHES", "Int8Mma", "launches_of", "mma_seconds", "tiles"]

LAUNCHES = ("gemm/tc_async.cu:tc_async", "gemm/reduce.cu:reduce", "quantized/int8_sums.cu:line_sums")
MOST_SPLITS, LEAST_TILES = 32, 4  # most parts of K, and fewest K tiles in a part
MOST_VECTORS, MOST_CTAS = 32, 2**31 - 1


class Costs(Fitted, table="quantized.int8_mma"):
    mma_sync_rate_ratio: float
    four_warps_ratio: float
    l2_bytes_per_cycle: float
    first_tile_latency_s: float
    bandwidth_efficiency: float


# `matmul`'s tiles, with the part of mma.sync's rate that their warps reach for long K of bytes; and more.
SHARES = (1.0, 0.97, 0.955, 0.93, 0.95, 0.91, 0.76, 0.71, 0.6, 0.55)
TILES = (
    *(replace(tile, share=share) for tile, share in zip(NARROW, SHARES, strict=True)),
    Tile(256, 128, 128, (64, 64), 3, share=0.96),
    Tile(256, 128, 64, (64, 64), 4, share=0.935),
    Tile(128, 128, 64, (64, 64), 3, share=0.87),
    Tile(128, 128, 128, (64, 32), 3, share=0.79),
)


def _count(product: Product, tile: Tile) -> int:
    """Tiles of the result."""
    return across(product.m, tile.m) * across(product.n, tile.n)


def _k_split(product: Product, tile: Tile) -> int:
    """K of a part: all of it, or whole tiles."""
    if tile.split_k == 1:
        return product.k
    return across(across(product.k, tile.k_bytes), tile.split_k) * tile.k_bytes


def _access_bytes(product: Product) -> tuple[int, int]:
    """Bytes of a copy of A and of B; below 4 where an operand is not K-major, or not aligned to words."""
    return product.a.access_bytes(along_row=True), product.b.access_bytes(along_row=False)


def tiles(product: Product, device: DeviceSpec) -> Iterable[Tile]:
    """Those that fit, each with K whole, and split where SMs would idle."""
    access_bytes = _access_bytes(product)
    for tile in TILES:
        loads = sum(extent * tile.k_bytes // max(1, vector) for extent, vector in zip((tile.m, tile.n), access_bytes))
        if (
            tile.shared_bytes > device.shared_bytes
            or loads > MOST_VECTORS * tile.threads
            or _count(product, tile) > MOST_CTAS
        ):
            continue
        yield tile
        k_tiles = across(product.k, tile.k_bytes)
        wanted = min(device.sms // max(1, _count(product, tile)), k_tiles // LEAST_TILES, MOST_SPLITS)
        if wanted > 1:
            yield replace(tile, split_k=across(k_tiles, across(k_tiles, wanted)))


def mma_seconds(product: Product, device: DeviceSpec, tile: Tile) -> tuple[float, str]:
    """The busiest SM's time, and what sets it."""
    costs = Costs.of(device)
    rounds = -(-_count(product, tile) * tile.split_k // device.sms)
    k_bytes = max(1, across(across(product.k, tile.k_bytes), tile.split_k)) * tile.k_bytes
    clock_sms = device.rate("issue") / 128
    rate = 2 * device.rate("bf16") * costs.mma_sync_rate_ratio * tile.share
    few = costs.four_warps_ratio if rounds == 1 and tile.threads < 256 else 1.0
    times = {
        "tensor cores": rounds * device.sms * 2 * tile.m * tile.n * k_bytes / (rate * few),
        "L2": rounds * device.sms * (tile.m + tile.n) * k_bytes / (costs.l2_bytes_per_cycle * clock_sms),
        "bandwidth": product.nbytes / (device.bandwidth * costs.bandwidth_efficiency),
    }
    limit = max(times, key=lambda name: times[name])
    # A CTA's first tile comes and its sums leave while tensor cores wait, unless another CTA has work for them.
    alone = 2 * tile.shared_bytes > device.shared_bytes or tile.threads > 128
    stored = tile.m * tile.n * 4 / costs.l2_bytes_per_cycle * device.sms / clock_sms
    edges = (costs.first_tile_latency_s + stored) * (rounds if alone else 1)
    return overlapped_overhead(device) + times[limit] + edges + second_pass(product, tile.split_k, device), limit


def _group_m(product: Product, tile: Tile, device: DeviceSpec) -> int:
    """Rows of tiles walked column by column, so that the tiles in flight touch the fewest rows and columns."""
    rows = -(-product.m // tile.m)
    heights = [h for h in (1, 2, 4, 8, 16, 32) if h <= rows]
    return min(heights, key=lambda h: h * tile.m + -(-device.sms // h) * tile.n)


def _sums(side: Side, place: Arg, lines: int, k: int, step: int, name: str) -> tuple[Launch, Scratch]:
    """Sums along K of the lines of an operand, ahead of the product."""
    access = side.access_bytes(along_row=side.operand == "a")
    access = access if access in (4, 16) else 4 if access == 8 else 1
    out = Scratch.named(name, 4 * max(1, lines))
    entry = f"line_sums<{side.element.number}, {access}, 256>"
    args = (place, np.int64(step), np.uint32(lines), np.uint32(k), out)
    return Launch(Kernel("quantized/int8_sums.cu", entry), grid_of(lines, 8), (256, 1, 1), args, pdl=True), out


def launches_of(desc: Any, product: Product, device: DeviceSpec, tile: Tile, a: Arg, b: Arg) -> tuple[Step, ...]:
    """The launches of a product whose operands are K-major, at `a` and `b`."""
    finish = Finish.of(desc, product)
    steps: list[Step] = []
    sums: list[Arg] = [NULL, NULL]
    for i, (zero, side, place, lines, step, name) in enumerate((
        ("zero_b", product.a, a, product.m, product.a.row, "rows"),
        ("zero_a", product.b, b, product.n, product.b.col, "columns"),
    )):  # fmt: skip
        if desc.has(zero):
            launch, sums[i] = _sums(side, place, lines, product.k, step, name)
            steps.append(launch)
    split = tile.split_k > 1
    used = partial_finish(product, finish, integers=True) if split else finish
    kind = used.kind("NO_ZEROS" if split else "BY_OPERAND_SUMS")
    access_bytes = _access_bytes(product)
    extent = f"{tile.m}, {tile.n}, {tile.k_bytes}, {tile.warp[0]}, {tile.warp[1]}"
    types = f"quantized::Eight<{product.a.element.number}>, {kind}, {extent}"
    entry = f"tc_async<{types}, {tile.stages}, true, {access_bytes[0]}, true, {access_bytes[1]}>"
    extents = (np.uint32(n) for n in (product.m, product.n, product.k, _group_m(product, tile, device)))
    parts = np.uint32(tile.split_k), np.uint32(_k_split(product, tile)), np.uint64(product.m * product.n)
    args = (
        a, b, Struct(used.args(*([NULL, NULL] if split else sums))), side_strides(product.a), side_strides(product.b), BATCH,
        *extents, *parts,
    )  # fmt: skip
    grid = (_count(product, tile) * tile.split_k, 1, 1)
    kernel = Kernel("gemm/tc_async.cu", entry, HEADER)
    steps.append(Launch(kernel, grid, (tile.threads, 1, 1), args, tile.shared_bytes, pdl=True))
    if split:
        steps.append(reduce_parts(product, finish, tile.split_k, "BY_OPERAND_SUMS", (sums[0], sums[1]), "i32"))
    return tuple(steps)


def refused(product: Product) -> Feasibility:
    """Whether copies of words load both operands."""
    for name, vector in zip("ab", _access_bytes(product)):
        if vector < 4:
            return no(f"{name} does not lie along K in rows that start on multiples of 4 bytes", "the variant staged")
    return OK


class Int8Mma(Candidate[Any]):
    """Tiles of s8 products from a cp.async pipeline, exact whatever the tile and the number of parts."""

    variant = "mma"
    launches = LAUNCHES

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.a_element not in CODES:
            return no(f"a holds {desc.a_element}, which is not multiplied with i8 as it is")
        return refused(desc.product)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Tile]:
        return tiles(desc.product, device)

    def cost(self, desc: Any, device: DeviceSpec, config: Tile) -> Cost:
        seconds, limit = mma_seconds(desc.product, device, config)
        sums_of_operands = desc.has("zero_a") * desc.product.n + desc.has("zero_b") * desc.product.m
        seconds += sums_of_operands * desc.product.k / device.bandwidth + overlapped_overhead(device) * (
            sums_of_operands > 0
        )
        return Cost(desc.product.nbytes, desc.product.flops, seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Tile) -> PrecisionGuarantee:
        return guarantee(desc, MathPrecision.INT8)

    def lower(self, desc: Any, device: DeviceSpec, config: Tile) -> tuple[Step, ...]:
        return launches_of(desc, desc.product, device, config, Ptr("a"), Ptr("b"))
