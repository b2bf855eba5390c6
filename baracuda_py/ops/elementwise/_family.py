"""From rows to plans and public functions: what the unary, the binary and the ternary family have in common."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import CodeType
from typing import Any, ClassVar

import numpy as np

from ... import functional
from ...plan.candidate import Candidate
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...tensor import intake
from ...tensor.axes import index_of
from ...tensor.dispatch import Symbol, trace_as_either, trace_as_op
from ...tensor.pytorch import is_tensor
from ...types import ElementKind, InvalidProblemError, OperandTypeError, PrecisionGuarantee
from ...types.errors import shown
from .._misnamed import misnamed
from . import oracle
from ._candidates import CANDIDATES, OF_GRADIENTS
from ._descriptor import MapDescriptor
from ._promotion import WEAK, common_kind
from ._row import RESULT, ROWS, Row

__all__ = [
    "PUBLISHED",
    "GraphPlan",
    "MapPlan",
    "function_of",
    "names_params",
    "publish",
    "signature_of",
]

PUBLISHED: dict[str, Op] = {}  # the ops of rows, by name


class MapPlan:
    """What the plans of elementwise functions share."""

    candidates: ClassVar[tuple[Candidate[Any], ...]] = CANDIDATES

    @classmethod
    def reference(cls, desc: Any, **arrays: Any) -> Any:
        return oracle.evaluate(desc, arrays)

    @classmethod
    def reference_guarantee(cls, desc: Any) -> PrecisionGuarantee:
        return oracle.guarantee(desc.guarantee())

    @classmethod
    def sku_elements(cls, desc: Any) -> tuple[ElementKind, ElementKind | None]:
        out = desc.kind_of("out")
        of = out if desc.row.result in ("same", "float") else common_kind(desc.row, *desc.kinds)
        return of, None if of is out else out


class GraphPlan(MapPlan):
    """What the plans of several rows in one kernel share: one or more outputs, whose guarantee is the descriptor's own, against
    `evaluate`."""

    candidates: ClassVar[tuple[Candidate[Any], ...]] = OF_GRADIENTS
    evaluate: ClassVar[Callable[..., Any]]

    @classmethod
    def reference(cls, desc: Any, **arrays: Any) -> Any:
        return cls.evaluate(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: Any) -> PrecisionGuarantee:
        return desc.guarantee()  # type: ignore[no-any-return]


def publish(
    row: Row, plan: type[Plan[Any]], function: Callable[..., Any], samples: Callable[..., Any], module: str
) -> Callable[..., Any]:
    """Registers an op for `row`, and gives its function under the row's name, signature and documentation, as of `module`."""
    ROWS[row.name] = row
    function.__name__ = function.__qualname__ = row.name
    function.__doc__ = documentation(row)
    function.__module__ = module
    function.__signature__ = signature_of(row)  # type: ignore[attr-defined]
    family: Any = plan.descriptor
    arguments = {a: n for a, n in zip(row.arguments, family.inputs) if a != n}
    peers = {"cupy": row.name, "torch": row.name} | dict(row.peers)
    problems = partial(samples, kinds=row.domain, params=row.params)
    fixed, gradient = {"kind": row.name}, gradient_of(row, dict(zip(row.arguments, family.inputs)))
    PUBLISHED[row.name] = register(
        Op(row.name, plan, function, problems, fixed, gradient=gradient, peers=peers, arguments=arguments)
    )
    if row.halves:
        trace_as_op(row.name, function, partial(halved, row))
    if row.of_complex:
        trace_as_either(function, partial(_for_complex, row))
    return function


def gradient_of(row: Row, operands: Mapping[str, str]) -> Gradient | None:
    """The op that computes a row's gradients: it takes what the expressions name. `operands` are those of the arguments."""
    if not row.gradient:
        return None
    if row.result == "given":  # the gradient of a cast is a cast
        return Gradient(row.name, (), {"x": "out"}, grad="x")
    named = {*re.findall(r"\w+", " ".join(row.gradient.values()))}
    saved = {operands[name]: name for name in row.arguments if name in named} | (
        {"out": RESULT} if "out" in named else {}
    )
    gradients = {operands[name]: f"grad_{name}" for name in row.gradient}
    renames = {operand: name for operand, name in saved.items() if operand != name}
    surrogate = None if row.surrogate is None else partial(_of_surrogate, row.surrogate)
    return Gradient(
        f"{row.name}_backward", tuple(saved), gradients, renames=renames, broadcast=len(operands) > 1, surrogate=surrogate
    )  # fmt: skip


