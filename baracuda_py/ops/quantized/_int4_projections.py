"""The variants of a projection to queries, keys and values of int4 weights: one launch for all three, or three products."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...packed.int4 import Int4Layout
from ...plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ...plan.lowering import Sub
from ...plan.selection import Selection, selected
from ...runtime.steps import Ptr, Step
from ...types import BaracudaError, DeviceSpec, ElementKind, PrecisionGuarantee
from ._int4_kernels import Int4Kernel, common_epilogue
from ._int4_table import Int4Config
from .int4 import Int4MatmulPlan

__all__ = ["FusedInt4", "ThreeInt4Products"]


def _joined(desc: Any) -> Any:
    """A product as wide as all three together, which costs what they do."""
    part = desc.parts[0][0]
    return replace(part, n=sum(desc.widths), bias_shape=None, bias_element=None, bias_strides=None, out_strides=None)


def _tiled(desc: Any) -> Change:
    """The change to weights in tiles."""
    fields: dict[str, Any] = {"packing": Int4Layout.TILED, "codes_element": ElementKind.U32}
    for part in desc.outputs:
        fields |= {f"w{part}_align": None, f"scales_{part}_align": None, f"zeros_{part}_align": None}
        fields |= {f"zeros_{part}_element": ElementKind.U8} if desc.has(f"zeros_{part}") else {}
    return Change(fields)


class FusedInt4(Candidate[Any]):
    """The columns of all three in one launch of one of the product's kernels, K whole."""

    def __init__(self, variant: str, kernel: Int4Kernel) -> None:
        self.variant, self.kernel, self.launches = variant, kernel, kernel.launches[:2]  # type: ignore[misc]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        parts = [part for part, _ in desc.parts]
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
        each = (self.kernel.guarantee(part, device, config) for part, _ in desc.parts)
        return PrecisionGuarantee.by_output(**dict(zip(desc.outputs, each)))

    def lower(self, desc: Any, device: DeviceSpec, config: Int4Config) -> tuple[Step, ...]:
        return self.kernel.lower_fused([part for part, _ in desc.parts], [called for _, called in desc.parts], config)


@dataclass(frozen=True)
class Products:
    """A configuration: the three products."""

    each: tuple[Selection, ...]

    def __str__(self) -> str:
        return " ".join(f"{name}={one.candidate.variant}[{one.config}]" for name, one in zip("qkv", self.each))


@lru_cache(maxsize=256)
def _three(desc: Any, device: DeviceSpec) -> Products:
    return Products(tuple(selected(Int4MatmulPlan, part, None, device) for part, _ in desc.parts))


class ThreeInt4Products(Candidate[Any]):
    """Three products, each the best for its shape."""

    variant = "three_products"
    launches = tuple(dict.fromkeys(kernel for c in Int4MatmulPlan.candidates for kernel in c.launches))

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Products]:
        try:
            yield _three(desc, device)
        except BaracudaError:  # one of them has no kernel
            return

    def cost(self, desc: Any, device: DeviceSpec, config: Products) -> Cost:
        costs = [one.cost for one in config.each]
        return Cost(desc.nbytes, sum(c.flops for c in costs), sum(c.seconds for c in costs), costs[0].limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Products) -> PrecisionGuarantee:
        each = (one.guarantee.of("out") for one in config.each)
        return PrecisionGuarantee.by_output(**dict(zip(desc.outputs, each)))

    def lower(self, desc: Any, device: DeviceSpec, config: Products) -> tuple[Sub, ...]:
        return tuple(
            Sub(one, {o.name: Ptr(called[o.name]) for o in part.operands})
            for (part, called), one in zip(desc.parts, config.each)
        )
