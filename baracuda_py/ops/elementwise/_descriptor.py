"""Elementwise problems: inputs that are arrays or run-time numbers, and an output of the shape to which the arrays broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

from ...plan.descriptor import Descriptor, Layout, Operand, resolved_strides
from ...plan.slot import of_complex
from ...tensor import how_to_wrap, intake
from ...tensor.axes import broadcast_shapes, broadcast_strides, collapse, dense_like
from ...types import ElementKind, InvalidProblemError, OperandTypeError, PrecisionGuarantee
from ...types.errors import shown
from ._promotion import (
    WEAK,
    Computed,
    Missing,
    are_numbers,
    check_output,
    check_own_kind,
    common_kind,
    computed,
    counted_as,
    guarantee_of,
    lowest,
    number,
    result_kind,
    row_of,
)  # fmt: skip
from ._row import NUMBERS, Row, cast_name, functor

__all__ = ["MapDescriptor"]

Ints = tuple[int, ...]
_NO_NUMBERS: Mapping[str, Any] = {"numbers": None}
_JSON = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class MapDescriptor(Descriptor):
    """Base of the elementwise descriptors.

    An input whose shape is None is a number of the kind that its element says, given at run time under its name; one whose
    element is None as well is absent. `numbers` are those numbers and the row's params, in that order; a kernel takes them as
    arguments, so that `canonical` leaves them out.
    """

    inputs: ClassVar[tuple[str, ...]] = ()
    kind: Any
    out_element: ElementKind | None
    numbers: tuple[float, ...] | None

    def _prepare(self, kinds: Any) -> None:
        """Every field in its own type."""
        if kinds is not None:
            self._names_op(kinds, "kind")
        for name, argument in zip(self.inputs, self.row.arguments):
            shape, element = self._names(name)
            if getattr(self, shape) is not None or len(self.inputs) == 1:
                self._ints(shape)
            if getattr(self, element) is not None or argument not in self.row.absent:
                self._kind(element)
        self._kind("out_element")
        for operand in self.signature_operands:  # those too that this problem lacks
            self._ints(f"{operand.name}_strides")
            self._int(f"{operand.name}_align")
        if self.numbers is not None:
            object.__setattr__(self, "numbers", self._as_numbers(self.numbers))

    def _as_numbers(self, given: Any) -> tuple[Any, ...]:
        """The numbers as stored: as many as there are, of their kinds."""
        if not isinstance(given, (tuple, list)) or len(given) != len(self.numbered):
            raise InvalidProblemError(
                f"{self.op}: numbers={shown(given)} are not the {len(self.numbered)} numbers that this problem takes",
                f"give a tuple of {', '.join(self.numbered) or 'none'}",
            )
        given = [_JSON.get(x, x) if isinstance(x, str) else x for x in given]
        self._result()  # raises for a kind that the function does not take, of which no number is right
        return tuple(number(x, self.kind_of(name), f"{self.op}: {name}") for name, x in zip(self.numbered, given))

    # ---- inputs ---------------------------------------------------------------------------------------------------

    def _names(self, name: str) -> tuple[str, str]:
        """The fields of an input's shape and element."""
        return f"{name}_shape", f"{name}_element"

    def _shape(self, name: str) -> Ints | None:
        return getattr(self, self._names(name)[0])  # type: ignore[no-any-return]

    def _element(self, name: str) -> ElementKind | None:
        return getattr(self, self._names(name)[1])  # type: ignore[no-any-return]

    def _strides(self, name: str) -> Ints | None:
        return getattr(self, f"{name}_strides")  # type: ignore[no-any-return]

    def _align(self, name: str) -> int | None:
        return getattr(self, f"{name}_align")  # type: ignore[no-any-return]

    @property
    def row(self) -> Row:
        return row_of(self.kind.value)

    @property
    def op(self) -> str:
        return self.row.name

    @cached_property
    def arrays(self) -> tuple[str, ...]:
        """The inputs that are arrays."""
        return tuple(name for name in self.inputs if self._shape(name) is not None)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The operands that are written; they have one shape and one kind."""
        return ("out",)

    @cached_property
    def numbered(self) -> tuple[str, ...]:
        """What is given as a number at run time: inputs, then the row's params."""
        numbers = (n for n in self.inputs if self._shape(n) is None and self._element(n) is not None)
        return (*numbers, *self.row.params)

    @cached_property
    def masks(self) -> tuple[bool, ...]:
        return tuple(argument in self.row.mask for argument in self.row.arguments)

    @cached_property
    def kinds(self) -> tuple[ElementKind, ...]:
        """The kinds of the inputs that are there and have a part in the result's kind."""
        own = self.row.of_own_kind
        held = (self._element(name) for name, argument in zip(self.inputs, self.row.arguments) if argument not in own)
        return tuple(kind for kind in held if kind is not None)

    def kind_of(self, name: str) -> ElementKind:
        """The kind of an input, of a param, or of the output."""
        if name in self.row.params:
            kind = self.common if self.row.result == "bool" else self.kind_of("out")
            return kind if kind is ElementKind.F64 or not kind.is_float else ElementKind.F32
        return (self._element(name) or self.common) if name in self.inputs else self.out_element or self._result()

    @property
    def common(self) -> ElementKind:
        """The kind in which the inputs are compared."""
        return common_kind(self.row, *self.kinds)

    def stands_in(self, name: str) -> Any:
        """The number that stands for an input that was left out."""
        argument = self.row.arguments[self.inputs.index(name)]
        return lowest(self.kind_of(name), highest=self.row.absent[argument] == "highest")

    @cached_property
    def moved(self) -> bool:
        """Whether kernels only move bits: what they mean is not asked."""
        if self.row.result == "given":
            return True
        return (
            self.row.moves and all(n in self.arrays for n in self.inputs) and {self.kind_of("out")} == set(self.kinds)
        )

    @property
    def operands(self) -> tuple[Operand, ...]:
        return (*(Operand(name, "out") for name in self.outputs), *(Operand(name) for name in self.arrays))

    @property
    def needed(self) -> tuple[str, ...]:
        """Fields that must be given although they have a default in other problems of the family."""
        return ("out_element",) if self.row.result == "given" else ()

    # ---- layouts --------------------------------------------------------------------------------------------------

    def _result(self) -> ElementKind:
        if self.row.result != "given":
            return result_kind(self.row, *self.kinds)
        if self.out_element is None:
            raise InvalidProblemError(f"{self.op}: out_element is missing", "say what to cast to: out_element='f32'")
        for kind in (*self.kinds, self.out_element):
            if kind not in self.row.domain:
                fix = of_complex("x") if kind.is_complex else "cast it to or from a kind of whole bytes"
                raise OperandTypeError(f"{self.op}: {kind} is not supported", fix)
        return self.out_element

    @cached_property
    def out_shape(self) -> Ints:
        shapes = [self._shape(name) or () for name in self.arrays]
        try:
            return broadcast_shapes(*shapes)
        except ValueError:
            said = " and ".join(f"{name} of shape {shape}" for name, shape in zip(self.arrays, shapes))
            raise InvalidProblemError(
                f"{self.op}: {said} do not broadcast", "make each pair of extents equal, or one of them 1"
            ) from None

    def layout(self, name: str) -> Layout:
        made = self._layouts.get(name)
        if made is None:
            made = self._layouts[name] = self._lies(name)
        return made

    def _lies(self, name: str) -> Layout:
        if name not in self.outputs:
            shape, kind = self._shape(name) or (), self.kind_of(name)
            return self._checked(name, shape, self._strides(name), kind)
        shape = self.out_shape
        strides = self._strides(name)
        if strides is None:
            strides = dense_like(shape, self._order(shape))
        return self._checked(name, shape, strides, self.kind_of("out"))

    def relaid(self, laid: Mapping[str, tuple[Ints | None, Ints]]) -> dict[str, Any]:
        """The fields that give operands other shapes (None: the same) and strides."""
        shapes = {f"{name}_shape": shape for name, (shape, _) in laid.items() if shape is not None}
        return {**shapes, **{f"{name}_strides": strides for name, (_, strides) in laid.items()}}

    def _order(self, shape: Ints) -> Ints:
        """The strides whose axis order a fresh output takes: the first input that has the whole shape."""
        for name in self.arrays:
            layout = self.layout(name)
            if layout.shape == shape:
                return layout.strides
        return tuple(range(len(shape), 0, -1))

    def _checked(self, name: str, shape: Ints, strides: Ints | None, kind: ElementKind) -> Layout:
        """An operand's layout, refusing strides whose rank is not the shape's."""
        if strides is not None and len(strides) != len(shape):
            raise InvalidProblemError(
                f"{self.op}: {name}_strides {strides} has {len(strides)} axes and {name} has {len(shape)}",
                "give one stride an axis",
            )
        align = self._align(name)
        return Layout(shape, resolved_strides(shape, strides, kind), kind, 16 if align is None else min(16, align))

    def problem(self) -> tuple[Ints, list[Ints]]:
        """The collapsed shape, and the strides of each output and each array in it."""
        strides = [self.layout(name).strides for name in self.outputs]
        for name in self.arrays:
            layout = self.layout(name)
            strides.append(broadcast_strides(layout.shape, layout.strides, self.out_shape))
        return collapse(self.out_shape, strides)  # type: ignore[return-value]

    # ---- what is computed -----------------------------------------------------------------------------------------

    @property
    def instructions(self) -> tuple[float, float]:
        """Instructions of an element, in f32 and for 16-bit results."""
        return self.row.instructions

    def guarantee(self) -> PrecisionGuarantee:
        return guarantee_of(self.row, self.kind_of("out"), self.moved)

    def computed(self) -> Computed:
        """The C++ types of the kernel."""
        kinds = tuple(self.kind_of(name) for name in self.inputs)
        return computed(self.row, self.kind_of("out"), kinds, self.masks, self.moved)

    def functors(self) -> tuple[Mapping[str, str], tuple[str, ...]]:
        """The functor of each output by its name in C++, and the headers that they need."""
        row, computes = self.row, self.row.body
        if row.result == "given":  # a cast names both types
            computes = computes.format(of=cast_name(self.kinds[0]), to=cast_name(self.kind_of("out")))
        return {"Op": functor("Op", row.name, (*row.letters, *row.params), computes)}, row.headers

    # ---- validity and the canonical form --------------------------------------------------------------------------

    def check(self) -> None:
        shapes = [self._shape(name) or () for name in self.arrays]
        if not shapes:
            raise InvalidProblemError(
                f"{self.op}: {are_numbers(self.inputs)}",
                f"give {' or '.join(f'{name}_shape' for name in self.inputs)}",
            )
        if any(n < 0 for shape in shapes for n in shape):
            said = " or ".join(map(str, shapes))
            raise InvalidProblemError(f"{self.op}: shape {said} has a negative extent", "give extents of 0 or more")
        for name, argument in zip(self.inputs, self.row.arguments):
            check_own_kind(self.row, name, argument, self._element(name), is_array=name in self.arrays)
            if self._element(name) is None and (name in self.arrays or argument not in self.row.absent):
                raise InvalidProblemError(f"{self.op}: {name}_element is missing", f"give {name}_element='f32'")
        check_output(self.op, self._result(), self.out_element)
        for kind in () if self.moved else (*self.kinds, self.kind_of("out")):
            if kind not in NUMBERS and kind is not ElementKind.BOOL:
                raise OperandTypeError(
                    f"{self.op}: {kind} is only moved, bit by bit, beside another array of {kind}",
                    f"pass arrays of {kind}",
                )
        for name in (*self.outputs, *self.arrays):
            self.layout(name)

    def canonical(self) -> Self:
        every = [operand.name for operand in self.signature_operands]
        laid: dict[str, Any] = dict.fromkeys(f"{n}_{f}" for n in every for f in ("strides", "align"))
        for name in (*self.arrays, *self.outputs):
            layout = self.layout(name)
            laid |= {f"{name}_strides": layout.strides, f"{name}_align": layout.align}
        laid |= {"out_element": self.kind_of("out")}
        return replace(self, **laid, **_NO_NUMBERS)

    def in_place(self, written: str, read: str) -> bool:
        return read not in self.outputs

    # ---- run-time numbers -----------------------------------------------------------------------------------------

    def at(self, given: Mapping[str, Any]) -> Self:
        operands = (*self.arrays, *self.outputs)
        for name in given:
            if name in self.values and name not in self.numbered and name not in operands:
                raise InvalidProblemError(f"{self.op}: there is no operand {name!r}", f"it takes {', '.join(operands)}")
        if not self.numbered:
            return self
        held = self._held()
        values = [held[name] if given.get(name) is None else given[name] for name in self.numbered]
        for value in values:
            if isinstance(value, Missing):
                raise value.error
        put: dict[str, Any] = {"numbers": tuple(values)}
        return replace(self, **put)

    def resolve(self, given: Mapping[str, Any]) -> tuple[Ints, Mapping[str, Any]]:
        values = self._held()
        for name in self.numbered:
            if given.get(name) is not None:
                values[name] = number(given[name], self.kind_of(name), f"{self.op}: {name}")
        return self.displacements(), values

    def _held(self) -> dict[str, Any]:
        """Each run-time number: as the descriptor has it, or its default, or what complains when it is used."""
        if self.numbers is not None:
            return dict(zip(self.numbered, self.numbers))
        return {n: self.row.params[n] if n in self.row.params else Missing(self.op, n) for n in self.numbered}

    def to_dict(self) -> dict[str, Any]:
        said = super().to_dict()
        if self.numbers is None:
            del said["numbers"]
        return said

    # ---- from arrays ----------------------------------------------------------------------------------------------

    @classmethod
    def _of(
        cls, kinds: Any, kind: Any, given: Mapping[str, Any], out: Any, params: Mapping[str, Any], dtype: Any = None
    ) -> Self:
        """The descriptor of arrays of any layout, and of numbers among them."""
        kind = kinds.of(kind, f"{cls.__name__}: kind")
        return cls._of_row(row_of(kind.value), (kind,), given, {"out": out}, params, dtype)

    @classmethod
    def _of_row(
        cls, row: Row, first: tuple[Any, ...], given: Mapping[str, Any], outputs: Mapping[str, Any],
        params: Mapping[str, Any], dtype: Any = None,
    ) -> Self:  # fmt: skip
        """The same of a row; `first` are the descriptor's first fields."""
        kind = row.name
        for name in params:
            if name not in row.params:
                known = ", ".join(row.params) or "arrays only"
                raise InvalidProblemError(f"{kind}: there is no parameter {name!r}", f"it takes {known}")
        weak = {name: x for name, x in given.items() if type(x) in WEAK}
        optional = {n for n, argument in zip(cls.inputs, row.arguments) if given[n] is None and argument in row.absent}
        held = {n: intake(x, what=f"{kind}: {n}") for n, x in given.items() if n not in weak and n not in optional}
        fields: dict[str, Any] = {}
        for name, out in outputs.items():
            if out is not None:
                to = intake(out, what=f"{kind}: {name}")
                check_output(kind, fields.get("out_element", to.element), to.element)
                fields |= {"out_element": to.element, f"{name}_strides": to.strides, f"{name}_align": to.align}
        if dtype is not None:
            check_output(kind, ElementKind.of(dtype), fields.get("out_element"))
            fields["out_element"] = ElementKind.of(dtype)
        data = {name for name, argument in zip(cls.inputs, row.arguments) if argument not in row.of_own_kind}
        among = [t.element for name, t in held.items() if name in data]
        types = [type(x) for name, x in weak.items() if name in data]
        for name, argument in zip(cls.inputs, row.arguments):
            tensor = held.get(name)
            if tensor is not None:
                fields |= {f"{name}_shape": tensor.shape, f"{name}_element": tensor.element}
                fields |= {f"{name}_strides": tensor.strides, f"{name}_align": tensor.align}
                continue
            counts_as = counted_as(row, argument, weak[name], types, among) if name in weak and held else None
            fields |= {f"{name}_shape": None, f"{name}_element": counts_as}
        if not held:
            raise InvalidProblemError(
                f"{kind}: {are_numbers(row.arguments)}", how_to_wrap(next(iter(weak.values()), 0))
            )
        numbers = [weak[name] for name in cls.inputs if name in weak]
        numbers += [row.params[name] if params.get(name) is None else params[name] for name in row.params]
        made: Any = cls
        return made(*first, **cls._renamed(fields), numbers=tuple(numbers) or None)  # type: ignore[no-any-return]

    @classmethod
    def _renamed(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields by their own names, where an input's shape and element are called otherwise."""
        return fields
