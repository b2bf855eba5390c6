"""The descriptor and the plan of a fused function: a graph of elementwise rows on arrays that broadcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from ....plan.about.report import Report
from ....plan.descriptor import Layout, Operand, integers
from ....plan.fields import integer
from ....plan.fields import kind as kind_named
from ....plan.plan import Plan
from ....samples.sample import values
from ....tensor import intake
from ....tensor.axes import dense_like
from ....types import (
    Componentwise,
    ElementKind,
    InvalidProblemError,
    MathPrecision,
    OpCategory,
    PrecisionGuarantee,
    Term,
    UnsupportedError,
)
from ....types.errors import shown
from ....types.keeping import complete
from .. import oracle as of_rows
from .._descriptor import MapDescriptor
from .._family import GraphPlan
from .._promotion import Computed, check_output
from .._row import NUMBERS, Row
from . import oracle
from ._bound import MEASURES, unbounded
from ._kinds import Input, Typed, stored_as, typed
from ._source import functors, instructions
from .graph import MAX_INPUTS, MAX_OUTPUTS, Graph
from .rows.candidate import CANDIDATES
from .rows.shapes import Shapes, shapes_of

__all__ = ["FusedDescriptor", "FusedPlan", "outputs_of"]

Ints = tuple[int, ...]
SOURCE = "first-order propagation through the graph (baracuda_py/ops/elementwise/fused/_bound.py)"
INPUTS = tuple(f"x{place + 1}" for place in range(MAX_INPUTS))
OUTPUTS = ("out", *(f"out{place + 1}" for place in range(MAX_OUTPUTS)))
NO_ROW = Row("fuse", "", of_rows.where, "", "", domain=(*NUMBERS, ElementKind.BOOL))


def outputs_of(count: int) -> tuple[str, ...]:
    """What so many results are called."""
    return ("out",) if count == 1 else OUTPUTS[1 : count + 1]


@dataclass(frozen=True, repr=False)
class FusedDescriptor(MapDescriptor):
    """`graph`, the text of a `Graph`, on inputs x1, x2, ...: each an array, or a number, whose shape is None and whose element is
    f64 for a float and i64 for an int. `strides` and `aligns` are the arrays', `out_strides` and `out_aligns` those of the
    outputs: `out`, or `out1`, `out2`, ... where there are several. `numbers` are the numbers."""

    graph: str
    shapes: tuple[tuple[int, ...] | None, ...]
    elements: tuple[ElementKind, ...]
    out_element: ElementKind | None = None
    strides: tuple[tuple[int, ...] | None, ...] | None = None
    aligns: tuple[int | None, ...] | None = None
    out_strides: tuple[tuple[int, ...] | None, ...] | None = None
    out_aligns: tuple[int | None, ...] | None = None
    numbers: tuple[float, ...] | None = None

    values: ClassVar[tuple[str, ...]] = INPUTS
    signature_operands: ClassVar[tuple[Operand, ...]] = (
        *(Operand(name, optional=True) for name in INPUTS),
        *(Operand(name, "out", optional=True) for name in OUTPUTS),
    )

    def __post_init__(self) -> None:
        for name in ("shapes", "elements", "strides", "aligns", "out_strides", "out_aligns"):
            given = getattr(self, name)
            if given is None and name not in ("shapes", "elements"):
                continue
            count = len(self.outputs) if name.startswith("out") else len(self.inputs)
            if not isinstance(given, (tuple, list)) or len(given) != count:
                raise InvalidProblemError(f"fuse: {name}={shown(given)} are not {count} entries", "give one an operand")
            made = {"elements": kind_named, "aligns": integer, "out_aligns": integer}.get(name, integers)
            empty = name != "elements"
            read = (None if x is None and empty else made(x, f"fuse: {name}") for x in given)
            complete(self, **{name: tuple(read)})
        self._kind("out_element")
        if self.numbers is not None:
            complete(self, numbers=self._as_numbers(self.numbers))

    @classmethod
    def of(cls, graph: str, *arrays: Any, out: Any = None) -> Self:
        """The descriptor of arrays of any layout, and of Python numbers among them, in the order x1, x2, ...; `out` is an array,
        or a tuple of them for several outputs."""
        held = [None if type(x) in (int, float) else intake(x, what=f"fuse: x{i + 1}") for i, x in enumerate(arrays)]
        wide = {float: ElementKind.F64, int: ElementKind.I64}
        fields: dict[str, Any] = {
            "shapes": tuple(t and t.shape for t in held),
            "elements": tuple(t.element if t is not None else wide[type(x)] for t, x in zip(held, arrays)),
            "strides": tuple(t and t.strides for t in held),
            "aligns": tuple(t and t.align for t in held),
            "numbers": tuple(x for t, x in zip(held, arrays) if t is None) or None,
        }
        outs = out if isinstance(out, tuple) else (out,)
        if out is not None:
            to = [None if x is None else intake(x, what="fuse: out") for x in outs]
            for one in to:
                if one is not None:
                    check_output("fuse", fields.get("out_element", one.element), one.element)
                    fields["out_element"] = one.element
            fields["out_strides"] = tuple(t and t.strides for t in to)
            fields["out_aligns"] = tuple(t and t.align for t in to)
        return cls(graph, **fields)

    # ---- operands -------------------------------------------------------------------------------------------------

    @cached_property
    def parsed(self) -> Graph:
        return Graph.parse(self.graph, len(self.shapes) if isinstance(self.shapes, (tuple, list)) else 0)

    @cached_property
    def typed(self) -> Typed:
        """The graph with the types of its values."""
        given: list[Input] = []
        for name, shape, element in zip(self.inputs, self.shapes, self.elements):
            if shape is None and element not in (ElementKind.F64, ElementKind.I64):
                raise InvalidProblemError(
                    f"fuse: the number {name} is of kind {element}", "give f64, or i64 for an int"
                )
            given.append(element if shape is not None else float if element is ElementKind.F64 else int)
        return typed(self.parsed, tuple(given))

    @property
    def op(self) -> str:
        return "fuse"

    @property
    def row(self) -> Row:
        return NO_ROW

    @cached_property
    def inputs(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.parsed.names

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        return outputs_of(len(self.parsed.outputs))

    def _shape(self, name: str) -> Ints | None:
        return self.shapes[self.inputs.index(name)]

    def _element(self, name: str) -> ElementKind | None:
        return self.elements[self.inputs.index(name)]

    def _strides(self, name: str) -> Ints | None:
        held, names = (self.out_strides, self.outputs) if name in self.outputs else (self.strides, self.inputs)
        return held[names.index(name)] if held else None

    def _align(self, name: str) -> int | None:
        held, names = (self.out_aligns, self.outputs) if name in self.outputs else (self.aligns, self.inputs)
        return held[names.index(name)] if held else None

    def relaid(self, laid: Mapping[str, tuple[Ints | None, Ints]]) -> dict[str, Any]:
        shapes, strides = (
            dict(zip(self.inputs, self.shapes)),
            {n: self._strides(n) for n in (*self.inputs, *self.outputs)},
        )
        shapes |= {name: shape for name, (shape, _) in laid.items() if shape is not None}
        strides |= {name: steps for name, (_, steps) in laid.items()}
        of = {"shapes": tuple(shapes.values()), "strides": tuple(strides[name] for name in self.inputs)}
        return of | {"out_strides": tuple(strides[name] for name in self.outputs)}

    @cached_property
    def shapes_of_values(self) -> Shapes:
        return shapes_of(self.parsed, dict(zip(self.inputs, self.shapes)), self.out_shape)

    def is_whole(self, output: str) -> bool:
        """Whether a result has the common shape; otherwise it has one value a row."""
        return self.shape_of(output) == self.out_shape

    def shape_of(self, output: str) -> Ints:
        return self.shapes_of_values.of[self.parsed.outputs[self.outputs.index(output)]]

    def _lies(self, name: str) -> Layout:
        if name not in self.outputs:
            return super()._lies(name)
        shape, strides = self.shape_of(name), self._strides(name)
        whole = dense_like(shape, self._order(shape)) if strides is None else strides
        return self._checked(name, shape, whole, self.typed.kind)

    @cached_property
    def masks(self) -> tuple[bool, ...]:
        return (False,) * len(self.inputs)

    @cached_property
    def kinds(self) -> tuple[ElementKind, ...]:
        return tuple(element for element, shape in zip(self.elements, self.shapes) if shape is not None)

    def kind_of(self, name: str) -> ElementKind:
        return self.typed.inputs[self.inputs.index(name)] if name in self.inputs else self.typed.kind

    @cached_property
    def moved(self) -> bool:
        return False

    @property
    def needed(self) -> tuple[str, ...]:
        return ()

    # ---- validity and the canonical form --------------------------------------------------------------------------

    def check(self) -> None:
        if not self.arrays:
            raise InvalidProblemError("fuse: all arguments are numbers, and one must be an array", "pass an array")
        if any(n < 0 for name in self.arrays for n in self._shape(name) or ()):
            raise InvalidProblemError(
                f"fuse: shapes {shown(self.shapes)} have a negative extent", "give extents of 0 or more"
            )
        for align in (*(self.aligns or ()), *(self.out_aligns or ())):
            if align is not None and (align < 1 or align & (align - 1)):
                raise InvalidProblemError(
                    f"fuse: {align} is no alignment", "give a power of two of bytes, 16 at most counts"
                )
        check_output("fuse", self.typed.kind, self.out_element)
        axes, kept = self.shapes_of_values.axes, self.out_shape[: len(self.out_shape) - self.shapes_of_values.axes]
        for output, result in zip(self.outputs, self.parsed.outputs):
            shape = self.shapes_of_values.of[result]
            if shape not in (self.out_shape, *([(*kept, *(1,) * axes), kept] if axes else [])):
                raise InvalidProblemError(
                    f"fuse: {output} depends on inputs of the common shape {shape} alone, and one kernel writes results of one "
                    f"shape, {self.out_shape}",
                    "fuse one function for each, or leave out what it does not use",
                )
        for name in (*self.outputs, *self.arrays):
            self.layout(name)

    def canonical(self) -> Self:
        laid = {name: self.layout(name) for name in (*self.arrays, *self.outputs)}
        every: dict[str, Any] = {
            "strides": tuple(laid[n].strides if n in laid else None for n in self.inputs),
            "aligns": tuple(laid[n].align if n in laid else None for n in self.inputs),
            "out_strides": tuple(laid[n].strides for n in self.outputs),
            "out_aligns": tuple(laid[n].align for n in self.outputs),
        }
        return replace(self, out_element=self.typed.kind, numbers=None, **every)

    # ---- what is computed -----------------------------------------------------------------------------------------

    @property
    def accumulator(self) -> ElementKind:
        """The widest type that a row computes in."""
        wide = any(step.computed.type == "double" for step in self.typed.steps)
        return ElementKind.F64 if wide or self.typed.kind is ElementKind.F64 else ElementKind.F32

    @property
    def instructions(self) -> tuple[float, float]:
        return instructions(self.typed)

    def computed(self) -> Computed:
        types = self.typed
        return Computed(
            types.carrier, types.kind.digits or 24, stored_as(types.kind), tuple(map(stored_as, types.inputs))
        )

    def functors(self) -> tuple[Mapping[str, str], tuple[str, ...]]:
        return functors(self.typed)

    def guarantee(self) -> PrecisionGuarantee:
        """The rounding of each row, carried through those behind it, and that of the result to 16 bits."""
        types, kind = self.typed, self.typed.kind
        if not kind.is_float and all(step.computed.type not in ("float", "double") for step in types.steps):
            return PrecisionGuarantee.exact(kind)
        without = unbounded(types)
        outside = "parts_without_a_bound" if without else "intermediate_overflows"
        source = f"{SOURCE}; there is no bound where {', '.join(without)} takes what is rounded" if without else SOURCE
        propagated = Term(1.0, self.accumulator, "propagated")
        bound = Componentwise((propagated,), source, outside)
        if kind.is_float and kind.digits < 24:
            bound = Componentwise.rounded((propagated,), kind, source, outside)
        math = MathPrecision.F64 if self.accumulator is ElementKind.F64 else MathPrecision.F32
        flushes = any(step.row.ulps.flushed > 0 for step in types.steps)
        made = PrecisionGuarantee(math, self.accumulator, True, True, True, flushes, bound)
        return PrecisionGuarantee.by_output(**dict.fromkeys(self.outputs, made)) if len(self.outputs) > 1 else made


class FusedPlan(GraphPlan, Plan[FusedDescriptor]):
    """A fused function: operands x1, x2, ... and `out`, or `out1`, `out2`, ..."""

    descriptor = FusedDescriptor
    category = OpCategory.added("fused")
    candidates = CANDIDATES
    measures = MEASURES
    evaluate = staticmethod(oracle.evaluate)

    @classmethod
    def sku_elements(cls, desc: Any) -> tuple[ElementKind, ElementKind | None]:
        first, out = desc.kind_of(desc.arrays[0]), desc.typed.kind
        return first, None if first is out else out

    def verify(self, **operands: Any) -> Report:
        """Runs on copies of the operands, or on random ones of the plan's layouts where none are given, and checks the results
        against the oracle and the guarantee (AssertionError)."""
        if operands:
            return super().verify(**operands)
        if not self.device.host_memory:
            raise UnsupportedError("fuse: verify has no samples on a GPU", "pass operands: plan.verify(x1=..., ...)")
        rng, made = np.random.default_rng(0), dict[str, Any]()
        for name in self.desc.arrays:
            layout = self.desc.layout(name)
            made[name] = _laid(values(rng, layout.shape, layout.element), layout.strides)
        numbers = {name: 1 if self.desc.kind_of(name).is_integer else 1.5 for name in self.desc.numbered}
        return super().verify(**made, **({} if self.desc.numbers else numbers))


def _laid(x: Any, strides: Sequence[int]) -> Any:
    """The values with these strides, as far as they have a place each; else in C order."""
    size = x.dtype.itemsize
    if 0 in x.shape or any(s <= 0 for s, n in zip(strides, x.shape) if n > 1):
        return x
    reach = 1 + sum(s * (n - 1) for s, n in zip(strides, x.shape))
    held = np.lib.stride_tricks.as_strided(np.empty(reach, x.dtype), x.shape, [s * size for s in strides])
    held[...] = x
    return held
