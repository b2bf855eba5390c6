"""Variants of a projection to queries, keys and values of any weights: three products, and a rotation behind either."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....plan.candidate import OK, Feasibility, no
from ....plan.lowering import Place, Sub
from ....plan.plan import Plan
from ....plan.registry import get_op
from ....plan.selection import selected
from ....runtime.steps import Ptr
from ....types import DeviceSpec, ElementKind, MathPrecision, PlanPreference, PrecisionGuarantee
from ...position.rope import RopePlan
from .._composite import Composite, Parts, Steps
from ..int8.guarantee import guarantee
from ..int8.quantize import QuantizePlan
from ..int8.quantized_tokens import of_codes, quantized, quantizing
from ._rotation import OF_ANGLES, rotated
from ._weights import PARTS, WEIGHTS

__all__ = ["ThenRope", "ThreeProducts", "by_output", "unturned"]

PLANS: tuple[type[Plan[Any]], ...] = (QuantizePlan, *(kind.plan for kind in WEIGHTS.values()))
NO_ANGLES = {
    f"{name}_{what}": None for name in ("positions", "inv_freq", "cos", "sin") for what in ("shape", "element")
}


def by_output(desc: Any, each: Sequence[PrecisionGuarantee]) -> PrecisionGuarantee:
    """Of q, k and v, and of the status where there is one."""
    status = {"status": PrecisionGuarantee.exact(ElementKind.I32)} if desc.has("status") else {}
    return PrecisionGuarantee.by_output(**dict(zip(PARTS, each)), **status)


def unturned(desc: Any) -> Feasibility:
    """Whether what only multiplies serves. Both columns of a pair are seldom of one CTA, let alone of one warp: to turn them in
    an epilogue they would have to be exchanged, which takes longer than a launch whose operands are in L2."""
    if desc.rotates:
        return no(
            "q and k are turned by a launch of their own behind it: pairs are not of one CTA", "the variant then_rope"
        )
    return OK


class ThreeProducts(Composite):
    """Three products, each the best for its shape; floats that are to be quantised are so once."""

    variant = "three_products"
    launches = tuple(dict.fromkeys(kernel for plan in PLANS for each in plan.candidates for kernel in each.launches))

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        return unturned(desc) and super().supports(desc, device)

    def parts(self, desc: Any, device: DeviceSpec, pref: PlanPreference) -> Parts:
        ahead = (("quantize", quantizing(desc.matrices[0].desc, device)),) if desc.dynamic else ()
        plan = WEIGHTS[desc.weights].plan
        products = (of_codes(matrix.desc) if desc.dynamic else matrix.desc for matrix in desc.matrices)
        return (*ahead, *((part, selected(plan, one, pref, device)) for part, one in zip(PARTS, products)))

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        if desc.dynamic:
            return by_output(desc, [guarantee(matrix.desc, MathPrecision.INT8) for matrix in desc.matrices])
        return by_output(desc, [config.of[part].guarantee.of("out") for part in PARTS])

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Sub, ...]:
        steps: list[Sub] = []
        moved: dict[str, Place] = {}
        if desc.dynamic:
            ahead, moved = quantized(desc.matrices[0].desc.product, config.of["quantize"], Ptr("x"))
            steps.append(ahead)
        for part, matrix in zip(PARTS, desc.matrices):
            one = config.of[part]
            places = {**matrix.renames, **moved}
            steps.append(Sub(one, {o.name: places[o.name] for o in one.operands}))
        return tuple(steps)


class ThenRope(Composite):
    """The best of the others, and then q and k rotated in place: they are in L2 still."""

    variant = "then_rope"
    launches = tuple(
        dict.fromkeys((*ThreeProducts.launches, *(kernel for each in RopePlan.candidates for kernel in each.launches)))
    )

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not desc.rotates:
            return no("no angles were given", "inv_freq, or cos and sin")
        return super().supports(desc, device)

    def parts(self, desc: Any, device: DeviceSpec, pref: PlanPreference) -> Parts:
        plain = replace(desc, **OF_ANGLES | NO_ANGLES)
        return (
            ("project", selected(get_op(desc.op).plan, plain, pref, device)),
            ("rope", selected(RopePlan, desc.rotation, pref, device)),
        )

    def guarantee(self, desc: Any, device: DeviceSpec, config: Steps) -> PrecisionGuarantee:
        own = config.of["project"].guarantee
        each = (own.of(part) for part in PARTS)
        return by_output(desc, [one if part == "v" else rotated(desc, one) for part, one in zip(PARTS, each)])

    def lower(self, desc: Any, device: DeviceSpec, config: Steps) -> tuple[Sub, ...]:
        project, rope = config.of["project"], config.of["rope"]
        in_place = {"x": Ptr("q"), "out": Ptr("q"), "k": Ptr("k"), "k_out": Ptr("k")}
        return (
            Sub(project, {o.name: Ptr(o.name) for o in project.operands}),
            Sub(rope, {o.name: in_place.get(o.name, Ptr(o.name)) for o in rope.operands}),
        )
