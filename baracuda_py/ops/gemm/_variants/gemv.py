"""gemv: products of at most eight rows or columns, bound by reading the large operand. Configurations and costs.

The kernels are in kernels/gemm/gemv.cu. Where K is split, kernels/gemm/reduce.cu adds the parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ....plan.candidate import Feasibility, no
from ....plan.grammar import Config, term
from ....runtime.steps import Kernel, Launch, Ptr, Step
from ....types import BackendKind, DeviceSpec, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from ...products.checks import admitted, countable, launchable
from ...products.epilogue import accumulator, batch_struct, epilogue_args, epilogue_type, packed_strides
from ...products.gemm import Gemm
from ...products.guarantee import ROUNDED, guarantee_of
from ...products.split import partial_epilogue, partial_size, reduce_step, second_pass
from ...products.table import Table, Tabled, across, larger, longest, smaller, spread, with_splits
from ...products.vector import nearest_axis, vector_width
from .simt import MATHS, fma_rate

__all__ = ["Gemv"]

ROW_COUNTS = (1, 2, 4, 8)  # rows a kernel is built for
_WORD, _LINE = 16, 128  # bytes of one access, and of one row of a strip
_STAGES = 2  # gemv.cu's STAGES
_UNROLL = 4  # vectors a thread of a strip takes at once
_STRIPS = {1: (32, 16), 2: (32, 16), 4: (16,), 8: (16,)}  # warps by tokens
_SPLIT_UNIT = 64  # a split starts at a multiple, so that vectors along k stay whole
_MOST_SPLITS, _LEAST_K = 32, 512
_REGISTERS = 28  # registers of a thread besides its data
_MOST_MATRICES = 65535  # along the grid's second axis, where splits are only as long as few CTAs fill it
# Columns per team, vectors of each per thread, warps, warps per team.
_ROWS = ((1, 4, 8, 8), (1, 4, 4, 4), (2, 2, 8, 8), (2, 2, 4, 4), (4, 2, 4, 4), (2, 2, 4, 1), (4, 2, 4, 1))


class Costs(Fitted, table="gemm.gemv"):
    """Vectors along K ("column") and strips of columns ("strip")."""

    column_bandwidth_efficiency: float
    strip_bandwidth_efficiency: float
    half_line_efficiency: float
    column_round_trip_s: float
    strip_round_trip_s: float
    reread_time_base: float
    reread_time_per_row: float
    sm_bandwidth_ratio: float
    column_latency_s: float
    strip_latency_s: float
    second_pass_latency_s: float
    wave_latency_s: float
    warp_instructions: int
    partial_iteration_ratio: float


@dataclass(frozen=True)
class Shape(Config):
    """A kernel, as its template arguments say: `along_k` picks gemv_rows, where a team of `team` warps takes `cols` columns, or
    gemv_strips, where `team` lanes make up a strip. Formulas take columns of shapes too, whose fields are arrays."""

    unroll: int = term("vectors a thread loads before it uses them")
    team: int = term("warps (with along_k) or lanes (without) that share columns of the large operand")
    warps: int = term("warps a CTA")
    cols: int = term("columns of the large operand that a team takes at once", default=1)
    split_k: int = term("parts of K that are summed apart and then added", default=1)
    along_k: bool = term("threads read the large operand along K, and not across it", default=False)
    tokens: int = term("rows of the small operand", default=1, hidden=True)
    vector: int = term("elements an access", default=1, hidden=True)
    acc_bytes: int = term("of a sum", default=4, hidden=True)
    item_bytes: int = term("of an element", default=4, hidden=True)

    @property
    def columns(self) -> int:
        """Columns a CTA."""
        return self.warps // self.team * self.cols if self.along_k else self.team * self.vector

    @property
    def step_k(self) -> int:
        """Elements of K that a CTA processes per iteration."""
        return self.unroll * (self.team * 32 * self.vector if self.along_k else self.warps * 32 // self.team)

    @property
    def in_flight(self) -> int:
        """Bytes of B in flight per CTA."""
        vectors = self.unroll * self.cols if self.along_k else _STAGES * self.unroll
        return self.warps * 32 * vectors * self.vector * self.item_bytes

    @property
    def shared_bytes(self) -> int:
        parts = self.team if self.along_k else self.warps
        sums = parts * self.tokens * self.columns * self.acc_bytes
        return sums if self.along_k else larger(self.in_flight, sums)

    @property
    def resident_warps(self) -> int:
        """Warps that fit an SM's registers."""
        vectors = self.unroll * self.cols * self.vector * self.item_bytes if self.along_k else 64
        sums = self.tokens * self.acc_bytes * (self.cols if self.along_k else self.vector)
        return smaller(64, 2048 // (_REGISTERS + (vectors + sums) // 4))  # type: ignore[no-any-return]

    def instructions(self, k: int, costs: Costs) -> float:
        """Approximate thread instructions of a CTA."""
        k_steps, rest = divmod(self.k_split(k), self.step_k)
        partial = (costs.partial_iteration_ratio if self.along_k else 1.0) * (rest > 0)
        tokens = self.tokens * (self.vector + 8 if self.along_k else 4)
        step = self.unroll * (self.cols * self.vector * (1 + self.tokens) + tokens)
        return self.warps * 32 * (costs.warp_instructions + (k_steps + partial) * step)

    def additions(self, k: int) -> int:
        """The longest chain of additions within one split: in a thread, then across a warp, then across warps."""
        k_steps = -(-self.k_split(k) // self.step_k)
        each, meeting = (self.vector, self.team) if self.along_k else (1, self.warps)
        return k_steps * self.unroll * each + 5 + meeting

    def k_split(self, k: int) -> int:
        """Elements of K per split."""
        return -(-k // (self.split_k * _SPLIT_UNIT)) * _SPLIT_UNIT

    def groups(self, n: int) -> int:
        return -(-n // self.columns)


def _strips(tokens: int, vector: int, item_bytes: int, acc_bytes: int) -> list[tuple[int, int, int, int]]:
    """Shapes of strips, as in `_ROWS`, without those that spill registers on some arch: with eight tokens, 16 warps have enough
    registers only where a vector is one word both before and after widening."""
    spills_at_16_warps = tokens == ROW_COUNTS[-1] and not vector * item_bytes == vector * acc_bytes == _WORD
    lanes = min(32, _LINE // (vector * item_bytes))
    return [
        (1, _UNROLL, warps, team)
        for warps in ((8,) if spills_at_16_warps else _STRIPS[tokens])
        for team in (lanes, lanes // 2)
    ]


@lru_cache(maxsize=1024)
def _swapped_ab(desc: Any) -> Gemm:
    """The problem with its small extent as M."""
    gemm: Gemm = desc.gemm
    return gemm if gemm.m <= gemm.n else gemm.swapped


class Menu:
    """The shapes for a number of tokens, a way to read the large operand, and K; each twice: K whole, and split."""

    def __init__(
        self, tokens: int, vector: int, k: int, item_bytes: int, acc_bytes: int, shared_bytes: int, along_k: bool
    ) -> None:
        menu = _ROWS if along_k else _strips(tokens, vector, item_bytes, acc_bytes)
        given: dict[str, Any] = {
            "tokens": tokens,
            "vector": vector,
            "acc_bytes": acc_bytes,
            "item_bytes": item_bytes,
            "along_k": along_k,
        }

        def fits(shape: Shape) -> bool:
            idle = along_k and (tokens > 2 * shape.cols or (shape.team > 1 and shape.step_k >= 2 * k))
            return not idle and bool(shape.shared_bytes <= shared_bytes)

        every = (Shape(unroll, team, warps, cols, **given) for cols, unroll, warps, team in menu)
        self.shapes = [shape for shape in every if fits(shape)]
        self.columns: Any = spread([shape for shape in self.shapes for _ in range(2)], **given) if self.shapes else None
        self.along_k, self.tokens = along_k, tokens

    def table(self, desc: Any, device: DeviceSpec) -> Table[Shape]:
        """The priced menu; K is split until every SM has two CTAs."""
        gemm, along_k, costs = _swapped_ab(desc), self.along_k, Costs.of(device)
        if not self.shapes:
            return Table(np.array(()), self.shapes.__getitem__, str)
        groups = across(gemm.n, self.columns.columns) * gemm.batches
        wanted = np.minimum(across(2 * device.sms, np.maximum(1, groups)), min(gemm.k // _LEAST_K, _MOST_SPLITS))
        wanted[::2] = 1
        fits = wanted > 1
        fits[::2] = True
        parted = with_splits(self.columns, np.maximum(1, wanted))
        splits = np.maximum(1, across(gemm.k, np.maximum(1, parted.k_split(gemm.k))))
        splits[::2] = 1
        shape = with_splits(self.columns, splits)
        ctas = np.maximum(1, groups * splits)
        slots = np.maximum(
            1, np.minimum(device.shared_bytes // shape.shared_bytes, shape.resident_warps // shape.warps)
        )
        utilization = np.minimum(ctas, device.sms) / device.sms
        under_way = np.minimum(slots, across(ctas, device.sms)) * shape.in_flight
        needed = device.bandwidth * (costs.column_round_trip_s if along_k else costs.strip_round_trip_s)
        share = utilization * np.minimum(costs.sm_bandwidth_ratio, under_way * device.sms / needed)
        efficiency: Any = costs.column_bandwidth_efficiency if along_k else costs.strip_bandwidth_efficiency
        if not along_k:
            narrow = shape.columns * shape.item_bytes < _LINE
            efficiency = efficiency * np.where(narrow, costs.half_line_efficiency, 1.0)
        elif self.tokens > 1:
            reread = costs.reread_time_base + costs.reread_time_per_row * self.tokens / shape.cols
            efficiency = efficiency / np.maximum(1.0, reread)
        work = gemm.batches * gemm.k * gemm.n
        longer, limit = longest(
            {
                "bandwidth": gemm.nbytes / (device.bandwidth * np.minimum(1.0, share) * efficiency),
                "instruction issue": ctas * shape.instructions(gemm.k, costs) / (device.rate("issue") * utilization),
                "FMA issue": 2.0 * work * self.tokens / (fma_rate(accumulator(gemm), device) * utilization),
            }
        )
        latency = costs.column_latency_s if along_k else costs.strip_latency_s
        seconds = overlapped_overhead(device) + latency + longer
        if not along_k:
            seconds = seconds + (across(ctas, device.sms * slots) - 1) * costs.wave_latency_s
        seconds = seconds + second_pass(gemm, splits, device, costs.second_pass_latency_s)
        return Table(
            np.where(fits, seconds, np.inf),
            lambda place: replace(self.shapes[place // 2], split_k=int(splits[place])),
            limit,
        )


menu_of = lru_cache(maxsize=256)(Menu)


def _menu(gemm: Gemm, device: DeviceSpec) -> Menu:
    size, acc = gemm.b.itemsize, accumulator(gemm).bits // 8
    axis = nearest_axis(gemm.b, gemm.k, gemm.n)
    vector = vector_width(gemm.b, gemm.k, gemm.n, axis, _WORD // size)
    tokens = next(t for t in ROW_COUNTS if t >= gemm.m)
    return menu_of(tokens, vector, gemm.k, size, acc, device.shared_bytes, axis == 0)


@lru_cache(maxsize=64)
def _table(desc: Any, device: DeviceSpec) -> Table[Shape]:
    return _menu(_swapped_ab(desc), device).table(desc, device)


class Gemv(Tabled):
    """Eight tokens or fewer against a large operand of any stride, read once."""

    variant = "gemv"
    launches = ("gemm/gemv.cu:gemv_rows", "gemm/gemv.cu:gemv_strips", "gemm/reduce.cu:reduce")
    backend = BackendKind.BESPOKE

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (admissible := admitted(desc, self.variant, MATHS)):
            return admissible
        gemm = _swapped_ab(desc)
        if gemm.m > ROW_COUNTS[-1]:
            return no(f"a result of {desc.gemm.m} x {desc.gemm.n} has no side of {ROW_COUNTS[-1]} or less")
        if 0 in (gemm.m, gemm.n, gemm.batches):
            return no("the result is empty")
        if gemm.batches > _MOST_MATRICES:
            return no(f"{gemm.batches} matrices, and a launch has room for {_MOST_MATRICES}")
        if not (counted := countable(gemm, 31)):
            return counted
        return launchable(max((shape.groups(gemm.n) for shape in _menu(gemm, device).shapes), default=0))

    def table(self, desc: Any, device: DeviceSpec) -> Table[Shape]:
        return _table(desc, device)

    def floor(self, desc: Any, device: DeviceSpec) -> float:
        if min(desc.gemm.m, desc.gemm.n) > ROW_COUNTS[-1]:
            return math.inf
        costs = Costs.of(device)
        efficiency = max(costs.column_bandwidth_efficiency, costs.strip_bandwidth_efficiency)
        latency = min(costs.column_latency_s, costs.strip_latency_s)
        return float(overlapped_overhead(device) + latency + desc.gemm.nbytes / (device.bandwidth * efficiency))

    def guarantee(self, desc: Any, device: DeviceSpec, config: Shape) -> PrecisionGuarantee:
        # Not batch-invariant: with nine rows another variant sums in another order.
        return guarantee_of(
            desc,
            desc.precision,
            config.additions(desc.gemm.k),
            each=ROUNDED,
            splits=config.split_k,
            batch_invariant=False,
            in_order=False,
        )

    def lower(self, desc: Any, device: DeviceSpec, config: Shape) -> tuple[Step, ...]:
        gemm = _swapped_ab(desc)
        split = config.split_k > 1
        epilogue, args = epilogue_type(gemm, desc.activation), epilogue_args(gemm)
        if split:
            epilogue, args = partial_epilogue(gemm, config.split_k)
        widest = config.vector if config.along_k else config.unroll
        wide = widest if vector_width(gemm.a, gemm.m, gemm.k, 1, widest) == widest else 1
        name = "gemv_rows" if config.along_k else "gemv_strips"
        types = f"{gemm.b.element.number}, {accumulator(gemm).number}"
        shape: tuple[int, ...] = (config.team, config.unroll, config.warps)
        if config.along_k:
            shape = (config.cols, config.unroll, config.warps, config.team)
        numbers = ", ".join(map(str, (config.tokens, config.vector, wide, *shape)))
        extents = (np.uint32(x) for x in (gemm.m, gemm.n, gemm.k, config.split_k, config.k_split(gemm.k)))
        first = Launch(
            Kernel("gemm/gemv.cu", f"{name}<{types}, {numbers}, {epilogue}>"),
            (config.groups(gemm.n), config.split_k * gemm.batches, 1), (config.warps * 32, 1, 1),
            (Ptr(gemm.a.operand), Ptr(gemm.b.operand), args, packed_strides(gemm.a), packed_strides(gemm.b), batch_struct(gemm),
             *extents, np.int64(partial_size(gemm))),
            config.shared_bytes, pdl=True,
        )  # fmt: skip
        return (first, reduce_step(desc, gemm, config.split_k)) if split else (first,)
