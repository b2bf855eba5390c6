"""Types: which element results have, which type a kernel computes in, and what a Python number counts as among arrays.

Results are of NumPy's types. A Python number is weak, as in NEP 50: it takes the type of the arrays, an int that they cannot hold
is refused, and a float among integers makes the result f64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...plan.descriptor import scalar
from ...plan.registry import get_op
from ...plan.slot import of_complex
from ...types import (
    Componentwise,
    ElementKind,
    Exact,
    InvalidProblemError,
    MathPrecision,
    OperandTypeError,
    PrecisionGuarantee,
    Term,
    Ulp,
)  # fmt: skip
from ._row import FLOATS, INTEGERS, NUMBERS, ROWS, Row

__all__ = [
    "WEAK", "Computed", "Missing", "are_numbers", "check_output", "check_own_kind", "common_kind", "computed", "counted_as",
    "guarantee_of", "integer_kind", "lowest", "number", "propagated", "result_kind", "row_of", "weak_kind", "wide_enough",
]  # fmt: skip

SOURCE = "first-order propagation through the expression (baracuda_py/numerics/expression.py)"
WEAK = frozenset((bool, int, float))  # types of weak numbers; NumPy's own numbers have a type to keep


@lru_cache(maxsize=1024)
def result_kind(row: Row, *kinds: ElementKind) -> ElementKind:
    """The element that NumPy gives for inputs of these kinds (masks left out); OperandTypeError where the row does not take
    them."""
    for kind in kinds:
        if kind not in row.domain:
            raise OperandTypeError(f"{row.name}: {kind} is not supported", _instead(row, kind))
    if row.result == "bool":
        common_kind(row, *kinds)  # refuses those that have none
        return ElementKind.BOOL
    if row.result == "float":
        if len(kinds) == 1 and kinds[0] in FLOATS:
            return kinds[0]
        rule = np.exp if len(kinds) == 1 else row.oracle if isinstance(row.oracle, np.ufunc) else np.true_divide
        with np.errstate(all="ignore"):
            return ElementKind.of(rule(*(np.ones(1, kind.dtype) for kind in kinds)).dtype)
    common = common_kind(row, *kinds)
    if common not in row.domain:
        raise OperandTypeError(
            f"{row.name}: {' and '.join(map(str, kinds))} have no common integer type", "cast one to the other's"
        )
    return common


def _instead(row: Row, kind: ElementKind) -> str:
    if kind.is_complex and any(k in row.domain for k in FLOATS):
        return of_complex(row.arguments[0] if len(row.arguments) == 1 else "x")
    integers = any(k in row.domain for k in INTEGERS)
    if not any(k in row.domain for k in FLOATS):
        return "pass an array of integers" if kind.is_complex else "cast it to an integer type"
    return "cast it to an integer or floating type" if integers and not kind.packed else "cast it to f32"


@lru_cache(maxsize=1024)
def common_kind(row: Row, *kinds: ElementKind) -> ElementKind:
    """The kind to which NumPy converts inputs of these kinds."""
    common = _promoted(row, *kinds)
    return ElementKind.F64 if row.in_floats and not common.is_float else common


def _promoted(row: Row, *kinds: ElementKind) -> ElementKind:
    if len(set(kinds)) == 1:
        return kinds[0]
    for kind in kinds:
        if kind not in NUMBERS and kind is not ElementKind.BOOL:
            raise OperandTypeError(
                f"{row.name}: {' and '.join(map(str, kinds))} have no common type", f"cast them to one, such as {kind}"
            )
    total: Any = np.ones(1, kinds[0].dtype)
    for kind in kinds[1:]:
        total = np.add(total, np.ones(1, kind.dtype))
    return ElementKind.of(total.dtype)


def weak_kind(row: Row, weak: Sequence[type], kinds: Sequence[ElementKind]) -> ElementKind:
    """What weak numbers of those types are converted to among arrays of `kinds`."""
    if not kinds:
        return ElementKind.F64 if float in weak else ElementKind.I64 if int in weak else ElementKind.BOOL
    common = common_kind(row, *kinds)
    if float in weak and not common.is_float:
        return ElementKind.F64
    if int in weak and common is ElementKind.BOOL:
        return ElementKind.I64
    return result_kind(row, common, common) if row.result == "float" else common


def number(value: Any, kind: ElementKind, what: str) -> Any:
    """A run-time number as one of `kind`: a float, an int within its range or a bool."""
    if kind.is_float or kind.is_complex:  # the latter is refused with its arrays
        return scalar(int(value) if type(value) is bool else value, what)
    if kind is ElementKind.BOOL and type(value) is bool:
        return value
    if not isinstance(value, (int, np.integer)) or kind is ElementKind.BOOL:
        raise OperandTypeError(
            f"{what} is a number of kind {kind} here, got {type(value).__name__}", "pass one, or arrays"
        )
    info, value = np.iinfo(kind.dtype), int(value)
    if not info.min <= value <= info.max:
        raise InvalidProblemError(
            f"{what}={value if abs(value) < 1 << 70 else 'an integer'} is outside {kind}, which holds {info.min} to {info.max}",
            "pass a float, or an array of a wider type",
        )
    return value


def wide_enough(kind: ElementKind, value: Any) -> ElementKind:
    """The integer kind that holds a number which is compared: `kind`, or a wider one."""
    if not kind.is_integer or np.iinfo(kind.dtype).min <= value <= np.iinfo(kind.dtype).max:
        return kind
    return ElementKind.I64 if value < 1 << 63 else ElementKind.U64


def integer_kind(what: str, given: type) -> ElementKind:
    """The kind of a number where integers of any type are taken."""
    if given is not int:
        raise OperandTypeError(
            f"{what} must hold integers, got a {given.__name__}", "pass an int, or an array of an integer type"
        )
    return ElementKind.I64


def counted_as(row: Row, argument: str, value: Any, weak: Sequence[type], kinds: Sequence[ElementKind]) -> ElementKind:
    """The kind of one of the weak numbers of a call, whose types are `weak`, among arrays of `kinds`."""
    if argument in row.integers:
        return integer_kind(f"{row.name}: {argument}", type(value))
    if argument in row.scales:
        return ElementKind.F32
    kind = weak_kind(row, weak, kinds)
    return wide_enough(kind, value) if row.result == "bool" else kind  # what is out of range compares all the same


def check_own_kind(row: Row, name: str, argument: str, element: ElementKind | None, *, is_array: bool) -> None:
    """Refuses a mask that is no array of bool, and integers that are none."""
    if argument in row.mask and not (is_array and element is ElementKind.BOOL):
        raise OperandTypeError(
            f"{row.name}: {argument} ({name}) must be an array of bool, got {element or 'none'}",
            "compare it first: not_equal(..., 0)",
        )
    if argument in row.integers and element not in INTEGERS:
        raise OperandTypeError(
            f"{row.name}: {argument} ({name}) must hold integers, got {element or 'none'}", "cast it to i32"
        )
    if argument in row.scales and element is not ElementKind.F32:
        raise OperandTypeError(f"{row.name}: {argument} must hold f32, got {element or 'none'}", "cast it to f32")


class Missing:
    """A run-time number that was not given: a typed error where it is put into a kernel's arguments."""

    def __init__(self, op: str, name: str) -> None:
        self.error = InvalidProblemError(f"{op}: {name} is missing", f"pass {name}=..., a number")

    def _raise(self) -> Any:
        raise self.error

    __float__ = __int__ = __index__ = __bool__ = _raise


