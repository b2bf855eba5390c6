"""The kinds of a graph's values: each row's own rules, one after another, and the type in which a kernel passes its inputs."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from ....plan.slot import of_complex
from ....types import ElementKind, InvalidProblemError, OperandTypeError
from .._promotion import Computed, computed, integer_kind, lowest, number, result_kind, weak_kind, wide_enough
from .._row import NUMBERS, ROWS, Row
from .graph import ENDS, Argument, Graph, Node
from .rows.statistics import OWN

__all__ = ["Input", "Step", "Typed", "Typing", "register_of", "stored_as", "typed"]

Input: TypeAlias = "ElementKind | type[int] | type[float]"  # an array's kind, or the type of a number given at run time
WHOLE = (ElementKind.I64,)  # of an int among floats
TAKEN = (*NUMBERS, ElementKind.BOOL)


class Step(NamedTuple):
    """The types of a node: its result's kind, those of its arguments, and what its row computes in. `weak` is the Python type of
    a result of numbers alone; `args` have a number where an argument was left out, and `to` is the kind that a cast gives."""

    row: Row
    args: tuple[Argument, ...]
    to: ElementKind | None
    kind: ElementKind
    kinds: tuple[ElementKind, ...]
    computed: Computed
    weak: type | None


def _end(kind: ElementKind, end: str) -> int | float:
    """The number of a kind that no other is below, or above."""
    found = lowest(kind, highest=end == "highest")
    return float(found) if kind.is_float else int(found)


def stored_as(kind: ElementKind) -> str:
    """The C++ type of a value of that kind in memory."""
    return "bool" if kind is ElementKind.BOOL else kind.number


def register_of(kind: ElementKind) -> str:
    """The C++ type of a value of that kind between two rows."""
    if kind.is_float:
        return "double" if kind is ElementKind.F64 else "float"
    return stored_as(kind)


class Typing:
    """Finds the types of nodes, in order."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self.inputs = {f"x{place + 1}": of for place, of in enumerate(inputs)}
        self.steps: dict[str, Step] = {}
        self.wide = any(of is ElementKind.F64 for of in inputs)
        for name, of in self.inputs.items():
            if isinstance(of, ElementKind) and of not in TAKEN:
                fix = of_complex(name) if of.is_complex else "cast it to f32 before"
                raise OperandTypeError(f"fuse: {name} holds {of}, which is not computed with", fix)

    def weak_of(self, argument: Argument) -> type | None:
        """The Python type of a number, or of what is computed of numbers alone; None for arrays."""
        if not isinstance(argument, str):
            return type(argument)
        if argument in ENDS:
            return None
        if argument in self.inputs:
            of = self.inputs[argument]
            return of if isinstance(of, type) and not isinstance(of, ElementKind) else None
        return self.steps[argument].weak

    def kind_of(self, argument: str) -> ElementKind:
        """The kind of an array, or of a node."""
        of = self.inputs.get(argument)
        if of is None:
            return self.steps[argument].kind
        return of if isinstance(of, ElementKind) else self.kind_of_numbers([of])

    def kind_of_numbers(self, types: Sequence[type]) -> ElementKind:
        """The kind in which numbers alone are computed."""
        kind = weak_kind(ROWS["add"], types, ())
        return ElementKind.F32 if kind is ElementKind.F64 and not self.wide else kind

    def add(self, node: Node) -> Step:
        """The types of the next node; OperandTypeError or InvalidProblemError where the row does not take its arguments."""
        made = self._statistic(node) if node.op in OWN else self._elementwise(node)
        self.steps[f"t{len(self.steps) + 1}"] = made
        return made

    def _statistic(self, node: Node) -> Step:
        row, (name, axes) = OWN[node.op], node.args
        if not isinstance(name, str) or name in ENDS or self.weak_of(name) is not None:
            raise OperandTypeError(f"{node.op}: numbers alone", "pass an array")
        if type(axes) is not int or axes < 0:
            raise InvalidProblemError(
                f"{node.op}: {axes} is no number of axes", "give how many of the last are reduced"
            )
        kind = self.kind_of(name)
        if node.op != "squeeze" and not kind.is_float:
            raise OperandTypeError(f"{node.op}: {kind} is not summed in a fused function", "bp.cast(x, 'f32') in it")
        own = Computed(register_of(kind), kind.digits or 24, stored_as(kind), (stored_as(kind),))
        return Step(row, node.args, None, kind, (kind, ElementKind.F64), own, None)

    def _elementwise(self, node: Node) -> Step:
        row = ROWS[node.op]
        count = len(row.arguments)
        masks = tuple(argument in row.mask for argument in row.arguments)
        integers = tuple(argument in row.integers for argument in row.arguments)
        own = tuple(map(operator.or_, masks, integers))  # no part in the result's kind
        data = [a for a, beside in zip(node.args, own) if not beside and a not in ENDS]
        weak = [of for a in data if (of := self.weak_of(a)) is not None]
        strong = [self.kind_of(a) for a in data if isinstance(a, str) and self.weak_of(a) is None]
        alone = not strong and all(not beside or self.weak_of(a) is not None for a, beside in zip(node.args, own))
        counts_as = self.kind_of_numbers(weak) if alone else weak_kind(row, weak, strong) if weak else strong[0]
        if alone and row.result == "float" and not counts_as.is_float:
            counts_as = self.kind_of_numbers([float])
        kinds: list[ElementKind] = []
        for a, mask, integer, argument in zip(node.args, masks, integers, row.arguments):
            if integer:
                kinds.append(self._integer(a, f"{node.op}: {argument}"))
            elif mask:
                kinds.append(self._mask(node, a, argument))
            elif a in ENDS or self.weak_of(a) is not None:
                fits = row.result == "bool" and not isinstance(a, str)
                kinds.append(wide_enough(counts_as, a) if fits else counts_as)
            else:
                kinds.append(self.kind_of(a))  # type: ignore[arg-type]  # a number is weak
            if not isinstance(a, str) and not mask:
                number(a, kinds[-1], f"{node.op}: {argument}")
        kind = self._result(node, [k for k, beside in zip(kinds, own) if not beside])
        computes = computed(row, kind, tuple(kinds), masks, False)
        own_params = [self.kind_of(a) if isinstance(a, str) else ElementKind.F64 for a in node.args[count:]]
        if computes.type == "math::Wide" and strong == []:
            raise OperandTypeError(f"{node.op}: numbers alone", "pass a float")
        as_weak = {ElementKind.BOOL: bool}.get(kind, float if kind.is_float else int) if alone else None
        args = tuple(_end(kind, a) if isinstance(a, str) and a in ENDS else a for a in node.args)
        return Step(row, args, node.to, kind, (*kinds, *own_params), computes, as_weak)

    def _integer(self, a: Argument, what: str) -> ElementKind:
        """The kind of an argument that holds integers of any type."""
        if (weak := self.weak_of(a)) is not None:
            return integer_kind(what, weak)
        kind = self.kind_of(str(a))
        if not kind.is_integer:
            raise OperandTypeError(f"{what} must hold integers, got {kind}", "bp.cast(x, 'i32') in it")
        return kind

    def _mask(self, node: Node, argument: Argument, named: str) -> ElementKind:
        if not isinstance(argument, str) or self.kind_of(argument) is not ElementKind.BOOL:
            said = self.kind_of(argument) if isinstance(argument, str) else repr(argument)
            raise OperandTypeError(f"{node.op}: {named} must hold bools, got {said}", "compare it first: x != 0")
        return ElementKind.BOOL

    def _result(self, node: Node, kinds: Sequence[ElementKind]) -> ElementKind:
        row = ROWS[node.op]
        if node.to is None:
            return result_kind(row, *kinds)
        for kind in (*kinds, node.to):
            if kind not in TAKEN:
                raise OperandTypeError(
                    f"cast: {kind} is not taken in a fused function", "cast to or from it before or after"
                )
        return node.to


