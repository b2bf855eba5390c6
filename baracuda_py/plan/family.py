"""The declarations of a family of ops: its descriptor, its candidates, its oracle. Its Plan class adds the public methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..types import ElementKind, EpilogueKind, LayoutSku, OpCategory, PlanPreference, PrecisionGuarantee
from .candidate import Candidate, Reference, exact_results
from .descriptor import Descriptor
from .selected import Selected

__all__ = ["Family", "Oracle", "OracleGuarantee", "folder_of"]

D = TypeVar("D", bound=Descriptor)


def folder_of(module: str) -> str:
    """The family's folder of a module: ``softmax`` for ``baracuda_py.ops.softmax.forward``. Of a module outside `ops` it is the
    folder that holds the module."""
    *packages, own = module.split(".")
    inner = packages[packages.index("ops") + 1 :] if "ops" in packages else packages[-1:]
    return (inner or [own])[0]


class Oracle(Protocol):
    """The type of `Family.reference`: any function, which is no method where a class holds it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


class OracleGuarantee(Protocol):
    """The type of `Family.reference_guarantee`: a function (descriptor)."""

    def __call__(self, *args: Any, **kwargs: Any) -> PrecisionGuarantee: ...


class Family(Generic[D]):
    """The part of a Plan class that a family writes. Everything here is read from the class."""

    descriptor: ClassVar[type[Descriptor]]
    category: ClassVar[OpCategory]  # by default named like the family's folder
    candidates: ClassVar[tuple[Candidate[Any], ...]] = ()
    # The functions (descriptor, operands by name) that bounds name. A parameter `output` receives the output's name.
    measures: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    # The oracle: a function (descriptor, read operands by name) that returns the exact value of each written operand, in the
    # order of `operands`, in a wide type; and what the oracle promises of its own results.
    reference: ClassVar[Oracle]
    reference_guarantee: ClassVar[OracleGuarantee] = staticmethod(exact_results)
    # The operand whose kind the sku shows, and either a second one, whose kind it shows where that differs, or a kind that it
    # always shows. By default it shows the kind of the first operand alone.
    shown: ClassVar[tuple[str, str | ElementKind] | None] = None
    # What each value of the output `status` but 0 means, as pairs (cause, fix).
    statuses: ClassVar[Mapping[int, tuple[str, str]]] = {}
    result_type: ClassVar[Any] = None  # the named tuple of several results; generated if None
    # Fields of small problems, which reach every candidate. The steps that they lower to identify the version of the family's
    # host code (about/ledger.py). Fields that the op's name fixes are omitted.
    probes: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "descriptor" in cls.__dict__ and not hasattr(cls, "category"):
            cls.category = OpCategory.added(folder_of(cls.__module__))
        for name in ("reference", "reference_guarantee"):
            if isinstance(held := cls.__dict__.get(name), FunctionType):
                setattr(cls, name, staticmethod(held))

    def __init__(self, selection: Selected) -> None:
        """Makes the plan of a selection."""
        raise NotImplementedError

    @classmethod
    def select(cls, desc: Any, pref: PlanPreference | None = None, *, device: Any = None) -> Any:
        """The best plan for `desc`, of this class."""
        raise NotImplementedError

    @classmethod
    def sku_elements(cls, desc: Any) -> tuple[ElementKind, ElementKind | None]:
        """The kind that the sku shows, and the second one, if any."""
        if cls.shown is None:
            return desc.layout(desc.operands[0].name).element, None
        element, other = desc.layout(cls.shown[0]).element, cls.shown[1]
        if isinstance(other, ElementKind):
            return element, other
        second = desc.layout(other).element
        return element, None if second is element else second

    @classmethod
    def sku_traits(cls, desc: Any) -> tuple[LayoutSku | None, EpilogueKind | None]:
        """The layout and the epilogue that the sku shows, if the family has them."""
        return None, None

    @classmethod
    def all_candidates(cls) -> tuple[Candidate[Any], ...]:
        """The family's own, and the oracle on the host."""
        return (*cls.candidates, Reference(cls.reference, cls.reference_guarantee))
