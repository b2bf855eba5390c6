"""dequantized: many rows times weights in GGUF blocks, which are dequantised to the activations' type first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...plan.candidate import Change, Feasibility, no
from ...types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee, Term
from ..gemm.matmul import MatmulDescriptor
from ._composite import Steps
from ._dequantized import DequantizedFirst
from .dequantize_gguf import GgufDequantizeDescriptor, GgufDequantizePlan

__all__ = ["Dequantized", "of_weights"]

KEPT = ("abs_result", "smallest_normal")  # measures that matmul_gguf and matmul call alike


def of_weights(bound: Componentwise) -> Componentwise:
    """A bound of the product with rounded weights, its measures called as matmul_gguf's are, and what rounding them costs."""
    terms = [t if t.measure in KEPT else replace(t, measure=f"product_{t.measure}") for t in bound.terms]
    terms.append(Term(2.0**24, ElementKind.F32, "rounded_weights"))
    return Componentwise(tuple(terms), bound.source, "beyond_product")


class Dequantized(DequantizedFirst):
    """Any format, where activations are multiplied as they are."""

    variant = "dequantized"
    plan = GgufDequantizePlan
    called = {"a": "x", "blocks": "w"}

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.rounds:
            return no("multiplies activations as they are", change=Change({"math": None}))
        return super().supports(desc, device)

    def weights(self, desc: Any) -> GgufDequantizeDescriptor:
        w = desc.layout("w")
        given: dict[str, Any] = {"out_element": desc.x_element, "blocks_align": w.align}
        return GgufDequantizeDescriptor(w.shape, desc.format, **given)

    def product(self, desc: Any) -> MatmulDescriptor:
        x, out = desc.layout("x"), desc.layout("out")
        given: dict[str, Any] = {"a_strides": x.strides, "a_align": x.align, "b_strides": (1, max(desc.k, 1))}
        given |= {"out_strides": out.strides, "out_align": out.align}
        return MatmulDescriptor(x.shape, (desc.k, desc.n), x.element, x.element, out.element, **given)

    def rounded(self, desc: Any, bound: Componentwise) -> Componentwise:
        return of_weights(bound)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        """Fewer rows are multiplied by other variants, with other bits."""
        return replace(super().guarantee(desc, device, config), batch_invariant=False)
