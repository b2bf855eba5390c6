"""flash: f16, bf16 and f32 as TF32 by mma.sync, scores never leaving registers (kernels/attention/flash.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ....plan.candidate import OK, Candidate, Change, Constraint, Cost, Feasibility, no
from ....plan.constraints import Aligned, Kinds, Multiple, UnitStride
from ....plan.grammar import Config, term
from ....runtime.steps import Kernel, Launch, Step
from ....types import ArchSku, DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee
from ..._fitted import Fitted
from .._problem import guarantee as _guarantee
from .._problem.attended import SHORT_KEYS
from .._problem.struct import problem_struct

__all__ = [
    "BITS",
    "CAP",
    "HALVES",
    "MASK",
    "OPERANDS",
    "SLOPE",
    "Costs",
    "Flash",
    "FlashConfig",
    "Placed",
    "changed",
    "changes",
    "ends_s",
    "exponentials",
    "filled_up",
    "not_kept_short",
    "packed",
    "placed",
    "tensor_flops_per_cycle",
    "within",
]

HALVES = (ElementKind.F16, ElementKind.BF16)
HEAD_DIMS = (32, 64, 96, 128, 160, 192, 224, 256)  # that kernels are made for; others are filled up with zeros
MOST_ROWS = 1 << 30
L2_BYTES = 32 << 20  # of keys and values that run at once, where L2 is as large
EXPONENTIALS = 16  # a clock and SM
SHARED_BYTES = 128  # a clock and SM


class Costs(Fitted, table="attention.flash"):
    mma_sync_rate_ratio: float
    unit_efficiency: float
    lone_cta_ratio: float
    lone_cta_warps_ratio: float
    exposed_ratio: float
    latency_s: float
    tile_ends_time_ratio: float


def tensor_flops_per_cycle(device: DeviceSpec) -> float:
    """What mma.sync reaches on 16-bit operands, per SM."""
    clock_sms = device.rate("issue") / 128
    return device.rate("bf16") * Costs.of(device).mma_sync_rate_ratio / clock_sms


@dataclass(frozen=True)
class FlashConfig(Config):
    """A CTA's tile: its queries, and the keys that it takes at a time."""

    queries: int = term("queries a CTA takes", leads=True)
    keys: int = term("keys a CTA takes at a time", leads=True)
    rows: int = term("queries a warp takes, in blocks of 16", default=32)
    split: int = term("warps that share queries, each with a part of the keys and of the columns", default=1)
    stages: int = term("blocks of keys and values in shared memory", default=2)
    ctas: int = term("CTAs an SM is to hold", default=2)
    held: int = term("steps of 16 columns of the queries that stay in registers", default=0)
    dims: tuple[int, int] = term("columns of queries and of values, filled up", default=(0, 0), hidden=True)
    itemsize: int = term("bytes of an element", default=2, hidden=True)
    paged: bool = term("whether keys and values lie in pages", default=False, hidden=True)

    @property
    def threads(self) -> int:
        return self.queries // self.rows * self.split * 32

    @property
    def shared_bytes(self) -> int:
        d, d_v = self.dims
        shared = 2 * self.queries * (self.keys + 2 * self.split) if self.split > 1 else 0  # weights and rows' values
        lines = 2 * 8 * self.keys if self.paged else 0  # of two blocks, the address of each key
        return self.itemsize * (self.queries * max(d, d_v) + self.stages * self.keys * (d + d_v)) + shared + lines

    @property
    def template(self) -> str:
        sizes = (*self.dims, self.queries, self.keys, self.rows // 16, self.split, self.stages, self.held, self.ctas)
        return ", ".join(map(str, sizes))


# Queries, keys, rows a warp, warps that share them, stages, CTAs an SM and steps of queries in registers, by head dim (as
# `width_class` has it) and whether scores are changed, which takes registers: what spills is not here. Of those that are
# predicted alike the first is taken.
MENU: dict[tuple[int, bool], tuple[tuple[int, ...], ...]] = {
    (0, False): ((128, 64, 32, 1, 2, 3), (128, 128, 32, 1, 2, 2), (128, 64, 32, 1, 2, 2), (64, 64, 16, 1, 2, 3)),
    (0, True): ((128, 64, 32, 1, 2, 2), (64, 64, 16, 1, 2, 3)),
    (1, False): ((128, 64, 32, 1, 2, 2), (128, 32, 32, 1, 2, 2), (64, 64, 16, 1, 2, 2)),
    (1, True): ((64, 64, 16, 1, 2, 2), (128, 32, 32, 1, 2, 2)),
    (2, False): (
        (64, 64, 32, 2, 2, 2, 10),
        (64, 64, 32, 2, 2, 2),
        (128, 32, 32, 1, 2, 2),
        (64, 64, 16, 1, 2, 2),
        (64, 64, 16, 1, 1, 2),
    ),
    (2, True): ((64, 64, 32, 2, 2, 2, 5), (64, 64, 16, 1, 2, 2), (64, 64, 16, 1, 1, 2)),
    (3, False): ((64, 64, 32, 2, 1, 2, 6), (64, 64, 32, 2, 1, 2), (128, 64, 32, 2, 2, 1, 8), (64, 64, 16, 1, 1, 2)),
    (3, True): ((64, 64, 32, 2, 1, 2, 6), (64, 64, 32, 2, 1, 2), (64, 64, 16, 1, 1, 2)),
    (4, False): ((64, 64, 32, 2, 1, 2), (64, 64, 32, 2, 1, 2, 2), (128, 64, 32, 2, 2, 1, 4), (64, 64, 16, 1, 1, 2)),
    (4, True): ((64, 64, 32, 2, 1, 2), (64, 64, 16, 1, 1, 2)),
    (5, False): (
        (64, 64, 32, 2, 1, 2, 2),
        (64, 64, 32, 2, 1, 2),
        (64, 32, 32, 2, 2, 2),
        (128, 64, 32, 2, 1, 1),
        (64, 64, 16, 1, 1, 2),
        (128, 64, 16, 1, 1, 1),
    ),
    (5, True): ((64, 64, 32, 2, 1, 2), (64, 64, 16, 1, 1, 2)),
}
CAP, SLOPE, MASK, BITS = 1, 2, 4, 16  # as `changes` and `packed` have them
# The same where the only changes are LIGHT, where that differs: they take fewer registers than masks.
LIGHT = (CAP, SLOPE)
LIGHT_MENU: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((128, 64, 32, 1, 2, 2), (64, 64, 16, 1, 2, 2), (128, 32, 32, 1, 2, 2)),
    5: ((64, 64, 32, 2, 1, 2, 2), (64, 64, 32, 2, 1, 2), (64, 64, 16, 1, 1, 2)),
}
# More of them, for windows: shorter tiles are less wasted at both edges, and more CTAs hide each other's beginnings.
WINDOW_MENU: dict[int, tuple[tuple[int, ...], ...]] = {0: ((64, 64, 32, 1, 2, 4), (64, 64, 16, 1, 2, 4))}
# The same of f32, whose rows are twice as long.
WIDE_MENU: dict[int, tuple[tuple[int, ...], ...]] = {
    0: ((128, 64, 32, 1, 2, 2), (128, 32, 32, 1, 2, 2), (64, 64, 16, 1, 1, 3), (64, 64, 16, 1, 2, 2)),
    1: ((128, 32, 32, 1, 1, 2), (64, 64, 16, 1, 1, 2), (64, 32, 16, 1, 2, 2)),
    2: ((64, 32, 16, 1, 1, 1), (64, 16, 16, 1, 1, 2)),
}


