"""exact_activation, q8_activation: weights in GGUF blocks by tensor cores (kernels/quantized/gguf_product.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ....plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ....plan.constraints import Aligned, InOrder, UnitStride
from ....plan.descriptor import Layout
from ....plan.lowering import Sub
from ....plan.selection import selected
from ....runtime.steps import Arg, Kernel, Launch, Ptr, Scratch, Step
from ....tensor.axes import merge_axes
from ....types import Componentwise, DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee, Term
from ....types.gguf import GgufFormat
from ..._fitted import Fitted
from ..._launch import grid_of, overlapped_overhead
from .._staged_tokens import MOST_STAGED
from ._product_configs import PART, ROWS, WORD, ProductConfig, chunks_are_shifted, configs_of
from .blocks import block_align
from .quantize import GgufQuantizeDescriptor, GgufQuantizePlan

__all__ = [
    "ExactActivation",
    "Product",
    "Q8Activation",
    "Q8InOrder",
    "product_guarantee",
    "rows_are_read",
    "rows_of",
]

FILE = "quantized/gguf_product.cu"
STAGED = GgufFormat.Q8_1
SOURCE = "Higham 2002, section 3.1; Fasi et al. 2021 for tensor cores"
# Staged rows begin so many elements behind a multiple of 128 bytes after the row before; threads that copy, and elements of each
BANKS, BANK_OFFSET, COPIERS, EIGHT = 64, 16, 128, 8
SECTOR = 32  # bytes that DRAM and L2 transfer at least
COLUMNS, WARPS_IN_ORDER = 8, 4  # of an instruction; warps along K where all numbers of rows have the same sums
NORM = 3  # of the times of reading and of computing, which overlap but for what they wait for each other
L1 = 256 << 10  # bytes that L1 and shared memory have together


class Costs(Fitted, table="quantized.gguf_product"):
    shared_row_efficiency: float
    l2_activation_ratio: float
    pipe_time_ratio: float
    warps_to_saturate: int
    fewer_warps_ratio: float
    full_columns_time_ratio: float
    full_columns_rounded_time_ratio: float
    full_columns_rolled_time_ratio: float
    late_load_time_ratio: float
    prefetch_group_ratio: float
    staged_time_ratio: float
    one_ahead_time_ratio: float
    round_trip_s: float
    latency_s: float
    l2_bandwidth_ratio: float
    staging_latency_s: float


def rows_of(x: Layout) -> tuple[int, int] | None:
    """Rows along the last axis and the elements between them; None where they are not evenly spaced."""
    count, step = math.prod(x.shape[:-1]), x.strides[:-1]
    if count <= 1:
        return count, 0
    extents, steps = merge_axes(x.shape[:-1], [step])
    return (count, steps[0][0]) if len(extents) == 1 else None


def rows_are_read(desc: Any) -> Feasibility:
    """Whether rows have the layout that the kernels read and write."""
    if desc.layout("w").align < WORD:
        reason = f"w is aligned to {desc.layout('w').align} bytes, not to {WORD}"
        return no(reason, f"w on a multiple of {WORD} bytes", Change({"w_align": WORD}))
    if not desc.k:
        return no("rows have no weights", "K of one block or more")
    for name in ("x", "out"):
        if rows_of(desc.layout(name)) is None:
            return no(f"rows of {name} are not evenly apart", f"{name} in C order", Change({f"{name}_strides": None}))
    if desc.format.block.bytes_of(desc.k) >= 1 << 28:
        return no("a row of w has 2**28 bytes or more", "fewer weights a row")
    if max(desc.k, desc.n) >= 1 << 30 or math.prod(desc.x_shape[:-1]) >= 1 << 30:
        return no("an extent is 2**30 or more", "fewer rows a call")
    return OK


def product_guarantee(desc: Any, additions: float, *, rounded: bool) -> PrecisionGuarantee:
    """That of sums in f32, in an order of their own, to which a product comes through so many `additions`; of activations
    unrounded, or `rounded`."""
    out, spared = desc.layout("out").element, desc.rounds and not rounded
    precision = replace(desc, math=None).precision if spared else desc.precision
    terms = [
        Term(float(additions), ElementKind.F32, "unrounded_abs_products" if spared else "abs_products"),
        # What an f32 has below bf16's smallest number is cut off
        Term(
            2.0**18 if desc.x_element is ElementKind.F32 else 4.0 * desc.format.block.sub, ElementKind.F32, "underflow"
        ),
    ]
    if rounded:
        terms.append(Term(2.0**24, ElementKind.F32, "rounded_activations"))
    bound = Componentwise.rounded(terms, out, SOURCE, "unrounded_beyond" if spared else "beyond")
    return PrecisionGuarantee.fixed_order(precision, ElementKind.F32, bound, batch_invariant=False)


class Product(Candidate[Any]):
    """What both arithmetics have in common."""

    columns_of: ClassVar[dict[ElementKind, int]]  # columns that a row of x takes
    rounded: ClassVar[bool]
    launches: ClassVar[tuple[str, ...]] = (f"{FILE}:gguf_product",)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if self.rounded and not desc.rounds:
            return no("multiplies rounded activations", change=Change({"math": MathPrecision.INT8}))
        if not (said := super().supports(desc, device)):
            return said
        if not (said := rows_are_read(desc)):
            return said
        if not any(True for _ in self.configs(desc, device)):
            return no(f"an SM's {device.shared_bytes} bytes of shared memory hold no chunks")
        return OK

    # ---- the kernel's shape ----------------------------------------------------------------------------------------------

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[ProductConfig]:
        tokens, columns = math.prod(desc.x_shape[:-1]), self.columns_of[desc.x_element]
        return configs_of(desc, tokens, columns, rounded=self.rounded, stages=self.stages(desc), device=device)

    def stages(self, desc: Any) -> bool:
        """Whether activations can be copied first."""
        return False

    def _blocks(self, desc: Any, config: ProductConfig) -> tuple[int, int]:
        """Parts of the rows of x, and of those of the weights."""
        tokens, each = math.prod(desc.x_shape[:-1]), self._tokens(desc, config)
        return -(-tokens // each), -(-desc.n // (ROWS * config.warps_n))

    def _grid(self, desc: Any, device: DeviceSpec, config: ProductConfig) -> tuple[int, int, int]:
        """As many CTAs as there is room for, or fewer, so that all have as many rows of weights."""
        blocks, row_blocks = self._blocks(desc, config)
        passes = -(-row_blocks * max(blocks, 1) // (device.sms * config.ctas))
        return blocks, -(-row_blocks // max(passes, 1)), 1

    def _tokens(self, desc: Any, config: ProductConfig) -> int:
        return 8 * config.tiles // (self.columns_of[desc.x_element] * config.spread)

    def cost(self, desc: Any, device: DeviceSpec, config: ProductConfig) -> Cost:
        """Weights' sectors at the bandwidth of a copy and the busiest pipe's cycles, which overlap in part, or what L2 gives."""
        costs = Costs.of(device)
        blocks, row_blocks = self._blocks(desc, config)
        across, down, _ = self._grid(desc, device, config)
        ctas = max(1, across * down)
        weights = desc.format.block.bytes_of(desc.k) * desc.n
        of_x = desc.k * (1.125 if self.rounded else desc.x_element.bits / 8) * self._tokens(desc, config)
        utilization = min(ctas, device.sms) / device.sms
        if down:
            utilization *= row_blocks / (down * -(-row_blocks // down))
        resident = min(config.ctas, -(-ctas // device.sms))
        under_way = resident * config.in_flight * device.sms
        share = utilization * min(1.0, under_way / (device.bandwidth * costs.round_trip_s))
        share *= 1 if config.warps_k > 2 else costs.shared_row_efficiency
        in_l1 = max(0, L1 - resident * config.shared_bytes) / max(of_x, 1)
        x_from_l2 = of_x * blocks * row_blocks * max(0.0, 1 - in_l1)
        fetched = desc.nbytes + weights * (_sectors(desc, config) - 1) + costs.l2_activation_ratio * x_from_l2
        reading = fetched / (device.bandwidth * share)
        parts = float(desc.n) * desc.k * blocks / (ROWS * PART)
        fewer = costs.fewer_warps_ratio * (costs.warps_to_saturate / (resident * config.warps) - 1)
        cycles = self._cycles(desc, config, costs) * costs.pipe_time_ratio * (1 + fewer)
        computing = parts * cycles / (device.rate("issue") / 32 * utilization)
        times = {"bandwidth": reading, "instruction issue": computing}
        limit = max(times, key=lambda name: times[name])
        seconds = float((reading**NORM + computing**NORM) ** (1 / NORM))
        if 1 < config.spread < 8 and config.ahead == 1:
            seconds *= costs.one_ahead_time_ratio
        from_l2 = (weights * blocks + x_from_l2) / (device.bandwidth * costs.l2_bandwidth_ratio * utilization)
        if from_l2 > seconds:
            limit, seconds = "L2 bandwidth", from_l2
        return Cost(
            desc.nbytes,
            2 * math.prod(desc.x_shape) * desc.n,
            overlapped_overhead(device) + costs.latency_s + seconds + self._ahead(desc, device, config),
            limit,
        )

    def _ahead(self, desc: Any, device: DeviceSpec, config: ProductConfig) -> float:
        """Seconds of what goes ahead of the product."""
        return 0.0

    def _cycles(self, desc: Any, config: ProductConfig, costs: Costs) -> float:
        """What the busiest of a scheduler's pipes takes for 256 weights of 16 rows, as counted in machine code: shifts, logic and
        permutations two cycles each, lines of shared memory four; or all instructions."""
        block, tiles, spread = desc.format.block, config.tiles, config.spread
        half, groups = desc.x_element is ElementKind.F16, PART / block.sub / spread
        bits = [plane.bits for plane in block.planes]
        halves = 1 if block.align < 4 else 0
        alu = 32 * (0 if bits == [8] else 1.5 * len(bits)) + PART / block.sub * (2 if spread > 2 else 1)
        other = 30.0 * len(bits) * halves
        if self.rounded:
            alu += 32 * (8 if block.book else 0)
        elif config.book:
            alu, other = 75.0, other + 64
        elif block.book:
            alu, other = (alu + 100, other + 160) if block.book == "e2m1" else (alu + 270, other + 30)
        else:
            alu += 64 if not block.signed else 150 - 60 * half
            other += 64 if block.signed else 0
        lines = 8 * sum(bits) / 4 * (1 + halves) + (64 if config.book else 0) + 10
        alu += (20 if block.scales else 8) + (
            30 if chunks_are_shifted(desc, config.chunk) else 12
        ) * PART / config.chunk
        folds = bool(block.less or block.least) or not (self.rounded or half or block.signed or block.book)
        other += (
            16 * tiles * (1 + folds / spread) + groups * tiles * (4 + 4 * (1 + folds + 1.5 * self.rounded)) + lines + 40
        )
        if desc.x_element is ElementKind.F32 and not self.rounded:
            alu += groups * tiles * 60
        of_x = groups * tiles * block.sub / 32 * max(1, 8 / spread)
        factor = costs.late_load_time_ratio if config.chunk > PART and spread < 4 else 1.0
        if spread == 1:
            rolled = costs.full_columns_rolled_time_ratio if tiles > 2 else costs.full_columns_time_ratio
            factor *= costs.full_columns_rounded_time_ratio if self.rounded else rolled
            staged = costs.staged_time_ratio if config.staged and config.warps_n > 1 else 1
            factor *= (1 - costs.prefetch_group_ratio * (config.ahead - 1)) * staged
        return float(factor * max(2 * alu, alu + other, 4 * (lines + of_x)))

    def guarantee(self, desc: Any, device: DeviceSpec, config: ProductConfig) -> PrecisionGuarantee:
        """A sub-block's products are added by tensor cores, exactly where they are integers; then one FMA for them and one for
        what is taken off, a chunk after the other; at last warps and columns."""
        block = desc.format.block
        passes = -(-desc.k // (config.chunk * config.warps_k)) * (config.chunk // block.sub // config.spread)
        columns = self.columns_of[desc.x_element]
        inner = 0 if self.rounded else 2 * block.sub * columns
        additions = inner + 2 * passes + columns * config.spread * config.warps_k + 8
        return product_guarantee(desc, additions, rounded=self.rounded)

    def _launch(self, desc: Any, device: DeviceSpec, config: ProductConfig, x: Arg, kind: str, x_step: int) -> Launch:
        block, out, w = desc.format.block, desc.layout("out"), desc.layout("w")
        shifted = str(chunks_are_shifted(desc, config.chunk)).lower()
        whole = str(desc.k % config.chunk == 0).lower()
        numbers = (
            config.spread,
            config.tiles,
            config.chunk,
            config.warps_n,
            config.warps_k,
            config.stages,
            config.ctas,
            str(config.book).lower(),
            config.ahead,
        )
        shape = ", ".join(map(str, numbers))
        align = block_align(desc.format, w.align)
        entry = f"gguf_product<{block.cuda}, {kind}, {out.element.number}, {align}, {shifted}, {whole}, {shape}>"
        tokens, out_step = rows_of(out) or (0, 0)
        args = (
            Ptr("out"), x, Ptr("w"), np.int64(out_step), np.int64(x_step), np.int64(block.bytes_of(desc.k)), np.uint32(tokens),
            np.uint32(desc.n), np.uint32(desc.k),
        )  # fmt: skip
        return Launch(
            Kernel(FILE, entry),
            self._grid(desc, device, config),
            (config.warps * 32, 1, 1),
            args,
            config.shared_bytes,
            pdl=True,
        )


def _sectors(desc: Any, config: ProductConfig) -> float:
    """Bytes of sectors that hold a chunk of a row, as a multiple of its own."""
    nbytes = desc.format.block.bytes_of(config.chunk)
    return float(1 + (SECTOR - math.gcd(nbytes, SECTOR)) / nbytes)


class ExactActivation(Product):
    """Activations unrounded, also where they may be rounded: 16-bit floats by tensor cores in f32; f32 as three bf16 each,
    whose sum it is."""

    variant = "exact_activation"
    rounded = False
    columns_of: ClassVar = {ElementKind.F16: 1, ElementKind.BF16: 1, ElementKind.F32: 4}
    constraints = (UnitStride("x"), UnitStride("out"))
    launches = (f"{FILE}:gguf_product", "quantized/tokens.cu:stage_tokens")

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return super().supports(desc, device) and Aligned("x", 4 * desc.x_element.bits // 8).of(desc)

    def lower(self, desc: Any, device: DeviceSpec, config: ProductConfig) -> tuple[Step | Sub, ...]:
        tokens, step = rows_of(desc.layout("x")) or (0, 0)
        kind, size = f"gguf::Exact<{desc.x_element.number}>", desc.x_element.bits // 8
        if not config.staged:
            return (self._launch(desc, device, config, Ptr("x"), kind, step * size),)
        pitch = -(-desc.k // BANKS) * BANKS + BANK_OFFSET
        to = Scratch.named("activations", tokens * pitch * size)
        args = (Ptr("x"), to, np.uint64(0), np.int64(step), np.int64(1), np.uint32(desc.k), np.uint32(pitch))
        grid = (grid_of(pitch, EIGHT * COPIERS)[0], tokens, 1)
        kernel = Kernel("quantized/tokens.cu", f"stage_tokens<{desc.x_element.number}>")
        copy = Launch(kernel, grid, (COPIERS, 1, 1), args, pdl=True)
        return copy, self._launch(desc, device, config, to, kind, pitch * size)

    def _ahead(self, desc: Any, device: DeviceSpec, config: ProductConfig) -> float:
        return overlapped_overhead(device) + Costs.of(device).staging_latency_s if config.staged else 0.0

    def stages(self, desc: Any) -> bool:
        return desc.x_element is not ElementKind.F32 and math.prod(desc.x_shape[:-1]) <= MOST_STAGED


class Q8Activation(Product):
    """Activations rounded to Q8_1 blocks ahead, multiplied as integers."""

    variant = "q8_activation"
    rounded = True
    columns_of: ClassVar = dict.fromkeys((ElementKind.F16, ElementKind.BF16, ElementKind.F32), 1)
    constraints = (InOrder("x"), UnitStride("out"))
    launches = (f"{FILE}:gguf_product", "quantized/gguf_quantize.cu:gguf_quantize")

    def _ahead(self, desc: Any, device: DeviceSpec, config: ProductConfig) -> float:
        seconds: float = math.prod(desc.x_shape) * 5.0 / device.bandwidth
        return overlapped_overhead(device) + Costs.of(device).staging_latency_s + seconds

    def lower(self, desc: Any, device: DeviceSpec, config: ProductConfig) -> tuple[Step | Sub, ...]:
        x = desc.layout("x")
        layout: Any = {"x_align": x.align}
        staging = GgufQuantizeDescriptor(x.shape, x.element, STAGED, **layout)
        between = Scratch.named("activations", math.prod(staging.out_shape))
        first = Sub(selected(GgufQuantizePlan, staging, None, device), {"x": Ptr("x"), "out": between})
        return first, self._launch(desc, device, config, between, "gguf::Rounded", staging.out_shape[-1])


class Q8InOrder(Q8Activation):
    """The same for any number of rows in one order of sums: no column is given to another sub-block, and K goes by alike."""

    variant = "q8_in_order"
    on_request = ("batch_invariant",)

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[ProductConfig]:
        tokens = max(math.prod(desc.x_shape[:-1]), COLUMNS)
        every = configs_of(desc, tokens, 1, rounded=True, stages=False, device=device)
        return (config for config in every if (config.warps_k, config.chunk) == (WARPS_IN_ORDER, PART))

    def guarantee(self, desc: Any, device: DeviceSpec, config: ProductConfig) -> PrecisionGuarantee:
        return replace(super().guarantee(desc, device, config), batch_invariant=True)
