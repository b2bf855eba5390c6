"""dequantize_matmul: an NF4 weight as a matrix of the activations' type, and then a product of matmul's."""

from __future__ import annotations

from typing import Any

from ....types import ElementKind
from .._dequantized import DequantizedFirst
from .dequantize import DequantizeNf4Descriptor, DequantizeNf4Plan

__all__ = ["DequantizeNf4ThenMatmul"]


class DequantizeNf4ThenMatmul(DequantizedFirst):
    """Any number of tokens."""

    variant = "dequantize_matmul"
    plan = DequantizeNf4Plan
    renames = {"a": "x"}

    def weights(self, desc: Any, element: ElementKind) -> DequantizeNf4Descriptor:
        held = {
            f"{name}_element": desc.layout(name).element for name in ("absmax", "scales", "offset") if desc.has(name)
        }
        held |= {"codes_align": desc.layout("codes").align}
        return DequantizeNf4Descriptor(desc.weight_shape, element, block_size=desc.block_size, **held)
