"""panels: tiles of rows times GGUF blocks that are widened to the rows' type on their way (kernels/quantized/gguf_panels.cu).

Where tiles are few, K is split, and kernels/gemm/reduce.cu adds the parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ....plan.constraints import UnitStride
from ....plan.grammar import Config, term
from ....runtime.steps import Kernel, Launch, Ptr, Step
from ....types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from ...gemm.matmul import MatmulDescriptor
from ...products.epilogue import epilogue_args, epilogue_type, settled
from ...products.gemm import Gemm
from ...products.guarantee import TRUNCATED, guarantee_of
from ...products.mma import side_of
from ...products.split import partial_epilogue, partial_size, parts_latency, reduce_step, second_pass
from ._composite import of_weights
from ._product import rows_are_read, rows_of
from ._product_configs import RESERVED, WORD, chunks_are_shifted, vectors_of
from .blocks import block_align

__all__ = ["Panels"]

FILE = "quantized/gguf_panels.cu"
HALVES = (ElementKind.F16, ElementKind.BF16)
CHUNK = 256  # weights of a column that come together
K_BLOCK_ROW_BYTES, K_BLOCKS = 128, 4  # of a row of x or of weights: 64 of K; k_blocks of a chunk
MOST_SPLITS, LEAST_CHUNKS = 16, 4  # parts of K, and chunks of a part


class Costs(Fitted, table="quantized.gguf_panels"):
    latency_s: float
    widening_slots: float
    plane_slots: float
    row_slots: float
    k_block_s: float
    k_block_row_s: float
    bandwidth_efficiency: float


@dataclass(frozen=True)
class PanelConfig(Config):
    """A CTA's tile and a warp's, and what is under way."""

    m: int = term("rows of the result a CTA computes", leads=True)
    n: int = term("columns of the result a CTA computes", leads=True)
    warp: tuple[int, int] = term("rows x columns of the result that a warp sums")
    chunks: int = term("chunks of 256 weights of each column in shared memory", default=3)
    ctas: int = term("CTAs an SM is to hold", default=2)
    split_k: int = term("parts of K that are summed apart and then added", default=1)
    pitch: int = term("bytes of a column's chunk in shared memory", default=0, hidden=True)

    @property
    def threads(self) -> int:
        return 2 * self.n

    @property
    def shared_bytes(self) -> int:
        return self.n * (self.chunks * self.pitch + 2 * K_BLOCK_ROW_BYTES) + K_BLOCKS * self.m * K_BLOCK_ROW_BYTES

    def tiles(self, desc: Any) -> int:
        """Tiles of the result, counted once per part of K."""
        return -(-_tokens(desc) // self.m) * -(-int(desc.n) // self.n) * self.split_k


TABLE = (
    PanelConfig(16, 64, (16, 16), 3, 4), PanelConfig(32, 64, (32, 16), 3, 3), PanelConfig(32, 128, (32, 16), 3, 2),
    PanelConfig(64, 128, (32, 32), 2, 2), PanelConfig(64, 64, (32, 32), 2, 3), PanelConfig(64, 64, (32, 32), 3, 2),
    PanelConfig(128, 128, (64, 32), 3, 1), PanelConfig(128, 64, (64, 32), 2, 2),
)  # fmt: skip


def _tokens(desc: Any) -> int:
    return math.prod(desc.x_shape[:-1])


def _product(desc: Any) -> MatmulDescriptor:
    """The product of x and the widened weights, rows evenly spaced."""
    x, out = desc.layout("x"), desc.layout("out")
    strides: dict[str, Any] = {"a_strides": ((rows_of(x) or (0, 0))[1], 1), "b_strides": (1, max(desc.k, 1))}
    strides |= {"out_strides": ((rows_of(out) or (0, 0))[1], 1), "a_align": x.align, "out_align": out.align}
    shapes = (_tokens(desc), desc.k), (desc.k, desc.n)
    return MatmulDescriptor(*shapes, x.element, x.element, out.element, **strides)


class Panels(Candidate[Any]):
    """Weights are widened in shared memory, once for a tile of rows, and multiplied by tensor cores in the type of x."""

    variant = "panels"
    launches = (f"{FILE}:gguf_panels", "gemm/reduce.cu:reduce")
    constraints = (UnitStride("x"), UnitStride("out"))

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.rounds:
            return no("multiplies activations as they are", change=Change({"math": None}))
        if desc.x_element not in HALVES:
            return no(f"multiplies f16 and bf16, not {desc.x_element}", change=Change({"x_element": HALVES[0]}))
        if not (said := super().supports(desc, device) and rows_are_read(desc)):
            return said
        if not any(True for _ in self.configs(desc, device)):
            return no(f"an SM's {device.shared_bytes} bytes of shared memory hold no tile")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[PanelConfig]:
        """The tiles that fit, with K whole, and in as many parts as give every SM its CTAs."""
        chunks, pitch, tokens = -(-desc.k // CHUNK), (vectors_of(desc, CHUNK) | 1) * WORD, _tokens(desc)
        for shape in TABLE:
            tile = replace(shape, pitch=pitch)
            if tile.shared_bytes > device.shared_bytes or (tile.m > 16 and tile.m >= 2 * tokens):
                continue
            wanted = min(MOST_SPLITS, chunks // LEAST_CHUNKS, device.sms * tile.ctas // max(tile.tiles(desc), 1))
            for splits in {1, max(wanted, 1)}:
                yield replace(tile, split_k=-(-chunks // -(-chunks // splits)))

    def cost(self, desc: Any, device: DeviceSpec, config: PanelConfig) -> Cost:
        """Of the SM that has most to do: weights at the bandwidth of reading, the instructions that widen and multiply them for
        every tile of rows, or one k_block of a CTA after the other where few CTAs share an SM."""
        gemm, block, costs = _product(desc).gemm, desc.format.block, Costs.of(device)
        resident = min(config.ctas, (device.shared_bytes + RESERVED) // (config.shared_bytes + RESERVED))
        tiles = max(config.tiles(desc), 1)
        utilization = tiles / (device.sms * -(-tiles // device.sms))  # of what all SMs could do
        rows, columns = -(-_tokens(desc) // config.m), -(-desc.n // config.n) * config.n
        planes = len(block.planes) * (3 if block.align < 4 else 1)
        slots = costs.widening_slots + costs.plane_slots * planes + costs.row_slots * config.m
        k_blocks = self._chunks(desc, config) * K_BLOCKS * -(-tiles // (device.sms * resident))
        times = {
            "bandwidth": desc.nbytes / (device.bandwidth * costs.bandwidth_efficiency * utilization),
            "instruction issue": float(columns) * desc.k * rows * slots / (device.rate("issue") * utilization),
            "latency": k_blocks * (costs.k_block_s + costs.k_block_row_s * config.m),
        }
        limit = max(times, key=lambda name: times[name])
        seconds = overlapped_overhead(device) + costs.latency_s + times[limit]
        seconds += float(second_pass(gemm, config.split_k, device, parts_latency(config.split_k, device)))
        return Cost(desc.nbytes, gemm.flops, seconds, limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: PanelConfig) -> PrecisionGuarantee:
        """That of tc_async's sums of the widened weights, and what rounding those costs."""
        product = _product(desc)
        k = self._chunks(desc, config) * CHUNK
        own = guarantee_of(product, product.precision, k, each=TRUNCATED, splits=config.split_k, batch_invariant=False)
        assert isinstance(own.bound, Componentwise)
        probable = own.probable and of_weights(own.probable)
        return replace(own, bound=of_weights(own.bound), probable=probable, exact_weights=False)

    def _chunks(self, desc: Any, config: PanelConfig) -> int:
        return -(-int(desc.k) // (CHUNK * config.split_k))

    def lower(self, desc: Any, device: DeviceSpec, config: PanelConfig) -> tuple[Step, ...]:
        product = _product(desc)
        gemm: Gemm = product.gemm
        kind, epilogue = epilogue_type(gemm, product.activation), epilogue_args(gemm)
        if config.split_k > 1:
            kind, epilogue = partial_epilogue(gemm, config.split_k)
        block, w = desc.format.block, desc.layout("w")
        shifted = str(chunks_are_shifted(desc, CHUNK)).lower()
        x_bytes = side_of(gemm.a, (gemm.m, gemm.k), 1).nbytes
        numbers = (config.m, config.n, *config.warp, config.chunks, config.ctas, x_bytes)
        entry = f"gguf_panels<{block.cuda}, {desc.x_element.number}, {kind}, {block_align(desc.format, w.align)}, {shifted}, "
        kernel = Kernel(FILE, f"{entry}{', '.join(map(str, numbers))}>")
        rows = -(-gemm.m // config.m)
        args = (
            Ptr("x"), Ptr("w"), settled(epilogue), np.int64(gemm.a.row), np.int64(block.bytes_of(desc.k)), np.uint32(gemm.m),
            np.uint32(gemm.n), np.uint32(gemm.k), np.uint32(rows),
            np.uint32(self._chunks(desc, config)), np.uint64(partial_size(gemm) if config.split_k > 1 else 0),
        )  # fmt: skip
        grid, threads = (config.tiles(desc), 1, 1), (config.threads, 1, 1)
        launch = Launch(kernel, grid, threads, args, config.shared_bytes, pdl=True)
        if config.split_k == 1:
            return (launch,)
        second = reduce_step(product, gemm, config.split_k)
        return launch, replace(second, args=tuple(map(settled, second.args)))
