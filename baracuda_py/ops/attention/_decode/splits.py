"""How a sequence's keys are shared out among CTAs, whose results a second launch merges; and caches as kernels take them
(kernels/include/attention/cache.cuh)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....plan.candidate import Constraint
from ....plan.constraints import Aligned, Multiple, UnitStride
from ....runtime.steps import Arg, Fill, Launch, Packed, Ptr, Run, Scratch, Step, Struct
from ....types import DeviceSpec, ElementKind, PrecisionGuarantee
from ..._fitted import Fitted
from ..._launch import overlapped_overhead
from .merge_launch import Lines, merge_launch

__all__ = [
    "ABSENT", "FIXED", "LEAST", "MOST_SPLITS", "Splits", "cache_struct", "most_keys", "rows_of", "scales_struct", "stored_as",
    "tiled", "with_status",
]  # fmt: skip

FIXED = 512  # keys a split, where sequences must not depend on each other
LEAST = 128  # keys a split
MOST_SPLITS = 256
BYTES = {ElementKind.FP8_E4M3: "e4m3", ElementKind.FP8_E5M2: "e5m2"}  # their names in kernels
ABSENT = Packed(bytes(8))


class Costs(Fitted, table="attention.splits"):
    part_latency_s: float


@dataclass(frozen=True)
class Splits:
    """attention::Splits: `count` CTAs share a sequence's keys, `fixed` each or (0) evenly. If they are `separate`, each leaves
    its (out, lse) in scratch. `ahead`: blocks that a warp asks for before the kernel ahead has ended."""

    desc: Any
    count: int
    fixed: int
    separate: bool
    ahead: int

    @staticmethod
    def of(desc: Any, config: Any, ahead: int = 0) -> Splits:
        """Those of a configuration, separate unless a cluster merges them."""
        separate = config.splits > 1 and not getattr(config, "clustered", False)
        return Splits(desc, config.splits, config.fixed, separate, ahead)

    @property
    def struct(self) -> Struct:
        counts = np.array([self.count, self.fixed, LEAST, self.ahead], np.uint32)
        outs, lses = (self._outs, self._lses) if self.separate else (ABSENT, ABSENT)
        return Struct((outs, lses, Packed(counts.tobytes(), 4)))

    @property
    def pdl(self) -> bool:
        """Whether what comes before the first launch may still run."""
        return not (self.separate and self.desc.ragged)

    def merged(self, first: Launch, device: DeviceSpec) -> tuple[Step, ...]:
        """The launch that shares them out, with what goes before and after."""
        if not self.separate:
            return (first,)
        # Ragged rows that are in no sequence have no part: their lse is NaN
        cleared = (Fill(self._lses, 0xFF, self._lses.nbytes),) if self.desc.ragged else ()
        lines = Lines.of_parts(self.desc, self.count)
        merge = merge_launch(lines, self._outs, self._lses, device)
        return *cleared, first, merge

    def seconds(self, device: DeviceSpec) -> float:
        """What merging takes."""
        if not self.separate:
            return 0.0
        partial = 4.0 * self._parts * (int(self.desc.d_v) + 1)
        return (
            overlapped_overhead(device) + Costs.of(device).part_latency_s * self.count + 2 * partial / device.bandwidth
        )

    @property
    def _parts(self) -> int:
        return rows_of(self.desc) * self.count

    @property
    def _outs(self) -> Scratch:
        return Scratch.named("outs", 4 * self._parts * self.desc.d_v)

    @property
    def _lses(self) -> Scratch:
        return Scratch.named("lses", 4 * self._parts)


def most_keys(desc: Any) -> int:
    """The most keys that a sequence's tokens see."""
    left = desc.visible.left
    return int(desc.most_k if left is None else min(desc.most_k, left + desc.most_q))


def rows_of(desc: Any) -> int:
    """Queries of all heads."""
    return int(math.prod(desc.q_shape[:-1]))


def tiled(k: str, v: str) -> tuple[Constraint, ...]:
    """What kernels ask of queries, keys and values that they copy by 16 bytes."""
    names = ("q", k, v, "out")
    sizes = Multiple("q", -1, 8, "the head dim"), Multiple(v, -1, 8, "v's head dim")
    return (*map(UnitStride, names), *sizes, *(Aligned(name, 16) for name in names))


def stored_as(cached: ElementKind) -> str:
    """What kernels call the elements of a cache."""
    return BYTES.get(cached) or cached.number


def with_status(desc: Any, made: PrecisionGuarantee) -> PrecisionGuarantee:
    """What is promised where pages are looked at, too."""
    if not desc.checked:
        return made
    return PrecisionGuarantee.by_output(**dict(made.parts), status=PrecisionGuarantee.exact(ElementKind.I32))


def cache_struct(desc: Any) -> Struct:
    """attention::Cache."""

    def pointer(name: str) -> Arg:
        return Ptr(name) if name in desc.slot_of and desc.has(name) else ABSENT

    step = desc.layout("page_table").strides[0] if desc.paged else 0
    extents = (desc.most_k, desc.page_keys, desc.pages, desc.checked)
    fields = (pointer("lengths"), pointer("page_table"), pointer("status"), np.int64(step))
    return Struct((*fields, Packed(np.array(extents, np.uint32).tobytes(), 4)))  # type: ignore[arg-type]


def scales_struct(desc: Any) -> Struct:
    """attention::Scales."""
    names = ("k_scales", "v_scales")
    all_strides = [n for name in names for n in desc.scales_strides(name)]
    each = [desc.has(name) and len(desc.shape_of(name)) > 1 for name in names]
    return Struct((
        *(Ptr(name) if desc.has(name) else ABSENT for name in names), Packed(np.array(all_strides, np.int64).tobytes(), 8),
        Run("k_scale", "float64"), Run("v_scale", "float64"), Packed(np.array(each, np.uint32).tobytes(), 4),
    ))  # fmt: skip
