"""dequantize_matmul: int4 weights as a matrix of the activations' type, and then a product of matmul's."""

from __future__ import annotations

from typing import Any

from ._dequantized import DequantizedFirst
from .dequantize_int4 import DequantizeInt4Descriptor, DequantizeInt4Plan

__all__ = ["DequantizeThenMatmul"]


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
