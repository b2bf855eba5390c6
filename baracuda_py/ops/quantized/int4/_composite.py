"""dequantize_matmul: int4 weights as a matrix of the activations' type, and then a product of matmul's."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ....packed.int4 import Int4Layout
from ....types import DeviceSpec, ElementKind
from ...gemm.matmul import MatmulDescriptor
from .._dequantized import DequantizedFirst
from .._staged_tokens import StagedTokens, staged_tokens
from .dequantize import DequantizeInt4Descriptor, DequantizeInt4Plan
from .kernels import Int4Mma

__all__ = ["DequantizeThenMatmul"]


@lru_cache(maxsize=256)
def _multiplied_as_it_is(lone: Any, device: DeviceSpec) -> bool:
    return bool(Int4Mma().supports(lone, device))


def _ordered(desc: Any) -> bool:
    """Whether the weight is kept in an order of K that is not that of the tokens."""
    return bool(desc.has("order") and desc.packing is Int4Layout.TILED)


class DequantizeThenMatmul(DequantizedFirst):
    """Any layout and any number of tokens."""

    variant = "dequantize_matmul"
    launches = ("quantized/tokens.cu:stage_tokens",)  # and those of its parts
    plan = DequantizeInt4Plan
    renames = {"a": "x"}

    def invariant(self, desc: Any, device: DeviceSpec) -> bool:
        """Where `mma` multiplies the weight as it is, whatever x, it keeps a row's bits itself, and rounds no weight."""
        own = {f"{name}_{what}": None for name in ("x", "out") for what in ("strides", "align")}
        own |= {f"bias_{what}": None for what in ("shape", "element", "strides", "align")}
        return not _multiplied_as_it_is(replace(desc, x_shape=(1, desc.k), **own).canonical(), device)

    def staged(self, desc: Any) -> StagedTokens | None:
        """Tokens are put in the weight's order, as for the other kernels: so an order that has not been read leaves nothing
        unwritten, and means the same for all."""
        return staged_tokens(desc) if _ordered(desc) else None

    def product(self, desc: Any) -> MatmulDescriptor:
        staged = self.staged(desc)
        if staged is None:
            return super().product(desc)
        lead = desc.x_shape[:-1]
        steps = (staged.pitch * math.prod(lead[axis + 1 :]) for axis in range(len(lead)))
        return replace(super().product(desc), a_strides=(*steps, 1), a_align=None)  # type: ignore[call-arg]

    def weights(self, desc: Any, element: ElementKind) -> DequantizeInt4Descriptor:
        """In columns, so that the product reads them along K."""
        given: dict[str, Any] = {"out_strides": (1, desc.weight_shape[0])}
        for name in ("codes", "scales", "zeros", "order"):
            if desc.has(name) and not (name == "order" and _ordered(desc)):
                layout = desc.layout(name)
                given[f"{name}_element"] = layout.element
                given |= {} if name == "order" else {f"{name}_align": layout.align}
        options = {"group_size": desc.group_size, "packing": desc.packing}
        return DequantizeInt4Descriptor(desc.weight_shape, element, **options, **given)
