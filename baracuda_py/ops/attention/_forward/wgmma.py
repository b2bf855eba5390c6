"""wgmma: f16 and bf16 by Hopper's warpgroup tensor cores, fed by TMA (kernels/attention/wgmma.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.constraints import Kinds
from ....plan.grammar import Config, term
from ....runtime.steps import Fill, Kernel, Launch, Packed, Ptr, Scratch, Step, Struct, TensorMap
from ....types import DeviceSpec, ElementKind, PrecisionGuarantee
from ..._fitted import Fitted
from ...products.checks import on_hopper
from .._problem import guarantee as _guarantee
from .._problem.mask_bits import ROW_BITS, RowBits
from .._problem.struct import problem_struct
from .flash import (
    BITS,
    CAP,
    EXPONENTIALS,
    HALVES,
    MASK,
    OPERANDS,
    SLOPE,
    Flash,
    ends_s,
    not_kept_short,
    packed,
    placed,
    within,
)

__all__ = ["FlashBesideWgmma", "Wgmma", "WgmmaConfig", "boxes", "prelude", "product_text", "stepped"]

PANEL = 64  # columns of a panel in shared memory, 128 bytes
HEAD_DIMS = (64, 128, 192, 256)  # that kernels are made for; others are filled up with zeros
PAGES = 32  # keys and values are in pages, beside what `packed` has
TANH = 19.0  # units roundoff of softcap: a reciprocal of four products (kernels/include/attention/capped.cuh), and roundings
MOST_STRIDE = 1 << 40  # bytes that TMA steps, at most
TMA_KINDS = {ElementKind.F16: "float16", ElementKind.BF16: "bfloat16"}


class WgmmaCosts(Fitted, table="attention.wgmma"):
    tensor_ratio: float
    exponential_ratio: float
    softcap_exponentials: float
    alibi_exponentials: float
    mask_exponentials: float
    tile_latency_s: float
    tile_ends_time_ratio: float
    uneven_time_ratio: float
    counter_s: float


@dataclass(frozen=True)
class WgmmaConfig(Config):
    """A CTA's tile: its queries, and the keys that it takes at a time."""

    queries: int = term("queries a CTA takes, 64 a consumer warpgroup", leads=True)
    keys: int = term("keys a CTA takes at a time", leads=True)
    heads: int = term("query heads of a group whose queries a CTA takes together", default=1)
    stages: int = term("blocks of keys and of values in shared memory", default=2)
    ping_pong: bool = term("consumer warpgroups issue their products in turn", default=False)
    persistent: bool = term("a CTA an SM, which takes every so many'th tile", default=False)
    dynamic: bool = term("a CTA an SM, which takes the next tile that no other has taken", default=False)
    ahead: bool = term("the next tile's first scores are computed while this one ends", default=False)
    dims: tuple[int, int] = term("columns of queries and of values, filled up", default=(0, 0), hidden=True)
    paged: bool = term("whether keys and values lie in pages", default=False, hidden=True)

    @property
    def threads(self) -> int:
        return 128 + 2 * self.queries

    @property
    def shared_bytes(self) -> int:
        d, d_v = self.dims
        barriers = 8 * (4 * self.stages + 7)  # with the numbers of two tiles
        pages = 4 * self.stages * self.paged  # missing ones
        return 2 * (self.queries * d + self.stages * self.keys * (d + d_v)) + barriers + pages

    @property
    def template(self) -> str:
        flags = (str(flag).lower() for flag in (self.ping_pong, self.ahead))
        return ", ".join(map(str, (*self.dims, self.queries, self.keys, self.heads, self.stages, *flags)))

    @property
    def rows(self) -> int:
        """Queries of one head."""
        return self.queries // self.heads