def changes(desc: Any) -> int:
    """What changes scores beside the scale, as bits: Change of kernels/include/attention/changes.cuh."""
    operands = ("alibi_slopes", "mask", "block_mask")
    there = (desc.softcapped, *(name in desc.slot_of and desc.has(name) for name in operands))
    return sum(bool(one) << bit for bit, one in enumerate(there))


def packed(desc: Any) -> int:
    """The same where a kernel reads a bool mask as bits."""
    there = changes(desc)
    return there ^ (MASK | BITS) if there & MASK and desc.layout("mask").element is ElementKind.BOOL else there


def changed(desc: Any) -> bool:
    """Whether scores are more than products with a scale."""
    return changes(desc) != 0


def width_class(dims: tuple[int, int]) -> int:
    """Of what MENU distinguishes: up to 64, 128, 160, 192, 224 and 256 columns."""
    return sum(max(dims) > n for n in (64, 128, 160, 192, 224))


def filled(columns: int) -> int:
    """The head dim that kernels are made for."""
    return next((n for n in HEAD_DIMS if n >= columns), HEAD_DIMS[-1])


class Placed(NamedTuple):
    """How tiles of queries are laid over CTAs: `args` are the kernel's tiles, section and heads."""

    args: tuple[np.uint32, np.uint32, np.uint32]
    ctas: int