def _of_surrogate(surrogate: Callable[..., Any], desc: Any, **arrays: Any) -> Any:
    """What `surrogate` gives for a problem in place of its row's oracle."""
    with np.errstate(all="ignore"):
        return surrogate(*oracle.wide_inputs(desc, arrays).values(), **oracle.params_of(desc))


def names_params(family: type[MapDescriptor]) -> None:
    """Has the signature of the family's `of` name the params of its rows."""
    made: Any = family.of.__func__  # type: ignore[attr-defined]
    signature = inspect.signature(made)
    known = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    known += [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY) for n in family.values if n not in family.inputs]
    made.__signature__ = signature.replace(parameters=known)


def signature_of(row: Row) -> inspect.Signature:
    """Inputs by position (those that may be absent by name as well), params, then what every function takes."""
    kinds = inspect.Parameter
    parameters = [
        kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=None, annotation=Any)
        if name in row.absent
        else kinds(name, kinds.POSITIONAL_ONLY, annotation=Any)
        for name in row.arguments
    ]
    parameters += [
        kinds(n, kinds.POSITIONAL_OR_KEYWORD, default=d, annotation=type(d).__name__) for n, d in row.params.items()
    ]
    if row.halves:
        parameters[-1] = parameters[-1].replace(default=None)
        parameters.append(kinds("axis", kinds.KEYWORD_ONLY, default=None, annotation="int | None"))
    if row.result == "given":
        parameters.append(kinds("dtype", kinds.POSITIONAL_OR_KEYWORD, annotation="ElementLike"))
    annotations = {"out": Any, "stream": Any, "pref": "PlanPreference | None", "device": Any}
    parameters += [kinds(n, kinds.KEYWORD_ONLY, default=None, annotation=a) for n, a in annotations.items()]
    return inspect.Signature(parameters, return_annotation=Any)


def function_of(plan: type[Plan[Any]], row: Row) -> Callable[..., Any]:
    """The public function of a row: its inputs by position, those that may be absent and its params by name as well."""
    family: Any = plan.descriptor

    def general(*given: Any, out: Any = None, **named: Any) -> Any:
        how = {name: named.pop(name, None) for name in ("stream", "pref", "device")}
        if row.halves:
            given, named = halved(row, given, named)
        inputs, params = arguments_of(row, given, named)
        return _call_with_numbers(plan, row, dict(zip(family.inputs, inputs)), out, params, **how)

    if row.params or row.absent:
        return general
    names: dict[str, Any] = {"name": row.name, "plan": plan, "of": family.of, "call": functional.call}
    names |= {"general": general, "weak": WEAK, "__name__": __name__}
    if row.of_complex:
        names |= {"of": _RealAlone(family.of), "IsComplex": _IsComplexError, "for_complex": partial(_for_complex, row)}
    exec(_of_arrays(family.inputs, row.halves, bool(row.of_complex)), names)
    return names["function"]  # type: ignore[no-any-return]


@cache
def _of_arrays(inputs: tuple[str, ...], halves: bool, of_complex: bool) -> CodeType:
    """The code of a function of arrays, written out: a loop over its arguments would take 0.5 us of a repeated call. Whether an
    array is complex is asked only where the call is new, so that repeated ones of real arrays pay nothing for the question."""
    given, how = ", ".join(inputs), "stream=stream, pref=pref, device=device"
    weak = " or ".join(f"type({x}) in weak" for x in inputs) + (f" or {inputs[-1]} is None" if halves else "")
    text = f"""
def function({given}{"=None" if halves else ""}, /, *more, out=None, stream=None, pref=None, device=None, **named):
    if more or named or {weak}:
        return general({given}, *more, out=out, {how}, **named)
    operands = {{"out": out, {", ".join(f"{x!r}: {x}" for x in inputs)}}}
    {"try: " if of_complex else ""}return call(plan, operands, of, (name, {given}, out), name, {how})
"""
    if of_complex:
        text += f"""
    except IsComplex:
        pass
    return for_complex()({given}, out=out, {how})
"""
    return compile(text, f"<{__name__}: {given}>", "exec")


