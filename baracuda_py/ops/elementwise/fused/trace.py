"""Tracing: a function is called once on symbols, which note every elementwise op that is called on them.

What no kernel of elements can do raises an UnsupportedError that names the operation and the line of the function: a branch on
a value, an item, a length, an op that is no elementwise row, an array that is no argument.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NoReturn

from ....runtime.scope import default_device, replaced
from ....tensor.dispatch import Answers, Symbol, describing
from ....types import BaracudaError, ElementKind, InvalidProblemError, UnsupportedError
from .._family import MapPlan
from .._row import ROWS
from ._kinds import Input, Typing
from .graph import ENDS, MAX_INPUTS, MAX_NODES, MAX_OUTPUTS, Argument, Graph, Node
from .rows.statistics import OWN, REDUCERS, row_named

__all__ = ["INPUT", "Builder", "Traced", "trace"]

PACKAGE = Path(__file__).resolve().parents[3]
INPUT = "an input"  # stands for an array or a number among the arguments of a function
NUMBERS = (bool, int, float)
BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "pow", "floordiv": "floor_divide",
    "mod": "mod", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift",
    "rshift": "right_shift",
}  # fmt: skip
COMPARED = {
    "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}  # fmt: skip
OF_BOOLS: dict[str, Callable[..., tuple[str, tuple[Any, ...]]]] = {  # operators on bools, by rows that take them
    "bitwise_and": lambda a, b: ("where", (a, b, False)) if isinstance(a, Traced) else ("where", (b, a, False)),
    "bitwise_or": lambda a, b: ("where", (a, True, b)) if isinstance(a, Traced) else ("where", (b, True, a)),
    "bitwise_xor": lambda a, b: ("not_equal", (a, b)),
    "bitwise_not": lambda a: ("equal", (a, False)),
}
UNARY = {"neg": "neg", "abs": "abs", "invert": "bitwise_not"}
REFUSED = {
    "bool": (
        "its value decides a branch (if, while, and, or, not, a chain of comparisons)",
        "bp.where(condition, x, y)",
    ),
    "len": ("its length is asked for", "pass what depends on shapes as an argument"),
    "iter": ("it is iterated over", "pass each array as an argument of its own"),
    "getitem": ("an item of it is read", "take the item before the call, and pass it as an argument"),
    "setitem": ("an item of it is written", "bp.where(condition, x, y)"),
    "contains": ("it is searched", "compare it: x == y"),
    "float": ("its value is asked for", "keep it an array"),
    "int": ("its value is asked for", "keep it an array"),
    "index": ("its value is asked for", "keep it an array"),
    "matmul": ("it is multiplied as a matrix", "bp.matmul before or after the fused function"),
}


def _where() -> str:
    """The line of the function that is traced: the innermost one outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not frame.f_globals.get("__name__", "").startswith(f"{__package__.partition('.')[0]}."):
            line = linecache.getline(file, frame.f_lineno).strip()
            return f"{Path(file).name}:{frame.f_lineno}" + (f", `{line:.100}`" if line else "")
        frame = frame.f_back
    return "an unknown line"


def _refuse(what: str, fix: str) -> NoReturn:
    raise UnsupportedError(f"fuse: {what}, at {_where()}", fix)


class Traced(Symbol):
    """An input of a traced function, or what it computes."""

    __slots__ = ("_dropped", "_name", "_trace")
    answers: ClassVar[Answers]

    def __init__(self, trace: Builder, name: str, dropped: int | None = None) -> None:
        """`dropped` are the last axes that a statistic without keepdims does not have, None where it has all."""
        self._trace, self._name, self._dropped = trace, name, dropped

    def __repr__(self) -> str:
        return f"<{self._name} of a traced function>"

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse(
            f"an attribute of a value is asked for: {name}", "call a function of elements, bp.<op>(x), or an operator"
        )

    def __array_ufunc__(self, ufunc: Any, *_: Any, **__: Any) -> NoReturn:
        _refuse(
            f"{self._name} is passed to numpy.{ufunc.__name__}",
            f"call bp.{ufunc.__name__}, and pass arrays as arguments",
        )

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        _refuse("an array of NumPy is made of a value", "pass arrays as arguments of the fused function")


