"""Calls beside one of the same layout that was made before: its recipe is at hand, and what was refused is refused still."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import baracuda_py as bp

from .simulated import Gpus

__all__ = ["Refused", "refused_after_a_call"]

PLANS: dict[str, Any] = {
    "neg": (bp.UnaryPlan, lambda x, out: bp.UnaryDescriptor.of("neg", x, out)),
    "contiguize": (bp.ContiguizePlan, bp.ContiguizeDescriptor.of),
}


class Refused(NamedTuple):
    """A row of a table: a call that is served, operands in place of its own that are refused, and how."""

    served: dict[str, Any]  # x, out
    instead: list[dict[str, Any]]
    error: type[bp.BaracudaError]
    says: str = ""
    op: str = "neg"


def refused_after_a_call(gpus: Gpus, row: Refused, way: str) -> None:
    """By the function or by a plan's `run`: refused twice, nothing is launched, and the call that was served is served again."""
    plan, describe = PLANS[row.op]
    selected = plan.select(describe(**row.served), device=0)

    def call(x: Any, out: Any) -> Any:
        return getattr(bp, row.op)(x, out=out) if way == "function" else selected.run(x=x, out=out)

    call(**row.served)
    done = len(gpus.work)
    for given in row.instead:
        for _ in range(2):
            with pytest.raises(row.error, match=row.says or None):
                call(**row.served | given)
    assert len(gpus.work) == done
    call(**row.served)
    assert len(gpus.work) == 2 * done