class _IsComplexError(Exception):
    """A call has a complex array, which another function serves. It never leaves the function of a row."""


class _RealAlone:
    """What describes a call of a row that another function serves where the array is complex."""

    def __init__(self, of: Callable[..., Any]) -> None:
        self._of = of

    def __call__(self, kind: str, x: Any, out: Any) -> Any:
        self.check_operands({"x": x})
        return self._of(kind, x, out)

    def check_operands(self, operands: Mapping[str, Any]) -> None:
        """Ends a call whose array is complex, before torch or JAX sees it as one of this op."""
        x = operands["x"]
        if x.is_complex() if is_tensor(x) else not isinstance(x, Symbol) and _dtype_of(x).kind == "c":
            raise _IsComplexError


def _dtype_of(x: Any) -> np.dtype[Any]:
    """The dtype of what may be an array; void of anything else."""
    dtype = getattr(x, "dtype", None) or getattr(getattr(x, "element", None), "dtype", None)
    return dtype if isinstance(dtype, np.dtype) else np.dtype(np.void)


def _for_complex(row: Row) -> Callable[..., Any]:
    """The function that serves complex arrays in place of the row's; by its name, since its family stands on this one."""
    module, _, name = row.of_complex.partition(":")
    module = f"{__name__.partition('.')[0]}.{module}"
    held = sys.modules[module] if module in sys.modules else importlib.import_module(module)  # Dynamo traces the former
    return getattr(held, name)  # type: ignore[no-any-return]


