"""What every matmul candidate asks first."""

from __future__ import annotations

from typing import Any

from ...plan.candidate import OK, Feasibility, no

__all__ = ["fixed"]


def fixed(desc: Any, variant: str) -> Feasibility:
    """Whether the function's name leaves `variant` open."""
    if desc.variant in (None, variant):
        return OK
    return no(f"{desc.op} fixes the variant {desc.variant!r}", f"call matmul for variant {variant!r}")