# The larger head dim, changes of scores and pages, and queries and keys, as far as registers go: a problem takes the first entry
# all of whose changes it has. WAYS: how CTAs go on; of those that are predicted alike the first is taken.
TILES = (
    (64, BITS | CAP, (192, 96)),
    (64, BITS, (192, 112)),
    (64, CAP, (192, 112)),
    (64, SLOPE, (192, 112)),
    (64, PAGES, (128, 128)),  # blocks as long as without pages: the same bits
    (64, 0, (192, 128)),
    (128, 0, (128, 128)),
    (192, BITS, (128, 96)),
    (192, CAP, (128, 96)),
    (192, 0, (128, 112)),
    (256, CAP | SLOPE, (128, 64)),
    (256, BITS | SLOPE, (128, 64)),
    (256, CAP, (128, 80)),
    (256, BITS, (128, 80)),
    (256, 0, (128, 64)),
)
# Where keys are seen through a short window, heads of a group together waste fewer scores at its two edges: a CTA's queries, and
# keys of which as few are taken as hold what its queries see.
QUERIES, MOST_WINDOW, PACKED_HEADS = 128, 1024, (8, 4, 2)
WINDOW_KEYS = {64: (80, 96, 112, 128, 144, 160, 176), 128: (80, 96, 112, 128, 144)}
ORIGINS = 16  # multiples of keys at which their blocks begin (kernels/attention/wgmma.cu)
BLOCK_KEYS = 32  # that a block costs beside its own
WAYS = ((True, True), (True, False), (False, True), (False, False))  # ping_pong and dynamic
MOST_AHEAD, MOST_IN_TURN = 128, 192  # columns, as far as registers go


def packed_heads(desc: Any) -> int:
    """Heads of a group whose queries a CTA takes together."""
    left, right = desc.visible
    if left is None or right is None or left + right >= MOST_WINDOW or packed(desc) or not desc.strides_of("q").head:
        return 1
    return next((n for n in PACKED_HEADS if desc.group and desc.group % n == 0), 1)


