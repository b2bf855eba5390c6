"""dequantize_matmul: int4 weights as a matrix of the activations' type, and then a product of matmul's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...types import Componentwise, ElementKind, Term
from ..gemm.matmul import MatmulDescriptor
from ._dequantized import DequantizedFirst
from .dequantize_int4 import DequantizeInt4Descriptor, DequantizeInt4Plan

__all__ = ["DequantizeThenMatmul"]

KEPT = ("abs_result", "smallest_normal")  # measures of the result
LARGER = 1.01  # than a weight, at most: the weight as f16 or bf16


class DequantizeThenMatmul(DequantizedFirst):
    """Any layout and any number of tokens."""

    variant = "dequantize_matmul"
    plan = DequantizeInt4Plan
    called = {"a": "x"}

    def weights(self, desc: Any) -> DequantizeInt4Descriptor:
        """In columns, so that the product reads them along K."""
        given: dict[str, Any] = {"out_strides": (1, desc.weight_shape[0])}
        for name in ("codes", "scales", "zeros", "order"):
            if desc.has(name):
                layout = desc.layout(name)
                given[f"{name}_element"] = layout.element
                given |= {} if name == "order" else {f"{name}_align": layout.align}
        options = {"group_size": desc.group_size, "packing": desc.packing}
        return DequantizeInt4Descriptor(desc.weight_shape, desc.x_element, **options, **given)

    def product(self, desc: Any) -> MatmulDescriptor:
        product: MatmulDescriptor = desc.product
        return product

    def rounded(self, desc: Any, bound: Componentwise) -> Componentwise:
        """Of weights that are a rounding larger at most, and what rounding them makes of the sums."""
        terms = [replace(t, coefficient=t.coefficient * (1 if t.measure in KEPT else LARGER)) for t in bound.terms]
        terms += [Term(2.0**24, ElementKind.F32, "rounded_weights"), Term(1.0, desc.x_element, "small_weights")]
        return Componentwise(tuple(terms), bound.source, "beyond_weights")
