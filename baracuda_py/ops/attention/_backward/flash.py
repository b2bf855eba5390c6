"""fast and deterministic: f16 and bf16 by mma.sync, every score computed once (kernels/attention/backward.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.constraints import Aligned, Kinds, Multiple, UnitStride
from ....plan.grammar import Config, term
from ....runtime.steps import Fill, Kernel, Launch, Packed, Scratch, Step, Struct
from ....types import ArchSku, DeviceSpec, PrecisionGuarantee
from ..._fitted import Fitted
from .._decode.splits import ABSENT
from .._forward.flash import BITS, CAP, HALVES, MOST_ROWS, SHARED_BYTES, SLOPE, changed, packed, tensor_flops_per_cycle
from .._problem.mask_bits import TILE_BITS, TileBits
from .._problem.struct import problem_struct
from . import guarantee as _backward_guarantee
from .gradients import COMMON_LAUNCHES, bias_seconds, gradients_struct, of_biases, of_rows, of_sinks

__all__ = ["FlashBackward", "FlashBackwardConfig"]

KERNEL = "attention/backward.cu"
HEAD_DIMS = (64, 128, 192, 256)  # that kernels are made for; others are filled up with zeros
OPERANDS = ("grad_q", "grad_k", "grad_v", "grad", "q", "k", "v", "out")
READ = ("grad", "q", "k", "v", "out")  # by 16 bytes
WRITTEN = ("grad_q", "grad_k", "grad_v")  # by 4
MOST_SLICES = 16  # of sums of grad_q
STATIC = 128  # bytes of shared memory beside the tiles
WAITING = 0.03  # of the time, at most, that CTAs wait at first for those that add before them,
BEHIND = 2  # each so many tiles behind the one before
WIDE = 256  # columns from which on slices that leave L2 keep memory busy nearly all the time; at 128, half of it
TIGHT, BLACKWELL = (64, 192), (ArchSku.SM100A, ArchSku.SM120)  # head dims that take more registers there
# Queries, keys, queries a warp has scores of, warps, warps that share keys, warp specialization, stages and CTAs an SM, by head
# dim and whether scores are changed, which takes registers: what spills is not here.
MENU = {
    (64, False): ((64, 128, 32, 4, 1, 0, 2, 2), (64, 64, 32, 4, 1, 0, 2, 2)),
    (64, True): ((64, 128, 16, 4, 1, 0, 2, 2), (64, 64, 32, 4, 1, 0, 2, 2)),
    (128, False): (
        (64, 128, 32, 8, 2, 1, 2, 1), (64, 128, 32, 8, 2, 0, 2, 1), (64, 128, 32, 8, 1, 0, 2, 1), (32, 64, 32, 4, 1, 0, 1, 1),
    ),
    (128, True): ((64, 128, 32, 8, 1, 0, 2, 1), (32, 64, 32, 4, 1, 0, 1, 1)),
    (192, False): (
        (64, 64, 32, 8, 2, 0, 2, 1), (64, 64, 32, 8, 2, 2, 2, 1), (64, 64, 32, 8, 2, 1, 2, 1), (64, 64, 32, 8, 2, 0, 1, 1),
        (32, 32, 16, 4, 2, 0, 1, 1),
    ),
    (192, True): ((64, 64, 32, 8, 2, 0, 1, 1), (32, 32, 16, 4, 2, 0, 1, 1)),
    (256, False): (
        (64, 64, 32, 8, 2, 1, 1, 1), (64, 64, 32, 8, 2, 2, 2, 1), (64, 64, 32, 8, 2, 2, 1, 1), (64, 64, 32, 8, 2, 0, 1, 1),
        (32, 64, 16, 8, 2, 0, 2, 1), (32, 32, 16, 4, 2, 0, 1, 1),
    ),
    (256, True): ((64, 64, 32, 8, 2, 0, 1, 1), (32, 32, 16, 4, 2, 0, 1, 1)),
}  # fmt: skip
# The same where the only change is one of LIGHT, where that differs.
LIGHT = (CAP, SLOPE, BITS)
LIGHT_MENU = {256: ((64, 64, 32, 8, 2, 1, 1, 1), (64, 64, 32, 8, 2, 0, 1, 1), (32, 32, 16, 4, 2, 0, 1, 1))}
SPILLS_IN_ORDER = (64, 64, 32, 8, 2, 2, 2, 1)


class Costs(Fitted, table="attention.backward_flash"):
    unit_efficiency: float
    ordered_one_stage_time_ratio: float
    ordered_two_stage_time_ratio: float
    spilled_slices_time_ratio: float
    slice_time_ratio: float
    slice_bytes: int


@dataclass(frozen=True)
class FlashBackwardConfig(Config):
    """A CTA's keys, and the queries that it takes at a time."""

    queries: int = term("queries a CTA takes at a time", leads=True)
    keys: int = term("keys a CTA has", leads=True)
    part: int = term("queries of which a warp holds scores at a time", default=64)
    warps: int = term("warps of a CTA", default=8)
    split: int = term("warps that share keys", default=1)
    specialized: int = term(
        "of these, half have one sum over queries each (1), and one product of scores (2)", default=0
    )
    stages: int = term("blocks of queries in shared memory", default=2)
    ctas: int = term("CTAs an SM is to hold", default=1)
    dims: tuple[int, int] = term("columns of queries and of values, filled up", default=(0, 0), hidden=True)

    @property
    def blocks(self) -> int:
        """Blocks of 16 keys a warp."""
        return self.keys * self.split // self.warps // 16

    @property
    def threads(self) -> int:
        return self.warps * 32

    @property
    def shared_bytes(self) -> int:
        columns = sum(self.dims)
        scores = 2 * self.split * self.keys * self.queries
        swapped = 64 * self.warps * self.blocks * self.part if self.specialized == 2 else 0
        return (
            2 * columns * (self.keys + self.stages * self.queries) + scores + swapped + self.stages * self.queries * 8
        )

    @property
    def template(self) -> str:
        sizes = (self.queries, self.part, self.warps, self.blocks, self.split, self.specialized, self.stages, self.ctas)
        return ", ".join(map(str, (*self.dims, *sizes)))


