"""Products in several steps: operands copied so that they are K-major, tokens quantised, or weights dequantised ahead."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ....plan.candidate import OK, Feasibility, no
from ....plan.lowering import Place, Sub
from ....plan.registry import get_op
from ....plan.selection import selected
from ....runtime.steps import Ptr, Scratch
from ....types import DeviceSpec, ElementKind, MathPrecision, PlanPreference, PrecisionGuarantee
from ...gemm.matmul import MatmulDescriptor
from ...shape_layout.write_slice import WriteSliceDescriptor, WriteSlicePlan
from .._composite import Composite, Parts, Steps
from .._dequantized import DequantizedFirst
from ._gemv_tiles import takes_weight
from ._mma import LAUNCHES as MMA_LAUNCHES
from .gemv import LAUNCHES as GEMV_LAUNCHES
from .guarantee import guarantee
from .problem import CODES, HALVES, Product, Side, group_of
from .quantize import DequantizeDescriptor, DequantizePlan
from .quantize_kernels import QuantizeRows
from .quantized_tokens import PITCH, of_codes, pitch_of_codes, quantized, quantizing

__all__ = ["Dequantized", "Quantized", "Staged"]

COPIES = tuple(dict.fromkeys(kernel for candidate in WriteSlicePlan.candidates for kernel in candidate.launches))


def _rest(desc: Any, **places: Place) -> dict[str, Place]:
    """Where the product's operands are: in `places`, or ours."""
    return {o.name: Ptr(o.name) for o in desc.operands} | places


class Staged(Composite):
    """Operands that are not K-major are copied so that they are."""

    variant = "staged"
    launches = (*COPIES, *MMA_LAUNCHES)

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.a_element not in CODES:
            return no(f"a holds {desc.a_element}")
        return OK if self._copied(desc) else no("both operands lie along K already", "the variant mma")

    @staticmethod
    def _copied(desc: Any) -> list[str]:
        product: Product = desc.product
        fits = {"a": product.a.access_bytes(along_row=True), "b": product.b.access_bytes(along_row=False)}
        return [name for name, vector in fits.items() if vector < PITCH]

    def parts(self, desc: Any, device: DeviceSpec, pref: PlanPreference) -> Parts:
        product: Product = desc.product
        pitch, made = pitch_of_codes(product.k), {}
        for name in self._copied(desc):
            side: Side = getattr(product, name)
            lines, steps = (product.m, (side.row, side.col)) if name == "a" else (product.n, (side.col, side.row))
            copy = WriteSliceDescriptor(
                (lines, product.k), ((0, lines), (0, product.k)), side.element, (pitch, 1), source_strides=steps,
                source_align=side.align,
            )  # type: ignore[call-arg]  # fmt: skip
            made[f"copy_{name}"] = selected(WriteSlicePlan, copy, None, device)
        changed: dict[str, Any] = {}
        if "copy_a" in made:
            lead = desc.a_shape[:-1]
            lead_strides = [pitch * math.prod(lead[axis + 1 :]) for axis in range(len(lead))]
            changed |= {"a_strides": (*lead_strides, 1), "a_align": PITCH}
        if "copy_b" in made:
            changed |= {"b_strides": (1, pitch), "b_align": PITCH}
        return (*made.items(), ("product", selected(get_op(desc.op).plan, replace(desc, **changed), pref, device)))

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        return guarantee(desc, MathPrecision.INT8)

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Sub, ...]:
        product: Product = desc.product
        lines = {"a": product.m, "b": product.n}
        subs, places = [], {}
        for name, part in config.parts[:-1]:
            of = name[-1]
            places[of] = Scratch.named(name, lines[of] * pitch_of_codes(product.k))
            subs.append(Sub(part, {"dest": places[of], "source": Ptr(of)}))
        return (*subs, Sub(config.of["product"], _rest(desc, **places)))


class Quantized(Composite):
    """Each row of a is quantised by its own scale, and the codes multiplied: `dynamic`."""

    variant = "quantized"
    launches = tuple(dict.fromkeys((*QuantizeRows.launches, *GEMV_LAUNCHES, *MMA_LAUNCHES, *COPIES)))

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return OK if desc.dynamic else no("dynamic was not asked for", "dynamic=True")

    def parts(self, desc: Any, device: DeviceSpec, pref: PlanPreference) -> Parts:
        inner = selected(get_op(desc.op).plan, of_codes(desc), pref, device)
        return ("quantize", quantizing(desc, device)), ("product", inner)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        return guarantee(desc, MathPrecision.INT8)

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Sub, ...]:
        ahead, places = quantized(desc.product, config.of["quantize"], Ptr("a"))
        return ahead, Sub(config.of["product"], _rest(desc, **places))


class Dequantized(DequantizedFirst):
    """W8A16 of many tokens."""

    variant = "dequantized"
    plan = DequantizePlan
    renames = {"codes": "b", "scales": "scale_b"}

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if desc.a_element not in HALVES or desc.dynamic:
            return no("products of bytes need no floats")
        return super().supports(desc, device)

    def invariant(self, desc: Any, device: DeviceSpec) -> bool:
        """Where gemv takes the weight, tiles of it keep a row's bits, and round no weight."""
        return not takes_weight(desc)

    @staticmethod
    def _along_k(desc: Any) -> bool:
        """Whether dequantised weights are K-major: as stored, and where groups along K have scales."""
        return bool(group_of(desc)) or desc.product.b.row == 1

    def weights(self, desc: Any, element: ElementKind) -> DequantizeDescriptor:
        product: Product = desc.product
        b, along_k, group = product.b, self._along_k(desc), group_of(desc)
        shape, steps = ((product.n, product.k), (b.col, b.row)) if along_k else ((product.k, product.n), (b.row, b.col))
        scales = desc.layout("scale_b").strides
        one = all(extent == 1 for extent in desc.scale_b_shape)
        per = "tensor" if one else "group" if group else "row" if along_k else "column"
        return DequantizeDescriptor(
            shape, ElementKind.I8, element, per, group or None, codes_strides=steps, codes_align=b.align,
            scales_strides=() if one else tuple(reversed(scales)) if group else scales[-1:],
        )  # type: ignore[call-arg]  # fmt: skip

    def product(self, desc: Any) -> MatmulDescriptor:
        bias = {name: getattr(desc, name) for name in ("bias_shape", "bias_element", "bias_strides", "bias_align")}
        return MatmulDescriptor(
            desc.a_shape, desc.b_shape, desc.a_element, desc.a_element, desc.layout("out").element, desc.activation,
            a_strides=desc.a_strides, a_align=desc.a_align, b_strides=(1, desc.product.k) if self._along_k(desc) else None,
            out_strides=desc.out_strides, out_align=desc.out_align, **bias,
        )  # type: ignore[call-arg]  # fmt: skip

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        """Weights are rounded once, by which they are 1 % larger at most; sums are those of tensor cores, with what parts of K
        add."""
        additions = 1.01 * (2.0 * desc.product.k + 64.0)
        own = guarantee(desc, MathPrecision.of(desc.a_element.value), additions, weights=desc.a_element)
        return self.promised(desc, device, own, config.of["product"].guarantee)

    def widened(self, desc: Any, product: PrecisionGuarantee) -> PrecisionGuarantee:
        """Sums are rounded as strict f32 does; the few terms more are what parts of K add."""
        own = guarantee(desc, MathPrecision.F32, desc.product.k + 64.0)
        return replace(own, batch_invariant=product.batch_invariant)
