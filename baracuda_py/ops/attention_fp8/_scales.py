"""Scales of queries, keys and values as kernels take them (kernels/include/attention_fp8/scales.cuh)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.steps import Packed, Ptr, Run, Struct

__all__ = ["SCALES", "scales_struct"]

SCALES = {"q_scales": "q_scale", "k_scales": "k_scale", "v_scales": "v_scale"}  # arrays, and the numbers beside them


def scales_struct(desc: Any) -> Struct:
    """attention_fp8::Scales."""
    steps: list[int] = []
    for name in SCALES:
        strides = desc.layout(name).strides if desc.has(name) else (0,)
        steps += strides if len(strides) == 2 else (0, *strides)
    return Struct((
        *(Ptr(name) if desc.has(name) else Packed(bytes(8)) for name in SCALES),
        Packed(np.array(steps, np.int64).tobytes(), 8), *(Run(number, "float64") for number in SCALES.values()),
    ))  # fmt: skip