def filled(columns: int) -> int:
    """The head dim that kernels are made for."""
    return next((n for n in HEAD_DIMS if n >= columns), HEAD_DIMS[-1])


def _shared_traffic(config: FlashBackwardConfig) -> int:
    """Bytes that go through shared memory a tile, with the sums of grad_q, which take its path."""
    d, d_v = config.dims
    warps, queries, own = config.warps, config.queries, 16 * config.blocks
    if config.specialized == 2:  # scores, with a warp's part of keys and of queries
        scores = 2 * warps * ((2 * own + config.part) * d + 4 * own * config.part)
    else:
        side = queries // config.split
        scores = 2 * warps * (own * (side // config.part) + side) * (d + d_v)
    if config.specialized:  # sums over queries
        keys = min(config.keys, 64)
        over_queries = 2 * warps * queries * (keys + 2 * d * config.keys // keys // warps)
    else:
        over_queries = 2 * warps * queries * ((d + d_v) // config.split + (2 * own if config.split > 1 else 0))
    over_keys = 2 * warps * config.keys * (32 + d * queries // 32 // warps)  # grad_q
    written = 2 * queries * (d + d_v) + 2 * config.split * queries * config.keys + 8 * queries * d
    return scores + over_queries + over_keys + written


class FlashBackward(Candidate[Any]):
    """Blocks of keys a CTA, grad_k and grad_v in registers, grad_q added up in f32 scratch: in any order (fast); or in order
    (deterministic), in slices that CTAs add to each alone, or in turn."""

    launches = (*COMMON_LAUNCHES, f"{KERNEL}:attention_backward", f"{KERNEL}:attention_backward_queries", TILE_BITS)
    constraints = (
        Kinds("q", HALVES),
        *map(UnitStride, OPERANDS),
        Multiple("q", -1, 8, "the head dim"),
        Multiple("v", -1, 8, "v's head dim"),
        *(Aligned(name, 16) for name in READ),
        *(Aligned(name, 4) for name in WRITTEN),
    )

    def __init__(self, variant: str, *, ordered: bool) -> None:
        self.variant, self.ordered = variant, ordered  # type: ignore[misc]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        if max(desc.d, desc.d_v) > HEAD_DIMS[-1]:
            return no(f"head dims are {desc.d} and {desc.d_v}, and tiles hold {HEAD_DIMS[-1]} at most")
        if max(desc.total_q, desc.total_k) >= MOST_ROWS:
            return no(f"there are more than {MOST_ROWS - 1} queries or keys", "fewer a call")
        if any(abs(desc.strides_of(name).row) >= MOST_ROWS for name in READ):
            return no(f"rows are {MOST_ROWS} elements apart or more", "contiguize them")
        configs = tuple(self.configs(desc, device))
        if not configs:
            return no(f"an SM's {device.shared_bytes} bytes of shared memory hold no tile")
        steps = (step for config in configs for step in self.lower(desc, device, config))
        if any(isinstance(step, Launch) and step.grid[0] >= 1 << 31 for step in steps):
            return no("it takes 2**31 CTAs or more", "fewer sequences or heads a call")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[FlashBackwardConfig]:
        """The best known first, of those that keep within registers."""
        dims = filled(desc.d), filled(desc.d_v)
        wide = max(dims)
        dims = (wide, wide) if wide == 128 else dims
        menu = MENU[wide, changed(desc) or (wide in TIGHT and device.tier in BLACKWELL)]
        if packed(desc) in LIGHT:
            menu = LIGHT_MENU.get(wide, menu)
        for size in menu:
            config = FlashBackwardConfig(*size, dims)
            fits = config.shared_bytes + STATIC <= device.shared_bytes and (
                not config.specialized or dims[0] == dims[1]
            )
            if fits and not (size == SPILLS_IN_ORDER and self._adds_in_order(desc, device, config)):
                yield config

    def cost(self, desc: Any, device: DeviceSpec, config: FlashBackwardConfig) -> Cost:
        """The busier of tensor cores and shared memory, in as many waves as there are, beside sums that leave L2, and what
        is read and written once."""
        costs, clock_sms = Costs.of(device), device.rate("issue") / 128
        rate = tensor_flops_per_cycle(device)
        d, d_v = config.dims
        tile = config.queries * config.keys
        limits = {
            "tensor cores": 2.0 * tile * (3 * d + 2 * d_v) / rate,
            "shared memory": _shared_traffic(config) / SHARED_BYTES,
        }
        limit = max(limits, key=lambda name: limits[name])
        step = limits[limit] / costs.unit_efficiency / clock_sms * device.sms  # of a CTA, in seconds
        blocks, resident_ctas = desc.pairs() / tile, device.sms * config.ctas
        a_head, slices = self._ctas(desc, device, config)
        ctas, in_order = max(a_head * desc.batch * desc.kv_heads, 1), self._adds_in_order(desc, device, config)
        waves = max(
            -(-ctas // resident_ctas) * resident_ctas / ctas,
            self._tail(desc, config, resident_ctas, ctas) if in_order else 1.0,
        )
        seconds = blocks * step / device.sms * max(1.0, min(waves, 2.0 * config.ctas))
        sums = 4 * self._sums(desc, config)
        if in_order:
            one, two = costs.ordered_one_stage_time_ratio, costs.ordered_two_stage_time_ratio
            seconds *= {1: one, 2: two}[config.stages]
        elif self._leaves_l2(desc, device, config):
            seconds *= costs.spilled_slices_time_ratio
        elif self.ordered:
            each = sums / max(desc.batch * desc.kv_heads, 1)
            seconds *= 1 + costs.slice_time_ratio * min(1.0, each / costs.slice_bytes)
        seconds += bias_seconds(desc, device)
        traffic = desc.nbytes + sums * (slices or 2)
        return Cost(desc.nbytes, int(desc.flops), 4 * device.overhead + seconds + traffic / device.bandwidth, limit)

    def _tail(self, desc: Any, config: FlashBackwardConfig, resident_ctas: int, ctas: int) -> float:
        """How much longer CTAs of one block of keys take than if all were done at once: those of the first keys, of which causal
        queries see more, are up to twice the mean, and every head begins with them."""
        if not desc.causal or desc.visible.left is not None:
            return 1.0
        seen = desc.pairs() / max(desc.batch * desc.heads * desc.most_q * desc.most_k, 1)
        blocks = ctas / max(desc.batch * desc.kv_heads, 1)
        return float(
            1.0 + max(1.0 - seen, 0.0) / max(seen, 0.5) * resident_ctas / ctas * max(1.0 - blocks / resident_ctas, 0.0)
        )

    def guarantee(self, desc: Any, device: DeviceSpec, config: FlashBackwardConfig) -> PrecisionGuarantee:
        return _backward_guarantee.backward(
            desc, dot=max(config.dims), each=2.0, weights=desc.element, ordered=self.ordered, invariant=False
        )

    def lower(self, desc: Any, device: DeviceSpec, config: FlashBackwardConfig) -> tuple[Step, ...]:
        bits = TileBits(desc) if packed(desc) & BITS else None
        problem = problem_struct(desc, (bits.words, bits.strides) if bits else None)
        gradients = gradients_struct(desc)
        (ctas, slices), sums = self._ctas(desc, device, config), self._sums(desc, config)
        blocks = max(1, -(-desc.launched_q(desc.heads) // config.queries))
        all_ctas = ctas * desc.batch * desc.kv_heads
        held = Scratch.named("sums", max(16, 4 * max(slices, 1) * sums))
        progress = Scratch.named("progress", max(16, 4 * all_ctas))
        extents = (self._tiles(desc, config), ctas, slices, self._section(desc, device, config, ctas))
        counts = Packed(np.array(extents, np.uint32).tobytes(), 8)
        in_order = self._adds_in_order(desc, device, config)
        of_sums = Struct((held, progress if in_order else ABSENT, np.uint64(sums), counts))
        sizes = (config.dims[0], config.queries, config.keys, config.warps)
        last = f"attention_backward_queries<{desc.element.number}, {', '.join(map(str, sizes))}>"
        args = (problem, gradients, of_sums)
        launches: tuple[Launch, ...] = (
            *((bits.launch,) if bits else ()),
            of_rows(desc, gradients, vector=True),
            *of_sinks(desc, gradients),
            *of_biases(desc, gradients),
            self.over_keys(desc, config, args, all_ctas, in_order=in_order),
            Launch(
                Kernel(KERNEL, last), (blocks * desc.batch * desc.heads, 1, 1), (config.warps * 32, 1, 1),
                (*args, np.uint32(blocks)),
            ),
        )  # fmt: skip
        cleared = (progress,) if in_order else () if self.ordered else (held,)
        return (*(Fill(x, 0, x.nbytes) for x in cleared), *(launch for launch in launches if launch.grid[0]))

    def over_keys(self, desc: Any, config: Any, args: tuple[Any, ...], ctas: int, *, in_order: bool) -> Launch:
        """The launch that computes grad_k and grad_v, and adds up grad_q."""
        main = f"attention_backward<{desc.element.number}, {config.template}, {packed(desc)}, {str(in_order).lower()}>"
        return Launch(
            Kernel(KERNEL, main), (ctas, 1, 1), (config.threads, 1, 1), args, config.shared_bytes, float_atomics=not self.ordered,
        )  # fmt: skip

    def _tiles(self, desc: Any, config: FlashBackwardConfig) -> int:
        """Tiles of sums a head: of ragged sequences, each begins one."""
        if desc.ragged:
            return int(desc.total_q // config.queries + desc.batch + 1)
        return int(max(1, -(-desc.total_q // config.queries)))

    def _sums(self, desc: Any, config: FlashBackwardConfig) -> int:
        """Elements of a slice."""
        heads = desc.heads * (1 if desc.ragged else desc.batch)
        return int(heads * self._tiles(desc, config) * config.queries * config.dims[0])

    def _ctas(self, desc: Any, device: DeviceSpec, config: FlashBackwardConfig) -> tuple[int, int]:
        """CTAs a head, and slices that they add to: a CTA a block of keys, and no slices, or few; or, where sums are nothing to
        memory, as many of either as keep the device busy."""
        if not self.ordered:
            return max(1, -(-desc.launched_k(desc.kv_heads) // config.keys)), 0
        blocks = max(1, -(-int(desc.most_k) // config.keys))
        heads, resident_ctas = max(desc.batch * desc.kv_heads, 1), device.sms * config.ctas
        if self._adds_in_order(desc, device, config):
            return blocks, self._in_few(desc, device, config)

        def rounds(stripes: int) -> int:
            return int(-(-stripes * heads // resident_ctas) * -(-blocks // stripes))

        stripes = min(range(1, min(blocks, MOST_SLICES) + 1), key=rounds)
        return stripes, stripes

    def _section(self, desc: Any, device: DeviceSpec, config: FlashBackwardConfig, ctas: int) -> int:
        """Heads whose CTAs are interleaved. Under causal, where first blocks of keys take longest, as many as keep the device
        busy twice, so that what runs last is short; no more, for their sums of grad_q are to stay in L2. Else one: CTAs of a head
        read the same queries, and CTAs that add in order wait for neighbours."""
        if self.ordered or not desc.causal:
            return 1
        heads, wanted = max(desc.batch * desc.kv_heads, 1), 2 * device.sms * config.ctas
        return int(-(-heads // max(1, round(heads * ctas / wanted))))

    def _leaves_l2(self, desc: Any, device: DeviceSpec, config: FlashBackwardConfig) -> bool:
        """Whether slices of CTAs that run together, read and written once a block of keys, leave L2 and take too long."""
        sums = 4 * self._sums(desc, config) / max(desc.batch * desc.kv_heads, 1)
        return bool(self.ordered and config.dims[0] >= WIDE and device.sms * config.ctas * sums > device.l2_bytes)

    def _in_few(self, desc: Any, device: DeviceSpec, config: FlashBackwardConfig) -> int:
        """Slices of CTAs that add in turn: so few that those which begin together, each behind the one before, wait for a
        small part of the time."""
        blocks, resident_ctas = max(1, -(-int(desc.most_k) // config.keys)), device.sms * config.ctas
        tiles = desc.pairs() / (config.queries * config.keys) / resident_ctas  # of an SM
        return min(-(-min(blocks, resident_ctas) // (1 + int(WAITING * tiles / BEHIND))), blocks, MOST_SLICES)

    def _adds_in_order(self, desc: Any, device: DeviceSpec, config: FlashBackwardConfig) -> bool:
        """Whether CTAs do: where slices leave L2, and few are written and read a third as often at most; and where
        as many slices as there may be leave half of the device idle."""
        blocks, heads = -(-int(desc.most_k) // config.keys), desc.batch * desc.kv_heads
        if self.ordered and blocks > MOST_SLICES and 2 * MOST_SLICES * heads <= device.sms * config.ctas:
            return True
        seen = desc.pairs() / max(desc.batch * desc.heads * desc.most_q * desc.most_k, 1)
        return self._leaves_l2(desc, device, config) and 3 * self._in_few(desc, device, config) <= seen * blocks
