"""adam_update and adamw_update: steps of Adam, with weight decay in the gradient or of the parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind
from .._function import function_of
from .._rows import FLOATS
from . import _guarantee, oracle, samples
from ._problem import COUNT, MASTER, PARAMETER, READ, UpdateCandidate, UpdateProblem

__all__ = [
    "AdamUpdateDescriptor",
    "AdamUpdatePlan",
    "AdamwUpdateDescriptor",
    "AdamwUpdatePlan",
    "adam_update",
    "adamw_update",
]


OPERANDS = (
    PARAMETER,
    *(
        Slot(n, "inout", takes=FLOATS, element="state_element", strided=False, aligned=False)
        for n in ("exp_avg", "exp_avg_sq")
    ),
    Slot("max_exp_avg_sq", "inout", optional=True, takes=FLOATS, shape="shape", strided=False, aligned=False),
    MASTER,
    COUNT,
    *READ,
)


class AdamProblem(UpdateProblem):
    """A step of Adam on arrays of `shape`; with `max_exp_avg_sq_element` of its variant AMSGrad."""

    decoupled: ClassVar[bool]  # whether weight decay is taken from the parameter, and not added to the gradient

    states = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    hyper = ("beta1", "beta2", "eps", "weight_decay")
    below_one = ("beta1", "beta2")
    values = ("lr", *hyper, "seed")

    @property
    def rule(self) -> str:
        flags = (self.decoupled, self.has("max_exp_avg_sq"))
        return f"optim::AdamRule<{', '.join(str(flag).lower() for flag in flags)}>"


@described(*OPERANDS)
class AdamUpdateDescriptor(AdamProblem):
    """A step of Adam on arrays of `shape`."""

    shape: tuple[int, ...]
    element: ElementKind
    grad_element: ElementKind | None = None
    state_element: ElementKind | None = None
    maximize: bool = False
    stochastic: bool = False
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    seed: int = 0

    name = "adam_update"
    decoupled = False


@described(*OPERANDS)
class AdamwUpdateDescriptor(AdamProblem):
    """A step of AdamW on arrays of `shape`."""

    shape: tuple[int, ...]
    element: ElementKind
    grad_element: ElementKind | None = None
    state_element: ElementKind | None = None
    maximize: bool = False
    stochastic: bool = False
    lr: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 1e-2
    seed: int = 0

    name = "adamw_update"
    decoupled = True


PROBES: tuple[Mapping[str, Any], ...] = (
    {"shape": (999,), "element": "f32"},
    {"shape": (999,), "element": "bf16", "max_exp_avg_sq_element": "f32", "master_element": "f32"},
    {"shape": (40, 3), "element": "f64", "learning_rate_element": "f32", "grad_scale_element": "f32"},
    {"shape": (999,), "element": "f16", "state_element": "f16", "found_inf_element": "f32", "table_shape": (2, 6)},
)


class AdamUpdatePlan(Plan[AdamUpdateDescriptor]):
    """A step of Adam: operands `param`, `exp_avg`, `exp_avg_sq`, `step` in place, `grad`, and as the problem has them
    `max_exp_avg_sq` and `master` in place, `learning_rate`, `grad_scale`, `found_inf`, `table`."""

    descriptor = AdamUpdateDescriptor
    candidates = (UpdateCandidate(),)
    measures = oracle.MEASURES
    reference = oracle.update
    reference_guarantee = _guarantee.of_reference
    probes = PROBES


class AdamwUpdatePlan(Plan[AdamwUpdateDescriptor]):
    """A step of AdamW: operands as those of Adam."""

    descriptor = AdamwUpdateDescriptor
    candidates = (UpdateCandidate(),)
    measures = oracle.MEASURES
    reference = oracle.update
    reference_guarantee = _guarantee.of_reference
    probes = PROBES


DOC = """A step of {called} on one array, in place: as torch.optim.{torch} in formula and defaults, for a device step count.

    param, exp_avg, exp_avg_sq: C-ordered arrays of one shape (f16, bf16, f32, f64), written; the averages of param's kind or
    f32 (f64 for f64). What is computed is f32 (f64), and each result is rounded once. max_exp_avg_sq: AMSGrad's maximum, which
    `exp_avg_sq` is replaced by in the update. master: the parameters in f32, from which 16-bit ones are then rounded.
    step: an f32 scalar in device memory, the steps so far; it is increased first. grad: of param's kind or f32 (f64), not
    written. lr, beta1, beta2, eps, weight_decay: run-time values; learning_rate, an f32 scalar in device memory, is read in
    place of lr when the kernel runs. weight_decay {decay}. maximize: ascend. grad_scale: an f32 scalar
    that the gradient is divided by. stochastic: bf16 parameters are rounded up or down by chance, so that they move by less than
    their spacing on average: by 16 random bits, those of element i at position i of Philox's stream (seed, number of the step).
    found_inf: an f32 scalar: where it is not 0 nothing is written and no step is counted.
    table: int64 rows (elements, number of the first, and where it begins in bytes, in each of param, grad, the averages and
    master): what is updated is these parts alone, `{lists}` makes it from lists of arrays. A row is checked on the host only.
    Returns the named tuple of the written operands. Raises InvalidProblemError for numbers out of range.
    """


def _doc(called: str, torch: str, decay: str, lists: str) -> str:
    return DOC.format(called=called, torch=torch, decay=decay, lists=lists)


@function_of(AdamUpdatePlan, doc=_doc("Adam", "Adam", "times param is added to the gradient", "adam"))
def adam_update(
    param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, step: Any, *, max_exp_avg_sq: Any = None, master: Any = None,
    lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, learning_rate: Any = None, grad_scale: Any = None,
    found_inf: Any = None, table: Any = None,
) -> Any:  # fmt: skip
    """A step of Adam."""


@function_of(AdamwUpdatePlan, doc=_doc("AdamW", "AdamW", "times lr is the share that param loses", "adamw"))
def adamw_update(
    param: Any, grad: Any, exp_avg: Any, exp_avg_sq: Any, step: Any, *, max_exp_avg_sq: Any = None, master: Any = None,
    lr: float = 1e-3, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 1e-2,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, learning_rate: Any = None, grad_scale: Any = None,
    found_inf: Any = None, table: Any = None,
) -> Any:  # fmt: skip
    """A step of AdamW."""


register(Op("adam_update", AdamUpdatePlan, adam_update, samples.adam, peers={"torch": "optim.Adam"}))
register(Op("adamw_update", AdamwUpdatePlan, adamw_update, samples.adam, peers={"torch": "optim.AdamW"}))