def lowest(kind: ElementKind, *, highest: bool = False) -> Any:
    """The number that no other is below (above), of that kind."""
    if kind.is_float:
        return kind.dtype.type(np.inf if highest else -np.inf)
    return kind.dtype.type(np.iinfo(kind.dtype).max if highest else np.iinfo(kind.dtype).min)


def check_output(op: str, result: ElementKind, out: ElementKind | None) -> None:
    """Refuses an output element other than NumPy's result type: no silent cast."""
    if out is not None and out is not result:
        raise OperandTypeError(f"{op}: the result is {result} and out holds {out}", f"pass an out of {result}")


class Computed(NamedTuple):
    """The C++ types of a kernel: `type` in which it computes, for a result of `digits`, with operands stored as `out` and
    `inputs`."""

    type: str
    digits: int
    out: str
    inputs: tuple[str, ...]


_WORDS = {8: "u8", 16: "u16", 32: "u32", 64: "u64"}


@lru_cache(maxsize=1024)
def computed(
    row: Row, out: ElementKind, inputs: tuple[ElementKind, ...], masks: tuple[bool, ...], words: bool
) -> Computed:
    """The types for inputs of these kinds, of which some are masks; `words`: they are moved, whatever they mean."""
    data = [kind for kind, mask in zip(inputs, masks) if not mask]
    if words:
        moved = tuple("bool" if mask else _WORDS[kind.bits] for kind, mask in zip(inputs, masks))
        wide = _WORDS[max(kind.bits for kind in (out, *data))]
        return Computed(wide, 24, _WORDS[out.bits], moved)
    kind = out
    if row.result == "bool":
        kind = common_kind(row, *data)
        if {ElementKind.U64} < set(data) and all(k.is_integer for k in data) and kind.is_float and not row.in_floats:
            return Computed("math::Wide", 24, "bool", tuple(map(_number, inputs)))  # neither 64-bit type holds both
    computes = "double" if kind is ElementKind.F64 else "float" if kind.is_float else _number(kind)
    return Computed(computes, kind.digits or 24, _number(out), tuple(map(_number, inputs)))


