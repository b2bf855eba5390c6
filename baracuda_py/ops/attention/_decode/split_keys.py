"""split_keys: a few queries a sequence against all of its keys, which are shared out among CTAs (kernels/attention/decode.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.grammar import Config, term
from ....runtime.overlap import supports_pdl
from ....runtime.steps import Arg, Kernel, Launch, Step
from ....types import DeviceSpec, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from .._forward.flash import HALVES, HEAD_DIMS, MOST_ROWS
from .._problem import guarantee as _guarantee
from .._problem.struct import problem_struct
from .latent_keys import LatentKeys, LatentPages
from .splits import (
    FIXED,
    LEAST,
    MOST_SPLITS,
    Splits,
    cache_struct,
    most_keys,
    rows_of,
    scales_struct,
    stored_as,
    tiled,
    with_status,
)

__all__ = ["SplitKeys", "SplitKeysConfig", "SplitPages"]

BLOCK = 16  # keys that a warp takes at a time
WARPS = 4
LONGEST = 4096  # the most where lengths are read, so that a long sequence beside short ones is shared out, too,
AHEAD = 1  # blocks a warp that are asked for before lengths are known
MANY = 4  # unless there are that many waves of CTAs anyhow
UNDER_WAY = 96 << 10  # bytes an SM, where shared memory has room
RESIDENT = ((2, 4), (1, 8), (3, 4))  # CTAs an SM, and warps a CTA
SMALL = ((1, 4), (1, 2), (1, 1))  # where none of these has room
CLUSTERS = (2, 4, 8)  # splits that merge their results in shared memory
LOOSE = 3  # CTAs an SM, of which no clusters are made: some SMs were full then, while others stood idle
RESERVED = 1 << 10  # bytes of shared memory that a CTA takes besides its own
ALIGN = 1 << 10  # bytes, of what it asks for beside what it declares
MOST_D = 576


class Costs(Fitted, table="attention.split_keys"):
    cluster_residency_ratio: float
    wave_latency_s: float
    late_start_s: float
    cluster_late_start_s: float
    warp_merge_s: float
    empty_cta_s: float
    cluster_merge_s: float
    second_launch_latency_s: float
    key_block_latency_s: float
    key_block_work_s: float
    widening_work_ratio: float
    row_block_work_ratio: float
    page_lookup_work_ratio: float
    bandwidth_efficiency: float
    sm_bandwidth_ratio: float
    issue_ratio: float
    overlap_norm: float


@dataclass(frozen=True)
class SplitKeysConfig(Config):
    """A CTA's part: rows (queries of the heads that share keys), columns of values, and how many share a sequence's keys."""

    rows: int = term("rows a CTA takes: queries of heads that share keys", leads=True)
    columns: int = term("columns of values a CTA takes", leads=True)
    splits: int = term("CTAs that share a sequence's keys", default=1)
    fixed: int = term("keys each of them takes, whatever the sequence's length; 0: evenly", default=0)
    warps: int = term("warps a CTA", default=WARPS)
    stages: int = term("blocks of 16 keys and values a warp has in shared memory", default=3)
    ctas: int = term("CTAs an SM is to hold", default=2)
    clustered: bool = term("whether CTAs that share a sequence's keys are a cluster", default=False)
    dims: int = term("columns of queries, filled up", default=0, hidden=True)
    item: int = term("bytes of a key's or value's element", default=2, hidden=True)
    scaled: bool = term("whether keys and values have a scale each", default=False, hidden=True)

    @property
    def under_way(self) -> int:
        """Bytes of keys and values that are under way to an SM."""
        return self.ctas * self.warps * (self.stages - 1) * self._stage

    @property
    def _stage(self) -> int:
        return BLOCK * self.item * (self.dims + self.columns) + 128 * self.scaled

    @property
    def shared_bytes(self) -> int:
        staged = 2 * self.rows * self.dims + self.warps * self.stages * self._stage
        return max(staged, 4 * self.warps * self.rows * (self.columns + 8))

    @property
    def whole_bytes(self) -> int:
        """With what the kernel declares, up to where the rest begins."""
        declared = 8 * self.rows * (self.warps + self.clustered) + 16
        return self.shared_bytes + -(-declared // ALIGN) * ALIGN


def _filled(columns: int, item: int) -> int:
    """The head dim that kernels are made for: of 8-bit elements, a multiple of 64."""
    return next((n for n in HEAD_DIMS if n >= columns and n * item % 64 == 0), -(-columns // 64) * 64)


class SplitKeys(Candidate[Any]):
    """Bound by reading keys and values once: f16 and bf16, every feature; heads that share keys are multiplied together."""

    variant = "split_keys"
    launches = (
        "attention/decode.cu:attention_decode",
        "attention/decode.cu:attention_decode_cluster",
        "attention/merge.cu:attention_merge",
    )
    constraints = tiled("k", "v")
    keys, values = "k", "v"
    beside = LatentKeys()
    paged: ClassVar[bool] = False  # whether pages are looked up

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        if desc.element not in HALVES:
            return no(f"q holds {desc.element}, and its tensor cores multiply f16 and bf16", "a cast to one of them")
        if desc.cached.bits == 8 and (desc.d % 16 or desc.d_v % 16):
            return no(
                f"head dims are {desc.d} and {desc.d_v}, and of 8-bit elements multiples of 16 are wanted", "pad them"
            )
        if not desc.d_v:
            return no("values have no columns", "values of one or more")
        if desc.d > MOST_D:
            return no(f"the head dim is {desc.d}, and tiles hold {MOST_D} at most")
        if max(desc.total_q, desc.most_k) >= MOST_ROWS or desc.total_q * desc.group >= MOST_ROWS:
            return no(f"there are more than {MOST_ROWS - 1} queries or keys", "fewer a call")
        if not (tiles := self._resident(desc, device)):
            return no(f"an SM's {device.shared_bytes} bytes of shared memory hold no tile")
        if self._ctas(desc, tiles[0]) >= 1 << 31:
            return no("it takes 2**31 CTAs or more", "fewer sequences or heads a call")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[SplitKeysConfig]:
        """Of every tile, splits that fill the device once, twice, or are as short as they may be, and clusters of them; then
        those of a fixed length, whose tile depends on nothing that batches differ in."""
        tiles = self._resident(desc, device)
        for tile in tiles:
            for splits in self._shares(desc, device, tile):
                yield replace(tile, splits=splits)
                if splits in CLUSTERS and tile.ctas < LOOSE and supports_pdl(device.arch):
                    clustered = replace(tile, splits=splits, clustered=True)
                    if tile.ctas * (clustered.whole_bytes + RESERVED) <= device.shared_bytes + RESERVED:
                        yield clustered
        yield from self._halves(desc, device)
        if fixed := self._fixed(desc, device):
            yield replace(fixed, splits=max(1, -(-desc.most_k // FIXED)), fixed=FIXED)

    def _shares(self, desc: Any, device: DeviceSpec, tile: SplitKeysConfig) -> list[int]:
        """How many splits are worth a try."""
        keys, pairs = most_keys(desc), max(self._busy_ctas(desc, tile), 1)
        slots = device.sms * tile.ctas
        most = max(1, min(MOST_SPLITS, -(-keys // LEAST)))
        uneven = desc.has("lengths") and desc.batch > 1 and pairs < MANY * slots
        least = max(1, min(most, -(-keys // LONGEST))) if uneven else 1
        whole = {least, most, device.sms // pairs, *CLUSTERS}
        filled = {round_to(n * slots / pairs) for n in (1, 2, 3, 5) for round_to in (math.floor, math.ceil)}
        return sorted({min(max(n, least), most) for n in whole | filled})

    def _resident(self, desc: Any, device: DeviceSpec) -> list[SplitKeysConfig]:
        """The tiles that shared memory and registers have room for."""
        made = [tile for way in RESIDENT if (tile := self._tile(desc, device, *way))]
        made = made or [tile for way in SMALL if (tile := self._tile(desc, device, *way))][:1]
        return made[:1] + [
            tile for tile in made[1:] if tile.ctas < 3 or (tile.rows <= 16 and tile.dims + tile.columns <= 256)
        ]

    def _halves(self, desc: Any, device: DeviceSpec) -> Iterable[SplitKeysConfig]:
        """Where the largest clusters fill half of the device: twice as many CTAs, each with half of the columns of values. Keys
        are read twice, the second time from L2, and nothing is left for a second launch."""
        tile = self._tile(desc, device, 1, 8, chunks=2)
        if tile is None or tile.columns % 32 or not supports_pdl(device.arch):
            return
        made = replace(tile, splits=CLUSTERS[-1], clustered=True)
        if 0.75 * device.sms <= self._ctas(desc, made) <= device.sms and made.whole_bytes <= device.shared_bytes:
            yield made

    def _fixed(self, desc: Any, device: DeviceSpec) -> SplitKeysConfig | None:
        """A tile of as many warps, which share out keys, as one of any number of rows has room for."""
        ways = (way for way in (*RESIDENT, *SMALL) if self._tile(desc, device, *way, MOST_ROWS))
        return next((self._tile(desc, device, *way) for way in ways), None)

    def _tile(
        self, desc: Any, device: DeviceSpec, ctas: int, warps: int, wanted: int = 0, chunks: int = 1
    ) -> SplitKeysConfig | None:
        """As many rows as there are (or are `wanted`) and registers hold, and one of `chunks` parts of the values' columns;
        as many bytes under way as shared memory has room for."""
        item = desc.cached.bits // 8
        dims, columns = _filled(desc.d, item), _filled(desc.d_v, item)
        columns = columns if columns <= HEAD_DIMS[-1] and dims <= HEAD_DIMS[-1] else min(columns, 128)
        columns //= chunks
        wanted = wanted or desc.group * desc.most_q
        most = 4 if max(dims, columns) <= 32 else 2 if columns <= 128 and dims <= 256 else 1
        blocks = min(most, next((b for b in (1, 2) if 16 * b >= wanted), most))
        made = (
            SplitKeysConfig(16 * blocks, columns, 1, 0, warps, s, ctas, False, dims, item, desc.scaled)
            for s in range(2, 9)
        )
        fitting = [c for c in made if ctas * (c.whole_bytes + RESERVED) <= device.shared_bytes + RESERVED]
        return next((c for c in fitting if c.under_way >= UNDER_WAY), fitting[-1]) if fitting else None

    def cost(self, desc: Any, device: DeviceSpec, config: SplitKeysConfig) -> Cost:
        """Waves of CTAs, each of which takes what its bytes take at the device's bandwidth, or what its warps take for their
        blocks; and the merge."""
        costs = Costs.of(device)
        keys, ctas, slots = most_keys(desc), max(self._busy_ctas(desc, config), 1), self._slots(device, config)
        split = min(max(-(-keys // config.splits), LEAST, config.fixed), keys)
        blocks = -(-split // (BLOCK * config.warps))
        each = split * float(config.item * (desc.d + config.columns))
        waves, rest = divmod(ctas, slots)
        seconds = waves * self._wave(device, config, slots, each, blocks)
        if rest:
            seconds += self._wave(device, config, rest, each, blocks)
        if config.clustered:
            seconds += costs.cluster_merge_s
        splits = Splits.of(desc, config)
        seconds += costs.empty_cta_s * (self._ctas(desc, config) - self._busy_ctas(desc, config))
        begun = costs.second_launch_latency_s if splits.separate else self._late(costs, config, ctas, slots)
        seconds += splits.seconds(device) + begun
        flops = 2.0 * rows_of(desc) * keys * (desc.d + desc.d_v)
        return Cost(desc.nbytes, int(flops), overlapped_overhead(device) + seconds, "bandwidth")

    def _slots(self, device: DeviceSpec, config: SplitKeysConfig) -> int:
        """CTAs that run at once. A cluster's begin together, within a group of SMs, and what is left of a group stays idle."""
        slots = device.sms * config.ctas
        if not config.clustered:
            return slots
        resident_share = Costs.of(device).cluster_residency_ratio if config.splits > 2 else 1.0
        return max(int(resident_share * slots / config.splits), 1) * config.splits

    def _late(self, costs: Costs, config: SplitKeysConfig, ctas: int, slots: int) -> float:
        """Seconds that a single launch begins later when another one is ahead of it: in part in its room, it cannot set itself up
        meanwhile. Of several waves the last leaves room anyhow."""
        if 2 * ctas <= slots:
            return 0.0
        if config.clustered and config.splits > 2:
            return costs.cluster_late_start_s
        return costs.late_start_s if ctas <= slots else 0.0

    def _wave(self, device: DeviceSpec, config: SplitKeysConfig, ctas: int, each: float, blocks: int) -> float:
        """Seconds of CTAs that run at once, with so many bytes each and blocks a warp: at the bandwidth that the device has, or
        the SM that has the most of them; and as its warps go on."""
        costs, crowd = Costs.of(device), -(-ctas // device.sms)
        bandwidth = costs.bandwidth_efficiency * device.bandwidth
        work = costs.key_block_work_s * (costs.page_lookup_work_ratio if self.paged else 1.0)
        work = work * (config.dims + config.columns) / 256 * (1 + costs.row_block_work_ratio * (config.rows // 16 - 1))
        work *= costs.widening_work_ratio if config.item == 1 else 1.0
        bounds = (
            max(ctas * each, crowd * each * device.sms / costs.sm_bandwidth_ratio) / bandwidth,
            blocks * max(costs.key_block_latency_s + work, costs.issue_ratio * work * config.warps * crowd),
        )
        both = math.pow(math.fsum(math.pow(bound, costs.overlap_norm) for bound in bounds), 1 / costs.overlap_norm)
        return costs.wave_latency_s + costs.warp_merge_s * config.warps * crowd + both

    def guarantee(self, desc: Any, device: DeviceSpec, config: SplitKeysConfig) -> PrecisionGuarantee:
        """A warp adds up its own keys; warps and splits are then merged, each with a factor of its own."""
        split = min(config.fixed or -(-most_keys(desc) // config.splits) + BLOCK * config.warps, desc.most_k)
        keys = -(-split // (BLOCK * config.warps)) * BLOCK
        merged = config.warps + (config.splits + 12 if config.splits > 1 else 0)
        # Of the two that have tensor cores one alone may promise it, for selection goes by the batch as well
        lone = not self.beside.supports(desc, device)
        made = _guarantee.forward(
            desc, dot=config.dims + 2, keys=keys + merged, blocks=keys // BLOCK + merged, each=2.0, weights=desc.element,
            batch_invariant=lone and bool(config.fixed),
        )  # fmt: skip
        return with_status(desc, made)

    def lower(self, desc: Any, device: DeviceSpec, config: SplitKeysConfig) -> tuple[Step, ...]:
        out = desc.layout("out").element
        changed = desc.softcapped or desc.has("alibi_slopes")
        tile = (config.dims, config.columns, config.rows // 16, config.warps, config.stages, config.ctas)
        shape = (*tile, config.splits) if config.clustered else tile
        flags = (str(flag).lower() for flag in (changed, desc.paged, config.scaled))
        types = desc.element.number, stored_as(desc.cached), out.number
        entry = f"attention_decode{'_cluster' * config.clustered}<{', '.join(map(str, (*types, *shape, *flags)))}>"
        splits = Splits.of(desc, config, self._ahead(desc, device, config))
        args: tuple[Arg, ...] = (
            problem_struct(desc, k=self.keys, v=self.values), cache_struct(desc), scales_struct(desc), splits.struct,
            np.uint32(self._tiles(desc, config)), np.uint32(self._chunks(desc, config)),
        )  # fmt: skip
        checks = -(-desc.checked // config.splits) * config.splits if config.clustered else desc.checked
        ctas = self._ctas(desc, config) + checks
        first = Launch(
            Kernel("attention/decode.cu", entry), (ctas, 1, 1), (32 * config.warps, 1, 1), args, config.shared_bytes,
            pdl=splits.pdl,
        )  # fmt: skip
        return splits.merged(first, device)

    def _ahead(self, desc: Any, device: DeviceSpec, config: SplitKeysConfig) -> int:
        """Blocks that a warp asks for before it may read anything: of dense caches without a window, where CTAs run all at once.
        Else most would be asked for in vain when sequences are short."""
        dense = not desc.paged and desc.visible.left is None
        return AHEAD if dense and self._ctas(desc, config) <= device.sms * config.ctas else 0

    def _tiles(self, desc: Any, config: SplitKeysConfig) -> int:
        return int(max(1, -(-desc.most_q * desc.group // config.rows)))

    def _chunks(self, desc: Any, config: SplitKeysConfig) -> int:
        return int(max(1, -(-desc.d_v // config.columns)))

    def _busy_ctas(self, desc: Any, config: SplitKeysConfig) -> int:
        """CTAs that have rows, if all sequences have as many tokens: of ragged ones the longest decides how many there are."""
        all_tiles = self._tiles(desc, config)
        used_tiles = min(max(1, math.ceil(desc.rows_each * desc.group / config.rows)), all_tiles)
        return int(self._ctas(desc, config) // all_tiles * used_tiles)

    def _ctas(self, desc: Any, config: SplitKeysConfig) -> int:
        shares = self._tiles(desc, config) * self._chunks(desc, config) * config.splits
        return int(desc.batch * desc.kv_heads * shares)


class SplitPages(SplitKeys):
    """The same, of keys and values in pages of any size."""

    variant = "split_pages"
    constraints = tiled("k_pages", "v_pages")
    keys, values = "k_pages", "v_pages"
    beside = LatentPages()
    paged = True
