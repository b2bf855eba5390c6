"""Checking a plan on real operands: run on copies, compare with the oracle within the plan's own guarantee."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tensor import GpuBuffer

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["verify"]


def _host(x: Any) -> np.ndarray[Any, Any]:
    if isinstance(x, GpuBuffer):
        return x.to_host()
    return x if isinstance(x, np.ndarray) else np.asarray(x.get() if hasattr(x, "get") else x)


def verify(plan: Plan[Any], operands: Mapping[str, Any]) -> None:
    """Raises AssertionError where a written operand differs from the oracle by more than the guarantee allows."""
    from .tune import copy_of

    desc = plan.desc.at(operands)
    written = [o for o in plan.operands if o.written]
    given = {n: x for n, x in operands.items() if x is not None}
    inputs = {o.name: np.array(_host(given[o.name])) for o in plan.operands if o.role != "out" and o.name in given}
    wide = plan.reference(desc, **inputs)
    copies = {
        o.name: (np.array(given[o.name]) if plan.device.is_host else copy_of(given[o.name]))
        for o in written
        if o.name in given
    }
    result = plan.run(**{**given, **copies})
    results = result if isinstance(result, tuple) else (result,)
    for operand, got, expected in zip(
        [o for o in written if not o.optional], results, wide if isinstance(wide, tuple) else (wide,)
    ):
        element = plan._canonical.layout(operand.name).element
        plan.precision_guarantee.check(
            _host(got), np.asarray(expected), inputs, output=element, measures=plan.measured(desc)
        )
