"""What every op shares: descriptor, candidates, select, and the plan that they make. Names are looked up when they are used,
so that a module of this package can be imported from below."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .candidate import Candidate, Cost, Feasibility
    from .descriptor import Descriptor, Layout, Operand
    from .plan import Plan
    from .registry import Gradient, Op, all_ops, find, get_op, list_ops, register
    from .selection import LaunchConfig, Selection

__all__ = [
    "Candidate", "Cost", "Descriptor", "Feasibility", "Gradient", "LaunchConfig", "Layout", "Op", "Operand", "Plan", "Selection",
    "all_ops", "find", "get_op", "list_ops", "register",
]  # fmt: skip
_PLACES = {
    "candidate": ("Candidate", "Cost", "Feasibility"), "descriptor": ("Descriptor", "Layout", "Operand"),
    "plan": ("Plan",), "registry": ("Gradient", "Op", "all_ops", "find", "get_op", "list_ops", "register"),
    "selection": ("LaunchConfig", "Selection"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
