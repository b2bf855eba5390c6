"""What the author of a family of ops needs, from one module, for families of this package and of others alike.

`add_kernels_dir` makes the kernels of another package known. `docs/adding-an-op.md` shows the rest at work, and ``python -m
baracuda_py.cli.new`` writes a family that uses it.
"""

from ..plan.candidate import OK, Candidate, Cost, Feasibility, no
from ..plan.constraints import Aligned, InOrder, Kinds, Multiple, UnitStride
from ..plan.descriptor import Descriptor, Slot, described
from ..plan.lowering import Sub
from ..plan.plan import Plan
from ..plan.registry import Gradient, Op, register
from ..plan.selection import Selection, selected
from ..runtime.compile.sources import add_kernels_dir
from ..runtime.steps import Kernel, Launch, Ptr, Run, Scratch, Step
from ..types import (
    Componentwise,
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    OperandTypeError,
    PrecisionGuarantee,
    Term,
    Ulp,
)
from ._function import function_of
from ._rows import FLOATS, RowConfig, Rows, computed_in, row_configs, row_cost, rows_of

__all__ = [
    "FLOATS",
    "OK",
    "Aligned",
    "Candidate",
    "Componentwise",
    "Cost",
    "Descriptor",
    "DeviceSpec",
    "ElementKind",
    "Feasibility",
    "Gradient",
    "InOrder",
    "InvalidProblemError",
    "Kernel",
    "Kinds",
    "Launch",
    "Multiple",
    "Op",
    "OperandTypeError",
    "Plan",
    "PrecisionGuarantee",
    "Ptr",
    "RowConfig",
    "Rows",
    "Run",
    "Scratch",
    "Selection",
    "Slot",
    "Step",
    "Sub",
    "Term",
    "Ulp",
    "UnitStride",
    "add_kernels_dir",
    "computed_in",
    "described",
    "function_of",
    "no",
    "register",
    "row_configs",
    "row_cost",
    "rows_of",
    "selected",
]
