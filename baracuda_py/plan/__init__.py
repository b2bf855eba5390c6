"""The lifecycle every op shares: descriptor, candidates, select, can_implement, run, bind, graph."""

from .bound import BoundPlan
from .candidate import Candidate, Cost, Feasibility
from .descriptor import Descriptor, Layout, Operand
from .graph import Graph
from .plan import LaunchConfig, Plan
from .registry import Op, all_ops, find, get_op, list_ops, register

__all__ = [
    "BoundPlan",
    "Candidate",
    "Cost",
    "Descriptor",
    "Feasibility",
    "Graph",
    "LaunchConfig",
    "Layout",
    "Op",
    "Operand",
    "Plan",
    "all_ops",
    "find",
    "get_op",
    "list_ops",
    "register",
]
