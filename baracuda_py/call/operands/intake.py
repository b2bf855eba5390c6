"""Reads the operands of a call: checks their names, converts arrays to Tensors, and says whether a plan would accept them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...plan.candidate import OK, Feasibility
from ...plan.selection import Selection
from ...tensor import Tensor, intake
from ...types import BaracudaError, InvalidProblemError
from .validate import check_operands

__all__ = ["feasible", "refuse_unknown", "take"]


def refuse_unknown(selection: Selection, given: Mapping[str, Any]) -> None:
    """Raises InvalidProblemError for a name that is neither an operand nor a run-time value."""
    for name in given:
        if name not in selection.names and name not in selection.values:
            known = ", ".join(dict.fromkeys((*selection.names, *selection.values)))
            fix = selection.desc.asked_for(name) or f"it takes {known}"
            raise InvalidProblemError(f"{selection.desc.op}: there is no operand {name!r}", fix)


def take(selection: Selection, given: Mapping[str, Any], stream: int | None) -> dict[str, Tensor | None]:
    """Every operand as a Tensor, None for an optional or allocated one that was not given."""
    tensors: dict[str, Tensor | None] = {}
    op, host = selection.desc.op, selection.device.host_memory
    for name, role, optional in selection.operands:
        x = given.get(name)
        if x is None and role != "out" and not optional:
            raise InvalidProblemError(f"{op}: operand {name!r} is missing", f"pass {name}=...")
        tensors[name] = None if x is None else intake(x, what=f"{op}: {name}", stream=stream, host=host)
    return tensors


def feasible(selection: Selection, operands: Mapping[str, Any]) -> Feasibility:
    """Whether a call would accept these operands; raises nothing."""
    try:
        refuse_unknown(selection, operands)
        tensors = take(selection, operands, None)
        check_operands(selection.desc.at(operands), selection.canonical, tensors, selection.device)
    except BaracudaError as error:
        return Feasibility.of(error)
    return OK
