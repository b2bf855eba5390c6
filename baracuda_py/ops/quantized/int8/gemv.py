"""Products of a few tokens with i8 weights, at the speed at which weights are read (kernels/quantized/int8_gemv.cu).

One matrix, or several that share the tokens: `Matrix` is one of them, and `gemv_launches` makes the launches of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ....plan.candidate import OK, Candidate, Cost, Feasibility, no
from ....plan.grammar import Config, term
from ....plan.lowering import Place
from ....runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Step, Struct
from ....types import DeviceSpec, MathPrecision, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from ._finish import NULL, Finish, partial_finish, reduce_parts, second_pass
from .guarantee import guarantee
from .problem import CODES, Product, across, group_of

__all__ = [
    "LAUNCHES",
    "MOST_HELD",
    "GemvConfig",
    "Int8Gemv",
    "Matrix",
    "additions_of",
    "gemv_configs",
    "gemv_launches",
    "gemv_seconds",
    "quantising_seconds",
    "refused",
    "tokens_bytes",
]

LAUNCHES = ("quantized/int8_gemv.cu:int8_gemv", "gemm/reduce.cu:reduce")
MOST_TOKENS = 64
MOST_SPLITS = 16
MOST_RESIDENT, FEWER = 16, 16  # CTAs an SM, and registers that a thread can do without
MOST_HELD = 40 << 10  # bytes of tokens that a CTA quantises for itself: several CTAs an SM


class Costs(Fitted, table="quantized.int8_gemv"):
    bandwidth_efficiency: float
    latency_s: float
    second_wave_latency_s: float
    cta_latency_s: float
    bytes_to_saturate: int
    l2_bytes_per_cycle: float
    byte_weight_block_s: float
    converted_weight_block_s: float
    byte_instructions: float
    converted_instructions: float
    across_k_instructions: float
    load_instructions: float
    last_wave_ratio: float
    unmeasured_time_ratio: float
    early_load_time_ratio: float
    quantize_latency_s: float


@dataclass(frozen=True)
class GemvConfig(Config):
    """How a CTA takes its columns."""

    blocks: int = term("times 16 columns of B that a CTA takes")
    unroll: int = term("steps along K that a lane asks for at once")
    warps: int = term("warps of a CTA, side by side along K")
    split_k: int = term("parts of K that are summed apart and then added", default=1)
    ctas_per_sm: int = term("CTAs that an SM holds at once, registers being held down for them", default=1)
    early: bool = term("tokens are asked for a step ahead of the weights they are multiplied with", default=False)


ALONG_K = (
    GemvConfig(1, 4, 8), GemvConfig(1, 8, 8), GemvConfig(1, 4, 4), GemvConfig(1, 8, 4), GemvConfig(2, 4, 8),
    GemvConfig(2, 2, 8), GemvConfig(2, 4, 4), GemvConfig(4, 2, 8), GemvConfig(4, 1, 8), GemvConfig(4, 2, 16),
    GemvConfig(2, 2, 16), GemvConfig(4, 1, 16), GemvConfig(1, 2, 16), GemvConfig(2, 8, 4), GemvConfig(1, 2, 4),
    GemvConfig(5, 2, 8), GemvConfig(5, 1, 16),
)  # fmt: skip
ALONG_N = (GemvConfig(8, 1, 4), GemvConfig(8, 1, 8), GemvConfig(8, 2, 4))


@dataclass(frozen=True)
class Way:
    """How B is read: along K or along N, and the bytes of an access of B and of a token."""

    along_k: bool
    access: int
    token_access: int
    tokens: int

    @property
    def step(self) -> int:
        """K of a step."""
        return 64 if self.along_k else 32

    @property
    def cuda(self) -> str:
        return f"quantized::Along{'K' if self.along_k else 'N'}"


def way_of(products: Sequence[Product]) -> Way | None:
    """The way that the operands' layouts allow, one for all matrices; None where there is none."""
    a = products[0].a
    ways = [(x.b.access(x.k, along_row=False), x.b.access(x.n, along_row=True)) for x in products]
    along_k, along_n = (min(way[i] for way in ways) for i in (0, 1))
    if not max(along_k, along_n):
        return None
    by_k = along_k >= along_n
    run = (16 if by_k else 4) * a.size
    token = a.access(products[0].k, along_row=True, widest=min(16, run))
    tokens = next((t for t in (8, 16, 32, 64) if t >= products[0].m), 0)
    if not token or not tokens or (not by_k and tokens > 16):
        return None
    return Way(by_k, _listed(max(along_k, along_n), 1), _listed(token, a.size), tokens)


