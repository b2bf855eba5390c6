"""What a problem is: a frozen descriptor of structure and values, and the operands it speaks of."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from ..tensor import Tensor
from ..tensor.axes import INT64, alignment_of, as_ints, c_strides, index_of, span
from ..types import ElementKind, InvalidProblemError, OperandTypeError
from ..types.errors import shown
from ..types.vocabulary import unknown

__all__ = ["Descriptor", "Layout", "Operand", "ProblemKey", "integers", "scalar"]

RANK = 64  # axes, as many as NumPy's arrays have
T = TypeVar("T")


class Operand(NamedTuple):
    """One operand of an op. `role` is ``"in"``, ``"out"`` (may be allocated) or ``"inout"`` (written in place)."""

    name: str
    role: str = "in"
    optional: bool = False

    @property
    def written(self) -> bool:
        return self.role != "in"


class Layout(NamedTuple):
    """How an operand must lie in memory. Strides count elements; `align` and `phase` are those of the first element touched,
    and `phase` is its place in its byte."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: ElementKind
    align: int = 16
    phase: int = 0

    @property
    def natural(self) -> int:
        """Bytes of an element: the alignment that an access of one needs."""
        return max(1, self.element.bits // 8)


class ProblemKey(NamedTuple):
    """What measured winners of a problem are kept under: a text that a later version spells alike, and the extent called
    `axis`, left out of the text, whose neighbours may share winners; 0 where there is none."""

    text: str
    extent: int = 0
    axis: str = ""


@dataclass(frozen=True)
class Descriptor:
    """Base of every descriptor.

    A subclass is a frozen dataclass. It names its op, lists its operands and run-time values, gives each operand's
    layout, and says what `canonical` makes neutral. At construction `__post_init__` gives every field its own type, by the
    helpers below: lists and NumPy ints become tuples of ints, names members. Whether the problem makes sense is asked by
    `select`, through `validate`.
    """

    values: ClassVar[tuple[str, ...]] = ()
    signature_operands: ClassVar[tuple[Operand, ...]] = ()  # all that a problem of the family may have

    # -- what a family says -----------------------------------------------------------------------------------------

    @property
    def op(self) -> str:
        """The op's public name, for errors and the sku."""
        raise NotImplementedError

    @property
    def operands(self) -> tuple[Operand, ...]:
        raise NotImplementedError

    def layout(self, name: str) -> Layout:
        raise NotImplementedError

    def check(self) -> None:
        """Raises InvalidProblemError or OperandTypeError where the family cannot make sense of the problem; its integers fit
        64 bits, and no shape has more than `RANK` axes."""
        raise NotImplementedError

    def canonical(self) -> Self:
        """The same problem with defaults filled in and every run-time value neutral."""
        return self

    def at(self, given: Mapping[str, Any]) -> Self:
        """The same problem with the run-time values of `given` put in; raises where they are out of range."""
        return self

    def resolve(self, given: Mapping[str, Any]) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        """The short form of `at`: each operand's displacement in bytes, and the scalars steps ask for with Run(...)."""
        return self.displacements(), {}

    def displacements(self) -> tuple[int, ...]:
        """Bytes from each operand's first element to the first one touched."""
        return (0,) * len(self.operands)

    def footprint(self, name: str, tensor: Tensor) -> Tensor:
        """The part of an operand that is read or written, its pointer moved by its displacement."""
        return tensor

    def in_place(self, written: str, read: str) -> bool:
        """Whether `written` may be the very same view as `read`."""
        return False

    @property
    def empty(self) -> bool:
        """Whether nothing is written, so that nothing is launched."""
        written = [o.name for o in self.operands if o.written and not o.optional]
        return all(0 in self.layout(name).shape for name in written)

    def problem_key(self) -> ProblemKey:
        """The key of a canonical problem. Fields at their default are not spelled, so that a new one voids nothing."""
        used = {f.name: value for f in fields(self) if (value := _plain(getattr(self, f.name))) != _plain(f.default)}
        return ProblemKey(json.dumps(used, sort_keys=True))

    # -- validity ---------------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Raises InvalidProblemError or OperandTypeError where the problem makes no sense, or no memory could hold it."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("align") and value is not None and (value < 1 or value & (value - 1)):
                raise InvalidProblemError(
                    f"{self.op}: {field.name}={value} is no alignment",
                    "give a power of two of bytes, 16 at most counts",
                )
            if isinstance(value, tuple) and len(value) > RANK:
                raise InvalidProblemError(f"{self.op}: {field.name} has {len(value)} axes", f"give {RANK} at most")
        self.check()
        for operand in self.operands:
            layout = self.layout(operand.name)
            extents = [max(n, 1) for n in layout.shape]  # so that an empty array's strides are within bounds as well
            if span(extents, [abs(s) for s in layout.strides], layout.element)[1] >= INT64:
                raise InvalidProblemError(
                    f"{self.op}: {operand.name} of shape {layout.shape} and strides {layout.strides} reaches over 2**63 bytes "
                    "or more",
                    "give what fits in memory",
                )

    # -- fields, as users give them -----------------------------------------------------------------------------------

    def _align(self, name: str, displacement: int = 0) -> int:
        """The alignment of an operand's first touched element, as `<name>_align` says it (more than 16 counts as 16). Left
        open, the operand's own address is taken for aligned to 16 and the element for `displacement` bytes on."""
        align = getattr(self, f"{name}_align")
        if align is None:
            return alignment_of(displacement)
        return min(16, int(align))

    def _ints(self, *names: str) -> None:
        """Shapes and strides."""
        self._each(names, integers)

    def _int(self, *names: str) -> None:
        """Counts, axes and alignments."""
        self._each(names, integer)

    def _kind(self, *names: str) -> None:
        """Element kinds."""
        self._each(names, lambda value, _what: ElementKind.of(value))

    def _scalar(self, *names: str) -> None:
        """Run-time values. There is one NaN, so that a descriptor with it equals its copy."""
        self._each(names, lambda value, what: number if (number := scalar(value, what)) == number else math.nan)

    def _member(self, known: Any, *names: str) -> None:
        """Members of an enumeration (a class with `of`), or names out of several."""
        self._each(names, _choice(known))

    def _names_op(self, known: Any, field: str) -> None:
        """The field that names the op, first of all: until it is known, errors speak of the class."""
        object.__setattr__(self, field, _choice(known)(getattr(self, field), f"{type(self).__name__}: {field}"))

    def _each(self, names: Sequence[str], made: Callable[[Any, str], Any]) -> None:
        """Puts ``made(value, what it is)`` in the place of each field; None stays where it is the default."""
        for name in names:
            value = getattr(self, name)
            if value is not None or type(self).__dataclass_fields__[name].default is not None:
                object.__setattr__(self, name, made(value, f"{self.op}: {name}"))

    def to_dict(self) -> dict[str, Any]:
        """Fields as JSON types; numbers that JSON lacks as ``"nan"``, ``"inf"`` and ``"-inf"``."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def integer(value: Any, what: str) -> int:
    """`index_of` with errors that name what the value is."""
    return _told(index_of, value, what, "an integer", "an int")


def integers(values: Any, what: str) -> tuple[int, ...]:
    """A tuple of Python ints from a tuple, a list or a NumPy array of them: what has an order and an end."""
    return _told(as_ints, values, what, "a sequence of integers", "a tuple of ints")


def _told(made: Callable[[Any], T], value: Any, what: str, wanted: str, hint: str) -> T:
    try:
        return made(value)
    except OverflowError:
        raise InvalidProblemError(
            f"{what}={shown(value)} reaches beyond 64 bits", f"give {hint} of memory's size"
        ) from None
    except Exception:  # whatever a stranger's __index__ or __len__ raises
        raise InvalidProblemError(f"{what}={shown(value)} is not {wanted}", f"give {hint}") from None


def scalar(value: Any, what: str) -> float:
    """A float, the one NaN for any, so that a descriptor equals itself. Arrays are refused: reading one that lies on the
    device would wait for it."""
    if type(value) is float:
        return math.nan if value != value else value
    name = what.split()[-1]
    if not isinstance(value, (float, int, np.floating, np.integer)):
        raise OperandTypeError(f"{what} must be a number, got {type(value).__name__}", f"{name}=float(...)")
    try:
        return scalar(float(value), what)
    except OverflowError:
        bits = int(value).bit_length()
        raise InvalidProblemError(
            f"{what} is an integer of {bits} bits, beyond any float", f"{name}=math.inf"
        ) from None


def _choice(known: Any) -> Callable[[Any, str], Any]:
    """What takes a value to a member of an enumeration, or to one of several names."""

    def one_of(value: Any, what: str) -> str:
        if not isinstance(value, str) or value not in known:
            raise unknown(value, known, what)
        return str(value)

    return one_of if isinstance(known, tuple) else known.of


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, np.integer):
        return int(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def resolved_strides(shape: tuple[int, ...], strides: tuple[int, ...] | None, element: ElementKind) -> tuple[int, ...]:
    """C order by default; the strides of axes that cannot be stepped along read as in C order."""
    default = c_strides(shape, element)
    if strides is None or 0 in shape:
        return default
    return tuple(d if n == 1 else s for n, s, d in zip(shape, strides, default))