class Typed(NamedTuple):
    """The types of a whole graph. `carrier` is the C++ type in which a kernel is given its inputs and gives its results, `inputs`
    the kinds in which they are stored, `weak` the types of those that are run-time numbers."""

    graph: Graph
    steps: tuple[Step, ...]
    kind: ElementKind
    carrier: str
    inputs: tuple[ElementKind, ...]
    weak: tuple[type | None, ...]

    def step(self, name: str) -> Step:
        return self.steps[int(name[1:]) - 1]


@lru_cache(maxsize=1024)
def typed(graph: Graph, inputs: tuple[Input, ...]) -> Typed:
    """The types of a graph of such inputs; OperandTypeError where no kernel can pass them."""
    typing = Typing(inputs)
    steps = tuple(typing.add(node) for node in graph.nodes)
    kinds = {typing.kind_of(name): name for name in graph.outputs}
    for name in graph.outputs:
        if typing.weak_of(name) is not None:
            raise OperandTypeError("fuse: the function returns what it computes of numbers alone", "return an array")
    if len(kinds) > 1:
        raise OperandTypeError(
            f"fuse: the results are of {' and '.join(map(str, kinds))}, and one kernel writes one kind",
            "cast them to one kind in the function, or fuse one function for each",
        )
    kind = next(iter(kinds))
    held: dict[str, list[tuple[ElementKind, str]]] = {name: [] for name in graph.names}  # as what an input is used
    for node, step in zip(graph.nodes, steps):
        for argument, of in zip(node.args, step.kinds):
            if isinstance(argument, str) and argument in held:
                held[argument].append((of, step.computed.type if node.to is None else register_of(of)))
    for name in graph.outputs:
        if name in held:
            held[name].append((typing.kind_of(name), register_of(typing.kind_of(name))))
    used = tuple(
        tuple(dict.fromkeys(of for of, _ in held[name] if not of.is_float)) if typing.weak_of(name) is int else ()
        for name in graph.names
    )
    carrier = _carrier(typing, held, kind)
    weak = tuple(typing.weak_of(name) for name in graph.names)
    whole = []
    for name, kinds_of in zip(graph.names, used):
        if len(kinds_of) > 1:
            raise OperandTypeError(
                f"fuse: the number {name} is used as {' and as '.join(map(str, kinds_of))}",
                "pass it as a float, or twice",
            )
        whole.append(typing.kind_of(name) if weak[int(name[1:]) - 1] is None else (*kinds_of, *WHOLE)[0])
    held_as = tuple(ElementKind.F64 if of is float else kind for of, kind in zip(weak, whole))
    return Typed(graph, steps, kind, carrier, held_as, weak)


def _carrier(typing: Typing, held: Any, out: ElementKind) -> str:
    """A type that holds every input as it is used, and the result."""
    passed = [
        kind for uses in held.values() for kind, where in uses if where not in ("float", "double") or kind.is_float
    ]
    doubled = any(where == "double" for uses in held.values() for _, where in uses)
    passed.append(out)
    passed += [typing.kind_of(name) for name in held if typing.weak_of(name) is None and not held[name]]
    integers = [kind for kind in passed if not kind.is_float and kind is not ElementKind.BOOL]
    if (
        not doubled
        and not any(kind.is_float for kind in passed)
        and not any(where == "float" for uses in held.values() for _, where in uses)
    ):
        if len({*integers}) <= 1 and (integers or all(kind is ElementKind.BOOL for kind in passed)):
            return register_of(integers[0]) if integers else "bool"
        return "u64" if ElementKind.U64 in integers else "i64"
    widest = max((kind.bits for kind in integers), default=0)
    if widest == 64:
        raise OperandTypeError(
            "fuse: 64-bit integers are arguments or results beside floats, and no type passes both to a kernel",
            "cast them to i32 or f64: arguments before the call, results in the function",
        )
    return "double" if doubled or widest == 32 or ElementKind.F64 in passed else "float"