def _listed(access: int, size: int) -> int:
    """An access that there are kernels for."""
    return access if access >= 4 else size


class Matrix(NamedTuple):
    """A product of the tokens with one matrix; `renames` says where operands are that are not ours by the same name."""

    desc: Any
    renames: Mapping[str, Place] = MappingProxyType({})


def refused(products: Sequence[Product], group: int = 0) -> Feasibility:
    """Whether there is a kernel for tokens and layouts, and groups are whole steps."""
    if products[0].m > MOST_TOKENS:
        return no(f"there are {products[0].m} tokens, and it takes {MOST_TOKENS}")
    way = way_of(products)
    if way is None:
        return no(
            "a does not lie along K, or b neither along K nor (of 16 tokens at most) along N", "the variant staged"
        )
    if group and group % way.step:
        return no(f"groups of {group} are not whole steps of {way.step} along K", "the variant dequantised")
    return OK


def gemv_configs(products: Sequence[Product], device: DeviceSpec) -> Iterable[GemvConfig]:
    """The menu, each with K whole, and split where SMs would idle."""
    way = way_of(products)
    if way is None:
        return
    for config in ALONG_K if way.along_k else ALONG_N:
        crowded = config.warps > 8 and (way.tokens > 16 or _all_registers(products, config, way) > 110)  # of 128
        if crowded or _registers(config, way) > 150 or _shared_bytes(config, way) > device.shared_bytes:
            continue
        yield config
        yield from _held_down(products, device, config, way)
        if way.tokens <= 16 and config.unroll < 8 and not crowded:
            yield replace(config, early=True)
        if not any(product.n for product in products):
            continue
        rounds = -(-products[0].k // (config.unroll * way.step * config.warps))
        for splits in (device.sms * 2 // _ctas(products, config), device.sms * 4 // _ctas(products, config)):
            splits = min(splits, rounds, MOST_SPLITS)
            if splits > 1 and len(products) == 1:
                yield replace(config, split_k=splits)


def _held_down(products: Sequence[Product], device: DeviceSpec, config: GemvConfig, way: Way) -> Iterable[GemvConfig]:
    """With fewer registers, so that all CTAs are on the device at once, if that takes no more than a few of them."""
    wanted = across(_ctas(products, config), device.sms)
    alone, most = _all_registers(products, config, way), _registers_for(config, wanted)
    if _resident(config, alone) < wanted <= MOST_RESIDENT and most >= alone - FEWER:
        yield replace(config, ctas_per_sm=wanted)


def _registers_for(config: GemvConfig, ctas: int) -> int:
    """The most that a thread may have where an SM holds so many CTAs: multiples of 8."""
    return 65536 // (config.warps * 32 * max(1, ctas)) // 8 * 8


def _resident(config: GemvConfig, registers: int) -> int:
    """CTAs that an SM holds."""
    threads = config.warps * 32
    return max(config.ctas_per_sm, 1, min(2048 // threads, 65536 // (threads * across(registers, 8) * 8)))


def _ctas(products: Sequence[Product], config: GemvConfig) -> int:
    return sum(-(-product.n // (16 * config.blocks)) for product in products)


def _registers(config: GemvConfig, way: Way) -> int:
    """Of accumulators and weights under way."""
    return config.blocks * way.tokens // 2 + config.unroll * (8 * config.blocks if way.along_k else 32)


def _all_registers(products: Sequence[Product], config: GemvConfig, way: Way) -> int:
    """About what a thread takes: with addresses, tokens under way, of floats converted weights, and of several matrices where
    the CTA's own is."""
    codes = products[0].a.element in CODES
    ahead = 0 if codes or not config.early else way.tokens
    several = 8 if len(products) > 1 else 0
    own = 36 if codes else 46 + 6 * config.blocks
    return _registers(config, way) + config.unroll**2 * way.tokens // 8 + own + ahead + several


def _shared_bytes(config: GemvConfig, way: Way) -> int:
    return 4 * config.warps * way.tokens * 16 * config.blocks


def gemv_seconds(products: Sequence[Product], device: DeviceSpec, config: GemvConfig) -> tuple[float, str]:
    """Weights by bandwidth, as far as enough bytes are under way on all SMs alike; tokens of every CTA by L2."""
    way = way_of(products)
    if way is None:
        return float("inf"), "bandwidth"
    costs = Costs.of(device)
    ctas, threads = _ctas(products, config) * config.split_k, config.warps * 32
    weights = sum(product.k * product.n for product in products)
    codes = products[0].a.element in CODES
    flight = threads * config.unroll * (32 * config.blocks if way.along_k else 128)
    registers = min(255 if config.warps <= 8 else 128, _all_registers(products, config, way))
    resident = _resident(config, registers)
    held = min(across(ctas, device.sms), resident)
    saturation = min(1.0, flight * held / costs.bytes_to_saturate) * min(1.0, way.access / 8)
    even = _unevenness(ctas, device.sms, resident, flight, costs) / max(1, ctas)
    clock_sms = device.rate("issue") / 128
    tokens = ctas / config.split_k * min(way.tokens, products[0].m) * products[0].k * products[0].a.size
    per_weight = costs.byte_instructions if codes else costs.converted_instructions
    per_weight = (
        per_weight + (0.0 if way.along_k else costs.across_k_instructions) + costs.load_instructions / way.access
    )
    times = {
        "bandwidth": weights / (device.bandwidth * costs.bandwidth_efficiency) * max(1.0, even) / max(saturation, 0.02),
        "L2": (weights + tokens) / (costs.l2_bytes_per_cycle * clock_sms),
        "instruction issue": per_weight * weights * max(1, way.tokens // 16) / device.rate("issue"),
    }
    limit = max(times, key=lambda name: times[name])
    seconds = overlapped_overhead(device) + costs.latency_s + times[limit]
    further = -(-ctas // (device.sms * resident)) - 1
    seconds += costs.second_wave_latency_s * further + costs.cta_latency_s * ctas / device.sms
    # Warps wait for tokens, and their own products, while weights come: less, the more warps there are
    access_bytes = weights / 1024 / device.sms / max(1, held * config.warps) * (way.tokens // 8)
    seconds += access_bytes * (costs.byte_weight_block_s if codes else costs.converted_weight_block_s)
    if config.early:
        seconds *= costs.early_load_time_ratio if way.tokens == 8 and not codes else costs.unmeasured_time_ratio
    seconds *= costs.unmeasured_time_ratio if config.ctas_per_sm > 1 and len(products) == 1 else 1.0
    return seconds + sum(second_pass(product, config.split_k, device) for product in products), limit


def _unevenness(ctas: int, sms: int, resident: int, flight: int, costs: Costs) -> float:
    """CTAs for whose weights all SMs would take as long: those of the last wave have fewer beside them, and less under way."""
    waves, rest = divmod(ctas, sms * resident)
    beside = across(rest, sms)
    own = min(1.0, flight * resident / costs.bytes_to_saturate)  # what a whole wave reaches
    alone = beside * sms / max(min(1.0, flight * beside / costs.bytes_to_saturate), 0.02) * own if rest else 0.0
    longer = 1.0 if not waves else costs.last_wave_ratio
    return waves * sms * resident + rest + longer * max(0.0, alone - rest)


def gemv_launches(matrices: Sequence[Matrix], config: GemvConfig, a: Arg) -> tuple[Step, ...]:
    """One launch for all matrices, and where K is split a second pass."""
    products = [matrix.desc.product for matrix in matrices]
    product, group = products[0], group_of(matrices[0].desc)
    way = way_of(products)
    assert way is not None
    dynamic, split = matrices[0].desc.dynamic, config.split_k > 1
    integers = dynamic or product.a.element in CODES
    paired = all(one.paired for one in products)
    finishes = [Finish.of(x.desc, x.desc.product, x.renames, paired=paired) for x in matrices]
    used = [partial_finish(product, finish, integers=integers) if split else finish for finish in finishes]
    kind = used[0].kind("NO_ZEROS" if split else "CONSTANT")
    fields: list[Any] = []
    first = 0
    for (desc, renames), own, finish in zip(matrices, products, used):
        steps = desc.layout("scale_b").strides if group else (0, 0)
        scales = renames.get("scale_b", Ptr("scale_b")) if group else NULL
        fields += [renames.get("b", Ptr("b")), scales, *finish.args()]
        counts = np.array([own.n, first], np.uint32).tobytes()
        step = own.b.col if way.along_k else own.b.row
        fields.append(Packed(np.array([step, *steps], np.int64).tobytes() + counts, 8))
        first += across(own.n, 16 * config.blocks)
    cuda = f"{way.cuda}<{config.blocks}, {way.access}>"
    shape = f"{way.tokens}, {way.token_access}, {config.unroll}, {config.warps}, {config.ctas_per_sm}"
    flags = ", ".join(str(bool(flag)).lower() for flag in (config.early, group, finishes[0].zeroed))
    types = f"{'i8' if dynamic else product.a.element.number}, {product.a.element.number}"
    entry = f"int8_gemv<{types}, {cuda}, {shape}, {flags}, {kind}, {len(matrices)}>"
    round_ = config.unroll * way.step * config.warps
    k_split = product.k if not split else across(across(product.k, round_), config.split_k) * round_
    args = (
        a, np.int64(product.a.row), Struct(tuple(fields)), np.uint32(product.m), np.uint32(product.k), np.uint32(max(1, k_split)),
        np.int64(product.m * product.n), np.uint32(max(1, group)), np.uint32(pitch_of(product.k)),
    )  # fmt: skip
    launch = Launch(
        Kernel("quantized/int8_gemv.cu", entry), (max(1, first), config.split_k, 1), (config.warps * 32, 1, 1), args,
        _shared_bytes(config, way) + dynamic * tokens_bytes(product), pdl=True,
    )  # fmt: skip
    if not split:
        return (launch,)
    acc = "i32" if integers else "float"
    return (launch, reduce_parts(product, finishes[0], config.split_k, "CONSTANT", (NULL, NULL), acc))


def pitch_of(k: int) -> int:
    """Bytes from one quantised token to the next: an odd multiple of 64, so that eight tokens meet no bank twice."""
    return across(k, 128) * 128 + 64


def tokens_bytes(product: Product) -> int:
    """Shared memory of quantised tokens, and their scales."""
    return product.m * (pitch_of(product.k) + 4)


def quantising_seconds(products: Sequence[Product], device: DeviceSpec, config: GemvConfig) -> float:
    """What it takes that every CTA quantises all tokens for itself, which come by L2."""
    tokens = products[0].m * products[0].k * products[0].a.size
    costs = Costs.of(device)
    through_l2 = _ctas(products, config) * tokens / (costs.l2_bytes_per_cycle * device.rate("issue") / 128)
    return costs.quantize_latency_s + through_l2


def additions_of(product: Product, config: GemvConfig) -> float:
    """Of f32, that a product of floats goes through: truncated on tensor cores, then of warps and parts."""
    return 2.0 * product.k + config.warps + config.split_k


class Int8Gemv(Candidate[Any]):
    """Tokens as the narrow side of mma.sync, weights straight from memory into its registers; also W8A16."""

    variant = "gemv"
    launches = LAUNCHES

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        held = tokens_bytes(desc.product)
        if desc.dynamic and held > MOST_HELD:
            return no(f"quantised tokens are {held} bytes, and a CTA holds {MOST_HELD}", "the variant quantized")
        return refused((desc.product,), group_of(desc))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[GemvConfig]:
        every = gemv_configs((desc.product,), device)
        return [config for config in every if config.split_k == 1] if desc.dynamic else every

    def cost(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> Cost:
        seconds, limit = gemv_seconds((desc.product,), device, config)
        seconds += quantising_seconds((desc.product,), device, config) if desc.dynamic else 0.0
        return Cost(desc.product.nbytes, desc.product.flops, seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> PrecisionGuarantee:
        if desc.a_element in CODES or desc.dynamic:
            return guarantee(desc, MathPrecision.INT8)
        return guarantee(desc, MathPrecision.of(desc.a_element.value), additions_of(desc.product, config))

    def lower(self, desc: Any, device: DeviceSpec, config: GemvConfig) -> tuple[Step, ...]:
        return gemv_launches((Matrix(desc),), config, Ptr("a"))
