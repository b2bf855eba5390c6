"""Problems: a frozen descriptor of structure and values, and its operands."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from ..tensor import Tensor, intake
from ..tensor.axes import INT64, alignment_of, c_strides
from ..types import ElementKind, InvalidProblemError, OperandTypeError
from ..types.keeping import complete, said_fields
from .fields import Conversion, choice, integer, integers, kind, plain, scalar
from .slot import Layout, Operand, Slot, bounded_fields, described, filled_fields, own_fields

__all__ = [
    "Descriptor",
    "Layout",
    "Operand",
    "ProblemKey",
    "Slot",
    "described",
    "integers",
    "resolved_strides",
    "scalar",
]

RANK = 64  # the most axes, as for NumPy's arrays


class ProblemKey(NamedTuple):
    """The key under which tuned plans are stored: a text that stays the same in later versions, and the extent of `axis` (0 if
    there is none). The extent is not in the text, because neighbouring extents may share tuned plans."""

    text: str
    extent: int = 0
    axis: str = ""


@dataclass(frozen=True, repr=False)
class Descriptor:
    """Base of every descriptor.

    `described` makes a subclass from a table of its operands. The subclass states its op's `name`, its run-time `values`
    (fields that do not influence the choice of kernel: floats, or ints if annotated so), the fields that belong to no operand,
    and in `check` further requirements. Construction converts every field to its type: lists and NumPy ints become tuples of
    ints, names become members. `select` checks the problem, through `validate`.
    """

    values: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[tuple[str, ...]] = ()  # scalars that `resolve` computes from the values, in every call again
    slots: ClassVar[tuple[Slot, ...]] = ()
    slot_of: ClassVar[Mapping[str, Slot]] = {}
    put_in: ClassVar[tuple[str, ...]] = ()  # the fields that come from the table
    counted: ClassVar[
        Mapping[str, str]
    ] = {}  # outputs whose length the device counts -> the operand that holds the count
    signature_operands: ClassVar[tuple[Operand, ...]] = ()  # all operands that a problem of the family may have
    conversions: ClassVar[tuple[tuple[str, Conversion, bool], ...]] = ()
    value_conversions: ClassVar[Mapping[str, Conversion]] = {}  # of run-time values: to float, or to int if declared so

    def __repr__(self) -> str:
        return said_fields(self)

    def __post_init__(self) -> None:
        held = self.__dict__
        for name, made, optional in self.conversions:
            value = held[name]
            if value is not None or not optional:
                held[name] = made(value, f"{self.op}: {name}")

    # ---- from arrays ----------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, *arrays: Any, **given: Any) -> Self:
        """The descriptor for arrays, with their layouts. `described` generates it, with the operands as parameters."""
        raise NotImplementedError

    @classmethod
    def taken(cls, op: str, operands: Mapping[str, Any]) -> dict[str, Tensor]:
        """The operands as Tensors; raises InvalidProblemError if a required operand is missing."""
        for name, role, optional in cls.signature_operands:
            if role != "out" and not optional and operands.get(name) is None:
                raise InvalidProblemError(f"{op}: operand {name!r} is missing", f"pass {name}=...")
        return {name: intake(x, what=f"{op}: {name}") for name, x in operands.items() if x is not None}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor], **options: Any) -> Self:
        """The descriptor for operands, with their layouts. A field that several operands share is read from the first one.
        `options` are other fields, or replace fields that would be read."""
        known = cls.__dataclass_fields__
        given = dict(options)
        for name, tensor in tensors.items():
            for field, value in cls.slot_of[name].read(tensor):
                if field in known:
                    given.setdefault(field, value)
        desc = cls(**given)
        for name, tensor in tensors.items():
            slot = cls.slot_of[name]
            if slot.strided and len(getattr(desc, slot.shape)) != len(tensor.shape):
                raise InvalidProblemError(
                    f"{desc.op}: {name} must have shape {getattr(desc, slot.shape)}, got {tensor.shape}",
                    "pass an array of that shape",
                )
        cls._check_kinds(desc.op, tensors, options)
        return desc

    @classmethod
    def _check_kinds(cls, op: str, tensors: Mapping[str, Tensor], options: Mapping[str, Any]) -> None:
        """Raises where operands that share a kind hold different ones: the first one counts, inputs before outputs."""
        first: dict[str, str] = {}
        for name in sorted(tensors, key=lambda name: cls.slot_of[name].role == "out"):
            slot, kind = cls.slot_of[name], tensors[name].element
            if not isinstance(slot.element, str):
                continue
            other = first.setdefault(slot.element, name)
            wanted = tensors[other].element
            if options.get(slot.element, wanted) is not wanted or (slot.takes and wanted not in slot.takes):
                continue  # it is asked for, or refused as it is
            if wanted is not kind:
                fix = f"pass one of {wanted}" if slot.role == "out" else f"cast it to {wanted}"
                raise OperandTypeError(f"{op}: {name} must hold {wanted}, as {other} does, got {kind}", fix)

    # ---- operands -------------------------------------------------------------------------------------------------

    @property
    def op(self) -> str:
        """The op's public name, for errors and the sku."""
        return str(getattr(self, "name", type(self).__name__))

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """The operands of this problem, in the order of plans."""
        return tuple([s.operand for s in self.slots if self.has(s.name)])

    def has(self, name: str) -> bool:
        """Whether the problem has that operand."""
        field = self.slot_of[name].presence
        return not field or getattr(self, field) is not None

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """An operand's shape; None where the problem lacks the operand."""
        return getattr(self, self.slot_of[name].shape) if self.has(name) else None

    def element_of(self, name: str) -> ElementKind | None:
        """The kind of an operand; None where the problem lacks the operand."""
        return self.layout(name).element if self.has(name) else None

    def layout(self, name: str) -> Layout:
        """The layout of an operand; raises InvalidProblemError if its strides have a different number of axes than its
        shape."""
        made = self._layouts.get(name)
        if made is None:
            made = self._layouts[name] = self.laid_out(self.slot_of[name])
        return made

    @cached_property
    def _layouts(self) -> dict[str, Layout]:
        return {}

    def laid_out(self, slot: Slot) -> Layout:
        name, shape = slot.name, getattr(self, slot.shape)
        element = getattr(self, slot.element) if isinstance(slot.element, str) else slot.element
        if element is None:
            element = self.default_element(name)
        strides = getattr(self, f"{name}_strides") if slot.strided else None
        if strides is not None and len(strides) != len(shape):
            raise InvalidProblemError(
                f"{self.op}: {name}_strides {strides} has {len(strides)} axes and {name} has {len(shape)}",
                "give one stride an axis",
            )
        align = self.align_of(name) if slot.aligned else max(1, element.bits // 8)
        return Layout(
            shape, resolved_strides(shape, strides, element), element, align, getattr(self, f"{name}_phase", 0)
        )

    def asked_for(self, name: str) -> str:
        """What a call says to have an output that this problem has not; empty where it cannot have it."""
        return f"pass return_{name}=True" if hasattr(self, f"return_{name}") else ""

    def default_element(self, name: str) -> ElementKind:
        """The kind of an operand whose kind was not given."""
        return self.layout(self.slots[0].name).element

    def displacements(self) -> tuple[int, ...]:
        """Bytes from each operand's first element to the first one touched."""
        return (0,) * len(self.operands)

    def footprint(self, name: str, tensor: Tensor) -> Tensor:
        """The part of an operand that is read or written; its pointer is moved by its displacement."""
        return tensor

    def in_place(self, written: str, read: str) -> bool:
        """Whether `written` may be the same view as `read`."""
        return False

    @property
    def empty(self) -> bool:
        """Whether nothing is written, so that nothing is launched."""
        written = [o.name for o in self.operands if o.written and not o.optional]
        return all(0 in self.layout(name).shape for name in written)

    @property
    def nbytes(self) -> int:
        """The bytes of all operands, each counted once: the minimum that a streaming kernel moves."""
        layouts = [self.layout(operand.name) for operand in self.operands if not operand.optional]
        return sum(x.element.nbytes(math.prod(x.shape)) for x in layouts)

    # ---- canonical form and run-time values -----------------------------------------------------------------------

    def canonical(self) -> Self:
        """The same problem with defaults filled in and every run-time value neutral."""
        return self._like({**self._filled, **self.neutral()})

    def _like(self, changed: Mapping[str, Any]) -> Self:
        """A copy with other fields, already converted, which do not change any operand's layout."""
        cls: Any = type(self)
        made: Self = object.__new__(cls)
        held = self.__dict__
        made.__dict__.update({name: held[name] for name in own_fields(cls)})
        made.__dict__.update(changed)
        made.__dict__.update(_layouts=self._layouts, operands=self.operands)
        return made

    @property
    def _filled(self) -> dict[str, Any]:
        cls: Any = type(self)
        filled: dict[str, Any] = {}
        known = filled_fields(cls)
        for operand in self.operands:
            layout = self.layout(operand.name)
            for name, what in known.get(operand.name, ()):
                filled[name] = getattr(layout, what)
        return filled

    def neutral(self) -> dict[str, Any]:
        """The fields that `canonical` sets besides those of the table: run-time values, to their defaults."""
        known = type(self).__dataclass_fields__
        return {name: known[name].default for name in self.values if name in known}

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> Any:
        """Raises for run-time values that are wrong for any operands. Returns the part of them on which other checks depend,
        which becomes a part of a call's key."""
        return None

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        """The run-time values of a call, from `given` or else from the descriptor; raises if they are out of range."""
        read: Mapping[str, Conversion] = self.value_conversions
        own = (v for v in self.values if v in type(self).__dataclass_fields__)
        return {v: (read.get(v) or scalar)(given.get(v, getattr(self, v)), f"{self.op}: {v}") for v in own}

    def at(self, given: Mapping[str, Any]) -> Self:
        """The same problem with the run-time values of `given`; raises if they are out of range."""
        return replace(self, **self.scalars(given)) if any(v in given for v in self.values) else self

    def resolve(self, given: Mapping[str, Any]) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        """A short form of `at`: each operand's displacement in bytes, and the scalars that steps name with Run(...)."""
        return self.displacements(), self.scalars(given)

    def problem_key(self) -> ProblemKey:
        """The key of a canonical problem. Fields at their default are left out, so a field added later invalidates no record."""
        used = {f.name: value for f in fields(self) if (value := plain(getattr(self, f.name))) != plain(f.default)}
        return ProblemKey(json.dumps(used, sort_keys=True))

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        """Raises if values in host memory are out of range. `tensors` are the operands that the caller passed: with a `status`
        among them, the call reports there instead, as it does on a GPU."""

    # ---- validity -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises InvalidProblemError or OperandTypeError for a problem that the family cannot define. Before it is called,
        integers were checked to fit 64 bits, shapes to have at most `RANK` axes and no negative extent, and operands to hold
        supported kinds."""

    def validate(self) -> None:
        """Raises InvalidProblemError or OperandTypeError where the problem is inconsistent, or too large for any memory."""
        cls: Any = type(self)
        held = self.__dict__
        for name, is_align, is_shape in bounded_fields(cls):
            value = held[name]
            if value is None:
                continue
            if is_align and (value < 1 or value & (value - 1)):
                raise InvalidProblemError(
                    f"{self.op}: {name}={value} is no alignment", "give a power of two of bytes, 16 at most counts"
                )
            if isinstance(value, tuple) and len(value) > RANK:
                raise InvalidProblemError(f"{self.op}: {name} has {len(value)} axes", f"give {RANK} at most")
            if is_shape and min(value, default=0) < 0:
                raise InvalidProblemError(
                    f"{self.op}: {name} {value} has a negative extent", "give extents of 0 or more"
                )
        for slot in sorted(
            self.slots, key=lambda slot: slot.role == "out"
        ):  # inputs first: a result's kind is often theirs
            element = getattr(self, slot.element) if isinstance(slot.element, str) else slot.element
            if element is not None:
                slot.check(self.op, element)
        self.check()
        self.scalars({})
        for operand in self.operands:
            layout = self.layout(operand.name)
            # The strides of empty arrays are checked as well.
            reach = 1 + sum([abs(s) * (n - 1) for n, s in zip(layout.shape, layout.strides) if n > 1])
            if reach * layout.element.bits > (INT64 - 1) * 8:
                raise InvalidProblemError(
                    f"{self.op}: {operand.name} of shape {layout.shape} and strides {layout.strides} reaches over 2**63 bytes "
                    "or more",
                    "give what fits in memory",
                )
            if math.prod(layout.shape) >= INT64:
                raise InvalidProblemError(
                    f"{self.op}: {operand.name} of shape {layout.shape} has 2**63 elements or more",
                    "give a shape whose elements a 64-bit index counts",
                )

    # ---- fields, as users give them -------------------------------------------------------------------------------

    def align_of(self, name: str, displacement: int = 0) -> int:
        """The alignment of an operand's first touched element, from `<name>_align` (at most 16). If that is None, the operand's
        address is assumed to be aligned to 16, and the element to be `displacement` bytes behind it."""
        align = getattr(self, f"{name}_align")
        if align is None:
            return alignment_of(displacement)
        return min(16, int(align))

    def _names_op(self, known: Any, field: str) -> None:
        """Converts the field that names the op. It comes first, because errors name the class until then."""
        complete(self, **{field: choice(known)(getattr(self, field), f"{type(self).__name__}: {field}")})

    def _member(self, known: Any, *names: str, upper: bool = False) -> None:
        """Converts fields to members of an enumeration (a class with `of`), or checks names against several, `upper` in capitals
        however they were given."""
        made = choice(known)
        self._each(names, (lambda value, what: made(_in_capitals(value), what)) if upper else made)

    def _ints(self, *names: str) -> None:
        """Converts shapes and strides."""
        self._each(names, integers)

    def _int(self, *names: str) -> None:
        """Converts counts, axes and alignments."""
        self._each(names, integer)

    def _kind(self, *names: str) -> None:
        """Converts element kinds."""
        self._each(names, kind)

    def _each(self, names: Sequence[str], made: Callable[[Any, str], Any]) -> None:
        """Replaces each field by ``made(value, its description)``; None stays where it is the default."""
        for name in names:
            value = getattr(self, name)
            if value is not None or type(self).__dataclass_fields__[name].default is not None:
                complete(self, **{name: made(value, f"{self.op}: {name}")})

    def to_dict(self) -> dict[str, Any]:
        """Fields as JSON types; numbers that JSON lacks as ``"nan"``, ``"inf"`` and ``"-inf"``."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def _in_capitals(value: Any) -> Any:
    return value.upper() if isinstance(value, str) else value


def resolved_strides(shape: tuple[int, ...], strides: tuple[int, ...] | None, element: ElementKind) -> tuple[int, ...]:
    """C order by default; the strides of axes that cannot be stepped along read as in C order."""
    default = c_strides(shape, element)
    if strides is None or 0 in shape:
        return default
    return tuple(d if n == 1 else s for n, s, d in zip(shape, strides, default))
