"""wgmma: e4m3 by Hopper's warpgroup tensor cores, fed by TMA (kernels/attention_fp8/wgmma.cu)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility
from ...plan.constraints import Aligned, Multiple, UnitStride
from ...plan.grammar import Config, term
from ...runtime.steps import Fill, Kernel, Launch, Packed, Ptr, Scratch, Step, TensorMap
from ...types import DeviceSpec, PrecisionGuarantee
from .._fitted import Fitted
from ..attention.problem import WgmmaCosts, ends_s, exponentials, placed, problem_struct, stepped, within
from ..products.checks import on_hopper
from . import _guarantee
from ._scales import scales_struct

__all__ = ["Wgmma", "WgmmaConfig"]

QUERIES = 128  # per CTA, 64 per consumer warpgroup
THREADS = 384
PANEL = 128  # columns of a panel in shared memory, or keys of values that are transposed: bytes of a row
HEAD_DIMS = (64, 128, 256)  # that kernels are made for; others are filled up with zeros
KEYS = {64: 224, 128: 192, 256: 96}  # of a block, by the larger head dim: as many as registers hold
STAGES = 2
EXPONENTIALS = 16  # per clock and SM


class Costs(Fitted, table="attention.fp8_wgmma"):
    tensor_ratio: float
    exponential_ratio: float


@dataclass(frozen=True)
class WgmmaConfig(Config):
    """A CTA's block of keys; a CTA has 128 queries."""

    keys: int = term("keys a CTA takes at a time", leads=True)
    stages: int = term("blocks of keys and of values in shared memory", default=STAGES)
    persistent: bool = term("one CTA per SM, which takes every gridDim'th tile", default=False)
    dynamic: bool = term("one CTA per SM, which takes the next tile that no other has taken", default=False)
    dims: tuple[int, int] = term("columns of queries and of values, filled up", default=(0, 0), hidden=True)
    queries = QUERIES

    @property
    def shared_bytes(self) -> int:
        panels, panels_v = (-(-n // PANEL) for n in self.dims)
        transposed = -(-self.keys // PANEL) * self.dims[1]
        slots = self.stages * (self.keys * (panels + panels_v) + transposed)
        return PANEL * (QUERIES * panels + slots) + 8 * (6 * self.stages + 7)

    @property
    def template(self) -> str:
        return ", ".join(map(str, (*self.dims, self.keys, self.stages)))


def filled(columns: int) -> int:
    """The head dim that kernels are made for."""
    return next((n for n in HEAD_DIMS if n >= columns), HEAD_DIMS[-1])


def _product(name: str, n: int, *, of_registers: bool) -> str:
    """name(d, a, b, accumulate): d += A B, or = where `accumulate` is 0, for m64n{n}k32; B is K-major in shared memory, A too, or
    in registers."""
    count = n // 2
    sums = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i // 4}][{i % 4}])' for i in range(count))
    if of_registers:
        parameter, of_a = "const u32 (&a)[4]", ", ".join(f'"r"(a[{i}])' for i in range(4))
        a = f"{{{', '.join(f'%{count + i}' for i in range(4))}}}"
    else:
        parameter, of_a, a = "u64 a", '"l"(a)', f"%{count}"
    b = count + (4 if of_registers else 1)
    return (
        f"__device__ __forceinline__ void {name}(float (&d)[{n // 8}][4], {parameter}, u64 b, int accumulate) {{\n"
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{b + 1}, 0;\\n"\n'
        f'    "wgmma.mma_async.sync.aligned.m64n{n}k32.f32.e4m3.e4m3 {{{sums}}}, {a}, %{b}, p, 1, 1; }}"\n'
        f'    : {outputs} : {of_a}, "l"(b), "r"(accumulate));\n}}\n'
    )


@lru_cache(maxsize=16)
def prelude(keys: int, d_v: int) -> str:
    """The text of both products: of scores, and of weights in registers and values."""
    scores = _product("wgmma_scores", keys, of_registers=False)
    return '#include "core/dtype.cuh"\n' + scores + _product("wgmma_values", d_v, of_registers=True)


def boxes(desc: Any, name: str, rows: int) -> TensorMap:
    """The operand as [sequences, heads, rows, columns] in boxes of so many rows and a panel of columns; an axis that is not
    stepped has extent 1."""
    strides = desc.strides_of(name)
    steps = (strides.row, strides.head, strides.batch)
    of_q = name == "q"
    extents = (
        desc.total_q if of_q else desc.total_k,
        desc.heads if of_q else desc.kv_heads,
        1 if desc.ragged else desc.batch,
    )
    return TensorMap(
        Ptr(name),
        "uint8",
        (desc.layout(name).shape[-1], *(max(n, 1) if step else 1 for n, step in zip(extents, steps)), 1),
        (*(step if n > 1 and step else 16 for n, step in zip(extents, steps)), 16),
        (PANEL, rows, 1, 1, 1),
        PANEL,
    )


class Wgmma(Candidate[Any]):
    """Products of a block of keys run while exponentials of the next are computed: sm_90a, head dims up to 256."""

    variant = "wgmma"
    launches = ("attention_fp8/wgmma.cu:attention_fp8_wgmma",)
    constraints = (
        *map(UnitStride, ("q", "k", "v", "out")), Multiple("q", -1, 16, "the head dim"), Multiple("v", -1, 16, "v's head dim"),
        *(Aligned(name, 16) for name in ("q", "k", "v", "out")),
    )  # fmt: skip

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        for said in (super().supports(desc, device), on_hopper(device)):
            if not said:
                return said
        read = ("q", "k", "v")
        return stepped(desc, read) and within(desc, self.configs(desc, device), device, read)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[WgmmaConfig]:
        dims = filled(desc.d), filled(desc.d_v)
        for dynamic in (True, False):
            config = WgmmaConfig(KEYS[max(dims)], dynamic=dynamic, persistent=not dynamic, dims=dims)
            if config.shared_bytes <= device.shared_bytes:
                yield config

    def cost(self, desc: Any, device: DeviceSpec, config: WgmmaConfig) -> Cost:
        """The cost model of attention's wgmma, whose fitted values it takes, with products in half the time."""
        own, costs, tile = Costs.of(device), WgmmaCosts.of(device), QUERIES * config.keys
        clock_sms = device.rate("issue") / 128
        units = {
            "tensor cores": own.tensor_ratio * tile * sum(config.dims) / (device.rate("bf16") / clock_sms),
            "exponentials": own.exponential_ratio * exponentials(desc) * tile / EXPONENTIALS,
        }
        limit = max(units, key=lambda name: units[name])
        block = sum(units.values()) * device.sms / clock_sms
        between = costs.tile_latency_s + costs.tile_ends_time_ratio * device.sms * ends_s(desc, device, config)
        ctas = max(placed(desc, QUERIES, device).ctas, 1)
        seconds = (desc.tiles(QUERIES, config.keys) * block + desc.query_tiles(QUERIES) * between) / device.sms
        uneven = desc.ragged or desc.visible != (None, None)
        if not (config.dynamic and uneven):
            seconds *= -(-ctas // device.sms) * device.sms / ctas * (costs.uneven_time_ratio if uneven else 1.0)
        seconds = max(seconds, desc.nbytes / device.bandwidth) + costs.counter_s * config.dynamic
        return Cost(desc.nbytes, int(desc.flops), device.overhead + seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: WgmmaConfig) -> PrecisionGuarantee:
        # A row's sums follow its own keys, in blocks that are as long in every configuration.
        return _guarantee.on_tensor_cores(desc, config.dims[0], -(-desc.most_k // config.keys))

    def lower(self, desc: Any, device: DeviceSpec, config: WgmmaConfig) -> tuple[Step, ...]:
        out = desc.layout("out").element.number
        entry = f"attention_fp8_wgmma<{out}, {config.template}, {int(desc.softcapped)}>"
        kernel = Kernel("attention_fp8/wgmma.cu", entry, prelude(config.keys, config.dims[1]))
        places = placed(desc, QUERIES, device)
        maps = (boxes(desc, name, QUERIES if name == "q" else config.keys) for name in ("q", "k", "v"))
        counter: Scratch | Packed = Scratch.named("counter", 16) if config.dynamic else Packed(bytes(8))
        args = (
            problem_struct(desc), *maps, scales_struct(desc), *places.args, np.uint32(places.ctas), counter,
        )  # fmt: skip
        ctas = min(places.ctas, device.sms)
        launch = Launch(kernel, (ctas, 1, 1), (THREADS, 1, 1), args, config.shared_bytes)
        return (Fill(counter, 0, 16), launch) if isinstance(counter, Scratch) else (launch,)
