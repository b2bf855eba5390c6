"""Queries, keys and values of int4 weights in one launch of either of the product's kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....packed.int4 import Int4Layout
from ....plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ....runtime.steps import Ptr, Step
from ....types import DeviceSpec, ElementKind, PrecisionGuarantee
from ..int4.configs import Int4Config
from ..int4.kernels import Int4Kernel, common_epilogue
from ._projections import by_output, unturned

__all__ = ["FusedInt4"]


def _joined(desc: Any) -> Any:
    """A product as wide as all three together, which costs what they do."""
    part = desc.matrices[0].desc
    return replace(part, n=sum(desc.widths), bias_shape=None, bias_element=None, bias_strides=None, out_strides=None)


def _tiled(desc: Any) -> Change:
    """The change to weights in tiles."""
    fields: dict[str, Any] = {"packing": Int4Layout.TILED}
    for part in desc.outputs:
        fields |= {f"w{part}_element": ElementKind.U32, f"w{part}_strides": None, f"w{part}_align": None}
        fields |= {f"scales_{part}_align": None, f"zeros_{part}_align": None}
        fields |= {f"zeros_{part}_element": ElementKind.U8} if desc.has(f"zeros_{part}") else {}
    return Change(fields)


class FusedInt4(Candidate[Any]):
    """The columns of all three in one launch of one of the product's kernels, K whole."""

    def __init__(self, variant: str, kernel: Int4Kernel) -> None:
        self.variant, self.kernel, self.launches = variant, kernel, kernel.launches[:2]  # type: ignore[misc]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.weights != "int4":
            return no(f"weights are {desc.weights}")
        if not (said := unturned(desc)):
            return said
        parts = [matrix.desc for matrix in desc.matrices]
        if desc.packing is not Int4Layout.TILED:
            return no(f"weights are in layout {str(desc.packing)!r}", "repack_int4 of each, once", _tiled(desc))
        for part in parts:
            if not (said := self.kernel.supports(part, device)):
                return no(said.reason)
        if any(part.has("order") for part in parts):
            return no("weights have orders of their own", "weights repacked without order")
        if len({part.has("zeros") for part in parts}) > 1 or common_epilogue(parts) is None:
            return no("the three differ in zero points or biases", "three of each, or none")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Int4Config]:
        return [config for config in self.kernel.configs(_joined(desc), device) if config.split_k == 1]

    def cost(self, desc: Any, device: DeviceSpec, config: Int4Config) -> Cost:
        return self.kernel.cost(_joined(desc), device, config)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Int4Config) -> PrecisionGuarantee:
        return by_output(desc, [self.kernel.guarantee(matrix.desc, device, config) for matrix in desc.matrices])

    def lower(self, desc: Any, device: DeviceSpec, config: Int4Config) -> tuple[Step, ...]:
        renames = [
            {name: place.operand for name, place in matrix.renames.items() if isinstance(place, Ptr)}
            for matrix in desc.matrices
        ]
        return self.kernel.lower_fused([matrix.desc for matrix in desc.matrices], renames, config)
