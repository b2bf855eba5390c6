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
from .._launch import overlapped_overhead
from ._checks import admitted, countable, launchable
from ._epilogue import accumulator, batch_struct, epilogue_args, epilogue_type, walk
from ._guarantee import ROUNDED, guarantee_of
from ._problem import Gemm
from ._simt import MATHS, fma_rate
from ._split import partial_epilogue, reduce_step, second_pass, slab_of
from ._vector import nearest_axis, vector_width

__all__ = ["Gemv"]

TOKENS = (1, 2, 4, 8)  # rows a kernel is built for
_WORD, _LINE = 16, 128  # bytes of an access, and of a strip's row
_STAGES = 2  # gemv.cu's STAGES
_UNROLL = 4  # vectors a thread of a strip takes at once
_STRIPS = {1: (32, 16), 2: (32, 16), 4: (16,), 8: (16,)}  # warps by tokens
_SPLIT_UNIT = 64  # a split starts at a multiple, so that vectors along k stay whole
_MOST_SPLITS, _LEAST_K = 32, 512
_MOST_MATRICES = 65535  # along the grid's second axis, where splits are only as long as few CTAs fill it
# Columns a team, vectors of each a thread, warps, warps a team.
_ROWS = ((1, 4, 8, 8), (1, 4, 4, 4), (2, 2, 8, 8), (2, 2, 4, 4), (4, 2, 4, 4), (2, 2, 4, 1), (4, 2, 4, 1))


