"""The description of one elementwise op, a row of a table: its function, kernels, types, bound and tests follow from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from ...numerics.expression import Expression, Function
from ...plan.registry import get_op
from ...types import ElementKind

__all__ = [
    "BYTES",
    "EXACT",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "RESULT",
    "ROUNDED",
    "ROWS",
    "Row",
    "Ulps",
    "cast_name",
    "functor",
]

FLOATS = (ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64)
INTEGERS = tuple(k for k in ElementKind if k.is_integer and not k.packed)
NUMBERS = (*FLOATS, *INTEGERS)
BYTES = tuple(k for k in ElementKind if 8 <= k.bits <= 64)  # kinds that fit one or two registers


class Ulps(NamedTuple):
    """The error of the computation in f32 and in f64, before rounding to the result's type. `short` is the further error of the
    shorter formula for 16-bit results, `flushed` the further absolute error of results below the normal range, and `zeros` that
    of results next to a zero of the function, in unit roundoffs of f32 or f64."""

    f32: float = 0.0
    f64: float = 0.0
    short: float = 0.0
    flushed: float = 0.0
    zeros: float = 0.0


EXACT = Ulps()
ROUNDED = Ulps(0.5, 0.5)  # IEEE 754's own operations


@dataclass(frozen=True, eq=False)
class Row:
    """One elementwise op.

    `cuda` is an expression of type C in the inputs, called x where there is one and a, b, c where there are more, and in the
    `params` by name; `digits` is the result's significand. `header` is the file under kernels/include of the functions in it.

    A row whose terms may cancel has a `formula` instead, an expression in a, b, c and the params (numerics/expression.py), of
    which `cuda` is made; its bound is what the rounding of each part makes of the result.

    `arguments` are what the public function calls the inputs; each is an array, or a number wherever another is an array, or
    may be left out where `absent` has the number that then stands for it (``"lowest"``, ``"highest"``). `params` are run-time
    numbers with their defaults.

    `domain` lists the kinds taken. The `result` is of NumPy's type: ``"same"`` (that of the inputs together), ``"float"``
    (integers become floats), ``"bool"``, or ``"given"`` by the caller. `mask` inputs hold bools and have no part in it,
    and neither have `integers`, which hold integers of any type, nor `scales`, which hold f32, beside floats. Where
    `moves` is true the result is one of the inputs, bit by bit; where `native` is true the result is exact for the type computed
    in, which is the result's own or that of a comparison: `oracle` then takes its inputs in that type. Where `in_floats` is true,
    integers and bools are compared as f64.

    Where `halves` is true, a call with the first input alone takes its two halves along an axis as the inputs. `of_complex` names
    the module and the function that serve complex arrays, which no row takes.

    `oracle` computes it on NumPy arrays. `check` is the same by other means: an expression in the arguments and params, of one
    element at a time, as Python numbers, or as mpmath's where it says ``mpmath``, with `bits` those of an integer result;
    `limits` are results at 0, -0, inf, -inf and nan, for functions that NumPy does not have. `instructions` are those an
    element, in f32 and for 16-bit results. A `gradient` that is no derivative of `oracle`, such as one straight through a
    rounding, is that of `surrogate`.
    """

    name: str
    cuda: str
    oracle: Callable[..., Any]
    check: str
    doc: str
    ulps: Ulps = EXACT
    result: str = "same"
    header: str = ""
    arguments: tuple[str, ...] = ("x",)
    params: Mapping[str, float] = field(default_factory=dict)
    domain: tuple[ElementKind, ...] = NUMBERS
    mask: tuple[str, ...] = ()
    integers: tuple[str, ...] = ()
    scales: tuple[str, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    moves: bool = False
    native: bool = False
    in_floats: bool = False
    halves: bool = False
    of_complex: str = ""
    formula: str = ""
    limits: tuple[float, ...] = ()
    instructions: tuple[float, float] = (1, 1)
    peers: Mapping[str, str] = field(default_factory=dict)
    gradient: Mapping[str, str] = field(default_factory=dict)
    surrogate: Callable[..., Any] | None = None

    @property
    def of_own_kind(self) -> tuple[str, ...]:
        """The arguments that have no part in the result's kind."""
        return (*self.mask, *self.integers, *self.scales)

    @property
    def rounded(self) -> bool:
        """Whether the computation itself is rounded correctly, as IEEE 754 has it."""
        return max(self.ulps.f32, self.ulps.f64) <= 0.5 and not self.formula

    @cached_property
    def expression(self) -> Expression:
        """The formula; a quotient is that of the row ``divide``."""
        named = [name for name, sign in {"divide": "/", "round": "round("}.items() if sign in self.formula]
        for name in named:
            if name not in ROWS:
                get_op(name)  # its table may be in a module that this process has not imported yet
        return Expression.of(self.formula, {name: ROWS[name].function for name in named})

    @property
    def function(self) -> Function:
        """The row as a function in expressions."""
        places = {letter: f"{{{place}}}" for place, letter in enumerate(self.letters)}
        cuda = re.sub(r"\b[xabc]\b", lambda found: places[found[0]], self.cuda)
        return Function(cuda, self.oracle, *self.ulps, header=self.header, instructions=self.instructions)

    @property
    def letters(self) -> tuple[str, ...]:
        """The inputs' names in `cuda` and `formula`."""
        return ("x",) if len(self.arguments) == 1 else ("a", "b", "c")[: len(self.arguments)]

    @property
    def body(self) -> str:
        """The statements of the row's functor."""
        return self.expression.cuda() if self.formula else f"return C({self.cuda});"

    @property
    def headers(self) -> tuple[str, ...]:
        return self.expression.headers if self.formula else (self.header,)


RESULT = "y"  # what gradients call a result that they take
ROWS: dict[str, Row] = {}  # every row that an op is registered for, by name


def functor(name: str, comment: str, parameters: Sequence[str], body: str) -> str:
    """The C++ of a functor, as kernels/elementwise/map.cu takes it."""
    arguments = ", ".join(f"C {parameter}" for parameter in parameters)
    return (
        f"struct {name} {{  // {comment}\n  template <int digits, class C> static __device__ __forceinline__ C "
        f"apply({arguments}) {{ {body} }}\n}};"
    )


def cast_name(kind: ElementKind) -> str:
    """The C++ type of a kind's values, the 8-bit floats' too (kernels/include/math/cast.cuh)."""
    return {ElementKind.FP8_E4M3: "e4m3", ElementKind.FP8_E5M2: "e5m2", ElementKind.BOOL: "bool"}.get(kind, kind.cuda)
