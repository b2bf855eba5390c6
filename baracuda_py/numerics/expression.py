"""Expressions of elements: read from Python's notation, evaluated in wide types, written as CUDA, with a bound of their rounding.

The grammar: names, numbers and ``pi``, ``+ - * / **``, comparisons, ``& |``, ``where``, ``maximum``, ``minimum``, ``abs``,
``sign``, and the functions of a table (`Function`). A division by a constant is a product with its reciprocal.

Errors are propagated from part to part, with the exact values at hand: a `Rounded` has the exact value of a part and a bound of
|computed - exact|. Each rule takes every argument anywhere within its bound, and adds the rounding of the operation itself
(Higham, section 3). Results that are exact in the computing type add nothing; contraction of a product and a sum into one
operation rounds less. Where sums cancel, the error stays that of the terms.
"""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from ..types import ElementKind
from ..types.precision import ulp_of
from .rounding import halves, round_to

__all__ = ["Expression", "Function", "Node", "Precision", "Rounded", "parse"]

Array: TypeAlias = Any
PI = np.longdouble("3.14159265358979323846264338327950288")
ARITHMETIC: Mapping[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "pow", ast.BitAnd: "&", ast.BitOr: "|",
}  # fmt: skip
COMPARISONS: Mapping[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip
OF_BOOLS = ("&", "|")
CUDA = {
    "neg": "-{0}", "where": "({0} ? {1} : {2})", "maximum": "math::maximum({0}, {1})", "minimum": "math::minimum({0}, {1})",
    "sign": "math::sign({0})", "abs": "math::absolute({0})", "&": "({0} && {1})", "|": "({0} || {1})",
}  # fmt: skip
HEADERS = {
    "maximum": "math/extrema.cuh", "minimum": "math/extrema.cuh", "sign": "math/sign.cuh", "abs": "math/absolute.cuh",
}  # fmt: skip
EVALUATED: Mapping[str, Callable[..., Array]] = {
    "neg": operator.neg, "+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne, "&": operator.and_, "|": operator.or_,
    "where": np.where, "maximum": np.maximum, "minimum": np.minimum, "sign": np.sign, "abs": np.abs,
}  # fmt: skip
IEEE = 0.5 + 2.0**-20  # ulps of a correctly rounded result, whose exact value is known to more digits than are compared


class Node(NamedTuple):
    """A part of an expression: an operation on parts, or a leaf (op ``"name"`` or ``"number"``)."""

    op: str
    args: tuple[Node, ...] = ()
    value: str | float = ""

    @property
    def constant(self) -> bool:
        return self.op == "number" or (self.op != "name" and all(arg.constant for arg in self.args))

    @property
    def logical(self) -> bool:
        return self.op in OF_BOOLS or self.op in COMPARISONS.values()

    def walk(self) -> Iterator[Node]:
        yield self
        for arg in self.args:
            yield from arg.walk()


class Function(NamedTuple):
    """A function that is monotone in each argument: its C++ as a format of its arguments, and in wide types. Its error in ulps of
    f32 and f64; `short` is the further error for a 16-bit result, in ulps of that, `flushed` an absolute one, and `zeros` one in
    unit roundoffs of the type computed in."""

    cuda: str
    evaluate: Callable[..., Array]
    f32: float
    f64: float
    short: float = 0.0
    flushed: float = 0.0
    zeros: float = 0.0
    header: str = ""
    instructions: tuple[float, float] = (1.0, 1.0)


class Precision(NamedTuple):
    """The type computed in (f32 or f64) and that of the result."""

    computed: ElementKind
    result: ElementKind

    @staticmethod
    def of(result: ElementKind) -> Precision:
        return Precision(ElementKind.F64 if result is ElementKind.F64 else ElementKind.F32, result)

    @property
    def largest(self) -> float:
        return float(ml_dtypes.finfo(self.computed.dtype).max)


class Rounded(NamedTuple):
    """The exact value of a part, a bound of its computed value's error, and where there is none: an intermediate result that may
    leave the range of the type computed in. For conditions, `error` says where the computed one may be the other."""

    value: Array
    error: Array
    beyond: Array

    @property
    def size(self) -> Array:
        return np.abs(self.value) + self.error


def parse(text: str) -> Node:
    """The tree of an expression; raises ValueError for what the grammar does not have."""
    return _node(ast.parse(text, mode="eval").body)


def _node(tree: ast.AST) -> Node:
    match tree:
        case ast.Constant(value=int() | float() as number):
            return Node("number", (), number)
        case ast.Name(id="pi"):
            return Node("number", (), "pi")
        case ast.Name(id=name):
            return Node("name", (), name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return Node("neg", (_node(inner),))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in ARITHMETIC:
            one, other, name = _node(left), _node(right), ARITHMETIC[type(op)]
            if name == "/" and other.constant and not one.constant:
                return Node("*", (one, Node("/", (Node("number", (), 1), other))))
            return Node(name, (one, other))
        case ast.Compare(ops=[op], left=left, comparators=[right]) if type(op) in COMPARISONS:
            return Node(COMPARISONS[type(op)], (_node(left), _node(right)))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return Node(name, tuple(map(_node, args)))
    raise ValueError(f"{ast.unparse(tree)} is not part of an expression of elements")


@dataclass(frozen=True)
class Expression:
    """A tree with the table of the functions in it. `masks` are names of bools."""

    root: Node
    functions: Mapping[str, Function]
    masks: tuple[str, ...] = ()

    @staticmethod
    def of(text: str, functions: Mapping[str, Function], masks: tuple[str, ...] = ()) -> Expression:
        made = Expression(parse(text), functions, masks)
        known = {"name", "number", "/", *EVALUATED, *functions}
        if unknown := {node.op for node in made.root.walk()} - known:
            raise ValueError(f"{', '.join(sorted(unknown))} in {text} is no known function")
        return made

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(node.value) for node in self.root.walk() if node.op == "name"))

    @cached_property
    def _uses(self) -> Counter[Node]:
        """How often each part is an argument, equal parts counted as one."""
        distinct = dict.fromkeys(self.root.walk())
        return Counter(arg for node in distinct for arg in node.args)

    def _function(self, node: Node) -> Function | None:
        return self.functions.get("divide" if node.op == "/" else node.op)

    # ---- values ---------------------------------------------------------------------------------------------------

    def evaluate(self, values: Mapping[str, Array]) -> Array:
        """The value, in the type of `values`; constants are long doubles until they meet them."""
        with np.errstate(all="ignore"):
            return self._value(self.root, values, {})

    def _value(self, node: Node, values: Mapping[str, Array], held: dict[Node, Array]) -> Array:
        if node not in held:
            held[node] = self._leaf(node, values) if not node.args else None
            if node.args:
                args = [self._value(arg, values, held) for arg in node.args]
                function = self._function(node)
                held[node] = function.evaluate(*args) if function else EVALUATED[node.op](*args)
        return held[node]

    def _leaf(self, node: Node, values: Mapping[str, Array]) -> Array:
        if node.op == "name":
            return values[str(node.value)]
        wide = any(x.dtype == np.longdouble for x in values.values())
        return (np.longdouble if wide else np.float64)(PI if node.value == "pi" else node.value)

    # ---- CUDA -----------------------------------------------------------------------------------------------------

    @cached_property
    def headers(self) -> tuple[str, ...]:
        found = [f.header if (f := self._function(node)) else HEADERS.get(node.op, "") for node in self._computed]
        return tuple(sorted({header for header in found if header}))

    @cached_property
    def _computed(self) -> tuple[Node, ...]:
        """The parts that a kernel computes, each once."""
        found: dict[Node, None] = {}

        def visit(node: Node) -> None:
            if node.args and not node.constant and node not in found:
                for arg in node.args:
                    visit(arg)
                found[node] = None

        visit(self.root)
        return tuple(found)

    def instructions(self) -> tuple[float, float]:
        """Instructions of an element for f32 and for 16-bit results."""
        each = [f.instructions if (f := self._function(node)) else (1.0, 1.0) for node in self._computed]
        return max(sum(n for n, _ in each), 1.0), max(sum(n for _, n in each), 1.0)

    def cuda(self) -> str:
        """The body of a function template of ``int digits`` and ``class C``, whose parameters are the names. A part with several
        uses is a variable."""
        written: dict[Node, str] = {}
        lines: list[str] = []
        for node in self._computed:
            text = self._written(node, [written.get(arg) or self._operand(arg) for arg in node.args])
            if self._uses[node] > 1:
                lines.append(f"const {'bool' if node.logical else 'C'} part{len(lines)} = {text};")
                text = f"part{len(lines) - 1}"
            written[node] = text
        return " ".join([*lines, f"return {written.get(self.root) or self._operand(self.root)};"])

    def _written(self, node: Node, args: list[str]) -> str:
        function = self._function(node)
        form = function.cuda if function else CUDA.get(node.op, f"({{0}} {node.op} {{1}})")
        return form.format(*args)

    def _operand(self, leaf: Node) -> str:
        if leaf.op == "name":
            return f"({leaf.value} != C(0))" if leaf.value in self.masks else str(leaf.value)
        value = self._value(leaf, {"": np.zeros(1, np.longdouble)}, {})
        return f"C({np.format_float_positional(value, unique=True, trim='-')})"

    # ---- errors ---------------------------------------------------------------------------------------------------

    def rounded(self, values: Mapping[str, Array], precision: Precision, errors: Mapping[str, Array]) -> Rounded:
        """The exact value for `values` and a bound of the error of its computation; `errors` are those of values that are not
        exact themselves."""
        with np.errstate(all="ignore"):
            return self._rounded(self.root, values, precision, errors, {})

    def _rounded(
        self, node: Node, values: Mapping[str, Array], precision: Precision, errors: Mapping[str, Array],
        held: dict[Node, Rounded],
    ) -> Rounded:  # fmt: skip
        if node in held:
            return held[node]
        if node.constant:
            value = self._value(node, values, {})
            made = Rounded(value, _rounding(value, 0.0, IEEE, precision), np.bool_(False))
        elif node.op == "name":
            value = values[str(node.value)]
            made = Rounded(value, errors.get(str(node.value), np.zeros_like(value, np.float64)), np.bool_(False))
        else:
            made = self._apply(node, [self._rounded(a, values, precision, errors, held) for a in node.args], precision)
        held[node] = made
        return made

    def _apply(self, node: Node, args: list[Rounded], precision: Precision) -> Rounded:
        """An operation on parts that are known within their errors."""
        beyond = reduce(operator.or_, [arg.beyond for arg in args])
        function = self._function(node)
        value = (function.evaluate if function else EVALUATED[node.op])(*(arg.value for arg in args))
        if node.logical:
            return Rounded(value, _undecided(node.op, args), beyond)
        if node.op == "where":
            condition, one, other = args
            doubtful = np.asarray(condition.error, bool)
            error: Array = np.where(condition.value, one.error, other.error)
            other_way = np.maximum(one.error, other.error) + np.abs(one.value - other.value)
            error = np.where(doubtful, other_way, error)
            chosen = np.where(condition.value, one.beyond, other.beyond) | condition.beyond
            return Rounded(value, error, chosen | (doubtful & (one.beyond | other.beyond)))
        error, unknown = _carried(node.op, args, value, function)
        if function:
            error = error + _of_function(function, value, error, precision)
        elif node.op in ("+", "-", "*"):
            error = error + _rounding(value, error, IEEE, precision)
            error = error + (_lost(args[0].value, args[1].value, value) if node.op == "*" else 0.0)
        left = np.isfinite(value) & ~(np.abs(value) + error <= precision.largest)
        return Rounded(value, error, beyond | unknown | left)


