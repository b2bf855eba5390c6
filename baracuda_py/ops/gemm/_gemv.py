"""gemv: products with eight rows or columns at most, as fast as the large operand streams. Costs of kernels/gemm/gemv.cu.

Where K is split, kernels/gemm/reduce.cu adds the parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility, no
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...types import BackendKind, DeviceSpec, PrecisionGuarantee
from ._checks import admitted, launchable
from ._epilogue import accumulator, batch_struct, epilogue_args, epilogue_type, walk
from ._guarantee import ROUNDED, guarantee_of
from ._problem import Gemm
from ._simt import MATHS, fma_rate
from ._split import partial_epilogue, reduce_step, second_pass, slab_of
from ._vector import nearest_axis, vector_width

__all__ = ["Gemv"]

TOKENS = (1, 2, 4, 8)  # rows a kernel is built for
_WORD, _LINE = 16, 128  # bytes of an access, and of a strip's row
_STAGES = 4  # gemv.cu's STAGES
_COLS, _ROWS_WARPS = 4, 4
_UNROLL = 2
_SPLIT_UNIT = 64  # a split starts at a multiple, so that vectors along k stay whole
_MOST_SPLITS, _LEAST_K = 32, 512


@dataclass(frozen=True)
class Shape:
    """A kernel, as its template arguments say: `along_k` picks gemv_rows or gemv_strips, `team` is WARPS_K or LANES."""

    along_k: bool
    tokens: int
    vector: int
    team: int
    splits: int
    acc_bytes: int
    item_bytes: int

    def __str__(self) -> str:
        return f"{'rows' if self.along_k else 'strips'}{self.team}" + (f"s{self.splits}" if self.splits > 1 else "")

    @property
    def warps(self) -> int:
        return _ROWS_WARPS if self.along_k else 8 if self.tokens == TOKENS[-1] else 16

    @property
    def columns(self) -> int:
        """Columns a CTA."""
        return self.warps // self.team * _COLS if self.along_k else self.team * self.vector

    @property
    def step_k(self) -> int:
        """k's that a CTA takes a turn."""
        return self.team * 32 * self.vector if self.along_k else self.warps * 32 // self.team * _UNROLL

    @property
    def in_flight(self) -> int:
        """Bytes of B under way to a CTA."""
        return self.warps * 32 * _STAGES * (_COLS if self.along_k else _UNROLL) * self.vector * self.item_bytes

    @property
    def shared_bytes(self) -> int:
        sums = self.warps * self.tokens * (_COLS if self.along_k else self.columns) * self.acc_bytes
        return max(self.in_flight, sums)

    def additions(self, k: int) -> int:
        """The longest chain of additions before the splits meet: a thread's own, a warp's folds, the warps'."""
        turns = -(-self.k_split(k) // self.step_k)
        return turns * (self.vector if self.along_k else _UNROLL) + 5 + (self.team if self.along_k else self.warps)

    def k_split(self, k: int) -> int:
        """k's a split."""
        return -(-k // (self.splits * _SPLIT_UNIT)) * _SPLIT_UNIT

    def groups(self, n: int) -> int:
        return -(-n // self.columns)


@lru_cache(maxsize=1024)
def _oriented(desc: Any) -> Gemm:
    """The problem with its small extent as M."""
    gemm: Gemm = desc.gemm
    return gemm if gemm.m <= gemm.n else gemm.swapped


def _shapes(gemm: Gemm, device: DeviceSpec) -> list[Shape]:
    """Teams of two sizes, with K whole and with K split until every SM has two CTAs."""
    size = gemm.b.itemsize
    axis = nearest_axis(gemm.b, gemm.k, gemm.n)
    vector = vector_width(gemm.b, gemm.k, gemm.n, axis, _WORD // size)
    tokens = next(t for t in TOKENS if t >= gemm.m)
    lanes = min(32, _LINE // (vector * size))
    found = []
    for team in (1, _ROWS_WARPS) if axis == 0 else (lanes, lanes // 2):
        whole = Shape(axis == 0, tokens, vector, team, 1, accumulator(gemm).bits // 8, size)
        found.append(whole)
        ctas = max(1, whole.groups(gemm.n) * gemm.batches)
        wanted = min(-(-2 * device.sms // ctas), gemm.k // _LEAST_K, _MOST_SPLITS)
        if wanted > 1:
            each = replace(whole, splits=wanted).k_split(gemm.k)
            found.append(replace(whole, splits=-(-gemm.k // each)))
    return found


# Fitted to the sweep of an H200:
_ROUND_TRIP = 2.0e-6  # seconds of bandwidth that must be in flight: 60 KB an SM on an H200
_SM_SHARE = 3.6  # the most of its share of the bandwidth that one SM can take
_THREADS = 1536  # that an SM holds, for want of registers too
_LATENCY = 0.1e-6  # beyond the device's overhead: until the first vectors are there and after the last
_TAIL = 0.05  # waves that the last CTAs cost, which have the bandwidth to themselves
_EFFICIENCY = 0.82


class Gemv(Candidate[Any]):
    """Eight tokens or fewer against a large operand of any stride, read once."""

    variant = "gemv"
    backend = BackendKind.BESPOKE

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        gemm = _oriented(desc)
        if gemm.m > TOKENS[-1]:
            return no(
                f"a result of {desc.gemm.m} x {desc.gemm.n} has no side of {TOKENS[-1]} or less", "variant='simt'"
            )
        if 0 in (gemm.m, gemm.n, gemm.batches):
            return no("the result is empty")
        ctas = max(s.groups(gemm.n) * s.splits for s in _shapes(gemm, device)) * gemm.batches
        return admitted(desc, self.variant, MATHS) and launchable(ctas)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Shape]:
        return _shapes(_oriented(desc), device)

    def cost(self, desc: Any, device: DeviceSpec, config: Shape) -> Cost:
        gemm = _oriented(desc)
        ctas = max(1, config.groups(gemm.n) * config.splits * gemm.batches)
        room = max(1, min(device.shared_bytes // config.shared_bytes, _THREADS // (config.warps * 32)))
        busy = min(ctas, device.sms)
        under_way = min(room, -(-ctas // device.sms)) * config.in_flight
        share = busy / device.sms * min(_SM_SHARE, under_way * device.sms / (device.bandwidth * _ROUND_TRIP))
        waves = ctas / (device.sms * room)
        tail = 1.0 if waves <= 1 else 1.0 + _TAIL / waves
        work = gemm.batches * gemm.k * gemm.n
        times = {
            "bandwidth": gemm.nbytes * tail / (device.bandwidth * min(_EFFICIENCY, share)),
            "instruction issue": work * (config.tokens + 4.0) / (device.rate("issue") * 0.8 * busy / device.sms),
            "FMA issue": 2.0 * work * config.tokens / (fma_rate(accumulator(gemm), device) * busy / device.sms),
        }
        limit = max(times, key=lambda name: times[name])
        seconds = device.overhead + _LATENCY + times[limit]
        if config.splits > 1:
            seconds += second_pass(gemm, config.splits, device, _LATENCY)
        return Cost(gemm.nbytes, gemm.flops, seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Shape) -> PrecisionGuarantee:
        # Not batch-invariant: with nine rows another variant sums in another order.
        additions = config.additions(desc.gemm.k)
        return guarantee_of(desc, desc.precision, additions, each=ROUNDED, splits=config.splits, batch_invariant=False)

    def lower(self, desc: Any, device: DeviceSpec, config: Shape) -> tuple[Step, ...]:
        gemm = _oriented(desc)
        split = config.splits > 1
        epilogue, args = epilogue_type(gemm, desc.activation), epilogue_args(gemm)
        if split:
            epilogue, args = partial_epilogue(gemm, config.splits)
        widest = config.vector if config.along_k else _UNROLL
        wide = widest if vector_width(gemm.a, gemm.m, gemm.k, 1, widest) == widest else 1
        along = (_COLS, config.warps, config.team) if config.along_k else (config.team, _UNROLL, config.warps)
        types = f"{gemm.b.element.cuda}, {accumulator(gemm).cuda}"
        numbers = ", ".join(map(str, (config.tokens, config.vector, wide, *along)))
        name = "gemv_rows" if config.along_k else "gemv_strips"
        groups = config.groups(gemm.n)
        extents = (np.uint32(x) for x in (gemm.m, gemm.n, gemm.k, groups, config.splits, config.k_split(gemm.k)))
        first = Launch(
            Kernel("gemm/gemv.cu", f"{name}<{types}, {numbers}, {epilogue}>"),
            (groups * config.splits * gemm.batches, 1, 1), (config.warps * 32, 1, 1),
            (Ptr(gemm.a.operand), Ptr(gemm.b.operand), args, walk(gemm.a), walk(gemm.b), batch_struct(gemm), *extents,
             np.int64(slab_of(gemm))),
            config.shared_bytes,
        )  # fmt: skip
        return (first, reduce_step(desc, gemm, config.splits)) if split else (first,)
