"""The parts that all ops share: descriptors, candidates, selection, and plans.

Names are resolved when they are used, so that lower layers can import single modules of this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .about.status import check
    from .candidate import Candidate, Cost, Feasibility
    from .descriptor import Descriptor, Layout, Operand
    from .grammar import glossary
    from .plan import Plan
    from .registry import Gradient, Op, all_ops, all_wanted, find, get_op, list_ops, register
    from .selection import LaunchConfig, Selection
    from .tables.comparison import compare

__all__ = [
    "Candidate", "Cost", "Descriptor", "Feasibility", "Gradient", "LaunchConfig", "Layout", "Op", "Operand", "Plan", "Selection",
    "all_ops", "all_wanted", "check", "compare", "find", "get_op", "glossary", "list_ops", "register",
]  # fmt: skip
_PLACES = {
    "tables.comparison": ("compare",), "about.status": ("check",), "candidate": ("Candidate", "Cost", "Feasibility"),
    "descriptor": ("Descriptor", "Layout", "Operand"), "grammar": ("glossary",), "plan": ("Plan",),
    "registry": ("Gradient", "Op", "all_ops", "all_wanted", "find", "get_op", "list_ops", "register"),
    "selection": ("LaunchConfig", "Selection"),
}  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
