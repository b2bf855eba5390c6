"""What a problem is: a frozen descriptor of structure and values, and the operands it speaks of."""

from __future__ import annotations

import enum
import operator
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from ..tensor import Tensor
from ..tensor.axes import alignment_of, as_ints, c_strides
from ..types import ElementKind, InvalidProblemError

__all__ = ["Descriptor", "Layout", "Operand"]


class Operand(NamedTuple):
    """One operand of an op. `role` is ``"in"``, ``"out"`` (may be allocated) or ``"inout"`` (written in place)."""

    name: str
    role: str = "in"
    optional: bool = False

    @property
    def written(self) -> bool:
        return self.role != "in"


class Layout(NamedTuple):
    """How an operand must lie in memory. Strides count elements; `align` is that of the first element touched."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: ElementKind
    align: int = 16

    @property
    def natural(self) -> int:
        """Bytes of an element: the alignment that an access of one needs."""
        return max(1, self.element.bits // 8)


@dataclass(frozen=True)
class Descriptor:
    """Base of every descriptor.

    A subclass is a frozen dataclass. It names its op, lists its operands and run-time values, gives each operand's
    layout, and says what `canonical` makes neutral. Lists, slices and NumPy ints become tuples of ints at construction;
    nothing is validated before `select`.
    """

    values: ClassVar[tuple[str, ...]] = ()

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

    def validate(self) -> None:
        """Raises InvalidProblemError or OperandTypeError where the problem makes no sense."""
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

    # -- helpers ----------------------------------------------------------------------------------------------------

    def _align(self, name: str, displacement: int = 0) -> int:
        """The alignment of an operand's first touched element, as `<name>_align` says it (more than 16 counts as 16). Left
        open, the operand's own address is taken for aligned to 16 and the element for `displacement` bytes on."""
        align = getattr(self, f"{name}_align")
        if align is None:
            return alignment_of(displacement)
        if not isinstance(align, (int, np.integer)) or align < 1 or align & (align - 1):
            raise InvalidProblemError(
                f"{self.op}: {name}_align={align!r} is no alignment in bytes", "give a power of two, or leave it out"
            )
        return min(16, int(align))

    def _ints(self, *names: str) -> None:
        """Normalises fields that are shapes or strides (None stays None)."""
        for name in names:
            value = getattr(self, name)
            if value is not None:
                try:
                    object.__setattr__(self, name, as_ints(value))
                except (TypeError, AttributeError):
                    raise InvalidProblemError(
                        f"{type(self).__name__}: {name}={value!r} is not a sequence of integers", "give a tuple of ints"
                    ) from None

    def _count(self, name: str) -> None:
        """Normalises a field that is an integer."""
        value = getattr(self, name)
        try:
            object.__setattr__(self, name, operator.index(value))
        except TypeError:
            raise InvalidProblemError(
                f"{type(self).__name__}: {name}={value!r} is not an integer", "give an int"
            ) from None

    def _kind(self, *names: str) -> None:
        for name in names:
            object.__setattr__(self, name, ElementKind.of(getattr(self, name)))

    def to_dict(self) -> dict[str, Any]:
        """Fields as JSON types."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value


def resolved_strides(shape: tuple[int, ...], strides: tuple[int, ...] | None, element: ElementKind) -> tuple[int, ...]:
    """C order by default; the strides of axes that cannot be stepped along read as in C order."""
    default = c_strides(shape, element)
    if strides is None or 0 in shape:
        return default
    return tuple(d if n == 1 else s for n, s, d in zip(shape, strides, default))
