"""The public function of an op, made from its plan and a signature: ``out= stream= pref= device=`` are written here, once.

    @function_of(ContiguizePlan)
    def contiguize(x: Any, /) -> Any:
        '''A C-ordered copy of `x`.'''

Parameters that the descriptor's table knows are operands, those among its `values` are numbers of the launch, and all others
are options, which `Descriptor.of` takes by name. On a call that was made before no descriptor is built: the function only
gathers its arguments and hands them to `functional.call`. Its code is written for its signature, as `dataclasses` writes
``__init__``, so that Python itself binds the arguments and nothing is looped over.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from .. import functional
from ..plan.descriptor import Descriptor, scalar
from ..plan.plan import Plan
from ..types import PlanPreference

__all__ = ["Asked", "function_of"]

# Operands, what describes them, options, run-time values, and the bytes by which those move each operand: what a body returns
# that gathers its arguments itself (its annotation is ``-> Asked``), as `functional.call` takes it.
Asked: TypeAlias = tuple[
    Mapping[str, Any], Callable[[], Descriptor], Any, Mapping[str, Any] | None, Sequence[int] | None
]

_BY_NAME = inspect.Parameter.KEYWORD_ONLY
_SHELL = {"stream": "Any", "pref": "PlanPreference | None", "device": "Any"}


def function_of(
    plan: type[Plan[Any]], *, called: str = "", doc: str = "", **fixed: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes the public function of `plan` of one that has its signature and docstring.

    `called` and `doc` stand in for that one's own name and docstring, and `fixed` are options that the name fixes.
    """

    def made(template: Callable[..., Any]) -> Callable[..., Any]:
        name, own = called or template.__name__, inspect.signature(template)
        gathers = own.return_annotation == "Asked"
        signature = _whole(own, out="out" in plan.descriptor.slot_of and not gathers)
        lines = _forwarded(own) if gathers else _gathered(plan.descriptor, name, signature, fixed)
        defaults = {f"_{p.name}_": p.default for p in signature.parameters.values()}
        known = {
            "_plan": plan, "_of": plan.descriptor.of, "_call": functional.call, "_scalar": scalar,
            "_check": plan.descriptor.check_values, "_body": template, "PlanPreference": PlanPreference,
        }  # fmt: skip
        text = "\n    ".join([f"def {name}({_parameters(signature)}):", *lines]) + "\n"
        file = f"<{template.__module__}.{name}>"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file  # for tracebacks
        names = {**getattr(template, "__globals__", {}), **known, **defaults}
        exec(compile(text, file, "exec"), names)
        function: Callable[..., Any] = names[name]
        function.__module__, function.__doc__ = template.__module__, doc or template.__doc__
        function.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()} | {"return": "Any"}
        return function

    return made


def _whole(own: inspect.Signature, *, out: bool) -> inspect.Signature:
    """The signature with what every function takes, and with the operand `out` where it is to be put in."""
    shell = {
        name: kind for name, kind in (({"out": "Any"} if out else {}) | _SHELL).items() if name not in own.parameters
    }
    added = [inspect.Parameter(name, _BY_NAME, default=None, annotation=kind) for name, kind in shell.items()]
    return own.replace(parameters=[*own.parameters.values(), *added])


def _parameters(signature: inspect.Signature) -> str:
    """The text between the parentheses; defaults are global names."""
    empty = inspect.Parameter.empty
    plain = [
        p.replace(annotation=empty, default=p.default if p.default is empty else _Name(f"_{p.name}_"))
        for p in signature.parameters.values()
    ]
    return str(inspect.Signature(plain))[1:-1]


class _Name(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _gathered(
    descriptor: type[Descriptor], name: str, signature: inspect.Signature, fixed: Mapping[str, Any]
) -> list[str]:
    """The body of a function whose arguments the table explains."""
    given = [p for p in signature.parameters if p not in _SHELL]
    slots = [slot for slot in descriptor.slots if slot.name in given]
    values = [p for p in given if p in descriptor.values]
    options = [p for p in given if p not in descriptor.slot_of and p not in values]
    always = (f"{slot.name!r}: {slot.name}" for slot in slots if not slot.optional)
    lines = [f"operands = {{{', '.join(always)}}}"]
    lines += [f"if {s.name} is not None: operands[{s.name!r}] = {s.name}" for s in slots if s.optional]
    key = [repr(one) for one in fixed.values()]
    key += ["tuple(operands)"] if any(s.optional for s in slots) else []
    if "math" in options:  # how to multiply is a preference as well
        lines += ["if math is None and isinstance(pref, PlanPreference): math = pref.math"]
    key += options
    further = ""
    if values:
        numbers = (f"{v!r}: _scalar({v}, '{name}: {v}')" for v in values)
        usual = {v: signature.parameters[v].default for v in values}
        checked = descriptor.check_values(name, usual, {})
        usually = ", ".join(f"{v!r}: {v}" for v in values)
        lines += [
            f"if {' and '.join(f'{v} is _{v}_' for v in values)}:  # by far the usual call",
            f"    values, checked = {{{usually}}}, {checked!r}",
            "else:",
            f"    values = {{{', '.join(numbers)}}}",
            f"    checked = _check({name!r}, values, operands)",
        ]
        further = "values=values, "
        key.append("checked")
    known = inspect.signature(descriptor.of).parameters
    described = [f"{p}={p}" for p in (*(s.name for s in slots), *options) if p in known]
    described += [f"{p}={one!r}" for p, one in fixed.items()]
    if key:
        further += f"options={key[0] if len(key) == 1 else '(' + ', '.join(key) + ')'}, "
    lines += [
        f"return _call(_plan, operands, lambda: _of({', '.join(described)}), {further}"
        "stream=stream, pref=pref, device=device)"
    ]
    return lines


def _forwarded(own: inspect.Signature) -> list[str]:
    """The body of a function that gathers its arguments itself, `out` included where it has one."""
    passed = ", ".join(f"{p.name}={p.name}" if p.kind is _BY_NAME else p.name for p in own.parameters.values())
    return [
        f"operands, describe, options, values, shifts = _body({passed})",
        "return _call(_plan, operands, describe, options=options, values=values, shifts=shifts, stream=stream, pref=pref, "
        "device=device)",
    ]
