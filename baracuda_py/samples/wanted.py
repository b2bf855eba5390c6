"""Problems beside the ops' own samples, chosen to reach what a kernel can do: tails, vectors at edges, stage buffers that wrap,
persistent CTAs that take several tiles, ragged tiles, K in parts, a CTA's second row, head, section or page.

Each family has a module `wanted` of them, which `plan.registry.all_wanted` finds by its name. `verify` runs the problems on any
device and the emulated gauntlet without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from ..types import DeviceSpec
from .sample import Sample

__all__ = ["Problems", "Wanted", "bf16", "e4m3", "f16", "f32", "f64"]

bf16, f16, f32, f64 = (np.dtype(x) for x in (ml_dtypes.bfloat16, np.float16, np.float32, np.float64))
e4m3 = np.dtype(ml_dtypes.float8_e4m3fn)
SMALL_L2_BYTES = 1 << 16


@dataclass(frozen=True)
class Wanted:
    """A problem that reaches a path of some kernels: the variant, and of each pattern the first configuration that serves."""

    name: str
    op: str
    sample: Sample
    variant: str | None = None
    configs: tuple[str, ...] = ("*",)
    sms: int | None = (
        None  # a device of so few SMs, with little L2, so that small problems take the paths of large ones
    )
    arch: str = ""  # the one arch that the problem is for; any, where it is empty

    def device(self, spec: DeviceSpec) -> DeviceSpec | None:
        """The device to select for where `spec` runs it; None where it is for another arch."""
        if self.arch and self.arch != spec.arch:
            if not spec.emulated:
                return None
            spec = DeviceSpec.named(f"ptx:{self.arch}")
        if self.sms is None:
            return spec
        return replace(spec, name=f"{spec.name}:small{self.sms}", sms=self.sms, l2_bytes=SMALL_L2_BYTES)


class Problems(list[Wanted]):
    """The wanted problems of one module, called `problems` there. Their arrays are drawn from a generator of their own: the
    problems of another module change none of them."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)

    def want(
        self, name: str, op: str, sample: Sample, variant: str | None = None, configs: Sequence[str] = ("*",), *,
        sms: int | None = None, arch: str = "",
    ) -> None:  # fmt: skip
        """Adds a problem."""
        self.append(Wanted(name, op, sample, variant, tuple(configs), sms, arch))

    def normal(self, shape: tuple[int, ...], dt: Any = f32) -> Any:
        """Normal values."""
        return self.rng.standard_normal(shape).astype(dt)

    def padded(self, shape: tuple[int, ...], dt: Any, spare: int) -> Any:
        """Rows of a matrix that has so many more columns."""
        return self.normal((*shape[:-1], shape[-1] + spare), dt)[..., : shape[-1]]
