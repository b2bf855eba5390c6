"""Quantised weights as floats of the activations' type, in scratch, and then a product of matmul's: the base of every format's.

A format says how its weights are dequantised (`plan` and `weights`), and what the operands of both steps are called in its own
problem (`called`). Its problem has the product as `product`, and measures of reference/dequantised.py, unless it says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from ...plan.candidate import OK, Feasibility
from ...plan.descriptor import Descriptor
from ...plan.lowering import Place, Sub
from ...plan.plan import Plan
from ...plan.selection import Selection, selected
from ...runtime.steps import Ptr, Scratch
from ...types import BackendKind, Componentwise, DeviceSpec, ElementKind, PlanPreference, PrecisionGuarantee, Term
from ..gemm.matmul import MatmulDescriptor, MatmulPlan
from ._composite import Composite, Parts, Steps

__all__ = ["DequantizedFirst", "of_rounded"]

OURS = PlanPreference(backend=BackendKind.BESPOKE)
PRODUCTS = tuple(candidate for candidate in MatmulPlan.candidates if candidate.backend is BackendKind.BESPOKE)
KEPT = ("abs_result", "smallest_normal")  # measures of the result
LARGER = 1.01  # than a weight, at most: the weight as f16 or bf16


def of_rounded(bound: Componentwise, measure: str) -> tuple[Term, ...]:
    """The terms of a product whose weights are a rounding larger at most, and what rounding them makes of the sums."""
    terms = [replace(t, coefficient=t.coefficient * (1 if t.measure in KEPT else LARGER)) for t in bound.terms]
    return *terms, Term(1 / ElementKind.F32.unit_roundoff, ElementKind.F32, measure)


class DequantizedFirst(Composite):
    """Weights are written and read again as floats, which pays where the product itself takes longest: many tokens."""

    plan: ClassVar[type[Plan[Any]]]  # that dequantises: its output is `out`
    called: ClassVar[Mapping[str, str]] = MappingProxyType({})  # operands of either step that are not ours by that name

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "plan" in cls.__dict__:
            every = (*cls.plan.candidates, *PRODUCTS)
            cls.launches = tuple(dict.fromkeys(kernel for each in every for kernel in each.launches))

    def weights(self, desc: Any) -> Descriptor:
        """The problem of dequantising, whose `out` is densely packed, in the layout of `product`'s b."""
        raise NotImplementedError

    def product(self, desc: Any) -> MatmulDescriptor:
        """The product with the dequantised weights."""
        product: MatmulDescriptor = desc.product
        return product

    def rounded(self, desc: Any, bound: Componentwise) -> Componentwise:
        """A bound of the product, for the weights before they were rounded."""
        terms = (*of_rounded(bound, "rounded_weights"), Term(1.0, desc.x_element, "small_weights"))
        return Componentwise(terms, bound.source, "beyond_weights")

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        inner = self.product(desc).canonical()
        if not any(each.supports(inner, device) for each in PRODUCTS):
            return PRODUCTS[0].supports(inner, device)
        return OK

    def parts(self, desc: Any, device: DeviceSpec) -> Parts:
        return (
            ("dequantise", selected(self.plan, self.weights(desc), None, device)),
            ("product", selected(MatmulPlan, self.product(desc), OURS, device)),
        )

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        """That of the product, and a rounding of every weight."""
        own = config.of["product"].guarantee
        assert isinstance(own.bound, Componentwise), "sums of floats are bounded by components"
        probable = None if own.probable is None else self.rounded(desc, own.probable)
        return replace(own, bound=self.rounded(desc, own.bound), probable=probable)

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Sub, ...]:
        dequantise, product = config.of["dequantise"], config.of["product"]
        made = dequantise.desc.layout("out")
        between = Scratch.named("weights", made.element.nbytes(math.prod(made.shape)))
        return (
            Sub(dequantise, self._places(dequantise) | {"out": between}),
            Sub(product, self._places(product) | {"b": between}),
        )

    def _places(self, step: Selection) -> dict[str, Place]:
        """A step's operands, as our problem calls them."""
        return {o.name: Ptr(self.called.get(o.name, o.name)) for o in step.operands}
