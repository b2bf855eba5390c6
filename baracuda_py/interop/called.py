"""Which op's function made a call of `functional.call`, and with which arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..plan.registry import all_ops
from .signature import Signature

__all__ = ["arguments_of", "op_of"]


def op_of(plan: Any, options: Any, describe: Any) -> str:
    """The op whose function made a call."""
    names = [name for name, op in all_ops().items() if op.plan is plan]
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
    for p in signature.parameters:
        name = signature.op.arguments.get(p.name, p.name)
        value = held.get(name)
        if value is not None:  # a descriptor keeps whole numbers that kernels take at run time as floats
            given[p.name] = int(value) if p.type.startswith("SymInt") and isinstance(value, float) else value
        elif p.name.endswith("dtype") and not restore and isinstance(options, tuple):
            given[p.name] = options[0] if options[0] != signature.name else options[1]
    return given
