"""f32_weights: any quantised weights as f32, in scratch, times activations that are widened to f32: a product of strict f32.

No weight is rounded to the activations' type, whatever the format, the layout and the number of tokens. It takes several times as
long as what rounds, so it is considered only where a preference asks for exact weights.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ...plan.candidate import Feasibility, no
from ...plan.lowering import Sub
from ...plan.selection import selected
from ...runtime.steps import Scratch, Step
from ...types import BackendKind, DeviceSpec, ElementKind, PlanPreference, PrecisionGuarantee
from ..elementwise.cast import CAST
from ..elementwise.unary import UnaryDescriptor, UnaryPlan
from ..gemm.matmul import MatmulDescriptor, MatmulPlan
from ._composite import Composite, Parts, Steps
from ._dequantized import DequantizedFirst

__all__ = ["F32Weights"]

F32 = ElementKind.F32


class F32Weights(Composite):
    """The way of `first`, a format's DequantizedFirst, in f32."""

    variant = "f32_weights"
    on_request = ("exact_weights",)

    def __init__(self, first: DequantizedFirst) -> None:
        self.first = first
        widening = (kernel for each in UnaryPlan.candidates for kernel in each.launches)
        self.launches = tuple(dict.fromkeys((*first.launches, *widening)))  # type: ignore[misc]

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not (said := self.first.supports(desc, device)):
            return said
        product = self.first.product(desc)
        if product.a_element is F32:
            return no("activations are f32: dequantised weights are not rounded", f"the variant {self.first.variant}")
        return super().supports(desc, device)

    def _product(self, desc: Any) -> MatmulDescriptor:
        """The product of f32, whose a is densely packed."""
        given: dict[str, Any] = {"a_element": F32, "a_strides": None, "a_align": None, "b_element": F32}
        return replace(self.first.product(desc), out_element=desc.layout("out").element, math=None, **given)

    def parts(self, desc: Any, device: DeviceSpec, pref: PlanPreference) -> Parts:
        product, ours = self._product(desc), replace(pref, backend=BackendKind.BESPOKE)
        a, dense = self.first.product(desc).layout("a"), product.layout("a")
        strides = {"x_strides": a.strides, "x_align": a.align, "out_strides": dense.strides}
        widen = UnaryDescriptor(CAST.name, a.shape, a.element, F32, **strides)  # type: ignore[arg-type]
        return (
            ("widen", selected(UnaryPlan, widen, pref, device)),
            ("dequantize", selected(self.first.plan, self.first.weights(desc, F32), pref, device)),
            ("product", selected(MatmulPlan, product, ours, device)),
        )

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        own = config.of["product"].guarantee
        invariant = own.batch_invariant and self.first.invariant(desc, device)
        return replace(self.first.widened(desc, own), batch_invariant=invariant)

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Step | Sub, ...]:
        widen = config.of["widen"]
        made = Scratch.named("activations", F32.nbytes(math.prod(widen.desc.layout("out").shape)))
        ahead, a = self.first.activations(desc)
        return (*ahead, Sub(widen, {"x": a, "out": made}), *self.first.dequantized(config, made))