@dataclass(frozen=True)
class Shape:
    """A kernel, as its template arguments say: `along_k` picks gemv_rows, where a team of `team` warps takes `cols` columns, or
    gemv_strips, where `team` lanes make up a strip."""

    along_k: bool
    tokens: int
    vector: int
    cols: int
    unroll: int
    warps: int
    team: int
    splits: int
    acc_bytes: int
    item_bytes: int

    def __str__(self) -> str:
        name = f"rows{self.cols}x{self.unroll}x{self.team}" if self.along_k else f"strips{self.team}"
        return f"{name}w{self.warps}" + (f"s{self.splits}" if self.splits > 1 else "")

    @property
    def columns(self) -> int:
        """Columns a CTA."""
        return self.warps // self.team * self.cols if self.along_k else self.team * self.vector

    @property
    def step_k(self) -> int:
        """k's that a CTA takes a turn."""
        return self.unroll * (self.team * 32 * self.vector if self.along_k else self.warps * 32 // self.team)

    @property
    def in_flight(self) -> int:
        """Bytes of B under way to a CTA."""
        vectors = self.unroll * self.cols if self.along_k else _STAGES * self.unroll
        return self.warps * 32 * vectors * self.vector * self.item_bytes

    @property
    def shared_bytes(self) -> int:
        parts = self.team if self.along_k else self.warps
        sums = parts * self.tokens * self.columns * self.acc_bytes
        return sums if self.along_k else max(self.in_flight, sums)

    @property
    def resident_warps(self) -> int:
        """Warps whose registers an SM holds."""
        vectors = self.unroll * self.cols * self.vector * self.item_bytes if self.along_k else 64
        sums = self.tokens * self.acc_bytes * (self.cols if self.along_k else self.vector)
        return min(64, 2048 // (_REGISTERS + (vectors + sums) // 4))

    def instructions(self, k: int) -> float:
        """Thread instructions of a CTA, about."""
        turns, rest = divmod(self.k_split(k), self.step_k)
        partial = (_PARTIAL if self.along_k else 1.0) if rest else 0.0
        tokens = self.tokens * (self.vector + 8 if self.along_k else 4)
        turn = self.unroll * (self.cols * self.vector * (1 + self.tokens) + tokens)
        return self.warps * 32 * (_FIXED + (turns + partial) * turn)

    def additions(self, k: int) -> int:
        """The longest chain of additions before the splits meet: a thread's own, a warp's folds, the warps'."""
        turns = -(-self.k_split(k) // self.step_k)
        each, meeting = (self.vector, self.team) if self.along_k else (1, self.warps)
        return turns * self.unroll * each + 5 + meeting

    def k_split(self, k: int) -> int:
        """k's a split."""
        return -(-k // (self.splits * _SPLIT_UNIT)) * _SPLIT_UNIT

    def groups(self, n: int) -> int:
        return -(-n // self.columns)


def _strips(tokens: int, vector: int, item_bytes: int, acc_bytes: int) -> list[tuple[int, int, int, int]]:
    """Shapes of strips, as in `_ROWS`, without those that spill on some arch: of eight tokens' sums and k's, 16 warps have
    registers where a vector is one word before and after it is widened."""
    few = tokens == TOKENS[-1] and not vector * item_bytes == vector * acc_bytes == _WORD
    lanes = min(32, _LINE // (vector * item_bytes))
    return [(1, _UNROLL, warps, team) for warps in ((8,) if few else _STRIPS[tokens]) for team in (lanes, lanes // 2)]


@lru_cache(maxsize=1024)
def _oriented(desc: Any) -> Gemm:
    """The problem with its small extent as M."""
    gemm: Gemm = desc.gemm
    return gemm if gemm.m <= gemm.n else gemm.swapped


def _shapes(gemm: Gemm, device: DeviceSpec) -> list[Shape]:
    """Every shape, with K whole and with K split until every SM has two CTAs."""
    size, acc = gemm.b.itemsize, accumulator(gemm).bits // 8
    axis = nearest_axis(gemm.b, gemm.k, gemm.n)
    vector = vector_width(gemm.b, gemm.k, gemm.n, axis, _WORD // size)
    tokens = next(t for t in TOKENS if t >= gemm.m)
    menu = _ROWS if axis == 0 else _strips(tokens, vector, size, acc)
    found = []
    for cols, unroll, warps, team in menu:
        whole = Shape(axis == 0, tokens, vector, cols, unroll, warps, team, 1, acc, size)
        idle = axis == 0 and (tokens > 2 * cols or (team > 1 and whole.step_k >= 2 * gemm.k))
        if idle or whole.shared_bytes > device.shared_bytes:
            continue
        found.append(whole)
        ctas = max(1, whole.groups(gemm.n) * gemm.batches)
        wanted = min(-(-2 * device.sms // ctas), gemm.k // _LEAST_K, _MOST_SPLITS)
        if wanted > 1:
            each = replace(whole, splits=wanted).k_split(gemm.k)
            found.append(replace(whole, splits=-(-gemm.k // each)))
    return found


# Fitted to the sweep of an H200:
# Of the device's bandwidth, along k and not: reads alone are faster than copies.
_EFFICIENCY = {True: 1.1, False: 1.02}
_ROUND_TRIP = {True: 1.1e-6, False: 1.9e-6}  # seconds of bandwidth that must be in flight
_HALF_LINE = 0.95  # the efficiency of strips of half a line's width
# Several tokens, read again for every few columns, take 0.9 + 0.35 tokens / columns times as long.
_TOKENS = (0.9, 0.35)
_SM_SHARE = 3.6  # the most of its share of the bandwidth that one SM can take
_REGISTERS = 28  # of a thread, besides its data
# Beyond the launch's overhead, until the first vectors are there and after the last: along k and not, and of the second pass.
_LATENCY = {True: 0.05e-6, False: 0.6e-6}
_SECOND_PASS = 0.6e-6
_WAVE = 1.5e-6  # what one more wave of strips costs
_FIXED, _PARTIAL = 200, 3.1  # instructions a warp, and turns that one which ends early is worth


class Gemv(Candidate[Any]):
    """Eight tokens or fewer against a large operand of any stride, read once."""

    variant = "gemv"
    launches = ("gemm/gemv.cu:gemv_rows", "gemm/gemv.cu:gemv_strips", "gemm/reduce.cu:reduce")
    backend = BackendKind.BESPOKE

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (admissible := admitted(desc, self.variant, MATHS)):
            return admissible
        gemm = _oriented(desc)
        if gemm.m > TOKENS[-1]:
            return no(f"a result of {desc.gemm.m} x {desc.gemm.n} has no side of {TOKENS[-1]} or less")
        if 0 in (gemm.m, gemm.n, gemm.batches):
            return no("the result is empty")
        if gemm.batches > _MOST_MATRICES:
            return no(f"{gemm.batches} matrices, and a launch has room for {_MOST_MATRICES}")
        if not (counted := countable(gemm, 31)):
            return counted
        return launchable(max(shape.groups(gemm.n) for shape in _shapes(gemm, device)))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Shape]:
        return _shapes(_oriented(desc), device)

    def cost(self, desc: Any, device: DeviceSpec, config: Shape) -> Cost:
        gemm = _oriented(desc)
        ctas = max(1, config.groups(gemm.n) * config.splits * gemm.batches)
        room = max(1, min(device.shared_bytes // config.shared_bytes, config.resident_warps // config.warps))
        busy = min(ctas, device.sms) / device.sms
        under_way = min(room, -(-ctas // device.sms)) * config.in_flight
        share = busy * min(_SM_SHARE, under_way * device.sms / (device.bandwidth * _ROUND_TRIP[config.along_k]))
        efficiency = _EFFICIENCY[config.along_k]
        if not config.along_k and config.columns * config.item_bytes < _LINE:
            efficiency *= _HALF_LINE
        if config.along_k and config.tokens > 1:
            efficiency /= max(1.0, _TOKENS[0] + _TOKENS[1] * config.tokens / config.cols)
        work = gemm.batches * gemm.k * gemm.n
        times = {
            "bandwidth": gemm.nbytes / (device.bandwidth * min(1.0, share) * efficiency),
            "instruction issue": ctas * config.instructions(gemm.k) / (device.rate("issue") * busy),
            "FMA issue": 2.0 * work * config.tokens / (fma_rate(accumulator(gemm), device) * busy),
        }
        limit = max(times, key=lambda name: times[name])
        seconds = overlapped_overhead(device) + _LATENCY[config.along_k] + times[limit]
        if not config.along_k:
            seconds += (-(-ctas // (device.sms * room)) - 1) * _WAVE
        if config.splits > 1:
            seconds += second_pass(gemm, config.splits, device, _SECOND_PASS)
        return Cost(gemm.nbytes, gemm.flops, seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Shape) -> PrecisionGuarantee:
        # Not batch-invariant: with nine rows another variant sums in another order.
        return guarantee_of(
            desc,
            desc.precision,
            config.additions(desc.gemm.k),
            each=ROUNDED,
            splits=config.splits,
            batch_invariant=False,
            in_order=False,
        )

    def lower(self, desc: Any, device: DeviceSpec, config: Shape) -> tuple[Step, ...]:
        gemm = _oriented(desc)
        split = config.splits > 1
        epilogue, args = epilogue_type(gemm, desc.activation), epilogue_args(gemm)
        if split:
            epilogue, args = partial_epilogue(gemm, config.splits)
        widest = config.vector if config.along_k else config.unroll
        wide = widest if vector_width(gemm.a, gemm.m, gemm.k, 1, widest) == widest else 1
        name = "gemv_rows" if config.along_k else "gemv_strips"
        types = f"{gemm.b.element.number}, {accumulator(gemm).number}"
        shape: tuple[int, ...] = (config.team, config.unroll, config.warps)
        if config.along_k:
            shape = (config.cols, config.unroll, config.warps, config.team)
        numbers = ", ".join(map(str, (config.tokens, config.vector, wide, *shape)))
        extents = (np.uint32(x) for x in (gemm.m, gemm.n, gemm.k, config.splits, config.k_split(gemm.k)))
        first = Launch(
            Kernel("gemm/gemv.cu", f"{name}<{types}, {numbers}, {epilogue}>"),
            (config.groups(gemm.n), config.splits * gemm.batches, 1), (config.warps * 32, 1, 1),
            (Ptr(gemm.a.operand), Ptr(gemm.b.operand), args, walk(gemm.a), walk(gemm.b), batch_struct(gemm), *extents,
             np.int64(slab_of(gemm))),
            config.shared_bytes, overlapped=True,
        )  # fmt: skip
        return (first, reduce_step(desc, gemm, config.splits)) if split else (first,)