def _number(kind: ElementKind) -> str:
    return "bool" if kind is ElementKind.BOOL else kind.number


def guarantee_of(row: Row, out: ElementKind, words: bool = False) -> PrecisionGuarantee:
    """Half an ulp for the final rounding and what the computation adds; exact for integers and for what is moved."""
    if not out.is_float or (words and row.moves):
        return PrecisionGuarantee(MathPrecision.EXACT, out, True, True, True, False, Exact())
    wide = out is ElementKind.F64
    accumulator = ElementKind.F64 if wide else ElementKind.F32
    if out.digits < 24:
        ulps = 0.5 + row.ulps.short + (row.ulps.f32 + 0.5) * 2.0 ** (out.digits - 24)
    else:
        ulps = row.ulps.f64 if wide else row.ulps.f32
    flushed = row.ulps.flushed * (2.0**-896 if wide else 1.0)
    math_precision = MathPrecision.F64 if wide else MathPrecision.F32
    bound = (
        propagated(out) if row.formula else Ulp(max(ulps, 0.5), flushed + row.ulps.zeros * accumulator.unit_roundoff)
    )
    return PrecisionGuarantee(math_precision, accumulator, True, True, True, flushed > 0.0, bound)


def propagated(out: ElementKind) -> Componentwise:
    """The bound of an expression: the rounding of each part, carried through it, and that of the result to 16 bits."""
    computed = ElementKind.F64 if out is ElementKind.F64 else ElementKind.F32
    term, outside = Term(1.0, computed, "propagated"), "intermediate_overflows"
    if out.digits < 24:
        return Componentwise.rounded((term,), out, SOURCE, outside)
    return Componentwise((term,), SOURCE, outside)


def are_numbers(names: Sequence[str]) -> str:
    """What is wrong with a call whose operands are numbers alone."""
    if len(names) == 1:
        return f"{names[0]} is a number, and must be an array"
    return f"{', '.join(names[:-1])} and {names[-1]} are numbers, and one must be an array"


def row_of(name: str) -> Row:
    """The row of a kind. Its table may be in a module that this process has not imported yet."""
    if name not in ROWS:
        get_op(name)
    return ROWS[name]
