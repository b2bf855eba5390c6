"""Quantized weights as floats of the activations' type, in scratch, and then a product of matmul's: the base of every format's.

A format says how its weights are dequantised (`plan` and `weights`), and what the operands of both steps are called in its own
problem (`renames`). Its problem has the product as `product`, and measures of ops/quantized/oracle.py, unless it says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from ...plan.candidate import OK, Cost, Feasibility
from ...plan.descriptor import Descriptor
from ...plan.lowering import Place, Sub
from ...plan.plan import Plan
from ...plan.selection import Selection, selected
from ...runtime.steps import Launch, Ptr, Scratch, Step
from ...types import BackendKind, Componentwise, DeviceSpec, ElementKind, PlanPreference, PrecisionGuarantee, Term
from ..gemm.matmul import MatmulDescriptor, MatmulPlan
from ._composite import Composite, Parts, Steps
from ._staged_tokens import StagedTokens

__all__ = ["PRODUCTS", "DequantizedFirst", "of_rounded"]

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
    renames: ClassVar[Mapping[str, str]] = MappingProxyType(
        {}
    )  # operands of either step that are not ours by that name

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "plan" in cls.__dict__:
            every = (*cls.plan.candidates, *PRODUCTS)
            kernels = (kernel for each in every for kernel in each.launches)
            cls.launches = tuple(dict.fromkeys((*cls.__dict__.get("launches", ()), *kernels)))

    # ---- what a format says -----------------------------------------------------------------------------------------

    def weights(self, desc: Any, element: ElementKind) -> Descriptor:
        """The problem of dequantising to `element`, whose `out` is densely packed, in the layout of `product`'s b."""
        raise NotImplementedError

    def product(self, desc: Any) -> MatmulDescriptor:
        """The product with the dequantised weights."""
        product: MatmulDescriptor = desc.product
        return product

    def rounded(self, desc: Any, bound: Componentwise) -> Componentwise:
        """A bound of the product, for the weights before they were rounded."""
        terms = (*of_rounded(bound, "rounded_weights"), Term(1.0, desc.x_element, "small_weights"))
        return Componentwise(terms, bound.source, "beyond_weights")

    def widened(self, desc: Any, product: PrecisionGuarantee) -> PrecisionGuarantee:
        """The guarantee where weights are f32, each rounded once to it, and `product` is that of the product with them."""

        def of(bound: Componentwise) -> Componentwise:
            return replace(bound, terms=(*bound.terms, Term(1.0, ElementKind.F32, "abs_matmul")))

        assert isinstance(product.bound, Componentwise), "sums of floats are bounded by components"
        return replace(product, bound=of(product.bound), probable=product.probable and of(product.probable))

    def invariant(self, desc: Any, device: DeviceSpec) -> bool:
        """Whether products whose rows do not depend on the batch may go this way: only one way may promise that for a weight, or
        the number of tokens would choose between bits."""
        return True

    def staged(self, desc: Any) -> StagedTokens | None:
        """The copy of the activations that the product multiplies, where it does not multiply them without a copy."""
        return None

    # ---- the candidate ----------------------------------------------------------------------------------------------

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        inner = self.product(desc).canonical()
        if not any(each.supports(inner, device) for each in PRODUCTS):
            return PRODUCTS[0].supports(inner, device)
        return OK

    def parts(self, desc: Any, device: DeviceSpec, pref: PlanPreference) -> Parts:
        product, ours = self.product(desc), replace(pref, backend=BackendKind.BESPOKE)
        return (
            ("dequantize", selected(self.plan, self.weights(desc, product.b_element), pref, device)),
            ("product", selected(MatmulPlan, product, ours, device)),
        )

    def cost(self, desc: Any, device: DeviceSpec, config: Steps) -> Cost:
        own, staged = super().cost(desc, device, config), self.staged(desc)
        return replace(own, seconds=own.seconds + (staged.seconds(device) if staged else 0.0))

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        """That of the product, and a rounding of every weight."""
        own = config.of["product"].guarantee
        assert isinstance(own.bound, Componentwise), "sums of floats are bounded by components"
        probable = None if own.probable is None else self.rounded(desc, own.probable)
        return self.promised(desc, device, replace(own, bound=self.rounded(desc, own.bound), probable=probable), own)

    def promised(
        self, desc: Any, device: DeviceSpec, whole: PrecisionGuarantee, product: PrecisionGuarantee
    ) -> PrecisionGuarantee:
        """The guarantee of the whole, with what it promises beside its bound."""
        exact = self.product(desc).b_element is ElementKind.F32
        lone = product.batch_invariant and self.invariant(desc, device)
        return replace(whole, exact_weights=exact, batch_invariant=lone)

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Step | Sub, ...]:
        ahead, a = self.activations(desc)
        return (*ahead, *self.dequantized(config, a))

    def activations(self, desc: Any) -> tuple[tuple[Launch, ...], Place]:
        """What copies the activations, and where the product finds them."""
        staged = self.staged(desc)
        if staged is None:
            return (), Ptr(self.renames.get("a", "a"))
        return tuple(staged.launches(staged.scratch(0))), staged.scratch(0)

    def dequantized(self, config: Steps, a: Place) -> tuple[Sub, Sub]:
        """The weights in scratch, and the product, which finds activations at `a`."""
        dequantize, product = config.of["dequantize"], config.of["product"]
        made = dequantize.desc.layout("out")
        between = Scratch.named("weights", made.element.nbytes(math.prod(made.shape)))
        return (
            Sub(dequantize, self._places(dequantize) | {"out": between}),
            Sub(product, self._places(product) | {"a": a, "b": between}),
        )

    def _places(self, step: Selection) -> dict[str, Place]:
        """A step's operands, as our problem calls them."""
        return {o.name: Ptr(self.renames.get(o.name, o.name)) for o in step.operands}