def _operator(name: str, *, swapped: bool = False) -> Callable[..., Any]:
    def method(self: Traced, *other: Any) -> Any:
        args = (*other, self) if swapped else (self, *other)
        if name == "pow" and type(args[1]) is int and args[1] == 2:
            return self._trace.add("square", args[:1])
        of_bools = OF_BOOLS.get(name)
        if of_bools and all(type(x) is bool or (isinstance(x, Traced) and x._trace.is_bool(x)) for x in args):
            return self._trace.add(*of_bools(*args))
        return self._trace.add(name, args)

    return method


def _refusing(what: str, fix: str) -> Callable[..., Any]:
    def method(*_: Any) -> Any:
        _refuse(f"{what}, which a fused function does not know while it is traced", fix)

    return method


for _symbol, _row in BINARY.items():
    setattr(Traced, f"__{_symbol}__", _operator(_row))
    setattr(Traced, f"__r{_symbol}__", _operator(_row, swapped=True))
for _symbol, _row in (*COMPARED.items(), *UNARY.items()):
    setattr(Traced, f"__{_symbol}__", _operator(_row))
for _symbol, _why in REFUSED.items():
    setattr(Traced, f"__{_symbol}__", _refusing(*_why))


class Builder:
    """A graph that is being built, of inputs of these kinds."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self.typing = Typing(inputs)
        self.nodes: dict[Node, str] = {}

    def add(self, op: str, args: Sequence[Any], to: ElementKind | None = None) -> Traced:
        """What a row gives for arguments; equal nodes are one."""
        row = row_named(op)
        if row is None:
            _refuse(f"{op} is no elementwise op of this version", "bp.list_ops() lists the ops")
        node = Node(op, tuple(self._argument(op, x) for x in args), to)
        if node not in self.nodes:
            if len(self.nodes) == MAX_NODES:
                _refuse(f"the function has more than {MAX_NODES} operations", "split it into several")
            try:
                self.typing.add(node)
            except BaracudaError as error:
                raise type(error)(f"fuse: {error.reason}, at {_where()}", error.fix) from None
            self.nodes[node] = f"t{len(self.nodes) + 1}"
        return Traced(self, self.nodes[node], self._dropped(op, args))

    def _dropped(self, op: str, args: Sequence[Any]) -> int | None:
        """The axes that a result does not have: those that all arrays among the arguments lack."""
        values = [x for x in args if isinstance(x, Traced) and self.typing.weak_of(x._name) is None]
        lacking = {x._dropped for x in values}
        if lacking <= {None}:
            return None
        if len(lacking) > 1 or op in OWN:
            _refuse(f"{op} takes a statistic of rows that has lost the axes it reduced", "pass keepdims=True")
        return next(iter(lacking))

    def reduced(self, op: str, x: Traced, axis: Any, keepdims: Any) -> Traced:
        """A statistic of a value over its last axes, or over all."""
        axes = (axis,) if type(axis) is int else axis if isinstance(axis, (tuple, list)) else ()
        last = list(range(-len(axes), 0))
        if axis is not None and (not axes or sorted(axes) != last):
            _refuse(
                f"{op} is given axis={axis!r}", "reduce the last axes, counted from the end: axis=-1, (-2, -1), or None"
            )
        return Traced(self, self.add(op, [x, len(axes)])._name, None if keepdims else len(axes))

    def input(self, place: int) -> Traced:
        return Traced(self, f"x{place + 1}")

    def name_of(self, x: Traced) -> str:
        return x._name

    def kind_of(self, x: Traced) -> ElementKind:
        return self.typing.kind_of(x._name)

    def is_bool(self, x: Traced) -> bool:
        """Whether a value is of bools."""
        return self.typing.weak_of(x._name) is None and self.kind_of(x) is ElementKind.BOOL

    def graph(self, outputs: Sequence[Traced]) -> Graph:
        """What computes these values, and nothing else."""
        whole = [x if x._dropped is None else self._squeezed(x) for x in outputs]
        return Graph(len(self.typing.inputs), tuple(self.nodes), tuple(x._name for x in whole)).pruned()

    def _squeezed(self, x: Traced) -> Traced:
        return self.add("squeeze", [Traced(self, x._name), x._dropped])

    def _argument(self, op: str, x: Any) -> Argument:
        if isinstance(x, Traced):
            if x._trace is not self:
                _refuse(
                    f"{op} takes a value of another fused function that is being traced", "call it outside of this one"
                )
            return x._name
        if type(x) in NUMBERS or (type(x) is str and x in ENDS):
            return x  # type: ignore[no-any-return]
        kind = f"{type(x).__module__.partition('.')[0]}.{type(x).__name__}"
        _refuse(
            f"{op} takes a {kind} that is no argument of the function",
            "pass arrays as arguments; numbers as Python's own",
        )


class _Called(Answers):
    """Answers the calls of functions of this package that take a symbol."""

    def __init__(self) -> None:
        super().__init__("")

    def load(self) -> Answers:
        return self


def _called(
    plan: Any, operands: Mapping[str, Any], describe: Any, _args: Any, options: Any, values: Any, **how: Any
) -> Any:
    symbol = next(x for x in operands.values() if isinstance(x, Traced))
    named = options if isinstance(options, str) else options[0] if isinstance(options, tuple) and options else ""
    row = ROWS.get(named) if issubclass(plan, MapPlan) and isinstance(named, str) else None
    reducer = getattr(describe, "op", "")
    if reducer in REDUCERS and isinstance(options, tuple) and len(options) == 3:
        row, named = OWN[reducer], reducer
    if row is None:
        op = getattr(describe, "op", "") or plan.__name__.removesuffix("Plan")
        _refuse(f"{op} is no function of elements", "call it before or after the fused function")
    given = {**operands, **(values or {})}
    own = how.pop("device", None) is not default_device()  # which a call has that is given none
    if own or given.pop("out", None) is not None or any(x is not None for x in how.values()):
        _refuse(f"{named} is given out=, stream=, pref= or device=", "pass those to the fused function")
    if named in OWN:
        return symbol._trace.reduced(named, given["x"], *options[1:])
    inputs = plan.descriptor.inputs
    ends = [row.absent.get(argument) for argument in row.arguments]
    args = [end if given.get(n) is None else given[n] for n, end in zip(inputs, ends)]
    to = options[1] if row.result == "given" else None
    return symbol._trace.add(named, [*args, *(given[n] for n in row.params)], to)


Traced.answers = _Called()
Traced.answers.called = _called


def trace(function: Callable[..., Any], inputs: Sequence[Input], args: Sequence[Any]) -> Graph:
    """The graph of a function. `inputs` are those of `args` that are `INPUT`, in their order."""
    if len(inputs) > MAX_INPUTS:
        raise UnsupportedError(
            f"fuse: the function takes {len(inputs)} arrays and numbers", f"pass {MAX_INPUTS} at most"
        )
    made = Builder(inputs)
    places = iter(range(len(inputs)))
    given = [made.input(next(places)) if x is INPUT else x for x in args]
    token = describing.set(False)
    try:
        with replaced(device=None, preference=None, intercept=None, recording=None):
            result = function(*given)
    finally:
        describing.reset(token)
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    for x in results:
        if not isinstance(x, Traced):
            raise InvalidProblemError(
                f"fuse: {getattr(function, '__name__', 'the function')} returns a {type(x).__name__}",
                "return what it computes of its arguments: an array, or a tuple of them",
            )
    if not 1 <= len(results) <= MAX_OUTPUTS:
        raise UnsupportedError(f"fuse: the function returns {len(results)} results", f"return 1 to {MAX_OUTPUTS}")
    return made.graph(results)
