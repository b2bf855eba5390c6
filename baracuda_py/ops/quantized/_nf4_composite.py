"""dequantize_matmul: an NF4 weight as a matrix of the activations' type, in scratch, and then a product of matmul's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility
from ...plan.lowering import Sub
from ...plan.select import cheapest
from ...plan.selection import Selection
from ...runtime.steps import Ptr, Scratch
from ...types import BackendKind, Componentwise, DeviceSpec, PlanPreference, PrecisionGuarantee, Term
from ..gemm.matmul import MatmulPlan
from ._nf4_weight import NAMES
from .dequantize_nf4 import DequantizeNf4Descriptor, DequantizeNf4Plan

__all__ = ["DequantizeNf4ThenMatmul"]

ANY = PlanPreference()
OWN = tuple(candidate for candidate in MatmulPlan.candidates if candidate.backend is BackendKind.BESPOKE)


@dataclass(frozen=True)
class Parts:
    """A configuration: what is launched."""

    weight: Selection
    product: Selection

    def __str__(self) -> str:
        config = str(self.product.config)
        return f"{self.product.candidate.variant}" + (f"[{config}]" if config else "")


@lru_cache(maxsize=256)
def _parts(desc: Any, device: DeviceSpec) -> Parts | None:
    found = cheapest(OWN, desc.product.canonical(), ANY, device)
    weight = _weight(desc)
    made = cheapest(DequantizeNf4Plan.candidates, weight.canonical(), ANY, device)
    if found is None or made is None:
        return None
    return Parts(
        Selection.of(DequantizeNf4Plan, weight, ANY, device, made[0]),
        Selection.of(MatmulPlan, desc.product, ANY, device, found[0]),
    )


def _weight(desc: Any) -> DequantizeNf4Descriptor:
    held = {f"{name}_element": desc.layout(name).element for name in ("absmax", "scales", "offset") if desc.has(name)}
    held |= {"codes_align": desc.layout("codes").align}
    return DequantizeNf4Descriptor(desc.weight_shape, desc.x_element, block_size=desc.block_size, **held)


class DequantizeNf4ThenMatmul(Candidate[Any]):
    """Any number of tokens: worth it where the product itself takes longest."""

    variant = "dequantize_matmul"
    launches = tuple(
        dict.fromkeys(kernel for each in (*DequantizeNf4Plan.candidates, *OWN) for kernel in each.launches)
    )

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        inner = desc.product.canonical()
        if not any(each.supports(inner, device) for each in OWN):
            return OWN[0].supports(inner, device)
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Parts]:
        parts = _parts(desc, device)
        return [] if parts is None else [parts]

    def cost(self, desc: Any, device: DeviceSpec, config: Parts) -> Cost:
        one, other = config.weight.cost, config.product.cost
        return Cost(one.bytes + other.bytes, one.flops + other.flops, one.seconds + other.seconds, other.limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Parts) -> PrecisionGuarantee:
        """That of the product, and a rounding to f32 and one to the activations' type of every weight."""
        inner, x = config.product.guarantee, desc.x_element

        def and_rounded(bound: Any) -> Any:
            if not isinstance(bound, Componentwise):
                return bound
            terms = (*bound.terms, Term(1.001, x, "abs_matmul"), Term(1.0, x, "small_weights"))
            return Componentwise(terms, bound.source, "beyond_weights")

        return replace(inner, bound=and_rounded(inner.bound), probable=and_rounded(inner.probable))

    def lower(self, desc: Any, device: DeviceSpec, config: Parts) -> tuple[Sub, ...]:
        n, k = desc.weight_shape
        between = Scratch.named("weight", desc.x_element.nbytes(k * n))
        held = {name: Ptr(name) for name in NAMES if desc.has(name)}
        added = {"bias": Ptr("bias")} if desc.has("bias") else {}
        return (
            Sub(config.weight, {**held, "out": between}),
            Sub(config.product, {"a": Ptr("x"), "b": between, "out": Ptr("out"), **added}),
        )
