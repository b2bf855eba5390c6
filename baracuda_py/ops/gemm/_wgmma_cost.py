"""What wgmma's tiles cost: cycles of an SM that a slab, a tile and a launch take, beside the time that memory takes."""

from __future__ import annotations

from ...plan.candidate import Cost
from ...types import DeviceSpec
from .._launch import overlapped_overhead
from ._problem import Gemm
from ._tma import SLAB, leave_of
from ._wgmma_tile import STEP, Tile, clusters_at_once, slabs_of, tiles_of

__all__ = ["cost_of"]

# Fitted to sweeps of an H200. Cycles, and bytes a cycle:
CORES = 1.03  # of the tensor cores' own time
SHARED_RATE, L2_RATE = 162.0, 55.0
OUTSIDE = 10.4  # a row of a box that lies outside the operand
IN_TURN, TOGETHER = 185.0, 383.0  # what finishing a tile takes, where consumers take turns or share it
PER_ELEMENT, RAGGED = 0.034, 2.65  # of a shared tile of two-byte results, and where it leaves by warps
SENT_RATE = 29.3  # of partial sums within a cluster
DRAIN_RATE = 23.7  # the last tile's result
START, START_PAIR = 307.0, 300.0
HIDDEN = 0.7  # of the lesser of computing and moving
BANDWIDTH = 1.25  # times a copy's: reads alone are faster, and small operands stay in L2
THROTTLE, BEFORE = 0.12, 60e-6  # how much slower power makes what takes much longer than so many seconds


def cost_of(gemm: Gemm, device: DeviceSpec, tile: Tile) -> Cost:
    """Of the product, oriented as the tile has it."""
    clock = device.rate("issue") / (device.sms * 128)
    whole, rest = divmod(tiles_of(gemm, tile), clusters_at_once(device, tile))
    if tile.tail > 1:
        cycles, limit = _cycles(gemm, tile, whole, device)
        cycles += _cycles(gemm, tile.of_tail, 1, device)[0]
    else:
        cycles, limit = _cycles(gemm, tile, whole + (rest > 0), device)
    compute = cycles / clock
    compute *= 1 + THROTTLE * compute / (compute + BEFORE)
    memory = gemm.nbytes / (device.bandwidth * BANDWIDTH)
    seconds = max(compute, memory) + (1 - HIDDEN) * min(compute, memory)
    seconds += overlapped_overhead(device) * (1 + (tile.tail > 1))
    return Cost(gemm.nbytes, gemm.flops, seconds, "bandwidth" if memory > compute else limit)


def _cycles(gemm: Gemm, tile: Tile, waves: int, device: DeviceSpec) -> tuple[float, str]:
    """What `waves` of tiles take, and what limits them: every slab of K takes the tensor cores, shared memory and L2 of an SM
    some cycles, and every tile and launch adds some."""
    beside = min(tile.resident, -(-tiles_of(gemm, tile) * tile.cluster * tile.split // device.sms))
    slabs = slabs_of(gemm) / tile.split
    staged = (tile.bm + tile.bn) * SLAB
    read = tile.bm // 64 * (SLAB // STEP) * (64 + tile.bn) * STEP  # every instruction reads its operands
    outside = max(0, min(tile.bn - gemm.n, tile.bn // tile.cluster)) if tile.cluster > 1 else 0
    limits = {
        "tensor cores": tile.bm * tile.bn / 32 * CORES,
        "shared memory": (staged + read) / SHARED_RATE,
        "L2": (tile.bm + tile.bn / tile.cluster) * SLAB / L2_RATE + outside * OUTSIDE,
    }
    limit = max(limits, key=lambda name: limits[name])
    area = tile.bm * tile.bn
    sent = area * 4 * (tile.split - 1) / tile.split
    leaving = PER_ELEMENT * gemm.out.itemsize / 2 * (RAGGED if leave_of(gemm).endswith("WARPS") else 1.0)
    finish = IN_TURN if tile.by_turns else TOGETHER + area * leaving
    each = slabs * limits[limit] * beside + finish + sent / SENT_RATE
    last = area * gemm.out.itemsize / tile.split / DRAIN_RATE
    return waves * each + last + START + START_PAIR * (tile.cluster - 1), limit
