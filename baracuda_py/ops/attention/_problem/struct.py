"""A problem of attention as kernels take it."""

from __future__ import annotations

import numpy as np

from ....runtime.steps import Packed, Ptr, Run, Scratch, Struct
from .attended import MASK_KINDS, MOST, UNLIMITED, Attended, OperandStrides

__all__ = ["problem_struct"]


def problem_struct(
    desc: Attended, packed_mask: tuple[Scratch, tuple[int, ...]] | None = None, **instead: str
) -> Struct:
    """attention::Problem of kernels/include/attention/problem.cuh: operands (null where a problem lacks one), steps, extents and
    run-time values. `instead` are operands that stand in for those of these names, such as out=grad; `packed_mask` stands in for
    the mask, with its own strides."""

    def pointer(name: str) -> Ptr | Scratch | Packed:
        if name == "mask" and packed_mask:
            return packed_mask[0]
        name = instead.get(name, name)
        return Ptr(name) if name in desc.slot_of and desc.has(name) else Packed(bytes(8))

    def kind(name: str) -> int:
        held = desc.element_of(name) if name in desc.slot_of else None
        return 0 if held is None else MASK_KINDS.get(held, 2)

    def broadcast(name: str, rank: int) -> tuple[int, ...]:
        return desc.broadcast_strides(name, rank) if name in desc.slot_of else (0,) * rank

    lies = {name: instead.get(name, name) for name in ("out", "q", "k", "v", "lse")}
    # What is larger than any problem would overflow in kernels' sums
    visible, block = desc.visible, [min(n, MOST) for n in desc.block_size or (1, 1)]
    names = (
        "out", "lse", "q", "k", "v", "mask", "block_mask", "alibi_slopes", "sinks", "cu_seqlens_q", "cu_seqlens_k",
    )  # fmt: skip
    all_strides = [*(desc.strides_of(lies[name]) for name in ("out", "q", "k", "v"))]
    all_strides.append(desc.stats_strides(lies["lse"]) if lies["lse"] in desc.slot_of else OperandStrides(0, 0, 0))
    mask_strides = packed_mask[1] if packed_mask else broadcast("mask", 4)
    steps = [*(n for strides_of in all_strides for n in strides_of), *mask_strides, *broadcast("block_mask", 4)]
    steps += [*broadcast("alibi_slopes", 2), *broadcast("sinks", 1)]
    limits = (UNLIMITED if n is None else min(n, UNLIMITED) for n in visible)
    extents = (
        desc.heads, max(desc.group, 1), desc.total_q, desc.total_k, desc.d, desc.d_v, *block, kind("mask"), kind("sinks"),
        int(desc.softcapped), int(desc.offset_given),
    )  # fmt: skip
    return Struct((
        *map(pointer, names),
        Packed(np.array([*steps, *limits], np.int64).tobytes(), 8),
        Run("offset", "int64"), Run("scale", "float64"), Run("softcap", "float64"),
        Packed(np.array(extents, np.uint32).tobytes(), 4),
    ))  # fmt: skip
