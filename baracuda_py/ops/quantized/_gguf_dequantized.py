"""dequantized: many rows times weights that are dequantised to the activations' type first, by two plans."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ...plan.lowering import Sub
from ...plan.selection import Selection, selected
from ...runtime.steps import Ptr, Scratch
from ...types import BackendKind, Componentwise, DeviceSpec, ElementKind, PlanPreference, PrecisionGuarantee, Term
from ..gemm.matmul import MatmulDescriptor, MatmulPlan
from .dequantize_gguf import FILE, GgufDequantizeDescriptor, GgufDequantizePlan

__all__ = ["HALVES", "Dequantized", "of_weights"]

OURS = PlanPreference(backend=BackendKind.BESPOKE)
HALVES = (ElementKind.F16, ElementKind.BF16)


@dataclass(frozen=True)
class Parts:
    """A configuration: what is launched."""

    dequantize: Selection
    product: Selection

    def __str__(self) -> str:
        config = str(self.product.config)
        return f"product={self.product.candidate.variant}" + (f"[{config}]" if config else "")


class Dequantized(Candidate[Any]):
    """Weights are written and read again in the activations' type, which pays where many rows share them."""

    variant = "dequantized"
    launches = (
        f"{FILE}:gguf_dequantize",
        *dict.fromkeys(k for c in MatmulPlan.candidates if c.backend is BackendKind.BESPOKE for k in c.launches),
    )

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.rounds:
            return no("multiplies activations as they are", change=Change({"math": None}))
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[Parts]:
        x, out, w = (desc.layout(name) for name in ("x", "out", "w"))
        of_weights: dict[str, Any] = {"out_element": x.element, "blocks_align": w.align}
        of_product: dict[str, Any] = {"a_strides": x.strides, "a_align": x.align, "b_strides": (1, max(desc.k, 1))}
        of_product |= {"out_strides": out.strides, "out_align": out.align}
        weights = GgufDequantizeDescriptor(w.shape, desc.format, **of_weights)
        product = MatmulDescriptor(x.shape, (desc.k, desc.n), x.element, x.element, out.element, **of_product)
        yield Parts(selected(GgufDequantizePlan, weights, None, device), selected(MatmulPlan, product, OURS, device))

    def cost(self, desc: Any, device: DeviceSpec, config: Parts) -> Cost:
        one, other = config.dequantize.cost, config.product.cost
        return Cost(one.bytes + other.bytes, one.flops + other.flops, one.seconds + other.seconds, other.limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Parts) -> PrecisionGuarantee:
        """The product's own, of the rounded weights; and what rounding them costs."""
        return of_weights(config.product.guarantee, desc.x_element)

    def lower(self, desc: Any, device: DeviceSpec, config: Parts) -> tuple[Sub, ...]:
        between = Scratch.named("weights", desc.x_element.nbytes(math.prod((desc.n, desc.k))))
        return (
            Sub(config.dequantize, {"blocks": Ptr("w"), "out": between}),
            Sub(config.product, {"a": Ptr("x"), "b": between, "out": Ptr("out")}),
        )


def of_weights(own: PrecisionGuarantee, element: ElementKind) -> PrecisionGuarantee:
    """A product's guarantee as one of GGUF weights that were rounded to `element`."""
    assert isinstance(own.bound, Componentwise)
    probable = None if own.probable is None else _of_weights(own.probable, element)
    return replace(own, bound=_of_weights(own.bound, element), probable=probable, batch_invariant=False)


def _of_weights(bound: Componentwise, element: ElementKind) -> Componentwise:
    """A bound of the product, its measures called as matmul_gguf's are."""
    kept = ("abs_result", "smallest_normal")
    terms = [t if t.measure in kept else replace(t, measure=f"product_{t.measure}") for t in bound.terms]
    terms.append(Term(2.0, ElementKind.F32, "abs_products"))  # of the scale, and of the weight as f32
    if element in HALVES:
        terms += [Term(1.0, element, "abs_weights"), Term(1.0, element, "faint_weights")]
    return Componentwise(tuple(terms), bound.source, "beyond_product")
