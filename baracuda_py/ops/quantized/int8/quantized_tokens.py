"""Tokens quantised ahead of products with i8 weights, each by a scale of its own: `dynamic`."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from ....plan.lowering import Place, Sub
from ....plan.selection import Selection, selected
from ....runtime.steps import Scratch
from ....types import DeviceSpec, ElementKind
from .problem import Product
from .quantize import QuantizeDescriptor, QuantizePlan

__all__ = ["PITCH", "of_codes", "pitch_of_codes", "quantized", "quantizing"]

PITCH = 16  # bytes of which a copied line is a multiple


def pitch_of_codes(extent: int) -> int:
    """Bytes from one line of codes to the next."""
    return max(1, -(-extent // PITCH)) * PITCH


def of_codes(desc: Any) -> Any:
    """A product of floats as that of their codes and scales."""
    own: Product = desc.product
    return replace(
        desc, dynamic=False, a_shape=(own.m, own.k), a_element=ElementKind.I8, a_strides=(pitch_of_codes(own.k), 1),
        a_align=PITCH, scale_a_shape=(own.m,), scale_a_element=ElementKind.F32, out_strides=(own.out.row, own.out.col),
    )  # fmt: skip


@lru_cache(maxsize=256)
def quantizing(desc: Any, device: DeviceSpec) -> Selection:
    """How a product's tokens become codes."""
    product: Product = desc.product
    a = product.a
    made = QuantizeDescriptor(
        (product.m, product.k), a.element, x_strides=(a.row, a.col), x_align=a.align,
        codes_strides=(pitch_of_codes(product.k), 1),
    )  # type: ignore[call-arg]  # fmt: skip
    return selected(QuantizePlan, made, None, device)


def quantized(product: Product, step: Selection, tokens: Place) -> tuple[Sub, dict[str, Place]]:
    """The step, and where products find codes and scales."""
    codes = Scratch.named("codes", product.m * pitch_of_codes(product.k))
    scales = Scratch.named("scales", ElementKind.F32.nbytes(product.m))
    return Sub(step, {"x": tokens, "codes": codes, "scales": scales}), {"a": codes, "scale_a": scales}
