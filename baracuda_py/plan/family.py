"""What a family of ops says of itself: its descriptor, its candidates, its oracle. Its Plan class adds the public methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ..types import ElementKind, EpilogueKind, LayoutSku, OpCategory, PrecisionGuarantee
from .candidate import Candidate, Reference
from .descriptor import Descriptor

if TYPE_CHECKING:
    from .selection import Selection

__all__ = ["Family"]

D = TypeVar("D", bound=Descriptor)


class Family(Generic[D]):
    """The part of a Plan class that a family writes; everything here is asked of the class."""

    descriptor: ClassVar[type[Descriptor]]
    category: ClassVar[OpCategory]
    candidates: ClassVar[tuple[Candidate[Any], ...]] = ()
    # Functions (descriptor, operands by name) that bounds name; one with a parameter `output` is told for which output.
    measures: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    result_type: ClassVar[Any] = None  # a class of named tuples for several results; made where there is none
    # Fields of small problems, some for every candidate: what they lower to names the present version of the family's host
    # code (about/ledger.py). Fields that the op's name fixes are left out.
    probes: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    def __init__(self, selection: Selection) -> None:
        """A plan of what was selected."""
        raise NotImplementedError

    @classmethod
    def reference(cls, desc: Any, **arrays: Any) -> Any:
        """The oracle: what each written operand must hold, in `operands` order, wide."""
        raise NotImplementedError

    @classmethod
    def reference_guarantee(cls, desc: Any) -> PrecisionGuarantee:
        """What the NumPy backend promises."""
        raise NotImplementedError

    @classmethod
    def sku_elements(cls, desc: Any) -> tuple[ElementKind, ElementKind | None]:
        """The element the sku shows, and the output's where it differs."""
        return desc.layout(desc.operands[0].name).element, None

    @classmethod
    def sku_traits(cls, desc: Any) -> tuple[LayoutSku | None, EpilogueKind | None]:
        """The layout and the epilogue that the sku shows, where the family has them."""
        return None, None

    @classmethod
    def all_candidates(cls) -> tuple[Candidate[Any], ...]:
        """The family's own, and the oracle on the host."""
        return (*cls.candidates, Reference(cls.reference, cls.reference_guarantee))
