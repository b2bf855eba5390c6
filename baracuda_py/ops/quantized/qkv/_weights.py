"""What the weights of a projection may be: the product that each of q, k and v is, and what its operands are called there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ....packed.int4 import Int4Layout
from ....plan.descriptor import Descriptor
from ....plan.plan import Plan
from ....types import ElementKind
from ..int4.matmul import Int4MatmulDescriptor, Int4MatmulPlan
from ..int8.matmul import Int8MatmulDescriptor, Int8MatmulPlan

__all__ = ["PARTS", "WEIGHTS", "Weights"]

PARTS = ("q", "k", "v")
OF_LAYOUT = ("shape", "element", "strides", "align")
BOTH = {"bias": "bias_{}", "out": "{}"}


@dataclass(frozen=True)
class Weights:
    """A kind of weights. `x` is the product's name of the tokens; `renames` are its operands as the projection knows them, {} for
    q, k or v; `options` are fields of the projection that only such weights have, with their defaults."""

    plan: type[Plan[Any]]
    product: type[Descriptor]
    codes: ElementKind  # what weights hold unless they say
    x: str
    renames: Mapping[str, str]
    options: Mapping[str, Any]

    def operands(self, part: str) -> dict[str, str]:
        """The operands of one of the products, as the projection calls them."""
        return {self.x: "x", **{theirs: ours.format(part) for theirs, ours in self.renames.items()}}

    def part(self, desc: Any, part: str, n: int) -> Any:
        """One of the products, of `n` columns."""
        known = {field.name for field in fields(self.product)}
        given: dict[str, Any] = {f"{self.x}_element": desc.element, "n": n, "out_element": desc.out_element}
        given |= {name: getattr(desc, name) for name in self.options}
        for theirs, ours in self.operands(part).items():
            for what in OF_LAYOUT:
                field = f"{theirs}_{what}"
                if field in known - given.keys() and hasattr(desc, f"{ours}_{what}"):
                    given[field] = getattr(desc, f"{ours}_{what}")
        return self.product(**{name: value for name, value in given.items() if name in known})


WEIGHTS = {
    "int8": Weights(
        Int8MatmulPlan, Int8MatmulDescriptor, ElementKind.I8, "a",
        {"scale_a": "scale_x", "b": "w{}", "scale_b": "scale_{}", **BOTH}, {"dynamic": False},
    ),
    "int4": Weights(
        Int4MatmulPlan, Int4MatmulDescriptor, ElementKind.U32, "x",
        {"codes": "w{}", "scales": "scales_{}", "zeros": "zeros_{}", "order": "order_{}", **BOTH},
        {"widths": None, "group_size": 128, "packing": Int4Layout.TILED},
    ),
}  # fmt: skip
