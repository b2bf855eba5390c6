"""dequantized: many rows times weights in GGUF blocks, which are dequantised to the activations' type first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....plan.candidate import Change, Feasibility, no
from ....types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee, Term
from ...gemm.matmul import MatmulDescriptor
from .._dequantized import DequantizedFirst
from .dequantize import GgufDequantizeDescriptor, GgufDequantizePlan

__all__ = ["Dequantized", "of_weights"]

KEPT = ("abs_result", "smallest_normal")  # measures that matmul_gguf and matmul call alike
OF_WEIGHT = 4.0  # roundings of a weight as f32
TINY = 2.0**18  # of "underflow", which is what one rounding below the smallest number costs


def of_weights(bound: Componentwise) -> Componentwise:
    """A bound of the product with rounded weights, its measures called as matmul_gguf's are, and what rounding them costs."""
    terms = [t if t.measure in KEPT else replace(t, measure=f"product_{t.measure}") for t in bound.terms]
    terms.append(Term(2.0**24, ElementKind.F32, "rounded_weights"))
    return Componentwise(tuple(terms), bound.source, "beyond_product")


class Dequantized(DequantizedFirst):
    """Any format, where activations are multiplied unrounded."""

    variant = "dequantized"
    plan = GgufDequantizePlan
    renames = {"a": "x", "blocks": "w"}

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.rounds:
            return no("multiplies activations as they are", change=Change({"math": None}))
        return super().supports(desc, device)

    def weights(self, desc: Any, element: ElementKind) -> GgufDequantizeDescriptor:
        w = desc.layout("w")
        given: dict[str, Any] = {"out_element": element, "blocks_align": w.align}
        return GgufDequantizeDescriptor(w.shape, desc.format, **given)

    def product(self, desc: Any) -> MatmulDescriptor:
        x, out = desc.layout("x"), desc.layout("out")
        given: dict[str, Any] = {"a_strides": x.strides, "a_align": x.align, "b_strides": (1, max(desc.k, 1))}
        given |= {"out_strides": out.strides, "out_align": out.align}
        return MatmulDescriptor(x.shape, (desc.k, desc.n), x.element, x.element, out.element, **given)

    def rounded(self, desc: Any, bound: Componentwise) -> Componentwise:
        return of_weights(bound)

    def widened(self, desc: Any, product: PrecisionGuarantee) -> PrecisionGuarantee:
        """Weights are rounded when they are made, a few times each, relative to what `abs_products` adds up."""
        assert isinstance(product.bound, Componentwise), "sums of floats are bounded by components"
        sums = sum(t.coefficient for t in product.bound.terms if t.measure == "abs_matmul")
        kept = [t for t in product.bound.terms if t.measure in KEPT]
        own = Term(sums + OF_WEIGHT, ElementKind.F32, "abs_products"), Term(TINY, ElementKind.F32, "underflow")
        return replace(product, bound=Componentwise((*own, *kept), product.bound.source, "beyond"), probable=None)