def arguments_of(row: Row, given: Sequence[Any], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs and the params of a call, with the row's defaults."""
    names = (*row.arguments, *row.params)
    placed = dict(zip(names, given))
    held = {**dict.fromkeys(row.absent), **row.params, **placed, **named}
    known = all(name in row.absent or name in row.params for name in named)
    if not known or len(given) > len(names) or len(held) < len(names) or not named.keys().isdisjoint(placed):
        raise _refusal(row, given, named)
    return tuple(held[name] for name in row.arguments), {name: held[name] for name in row.params}


def halved(row: Row, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with two inputs. One alone is sliced by its own framework: views, but for JAX's arrays."""
    rest = dict(named)
    axis = rest.pop("axis", None)
    if len(given) > 1 and given[1] is not None:
        if axis is not None:
            raise OperandTypeError(
                f"{row.name}: axis={axis!r} is given beside {' and '.join(row.arguments)}",
                f"leave out axis, or pass {row.arguments[0]} alone, whose halves along it are the inputs",
            )
        return given, rest
    if not given:
        raise _refusal(row, given, rest)
    x, name = given[0], f"{row.name}: {row.arguments[0]}"
    shape = x.shape if hasattr(x, "shape") and hasattr(x, "__getitem__") else intake(x, what=name).shape
    try:
        place = -1 if axis is None else index_of(axis)
    except (TypeError, OverflowError):
        raise OperandTypeError(f"{row.name}: axis must be an int, got {shown(axis)}", "pass axis=-1") from None
    if not -len(shape) <= place < len(shape):
        raise InvalidProblemError(
            f"{name} has {len(shape)} axes, and axis={place} is none of them",
            f"pass one from {-len(shape)} to {len(shape) - 1}" if len(shape) else "pass an array of one axis or more",
        )
    place, extent = place % len(shape), shape[place]
    if extent % 2:
        raise InvalidProblemError(
            f"{name} of shape {tuple(shape)} has {extent} elements along axis {place}, which are not two halves",
            f"pass an even extent, or {' and '.join(row.arguments)} as two arrays",
        )
    before, middle = (slice(None),) * place, extent // 2
    try:
        halves = x[*before, slice(0, middle)], x[*before, slice(middle, extent)]
    except Exception as error:  # a foreign object's own
        raise OperandTypeError(
            f"{name}: slicing of {type(x).__name__} failed ({type(error).__name__}: {error})",
            f"pass {' and '.join(row.arguments)} as two arrays",
        ) from None
    return (*halves, *given[2:]), rest


def _refusal(row: Row, given: Sequence[Any], named: Mapping[str, Any]) -> Exception:
    """The error of a call that the row's signature does not allow."""
    names = (*row.arguments, *row.params)
    unknown = {name: x for name, x in named.items() if name not in row.absent and name not in row.params}
    if unknown or len(given) > len(names):
        return misnamed(row.name, signature_of(row), given[len(names) :], unknown)
    missing = [name for name in row.arguments[len(given) :] if name not in row.absent]
    twice = ", ".join(name for name in names[: len(given)] if name in named)
    said = f"misses {', '.join(missing)}" if missing else f"got {twice} twice"
    return OperandTypeError(f"{row.name}() {said}", f"it takes {', '.join(names)}")


def _call_with_numbers(
    plan: type[Plan[Any]],
    row: Row,
    inputs: Mapping[str, Any],
    out: Any,
    params: Mapping[str, Any],
    **how: Any,
) -> Any:
    """A call with numbers, or nothing, in place of some arrays: their types are part of the key, their values are kernel
    arguments."""
    family: Any = plan.descriptor
    values = {name: x for name, x in inputs.items() if type(x) in WEAK}
    operands = {"out": out} | {n: x for n, x in inputs.items() if n not in values and x is not None}
    types = tuple(type(x) if x is None or type(x) in WEAK else "array" for x in inputs.values())
    describe = partial(family.of, row.name, **inputs, **params, out=out)
    values.update(params)
    try:
        return functional.call(plan, operands, describe, options=(row.name, types), values=values, **how)
    except OverflowError:  # the cached kernel is for numbers of a narrower kind
        kinds = describe().kinds
        return functional.call(plan, operands, describe, options=(row.name, types, kinds), values=values, **how)


def documentation(row: Row) -> str:
    """The docstring of a row's function."""
    several = len(row.arguments) > 1
    data = [name for name in row.arguments if name not in row.of_own_kind]
    kinds = _said(row)
    lines = [row.doc, ""]
    lines += [f"{', '.join(row.mask)}: an array of bool."] if row.mask else []
    lines.append(
        f"{', '.join(data)}: arrays whose shapes broadcast, any strides ({kinds}), or Python numbers beside an array: those are\n"
        "weak, and take the type of the arrays."
        if len(data) > 1
        else f"{data[0]}: an array of any strides ({kinds}), or a Python number beside an array."
        if several
        else f"{data[0]}: an array of any shape and strides ({kinds})."
    )
    lines += [f"{name}: an array of any integer type, or an int; the shapes broadcast." for name in row.integers]
    lines += [f"{name}: a number given at run time, {default} by default." for name, default in row.params.items()]
    if row.halves:
        first, second = row.arguments
        lines.append(
            f"axis: where {second} is left out, {first} and {second} are the two halves of {first} along this axis, the last by\n"
            f"default: views of it, no copies. To have their gradients in one array, pass {row.name}_backward its halves."
        )
    if row.of_complex:
        lines.append("A complex array is taken as well: `hypot` of its parts, f32 of complex64 and f64 of complex128.")
    shape, inputs = ("the broadcast shape", "an input") if several else (f"{data[0]}'s shape", data[0])
    lines.append(
        f"out: an array of {shape} and {'NumPy' + chr(39) + 's result type' if row.result != 'given' else 'dtype'}, "
        f"{inputs} itself included; allocated in the axis order of the first full input if not given."
    )
    lines += [f"The gradient of {name}, where grad is that of out: {of}." for name, of in row.gradient.items()]
    raises = (
        "InvalidProblemError where the shapes do not broadcast or an integer dtype lacks a number, " if several else ""
    )
    lines.append(
        f"Returns out. Raises {raises}OperandTypeError for a dtype that is not\ntaken, OverlapError where out partly overlaps "
        f"{inputs}."
    )
    return "\n".join(lines) + "\n"


def _said(row: Row) -> str:
    integers = any(kind.is_integer for kind in row.domain)
    floats = ", ".join(str(kind) for kind in row.domain if kind.is_float)
    return f"{floats}{'; integers as NumPy takes them' if integers else ''}"
