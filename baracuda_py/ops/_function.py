"""The public function of an op, made from its plan and a signature: ``out= stream= pref= device=`` are written here, once.

    @function_of(ContiguizePlan)
    def contiguize(x: Any, /) -> Any:
        '''A C-ordered copy of `x`.'''

Parameters that the descriptor's table knows are operands, those among its `values` are numbers of the launch, and all others
are options, which `Descriptor.of` takes by name; numbers that are None by default are left out where they are not given.
`SignatureRules` says what the table does not. On a repeated call no descriptor is built: the function only gathers its arguments
and passes them to `functional.call`. Its code is generated for its signature, as `dataclasses` generates ``__init__``, so that
Python itself binds the arguments, without a loop.
"""

from __future__ import annotations

import inspect
import itertools
import linecache
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from .. import functional
from ..call.results.trim import Trim, trimmed, trims
from ..plan.descriptor import Descriptor, Slot, scalar
from ..plan.fields import flag
from ..plan.plan import Plan
from ..types import PlanPreference
from ._misnamed import misnamed

__all__ = ["CallArgs", "DerivedArgs", "SignatureRules", "function_of"]

# Operands, what describes them, options, run-time values, and the bytes by which those move each operand: what a body returns
# that gathers its arguments itself (its annotation is ``-> CallArgs``), as `functional.call` takes it.
CallArgs: TypeAlias = tuple[
    Mapping[str, Any], Callable[[], Descriptor], Any, Mapping[str, Any] | None, Sequence[int] | None
]

_BY_NAME = inspect.Parameter.KEYWORD_ONLY
_SHELL = {"stream": "Any", "pref": "PlanPreference | None", "device": "Any"}


class DerivedArgs(NamedTuple):
    """Operands, values and options that are made of parameters, ahead of all else, by ``by(*takes)``. What it takes and a table
    does not know goes no further."""

    makes: tuple[str, ...]
    takes: tuple[str, ...]
    by: Callable[..., tuple[Any, ...]]


class SignatureRules(NamedTuple):
    """How arguments are read where a table does not say it.

    `reads` are functions (value, what it is called) by which options that were given become a part of a call's key. `wanted`
    are outputs that a call has where a parameter asks for them: an operand that is given, an option that is true (by default
    ``return_<output>``), which is no more than that, or one that has a certain value (the pair of both). `of` describes a call,
    by default the descriptor's own. `trim` says what a function cuts whose argument `trim` is true.
    """

    reads: Mapping[str, Callable[[Any, str], Any]] = MappingProxyType({})
    wanted: Mapping[str, str | tuple[str, Any]] = MappingProxyType({})
    derived: DerivedArgs | None = None
    of: Callable[..., Descriptor] | None = None
    trim: Trim | None = None


_TABLE_ALONE = SignatureRules()