def of_window(desc: Any, heads: int, sizes: Iterable[int]) -> tuple[int, int]:
    """Keys a block, and blocks that hold what the queries of a tile see."""
    left, right = desc.visible
    seen = left + right + QUERIES // heads + -left % ORIGINS
    return min(((keys, -(-seen // keys)) for keys in sizes), key=lambda of: of[1] * (of[0] + BLOCK_KEYS))


def filled(columns: int) -> int:
    """The head dim that kernels are made for."""
    return next((n for n in HEAD_DIMS if n >= columns), HEAD_DIMS[-1])


def product_text(
    name: str, n: int, element: ElementKind, *, of_registers: bool = False, a_major: str = "K", b_major: str = "K"
) -> str:
    """name(d, a, b, accumulate): d += A B, or = where `accumulate` is 0, for m64n{n}k16; A is in registers, or, like B, in shared
    memory, "K"- or "MN"-major."""
    count, kind = n // 2, str(element)
    sums, outputs = _listed(count), ", ".join(f'"+f"(d[{i // 4}][{i % 4}])' for i in range(count))
    of_b = int(b_major == "MN")
    if of_registers:
        parameter, a, of_a, flags = "const u32 (&a)[4]", f"{{{_listed(4, count)}}}", _inputs(4), f"1, 1, {of_b}"
    else:
        parameter, a, of_a, flags = "u64 a", f"%{count}", '"l"(a)', f"1, 1, {int(a_major == 'MN')}, {of_b}"
    b = count + (4 if of_registers else 1)
    return (
        f"__device__ __forceinline__ void {name}(float (&d)[{n // 8}][4], {parameter}, u64 b, int accumulate) {{\n"
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{b + 1}, 0;\\n"\n'
        f'    "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} {{{sums}}}, {a}, %{b}, p, {flags}; }}"\n'
        f'    : {outputs} : {of_a}, "l"(b), "r"(accumulate));\n}}\n'
    )


def _listed(count: int, first: int = 0) -> str:
    return ", ".join(f"%{i}" for i in range(first, first + count))


def _inputs(count: int) -> str:
    return ", ".join(f'"r"(a[{i}])' for i in range(count))


@lru_cache(maxsize=64)
def prelude(keys: int, d_v: int, element: ElementKind) -> str:
    """The text of both products: of scores, and of weights in registers and values."""
    scores = product_text("wgmma_scores", keys, element)
    return (
        '#include "core/dtype.cuh"\n'
        + scores
        + product_text("wgmma_values", d_v, element, of_registers=True, b_major="MN")
    )


def extents_of(desc: Any, name: str) -> tuple[int, int, int]:
    """Rows, heads and sequences of an operand; of pages, keys of a page, heads and pages."""
    sequences = 1 if desc.ragged else desc.batch
    if name in ("q", "grad"):
        return desc.total_q, desc.heads, sequences
    if name in ("k_pages", "v_pages"):
        return desc.page_keys, desc.kv_heads, desc.pages
    return desc.total_k, desc.kv_heads, sequences


def boxes(desc: Any, name: str, rows: int, heads: int = 1) -> TensorMap:
    """The operand as [sequences or pages, heads, rows, columns] in boxes of so many heads, rows and a panel of columns; an axis
    that is not stepped has extent 1."""
    layout, strides, extents = desc.layout(name), desc.strides_of(name), extents_of(desc, name)
    steps = (strides.row, strides.head, strides.batch)
    return TensorMap(
        Ptr(name),
        TMA_KINDS[desc.element],
        (layout.shape[-1], *(max(n, 1) if step else 1 for n, step in zip(extents, steps)), 1),
        (*(2 * step if n > 1 and step else 16 for n, step in zip(extents, steps)), 16),
        (PANEL, rows, heads, 1, 1),
        2 * PANEL,
    )


def stepped(desc: Any, read: Iterable[str]) -> Feasibility:
    """Whether TMA steps through these operands."""
    for name in read:
        row, *others = desc.strides_of(name)[::-1]
        if (row <= 0 and extents_of(desc, name)[0] > 1) or min(others) < 0 or 2 * max(row, *others) >= MOST_STRIDE:
            return no(f"TMA does not step {name}'s rows or heads backwards, twice onto one row or 2**40 bytes at once")
    return OK


class Wgmma(Candidate[Any]):
    """Products of a block of keys run while exponentials of the next are computed: f16, bf16, head dims up to 256, with softcap,
    ALiBi or bool masks."""

    variant = "wgmma"
    paged: ClassVar[bool] = False
    takes: ClassVar[int] = CAP | SLOPE | BITS
    launches: ClassVar[tuple[str, ...]] = ("attention/wgmma.cu:attention_wgmma", ROW_BITS)
    constraints = (Kinds("q", HALVES), *OPERANDS)
    keys, values = "k", "v"

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        for said in (super().supports(desc, device), on_hopper(device), not_kept_short(desc)):
            if not said:
                return said
        lacks = packed(desc) & ~self.takes
        if lacks & MASK and BITS & self.takes:
            return no("its masks are bool, and none is added", "flash has them")
        if lacks:
            named = {SLOPE: "ALiBi", BITS: "masks", MASK: "masks"}.get(lacks & -lacks, "block masks")
            return no(f"{self.variant} has no {named}", "flash has them")
        read = ("q", self.keys, self.values)
        return stepped(desc, read) and within(desc, self.configs(desc, device), device, read)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[WgmmaConfig]:
        dims = filled(desc.d), filled(desc.d_v)
        there, heads = packed(desc) | PAGES * self.paged, 1
        queries, keys = next(tile for width, of, tile in TILES if width == max(dims) and there & of == of)
        if max(dims) in WINDOW_KEYS and (heads := packed_heads(desc)) > 1:
            queries, (keys, _) = QUERIES, of_window(desc, heads, WINDOW_KEYS[max(dims)])
        for ping_pong, dynamic in WAYS if max(dims) <= MOST_IN_TURN else WAYS[2:]:
            config = WgmmaConfig(
                queries,
                keys,
                heads,
                ping_pong=ping_pong,
                dynamic=dynamic,
                persistent=not dynamic,
                ahead=max(dims) <= MOST_AHEAD,
                dims=dims,
                paged=self.paged,
            )
            if config.shared_bytes <= device.shared_bytes:
                yield config

    @staticmethod
    def exponentials(desc: Any, costs: WgmmaCosts) -> float:
        """What a score takes the time of, with its changes."""
        more = {CAP: costs.softcap_exponentials, SLOPE: costs.alibi_exponentials, BITS: costs.mask_exponentials}
        return 1.0 + sum(time for change, time in more.items() if packed(desc) & change)

    def cost(self, desc: Any, device: DeviceSpec, config: WgmmaConfig) -> Cost:
        """Tensor cores and exponentials, which overlap in part, and what is between two tiles; in as many rounds of one CTA an SM
        as there are, or, of tiles of several lengths that a counter gives out, longest first, no less than the longest."""
        costs, tile = WgmmaCosts.of(device), config.queries * config.keys
        clock_sms = device.rate("issue") / 128
        units = {
            "tensor cores": costs.tensor_ratio * 2.0 * tile * sum(config.dims) / (device.rate("bf16") / clock_sms),
            "exponentials": costs.exponential_ratio * self.exponentials(desc, costs) * tile / EXPONENTIALS,
        }
        limit = max(units, key=lambda name: units[name])
        block = sum(units.values()) * device.sms / clock_sms
        between = costs.tile_latency_s + costs.tile_ends_time_ratio * device.sms * ends_s(desc, device, config)
        ctas = max(placed(desc, config.rows, device, config.heads).ctas, 1)
        blocks, query_tiles = desc.tiles(config.rows, config.keys), desc.query_tiles(config.rows) / config.heads
        if config.heads > 1:
            blocks = query_tiles * of_window(desc, config.heads, (config.keys,))[1]
        seconds = (blocks * block + query_tiles * between) / device.sms
        uneven = desc.ragged or desc.visible != (None, None)
        if config.dynamic and uneven:
            reach = desc.most_k if desc.visible.left is None else min(desc.most_k, desc.visible.left + config.queries)
            seconds = max(seconds, -(-reach // config.keys) * block + between)
        else:
            seconds *= -(-ctas // device.sms) * device.sms / ctas * (costs.uneven_time_ratio if uneven else 1.0)
        seconds = max(seconds, desc.nbytes / device.bandwidth) + costs.counter_s * config.dynamic
        return Cost(desc.nbytes, int(desc.flops), device.overhead + seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: WgmmaConfig) -> PrecisionGuarantee:
        # A row's sums follow its own keys, in blocks that are as long in every configuration.
        blocks = -(-desc.most_k // config.keys)
        return _guarantee.forward(
            desc, dot=config.dims[0], keys=desc.most_k, blocks=blocks, each=2.0, weights=desc.element, batch_invariant=True,
            tanh=TANH,
        )  # fmt: skip

    def lower(self, desc: Any, device: DeviceSpec, config: WgmmaConfig) -> tuple[Step, ...]:
        entry = f"attention_wgmma<{self.template(desc, config)}>"
        if not packed(desc) & BITS:
            return self.launched(desc, device, config, entry, problem_struct(desc), config.keys)
        bits = RowBits(desc, config.queries, config.keys)
        problem = problem_struct(desc, packed_mask=(bits.words, bits.strides))
        return (bits.launch, *self.launched(desc, device, config, entry, problem, config.keys))

    def template(self, desc: Any, config: WgmmaConfig) -> str:
        return f"{desc.element.number}, {desc.layout('out').element.number}, {config.template}, {packed(desc)}"

    def launched(
        self, desc: Any, device: DeviceSpec, config: WgmmaConfig, entry: str, problem: Struct, rows: int,
        more: tuple[Struct, ...] = (), checked: int = 0,
    ) -> tuple[Step, ...]:  # fmt: skip
        """The launch of an entry, with keys in boxes of so many rows, and what comes before; `checked` CTAs only check pages."""
        kernel = Kernel("attention/wgmma.cu", entry, prelude(config.keys, config.dims[1], desc.element))
        places = placed(desc, config.rows, device, config.heads)
        of_queries = boxes(desc, "q", config.rows, config.heads)
        maps = (of_queries, *(boxes(desc, name, rows) for name in (self.keys, self.values)))
        counter: Scratch | Packed = Scratch.named("counter", 16) if config.dynamic else Packed(bytes(8))
        args = (problem, *maps, *places.args, np.uint32(places.ctas), counter, *more)
        ctas = min(places.ctas, device.sms) if config.persistent or config.dynamic else places.ctas
        launch = Launch(kernel, (ctas + checked, 1, 1), (config.threads, 1, 1), args, config.shared_bytes)
        return (Fill(counter, 0, 16), launch) if isinstance(counter, Scratch) else (launch,)


class FlashBesideWgmma(Flash):
    """Where wgmma serves, batch-invariant calls are its own: which of the two is chosen goes by the batch."""

    def leaves_batches(self, desc: Any, device: DeviceSpec) -> bool:
        return bool(Wgmma().supports(desc, device))
