"""What several variants of matmul ask before they take a problem."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ...plan.candidate import OK, Feasibility, no
from ...types import MathPrecision
from ._problem import BATCH_RANK

__all__ = ["admitted", "fixed", "launchable"]

_GRID = 2**31 - 1


def fixed(desc: Any, variant: str) -> Feasibility:
    """Whether the descriptor's name leaves `variant` a choice."""
    if desc.variant not in (None, variant):
        return no(f"{desc.op} fixes variant {desc.variant!r}", "use matmul")
    return OK


def admitted(desc: Any, variant: str, maths: Collection[MathPrecision]) -> Feasibility:
    """Whether a variant that multiplies in `maths` may serve the problem as far as name, precision and batch go."""
    if not (named := fixed(desc, variant)):
        return named
    if desc.precision not in maths:
        return no(f"does not multiply in {desc.precision}", f"math={next(iter(maths)).value!r}")
    if len(desc.gemm.batch) > BATCH_RANK:
        return no(
            f"{len(desc.gemm.batch)} batch axes that do not merge; kernels walk {BATCH_RANK}", "contiguize the operands"
        )
    return OK


def launchable(ctas: int) -> Feasibility:
    """Whether a one-dimensional grid holds so many CTAs."""
    return OK if ctas <= _GRID else no(f"{ctas} CTAs, and a launch has at most {_GRID}", "split the batch")
