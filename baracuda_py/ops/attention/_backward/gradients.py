"""What kernels see of attention's gradients, and the launches that every candidate has."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....runtime.steps import Kernel, Launch, Packed, Ptr, Scratch, Struct
from ....types import DeviceSpec
from .._forward.simt import Costs
from .._problem.attended import OperandStrides, computed
from .._problem.struct import problem_struct

__all__ = [
    "BIASES", "COMMON_LAUNCHES", "bias_seconds", "gradients_struct", "of_biases", "of_rows", "of_sinks", "stats_rows", "types_of",
]  # fmt: skip

ROWS, BIAS = "attention/backward_rows.cu", "attention/backward_bias.cu"
COMMON_LAUNCHES = (f"{ROWS}:attention_stats", f"{ROWS}:attention_grad_sinks", f"{BIAS}:attention_grad_bias")
THREADS, TILE = 256, 32
BIASES = ("mask", "alibi_slopes")  # what is added to scores, whose gradients are there where they are asked for
GRADIENTS = ("grad", "grad_q", "grad_k", "grad_v")


def gradients_struct(desc: Any) -> Struct:
    """attention::Gradients of kernels/include/attention/gradients.cuh."""
    bits = computed(desc.element).bits
    stats = Scratch.named("stats", 2 * max(1, stats_rows(desc)) * bits // 8)
    of_stats = OperandStrides(0 if desc.ragged else desc.heads * desc.total_q, desc.total_q, 1)
    steps = [n for strides_of in (*map(desc.strides_of, GRADIENTS), of_stats) for n in strides_of]
    return Struct((*map(Ptr, GRADIENTS), stats, Packed(np.array(steps, np.int64).tobytes(), 8)))


def stats_rows(desc: Any) -> int:
    """Queries of all heads of all sequences."""
    return int((1 if desc.ragged else desc.batch) * desc.heads * desc.total_q)


def types_of(desc: Any) -> str:
    """The kernels' T and C."""
    return f"{desc.element.number}, {computed(desc.element).number}"


def of_rows(desc: Any, gradients: Struct, *, vector: bool) -> Launch:
    """What each query's scores and their gradients are taken less of. `vector`: by 16 bytes an access, of 16-bit types."""
    columns, lanes = (8, 8) if vector else (1, 32)
    tiles = int(max(1, -(-desc.launched_q(desc.heads) * lanes // THREADS)))
    grid = (tiles * desc.batch * desc.heads, 1, 1)
    kernel = Kernel(ROWS, f"attention_stats<{types_of(desc)}, {columns}, {lanes}>")
    return Launch(kernel, grid, (THREADS, 1, 1), (problem_struct(desc), gradients, np.uint32(tiles)))


def of_sinks(desc: Any, gradients: Struct) -> tuple[Launch, ...]:
    """The gradients of sinks, where there are any."""
    if not desc.has("grad_sinks"):
        return ()
    layout = desc.layout("grad_sinks")
    entry = f"attention_grad_sinks<{types_of(desc)}, {layout.element.number}>"
    args = (
        problem_struct(desc), gradients, Ptr("grad_sinks"), np.int64(layout.strides[0]), np.uint32(desc.batch),
    )  # fmt: skip
    return (Launch(Kernel(ROWS, entry), (desc.heads, 1, 1), (THREADS, 1, 1), args),)


def of_biases(desc: Any, gradients: Struct) -> tuple[Launch, ...]:
    """The gradients of what is added to scores, those that are asked for."""
    return tuple(_of_bias(desc, gradients, name) for name in BIASES if desc.has(f"grad_{name}"))


def _of_bias(desc: Any, gradients: Struct, name: str) -> Launch:
    layout = desc.layout(f"grad_{name}")
    steps = desc.broadcast_strides(f"grad_{name}", 4 if name == "mask" else 2)
    shape = (1,) * (len(steps) - len(layout.shape)) + layout.shape
    batches, heads, rows, keys = (*shape, 1, 1)[:4]
    extents = np.array([batches, heads, rows, keys, desc.batch, 0], np.uint32).tobytes()
    entries = Packed(np.array((*steps, 0, 0)[:4], np.int64).tobytes() + extents, 8)
    entry = f"attention_grad_bias<{types_of(desc)}, {layout.element.number}, {str(name != 'mask').lower()}>"
    grid = batches * heads * -(-rows // TILE) * -(-keys // TILE)
    args = (problem_struct(desc), gradients, Ptr(f"grad_{name}"), Struct((entries,)))
    return Launch(Kernel(BIAS, entry), (grid, 1, 1), (THREADS, 1, 1), args)


def bias_seconds(desc: Any, device: DeviceSpec) -> float:
    """What these take, by plain multiply-adds."""
    asked = sum(desc.has(f"grad_{name}") for name in BIASES)
    return float(
        asked * desc.pairs() * 2.0 * (desc.d + desc.d_v) / (device.rate("f32") * Costs.of(device).fma_efficiency)
    )