def function_of(
    plan: type[Plan[Any]], *, called: str = "", doc: str = "", rules: SignatureRules = _TABLE_ALONE, **fixed: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the public function of `plan` of one that has its signature and docstring.

    `called` and `doc` stand in for that one's own name and docstring, and `fixed` are options that the name fixes.
    """

    def made(template: Callable[..., Any]) -> Callable[..., Any]:
        name, own = called or template.__name__, inspect.signature(template)
        gathers = own.return_annotation == "CallArgs"
        signature = _whole(own, out="out" in plan.descriptor.slot_of and not gathers)
        defaults = {f"_{p.name}_": p.default for p in signature.parameters.values()}
        of = rules.of or plan.descriptor.of
        known = {
            "_plan": plan, "_of": of, "_call": functional.call, "_values": _conversions(plan.descriptor), "_body": template,
            "_check": plan.descriptor.check_values, "_flag": flag, "_reads": rules.reads, "PlanPreference": PlanPreference,
            "_misnamed": partial(misnamed, name, signature), "_trims": partial(trims, name), "_trimmed": trimmed,
        }  # fmt: skip
        parts = None if gathers else _Parts.of(plan.descriptor, signature, rules, fixed)
        if parts is None:
            known |= {"_restated": _restated(name, tuple(own.parameters))}
            text = _text(name, signature, _forwarded(own))
        else:
            known |= {"_usual": parts.usual, "_derived": rules.derived and rules.derived.by}
            text = _text(name, signature, _gathered(plan.descriptor, name, parts, rules))
            text += _text("_describe", "operands, options, values", _described(of, parts))
        file = f"<{template.__module__}.{name}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # for tracebacks
        names = {**getattr(template, "__globals__", {}), **known, **defaults}
        # `inspect.Signature.bind` instead would take 21 us, where a whole repeated call takes 6.7 (paired runs on a simulated
        # device, matmul).
        exec(compile(text, file, "exec"), names)
        function: Callable[..., Any] = names[name]
        function.__module__, function.__doc__ = template.__module__, doc or template.__doc__
        function.__signature__ = signature.replace(return_annotation="Any")  # type: ignore[attr-defined]
        function.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()} | {"return": "Any"}
        if parts is not None:
            names["_describe"].arguments_of, names["_describe"].op = parts.arguments_of, name
            function.flags = {output: flag for output, flag in parts.asked.items() if flag in parts.flags}  # type: ignore[attr-defined]
        return function

    return made


def _conversions(descriptor: type[Descriptor]) -> Mapping[str, Callable[[Any, str], Any]]:
    """Of each run-time value."""
    return {name: descriptor.value_conversions.get(name, scalar) for name in descriptor.values}


def _text(name: str, signature: inspect.Signature | str, lines: Sequence[str]) -> str:
    parameters = signature if isinstance(signature, str) else _parameters(signature)
    if not isinstance(signature, str):
        lines = ["if _more or _others: raise _misnamed(_more, _others)", *lines]
    return "\n    ".join([f"def {name}({parameters}):", *lines]) + "\n"


def _whole(own: inspect.Signature, *, out: bool) -> inspect.Signature:
    """The signature with what every function takes, and with the operand `out` where it is to be put in."""
    shell = {
        name: kind for name, kind in (({"out": "Any"} if out else {}) | _SHELL).items() if name not in own.parameters
    }
    added = [inspect.Parameter(name, _BY_NAME, default=None, annotation=kind) for name, kind in shell.items()]
    return own.replace(parameters=[*own.parameters.values(), *added])


def _parameters(signature: inspect.Signature) -> str:
    """The text between the parentheses; defaults are global names. What the signature does not know is collected, to be
    answered."""
    empty = inspect.Parameter.empty
    plain = [
        p.replace(annotation=empty, default=p.default if p.default is empty else _Name(f"_{p.name}_"))
        for p in signature.parameters.values()
    ]
    first = next((i for i, p in enumerate(plain) if p.kind is _BY_NAME), len(plain))
    plain.insert(first, inspect.Parameter("_more", inspect.Parameter.VAR_POSITIONAL))
    return str(inspect.Signature([*plain, inspect.Parameter("_others", inspect.Parameter.VAR_KEYWORD)]))[1:-1]


class _Name(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Parts(NamedTuple):
    """What the parameters of a function are whose arguments the table explains."""

    slots: tuple[Slot, ...]  # in the descriptor's order
    asked: dict[str, str]  # further outputs, and what is true where they are asked for
    flags: dict[str, str]  # parameters that do no more than that, and what is true where they did
    usual: dict[str, Any]  # run-time values that every call has, by default
    absent: tuple[str, ...]  # run-time values that a call has where they are given
    options: tuple[str, ...]
    fixed: Mapping[str, Any]

    @staticmethod
    def of(
        descriptor: type[Descriptor], signature: inspect.Signature, rules: SignatureRules, fixed: Mapping[str, Any]
    ) -> _Parts:
        beside = {*_SHELL, *(("trim",) if rules.trim else ())}
        given = {p.name: p.default for p in signature.parameters.values() if p.name not in beside}
        slots = tuple(slot for slot in descriptor.slots if slot.name in given)
        equal = {output: by for output, by in rules.wanted.items() if isinstance(by, tuple)}
        by_name = {s.name: rules.wanted.get(s.name, f"return_{s.name}") for s in slots if s.role == "out"}
        wanted = {output: by for output, by in by_name.items() if isinstance(by, str) and by in given}
        asked = {output: f"{by} is not None" if by in descriptor.slot_of else by for output, by in wanted.items()}
        asked |= {
            output: by if value is True else f"isinstance({by}, str) and {by} == {value!r}"
            for output, (by, value) in equal.items()
        }
        flags = {
            flag: " or ".join(f"operands.get({output!r}, 0) is None" for output, by in wanted.items() if by == flag)
            for flag in dict.fromkeys(wanted.values()) if flag not in descriptor.slot_of
        }  # fmt: skip
        values = [p for p in given if p in descriptor.values]
        usual = {v: _conversions(descriptor)[v](given[v], v) for v in values if given[v] is not None}
        absent = tuple(v for v in values if given[v] is None)
        makes, takes = rules.derived[:2] if rules.derived else ((), ())
        known = {*descriptor.slot_of, *values, *flags}
        options = [*(p for p in given if p not in takes), *makes]
        return _Parts(slots, asked, flags, usual, absent, tuple(p for p in options if p not in known), fixed)

    @property
    def values(self) -> tuple[str, ...]:
        return *self.usual, *self.absent

    @property
    def key(self) -> list[str]:
        """What else a descriptor depends on: the options that a call's key has."""
        first = [repr(one) for one in self.fixed.values()]
        first += ["tuple(operands)"] if any(map(self.may_lack, self.slots)) else []
        last = ["checked"] if self.values else []
        return [*first, *self.options, *last]

    def arguments_of(
        self, operands: Mapping[str, Any], options: tuple[Any, ...], values: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The arguments by which a call came about, of what describes it."""
        flags = {
            flag: any(operands.get(output, 0) is None for output, by in self.asked.items() if by == flag)
            for flag in self.flags
        }
        named = {name: value for name, value in zip(self.key, options) if name in self.options}
        return {**operands, **named, **flags, **values}

    def may_lack(self, slot: Slot) -> bool:
        """Whether there are calls without an operand."""
        return slot.optional or slot.name in self.asked


def _gathered(descriptor: type[Descriptor], name: str, parts: _Parts, rules: SignatureRules) -> list[str]:
    """The body of a function whose arguments the table explains."""
    lines = []
    if rules.derived:
        lines += [f"{', '.join(rules.derived.makes)}, = _derived({', '.join(rules.derived.takes)})"]
    leading = list(itertools.takewhile(lambda slot: not parts.may_lack(slot), parts.slots))
    lines += [f"operands = {{{', '.join(f'{s.name!r}: {s.name}' for s in leading)}}}"]
    for slot in parts.slots[len(leading) :]:
        asked = parts.asked.get(slot.name)
        if asked in parts.flags or asked in parts.options:
            asked = f"{asked} is not False and _flag({asked}, '{name}: {asked}')"
        there = [f"{slot.name} is not None", *([asked] if asked else [])]
        lines += [
            (f"if {' or '.join(there)}: " if parts.may_lack(slot) else "") + f"operands[{slot.name!r}] = {slot.name}"
        ]
    if "math" in parts.options and not rules.derived:  # how to multiply is a preference as well
        lines += ["if math is None and isinstance(pref, PlanPreference): math = pref.math"]
    for option in rules.reads:
        lines += [f"if {option} is not None: {option} = _reads[{option!r}]({option}, '{name}: {option}')"]
    if parts.values:
        checked = descriptor.check_values(name, parts.usual, {})
        numbers = (f"{v!r}: _values[{v!r}]({v}, '{name}: {v}')" for v in parts.usual)
        lines += [
            f"if {' and '.join(f'{v} is _{v}_' for v in parts.values)}:  # by far the usual call",
            f"    values, checked = _usual, {(tuple(parts.usual), checked) if parts.absent else checked!r}",
            "else:",
            f"    values = {{{', '.join(numbers)}}}",
            *(f"    if {v} is not None: values[{v!r}] = _values[{v!r}]({v}, '{name}: {v}')" for v in parts.absent),
            f"    checked = _check({name!r}, values, operands)",
            *(["    checked = tuple(values), checked"] if parts.absent else []),
        ]
    options = "".join(f"{one}, " for one in parts.key)
    call = f"_call(_plan, operands, _describe, describe_args, options, {'values' if parts.values else None}, None, stream, "
    lines += [
        f"options = ({options})",
        f"describe_args = operands, options, {'values' if parts.values else '_usual'}",
        f"return {call}pref, device)",
    ]
    return lines if rules.trim is None else _cut(rules.trim, parts, lines)


def _cut(trim: Trim, parts: _Parts, lines: Sequence[str]) -> list[str]:
    """The body of a function that gathers so, with its results cut where `trim` is true."""
    first = next(slot.name for slot in parts.slots if slot.role == "in")
    alone = "".join(f", {name}={name}" for name in trim.alone)
    return [
        f"trim = _trims(trim, {first}, stream, {trim.unless or None}{alone})",
        *lines[:-1],
        lines[-1].replace("return", "made =", 1),
        f"return _trimmed(made, {trim.outputs!r}, stream) if trim else made",
    ]


def _described(of: Callable[..., Descriptor], parts: _Parts) -> list[str]:
    """The body of what describes such a call when it is new."""
    parameters = inspect.signature(of).parameters
    whatever = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    known = {s.name for s in parts.slots} | set(parts.options) if whatever else parameters.keys()
    given = [f"{s.name}=operands.get({s.name!r})" for s in parts.slots if s.name in known]
    given += [f"{flag}={held}" for flag, held in parts.flags.items()]
    given += [f"{p}=options[{i}]" for i, p in enumerate(parts.key) if p in parts.options and p in known]
    given += [f"{p}={one!r}" for p, one in parts.fixed.items()]
    given += ["**values"] if parts.absent else []
    return [f"return _of({', '.join(given)})"]


def _forwarded(own: inspect.Signature) -> list[str]:
    """The body of a function that gathers its arguments itself, `out` included where it has one."""
    passed = ", ".join(f"{p.name}={p.name}" if p.kind is _BY_NAME else p.name for p in own.parameters.values())
    return [
        f"operands, describe, options, values, shifts = _body({passed})",
        f"describe_args = describe, {', '.join(own.parameters)}",
        "return _call(_plan, operands, _restated, describe_args, options, values, shifts, stream, pref, device)",
    ]


def _restated(name: str, parameters: tuple[str, ...]) -> Callable[..., Descriptor]:
    """What describes a call whose body gathers its own operands: ``describe()``, the arguments of the call behind it."""

    def describe_call(describe: Callable[[], Descriptor], *_arguments: Any) -> Descriptor:
        return describe()

    def arguments_of(_describe: Callable[[], Descriptor], *arguments: Any) -> dict[str, Any]:
        return dict(zip(parameters, arguments))

    describe_call.arguments_of, describe_call.op = arguments_of, name  # type: ignore[attr-defined]
    return describe_call