def _rounding(value: Array, error: Array, ulps: float, precision: Precision) -> Array:
    """The error of an operation that rounds; none where an exact result of exact arguments is a number of the type."""
    exact = (np.asarray(error) == 0) & (round_to(np.asarray(value), precision.computed).astype(value.dtype) == value)
    return np.where(exact, 0.0, ulps * ulp_of(np.abs(value) + error, precision.computed))


def _lost(one: Array, other: Array, value: Array) -> Array:
    """What long doubles lose of a product, which a product and a sum in one operation keep (Dekker)."""
    if value.dtype != np.longdouble:
        return 0.0  # the product of two floats of 24 digits is exact in float64
    (a, b), (c, d) = (halves(np.asarray(x, np.longdouble)) for x in (one, other))
    lost = b * d - (((value - a * c) - b * c) - a * d)
    return np.where(np.isfinite(lost), np.abs(lost), 0.0).astype(np.float64)


def _of_function(function: Function, value: Array, error: Array, precision: Precision) -> Array:
    """The error of a function by itself."""
    wide = precision.computed is ElementKind.F64
    own = _rounding(value, error, IEEE, precision) if max(function.f32, function.f64) <= 0.5 else None
    if own is None:
        own = (function.f64 if wide else function.f32) * ulp_of(np.abs(value) + error, precision.computed)
    if precision.result.digits < 24:
        own = own + function.short * ulp_of(np.abs(value) + error, precision.result)
    own = own + function.zeros * precision.computed.unit_roundoff
    return own + function.flushed * (2.0**-896 if wide else 1.0)


