"""Answers a call of `functional.call`: which op's function made it, and with which arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..plan.registry import names_of
from .signature import Signature

__all__ = ["answering", "arguments_of", "op_of"]


def answering(
    signature_of: Callable[[str], Signature], call_op: Callable[[str, dict[str, Any]], Any]
) -> Callable[..., Any]:
    """What takes the arguments of `functional.call` and answers by a framework's `call_op`."""

    def called(
        plan: Any,
        operands: Mapping[str, Any],
        describe: Any,
        describe_args: tuple[Any, ...],
        options: Any,
        values: Any,
        **how: Any,
    ) -> Any:
        signature = signature_of(op_of(plan, options, describe))
        given = arguments_of(signature, operands, describe, describe_args, options, values)
        return call_op(signature.name, {**given, **{name: x for name, x in how.items() if x is not None}})

    return called


def op_of(plan: Any, options: Any, describe: Any) -> str:
    """The op whose function made a call."""
    names = names_of(plan)
    own = getattr(describe, "op", None) or (options if isinstance(options, str) else options[0] if options else None)
    return own if own in names else names[0]


def arguments_of(
    signature: Signature,
    operands: Mapping[str, Any],
    describe: Any,
    describe_args: tuple[Any, ...],
    options: Any,
    values: Any,
) -> dict[str, Any]:
    """The arguments of the function that made a call."""
    restore = getattr(describe, "arguments_of", None)
    held = restore(*describe_args) if restore else {**operands, **(values or {})}
    given = {}
    for name, operand, whole, dtype in signature.held:
        value = held.get(operand)
        if value is not None:  # a descriptor keeps whole numbers that kernels take at run time as floats
            given[name] = int(value) if whole and isinstance(value, float) else value
        elif dtype and not restore and isinstance(options, tuple):
            given[name] = options[0] if options[0] != signature.name else options[1]
    return given