def placed(desc: Any, queries: int, device: DeviceSpec, together: int = 1) -> Placed:
    """So many queries a CTA, of so many heads together; of as many heads at once as L2 holds keys and values of. The tiles of
    ragged sequences come one behind the other (kernels/include/attention/problem.cuh), as many as there are, however long the
    longest sequence is. The first tile of several heads may begin before the first query.
    """
    heads, group = desc.batch * desc.heads // together, desc.group // together
    early = together > 1
    tiles = max(1, -(-(desc.total_q + (queries - 1) * early) // queries))
    if desc.ragged:
        tiles = desc.total_q // queries + desc.batch * (1 + early)
    side_by_side = desc.heads // together if desc.ragged else heads
    of_head = desc.element.dtype.itemsize * desc.most_k * (desc.d + desc.d_v) / max(group, 1)
    section = min(max(side_by_side, 1), max(group, int(min(L2_BYTES, device.l2_bytes) / max(of_head, 1)), 1))
    return Placed((np.uint32(tiles), np.uint32(section), np.uint32(heads)), int(tiles * side_by_side))


def filled_up(desc: Any, queries: int) -> float:
    """Queries that tiles have room for, of one that there is."""
    return float(max(queries * -(-desc.rows_each // queries) / max(desc.rows_each, 1), 1.0))


def exponentials(desc: Any) -> int:
    """What the unit of exponentials computes of a score: softcap is an exponential and a reciprocal more."""
    return 3 if desc.softcapped else 1


def ends_s(desc: Any, device: DeviceSpec, config: Any) -> float:
    """Seconds in which memory copies the queries and results of a tile."""
    return float(desc.element.dtype.itemsize * config.queries * sum(config.dims) / device.bandwidth)


def within(
    desc: Any, configs: Iterable[Any], device: DeviceSpec, read: tuple[str, ...] = ("q", "k", "v")
) -> Feasibility:
    """Whether a kernel counts as far as the problem goes, and has a tile for it; `read` are queries, keys and values."""
    if max(desc.d, desc.d_v) > HEAD_DIMS[-1]:
        return no(f"head dims are {desc.d} and {desc.d_v}, and tiles hold {HEAD_DIMS[-1]} at most")
    if max(desc.total_q, desc.total_k) >= MOST_ROWS:
        return no(f"there are more than {MOST_ROWS - 1} queries or keys", "fewer a call")
    if any(abs(desc.strides_of(name).row) >= MOST_ROWS for name in read):
        return no(f"rows are {MOST_ROWS} elements apart or more", "contiguize them")
    if desc.batch * desc.heads >= 1 << 31:
        return no("it takes 2**31 CTAs or more", "fewer sequences or heads a call")
    fewest = min((placed(desc, config.queries, device).ctas for config in configs), default=None)
    if fewest is None:
        return no(f"an SM's {device.shared_bytes} bytes of shared memory hold no tile")
    if fewest >= 1 << 31:
        return no("it takes 2**31 CTAs or more", "fewer sequences or heads a call")
    return OK


def not_kept_short(desc: Any) -> Feasibility:
    """Whether the op's name leaves a kernel that keeps scores in registers a choice."""
    if desc.tensor_cores and desc.total_k <= SHORT_KEYS:
        return no(f"{desc.name} keeps the scores of {SHORT_KEYS} keys and fewer in shared memory", "use attention")
    return OK


OPERANDS: tuple[Constraint, ...] = (
    *map(UnitStride, ("q", "k", "v", "out")),
    Multiple("q", -1, 8, "the head dim"),
    Multiple("v", -1, 8, "v's head dim"),
    *(Aligned(name, 16) for name in ("q", "k", "v", "out")),
)  # what holds of them where 16 bytes are copied at a time


class Flash(Candidate[Any]):
    """Scores stay in registers, as do weights: f16, bf16 and f32 as TF32, head dims up to 256, every feature."""

    variant = "flash"
    launches = ("attention/flash.cu:attention_flash",)
    paged: ClassVar[bool] = False
    constraints = (Kinds("q", (*HALVES, ElementKind.F32)), *OPERANDS)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        if desc.precision is MathPrecision.F32:
            return no("it multiplies f32 as TF32", change=Change({"math": MathPrecision.TF32}))
        if not (said := not_kept_short(desc)):
            return said
        return within(desc, self.configs(desc, device), device)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[FlashConfig]:
        """The best known first: 32 queries a warp where registers hold them, for which every load of keys serves two products."""
        dims = filled(desc.d), filled(desc.d_v)
        width, itemsize = width_class(dims), desc.element.dtype.itemsize
        menu = MENU[width, changed(desc)]
        if itemsize > 2:
            menu = WIDE_MENU[min(width, 2)]
        elif changes(desc) in LIGHT:
            menu = LIGHT_MENU.get(width, menu)
        elif desc.visible.left is not None and not changed(desc):
            menu += WINDOW_MENU.get(width, ())
        masked = device.tier is ArchSku.SM100A and changes(desc) & MASK
        for queries, keys, rows, split, stages, ctas, *held in menu:
            if masked and rows == 32 and dims == (64, 64) and itemsize == 2:  # spills 160 bytes there
                continue
            steps = min(held[0], dims[0] // 16) if held else 0
            config = FlashConfig(queries, keys, rows, split, stages, ctas, steps, dims, itemsize, self.paged)
            if config.shared_bytes <= device.shared_bytes:
                yield config

    def cost(self, desc: Any, device: DeviceSpec, config: FlashConfig) -> Cost:
        """The busiest of tensor cores, exponentials and shared memory, and the copies at a tile's two ends, which no product of
        its own hides; in as many waves as there are."""
        costs, (d, d_v) = Costs.of(device), config.dims
        tile = config.queries * config.keys
        clock_sms = device.rate("issue") / 128
        rate = tensor_flops_per_cycle(device)
        rate *= 2 / config.itemsize
        loaded = config.keys * (d + d_v) * config.queries / config.rows + config.queries * d * config.split
        loaded *= config.itemsize
        loaded += 2 * tile * (config.split + 1) * (config.split > 1)  # weights on their way
        limits = {
            "tensor cores": 2.0 * tile * (d + d_v) / rate,
            "exponentials": exponentials(desc) * tile / EXPONENTIALS,
            "shared memory": (loaded + config.itemsize * config.keys * (d + d_v)) / SHARED_BYTES,
        }
        limit = max(limits, key=lambda name: limits[name])
        share = costs.unit_efficiency
        if config.ctas == 1:
            share *= costs.lone_cta_ratio + costs.lone_cta_warps_ratio * (config.threads > 128)
        blocks = desc.tiles(config.queries, config.keys)
        clocks = blocks * (limits[limit] + costs.exposed_ratio * sum(limits.values())) / share
        ctas = max(placed(desc, config.queries, device).ctas, 1)
        ends = costs.tile_ends_time_ratio * desc.query_tiles(config.queries) * ends_s(desc, device, config)
        waves = -(-ctas // (device.sms * config.ctas)) * device.sms * config.ctas / ctas
        tail = min(waves, 2.0 * config.ctas)
        seconds = max((clocks / clock_sms + ends) * max(1.0, tail), desc.nbytes / device.bandwidth)
        return Cost(desc.nbytes, int(desc.flops), device.overhead + costs.latency_s + seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: FlashConfig) -> PrecisionGuarantee:
        blocks = -(-desc.most_k // config.keys)
        # A row's sums follow its own keys, in blocks that `keys` alone decides, and scores' bases its own scores. Which
        # configuration is chosen goes by the batch as well: the first one alone may promise this.
        lone = config == next(iter(self.configs(desc, device))) and not self.leaves_batches(desc, device)
        tf32 = desc.element is ElementKind.F32
        return _guarantee.forward(
            desc, dot=config.dims[0], keys=desc.most_k, blocks=blocks, each=2.0, weights=None if tf32 else desc.element,
            tf32=tf32, batch_invariant=lone,
        )  # fmt: skip

    def leaves_batches(self, desc: Any, device: DeviceSpec) -> bool:
        """Whether another variant serves this problem with the same bits in every batch: one of them alone may promise it."""
        return False

    def lower(self, desc: Any, device: DeviceSpec, config: FlashConfig) -> tuple[Step, ...]:
        types = f"{desc.element.number}, {desc.layout('out').element.number}"
        kernel = Kernel("attention/flash.cu", f"attention_flash<{types}, {config.template}, {changes(desc)}>")
        places = placed(desc, config.queries, device)
        args = (problem_struct(desc), *places.args)
        return (Launch(kernel, (places.ctas, 1, 1), (config.threads, 1, 1), args, config.shared_bytes),)