def _undecided(op: str, args: list[Rounded]) -> Array:
    """Where a condition may come out otherwise."""
    one, other = args
    if op in OF_BOOLS:
        return one.error.astype(bool) | other.error.astype(bool)
    doubt = one.error + other.error
    return (doubt > 0) & ~(np.abs(one.value - other.value) > doubt)


def _carried(op: str, args: list[Rounded], value: Array, function: Function | None) -> tuple[Array, Array]:
    """What the errors of the arguments make of the result's, and where that is unknown."""
    first, last = args[0], args[-1]
    none = np.bool_(False)
    match op:
        case "neg" | "abs":
            return first.error, none
        case "+" | "-":
            return first.error + last.error, none
        case "maximum" | "minimum":
            return np.maximum(first.error, last.error), none
        case "sign":
            return np.where((first.error > 0) & (np.abs(first.value) <= first.error), 2.0, 0.0), none
        case "*":
            error = sum(_product(np.abs(a.value), b.error) for a, b in ((first, last), (last, first)))
            unknown = _infinite_times_doubtful(first, last) | _infinite_times_doubtful(last, first)
            return error + first.error * last.error, unknown
        case "/":
            doubtful = (last.error > 0) & ~(np.abs(last.value) > last.error)
            error = first.error + _product(np.abs(value), last.error)
            return np.where(error == 0, 0.0, error / (np.abs(last.value) - last.error)), doubtful
    assert function is not None
    moved = np.zeros_like(value, np.float64)
    for signs in product((-1, 1), repeat=len(args)):
        corner = function.evaluate(*(arg.value + sign * arg.error for sign, arg in zip(signs, args)))
        moved = np.maximum(moved, np.where(corner == value, 0.0, np.abs(corner - value)))
    exact = reduce(operator.and_, [arg.error == 0 for arg in args])
    unknown = (first.value <= 0) & (last.error > 0) if op == "pow" else none  # odd or even, or no integer
    return np.where(exact, 0.0, moved), unknown


def _product(size: Array, error: Array) -> Array:
    """size * error, where no error makes none of an infinity either."""
    return np.where(error == 0, 0.0, size * error)


def _infinite_times_doubtful(one: Rounded, other: Rounded) -> Array:
    return np.isinf(one.value) & (other.error > 0) & (np.abs(other.value) <= other.error)
