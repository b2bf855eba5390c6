"""A descriptor's operands as a table: a slot gives one operand's name, element kinds and shape.

``@described(Slot(...), ...)`` turns a class with an op's own fields into a descriptor. The table adds the fields for the
operands' layouts: ``<operand>_strides`` (elements; C order where None) and ``<operand>_align`` (bytes), and of an
optional operand its ``<operand>_shape`` and ``<operand>_element``. Inputs come first, then outputs. ``desc.<operand>`` is the
operand's `Layout`, which is read from these fields, unless the class has an attribute of that name.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from ..types import ElementKind, OperandTypeError
from ..types.keeping import cached_hash
from .fields import Conversion, conversion, integers

__all__ = [
    "Layout", "Operand", "OperandLayout", "Slot", "bounded_fields", "described", "filled_fields", "of_complex", "own_fields",
]  # fmt: skip

C = TypeVar("C")


class Operand(NamedTuple):
    """One operand of an op. `role` is ``"in"``, ``"out"`` (may be allocated) or ``"inout"`` (written in place)."""

    name: str
    role: str = "in"
    optional: bool = False

    @property
    def written(self) -> bool:
        return self.role != "in"


class Layout(NamedTuple):
    """The required layout of an operand in memory. Strides count elements; `align` and `phase` are those of the first touched
    element, and `phase` is its position in its byte."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: ElementKind
    align: int = 16
    phase: int = 0

    @property
    def natural(self) -> int:
        """The bytes of an element, which is the alignment that accessing one needs."""
        return max(1, self.element.bits // 8)


@dataclass(frozen=True)
class Slot:
    """One operand of a descriptor.

    `role` is as in Operand. An `optional` operand is absent from a problem if its ``<name>_shape`` is None, or, if it shares
    the shape of another, its ``<name>_element``. `takes` are the kinds that it may hold; empty admits any. `shape` names the
    descriptor's field or property that holds its shape: by default ``<name>_shape`` if there is one, else ``shape``. `element`
    works likewise, or is the one kind that it always holds. An operand without `strided` must be in C order, one without
    `aligned` must be aligned to its element; such operands have no field for it.
    """

    name: str
    role: str = "in"
    _: KW_ONLY
    optional: bool = False
    takes: tuple[ElementKind, ...] = ()
    shape: str = ""
    element: str | ElementKind = ""
    strided: bool = True
    aligned: bool = True

    @cached_property
    def operand(self) -> Operand:
        """The operand for `Plan.run`, where an operand that the problem has is not optional."""
        return Operand(self.name, self.role)

    @cached_property
    def presence(self) -> str:
        """The field that is None if a problem lacks the operand; empty if no problem does."""
        if not self.optional:
            return ""
        return f"{self.name}_{'shape' if self.shape == f'{self.name}_shape' else 'element'}"

    def on(self, cls: type) -> Slot:
        """The slot with the names of `cls`' fields and properties filled in."""
        own = {what: f"{self.name}_{what}" for what in ("shape", "element")}
        has = {what for what, name in own.items() if self.optional or _has(cls, name)}
        shape = self.shape or (own["shape"] if "shape" in has else "shape")
        if self.optional and isinstance(self.element, ElementKind) and shape != own["shape"]:
            raise TypeError(f"{cls.__name__}: no field would say whether {self.name} is there: leave its element open")
        return replace(self, shape=shape, element=self.element or (own["element"] if "element" in has else "element"))

    def read(self, tensor: Any) -> Iterator[tuple[str, Any]]:
        """The fields that are read from an array."""
        yield self.shape, tensor.shape
        if isinstance(self.element, str):
            yield self.element, tensor.element
        for what in ("strides", "align", "phase"):
            yield f"{self.name}_{what}", getattr(tensor, what)

    def check(self, op: str, kind: ElementKind) -> None:
        """Raises OperandTypeError for a kind that is not supported."""
        if not self.takes or kind in self.takes:
            return
        in_bytes = kind.packed and ElementKind.U8 in self.takes
        *others, final = map(str, self.takes)
        named = f"{', '.join(others)} or {final}" if others else final
        if len(others) > 3:
            fix = "view the bytes as u8" if in_bytes else f"cast it to {named}"
            raise OperandTypeError(f"{op}: {self.name}: {kind} is not supported", self._instead(kind, fix))
        fix = self._instead(kind, f"cast it to {named}")
        raise OperandTypeError(f"{op}: {self.name} must hold {named}, got {kind}", fix)

    def _instead(self, kind: ElementKind, fix: str) -> str:
        """The fix for an operand of that kind: a complex array is not cast, its parts are views."""
        if not kind.is_complex:
            return fix
        floats = any(taken.is_float for taken in self.takes)
        return of_complex(self.name) if floats else "pass a real array of these kinds"


def of_complex(name: str) -> str:
    """How to have an op of real arrays for a complex one."""
    return (
        f"pass bp.real({name}) and bp.imag({name}), which are views; bp.abs, bp.angle and bp.conj take complex arrays"
    )


def _has(cls: type, name: str) -> bool:
    return hasattr(cls, name) or any(name in inspect.get_annotations(base) for base in cls.__mro__)


class OperandLayout:
    """The attribute ``desc.<operand>``: the operand's `Layout`, or None where the problem lacks it. On the class it is itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.__doc__ = f"The layout of {name}: its shape, strides, element and alignment."

    def __get__(self, desc: Any, _owner: type | None = None) -> Any:
        if desc is None:
            return self
        return desc.layout(self.name) if desc.has(self.name) else None


@dataclass_transform(frozen_default=True)
def described(*slots: Slot, fields: tuple[str, ...] = (), last: tuple[str, ...] = ()) -> Callable[[type[C]], type[C]]:
    """Makes a class a descriptor with the operands `slots`, in the order of plans.

    The class gets the fields of the table after its own, except that those named in `last` come last, and becomes a frozen
    dataclass. `fields` gives the order of its own fields where some of them are declared by its bases.
    """

    def made(cls: type[C]) -> type[C]:
        table = tuple(slot.on(cls) for slot in slots)
        ordered = sorted(table, key=lambda slot: slot.role == "out")
        declared = {n: kind for base in cls.__mro__[::-1] for n, kind in inspect.get_annotations(base).items()}
        own = {name: declared[name] for name in fields} | inspect.get_annotations(cls)
        given = {name: kind for name, kind in _fields_of(ordered) if not _has(cls, name)}
        for name in given:
            setattr(cls, name, None)
        for slot in table:
            if not _has(cls, slot.name):
                setattr(cls, slot.name, OperandLayout(slot.name))
        tail = {name: own.pop(name) for name in last}
        cls.__annotations__ = {**own, **given, **tail}
        known: Any = cls
        known.slots, known.slot_of, known.put_in = table, {slot.name: slot for slot in table}, tuple(given)
        known.signature_operands = tuple(slot.operand._replace(optional=slot.optional) for slot in ordered)
        made: Any = cached_hash(dataclass(frozen=True, repr=False)(cls))
        known.conversions = tuple(_conversions(made, getattr(cls, "values", ())))
        known.value_conversions = {name: read for name, read, _ in known.conversions if name in known.values}
        if "of" not in cls.__dict__:
            known.of = classmethod(_reader(known, ordered))
        return made  # type: ignore[no-any-return]

    return made


def _fields_of(slots: list[Slot]) -> Iterator[tuple[str, str]]:
    """The fields that the table adds, with their annotations; all default to None."""
    integers, kind, count = "tuple[int, ...] | None", "ElementKind | None", "int | None"
    optional = [slot for slot in slots if slot.optional]
    yield from ((slot.shape, integers) for slot in optional if slot.shape == f"{slot.name}_shape")
    yield from ((slot.element, kind) for slot in optional if isinstance(slot.element, str))
    yield from ((f"{slot.name}_strides", integers) for slot in slots if slot.strided)
    yield from ((f"{slot.name}_align", count) for slot in slots if slot.aligned)


def _conversions(cls: Any, values: tuple[str, ...]) -> Iterator[tuple[str, Conversion, bool]]:
    """Each field's name, its conversion, and whether it may be None."""
    for field in dataclasses.fields(cls):
        made = conversion(str(field.type), vars(sys.modules[cls.__module__]), value=field.name in values)
        if made is not None:
            yield field.name, made, field.default is None


# ---- facts of a class, cached ------------------------------------------------------------------------------------------


@cache
def own_fields(cls: Any) -> tuple[str, ...]:
    """The names of a descriptor's fields."""
    return tuple(field.name for field in dataclasses.fields(cls))


@cache
def filled_fields(cls: Any) -> dict[str, tuple[tuple[str, str], ...]]:
    """For each operand, the fields that the canonical form fills in, and the part of the layout that fills each."""
    named = {
        slot.name: [(f"{slot.name}_{what}", what) for what in ("element", "strides", "align")] for slot in cls.slots
    }
    return {name: tuple(pair for pair in pairs if pair[0] in own_fields(cls)) for name, pairs in named.items()}


@cache
def bounded_fields(cls: Any) -> tuple[tuple[str, bool, bool], ...]:
    """The fields that may be tuples or alignments: the name, whether it is an alignment, and whether a shape."""
    single = {name for name, made, _ in cls.conversions if made is not integers}
    return tuple(
        (name, name.endswith("align"), name.endswith("shape") and bool(cls.slots))
        for name in own_fields(cls)
        if name.endswith("align") or name not in single
    )


def _reader(cls: Any, slots: list[Slot]) -> Callable[..., Any]:
    """Generates `of`. It takes operands in the order of the fields, then by name every field that is not read from them."""
    read = {name for slot in slots for name, _ in slot.read(_Nothing)}
    word = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("cls", word)]
    for slot in slots:
        needed = slot.role != "out" and not slot.optional
        parameters.append(inspect.Parameter(slot.name, word, default=inspect.Parameter.empty if needed else None))
    parameters.sort(key=lambda parameter: parameter.default is None)
    parameters += [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
        )
        for field in dataclasses.fields(cls)
        if field.name not in read
    ]
    signature = inspect.Signature(parameters)

    def of(cls: Any, *arrays: Any, **given: Any) -> Any:
        bound = signature.bind(cls, *arrays, **given).arguments
        operands: Mapping[str, Any] = {slot.name: bound.get(slot.name) for slot in slots}
        options = {name: x for name, x in bound.items() if name != "cls" and name not in operands}
        return cls.of_tensors(cls.taken(str(options.get("name", getattr(cls, "name", ""))), operands), **options)

    of.__doc__ = "The descriptor of arrays as they lie."
    of.__signature__ = signature  # type: ignore[attr-defined]
    return of


class _Nothing:
    shape = element = strides = align = phase = None
