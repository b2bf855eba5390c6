"""sgd_update, rmsprop_update, adagrad_update, lion_update: steps of optimizers with one state or several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...plan.descriptor import Slot, described
from ...plan.fields import flag
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind, InvalidProblemError
from .._function import function_of
from .._rows import FLOATS
from . import _guarantee, oracle, samples
from ._problem import COUNT, MASTER, PARAMETER, READ, UpdateCandidate, UpdateProblem

__all__ = [
    "AdagradUpdateDescriptor",
    "AdagradUpdatePlan",
    "LionUpdateDescriptor",
    "LionUpdatePlan",
    "RmspropUpdateDescriptor",
    "RmspropUpdatePlan",
    "SgdUpdateDescriptor",
    "SgdUpdatePlan",
    "adagrad_update",
    "lion_update",
    "rmsprop_update",
    "sgd_update",
]


def _state(name: str, *, optional: bool = False) -> Slot:
    element = "" if optional else "state_element"
    return Slot(
        name, "inout", optional=optional, takes=FLOATS, shape="shape", element=element, strided=False, aligned=False
    )


def _flags(*flags: bool) -> str:
    return ", ".join(str(flag).lower() for flag in flags)


class Momentum(UpdateProblem):
    """A rule with momentum, where it has a buffer."""

    momentum: float

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        made = super().scalars(given)
        if made["momentum"] and not self.has("momentum_buffer"):
            raise InvalidProblemError(
                f"{self.op}: momentum={made['momentum']} without momentum_buffer",
                "pass zeros of param's shape at first",
            )
        return made


@described(PARAMETER, _state("momentum_buffer", optional=True), MASTER, COUNT, *READ)
class SgdUpdateDescriptor(Momentum):
    """A step of SGD on arrays of `shape`; with `momentum_buffer_element` one with momentum."""

    shape: tuple[int, ...]
    element: ElementKind
    grad_element: ElementKind | None = None
    nesterov: bool = False
    maximize: bool = False
    stochastic: bool = False
    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    seed: int = 0

    name = "sgd_update"
    states = ("momentum_buffer",)
    hyper = ("momentum", "dampening", "weight_decay")
    values = ("lr", *hyper, "seed")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("nesterov",), flag)

    @property
    def rule(self) -> str:
        return f"optim::SgdRule<{_flags(self.has('momentum_buffer'), self.nesterov)}>"

    def check(self) -> None:
        super().check()
        if self.nesterov and not self.has("momentum_buffer"):
            raise InvalidProblemError(f"{self.op}: nesterov without momentum_buffer", "pass momentum and its buffer")

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        made = super().scalars(given)
        if self.nesterov and made["dampening"]:
            raise InvalidProblemError(f"{self.op}: nesterov with dampening={made['dampening']}", "give dampening=0")
        return made


@described(
    PARAMETER, _state("square_avg"), _state("grad_avg", optional=True), _state("momentum_buffer", optional=True), MASTER,
    COUNT, *READ,
)  # fmt: skip
class RmspropUpdateDescriptor(Momentum):
    """A step of RMSprop on arrays of `shape`; with `grad_avg_element` centred, with `momentum_buffer_element` with momentum."""

    shape: tuple[int, ...]
    element: ElementKind
    grad_element: ElementKind | None = None
    state_element: ElementKind | None = None
    maximize: bool = False
    stochastic: bool = False
    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    seed: int = 0

    name = "rmsprop_update"
    states = ("square_avg", "grad_avg", "momentum_buffer")
    hyper = ("alpha", "eps", "weight_decay", "momentum")
    below_one = ("alpha",)
    values = ("lr", *hyper, "seed")

    @property
    def rule(self) -> str:
        return f"optim::RmspropRule<{_flags(self.has('grad_avg'), self.has('momentum_buffer'))}>"


@described(PARAMETER, _state("state_sum"), MASTER, COUNT, *READ)
class AdagradUpdateDescriptor(UpdateProblem):
    """A step of Adagrad on arrays of `shape`."""

    shape: tuple[int, ...]
    element: ElementKind
    grad_element: ElementKind | None = None
    state_element: ElementKind | None = None
    maximize: bool = False
    stochastic: bool = False
    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    eps: float = 1e-10
    seed: int = 0

    name = "adagrad_update"
    states = ("state_sum",)
    hyper = ("lr_decay", "weight_decay", "eps")
    values = ("lr", *hyper, "seed")
    rule = "optim::AdagradRule"


@described(PARAMETER, _state("exp_avg"), MASTER, COUNT, *READ)
class LionUpdateDescriptor(UpdateProblem):
    """A step of Lion on arrays of `shape`."""

    shape: tuple[int, ...]
    element: ElementKind
    grad_element: ElementKind | None = None
    state_element: ElementKind | None = None
    maximize: bool = False
    stochastic: bool = False
    lr: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.99
    weight_decay: float = 0.0
    seed: int = 0

    name = "lion_update"
    states = ("exp_avg",)
    hyper = ("beta1", "beta2", "weight_decay")
    below_one = ("beta1", "beta2")
    values = ("lr", *hyper, "seed")
    rule = "optim::LionRule"


class SgdUpdatePlan(Plan[SgdUpdateDescriptor]):
    """A step of SGD: operands `param`, `step` in place, `grad`, and as the problem has them `momentum_buffer` and `master` in
    place, `learning_rate`, `grad_scale`, `found_inf`, `table`."""

    descriptor = SgdUpdateDescriptor
    candidates = (UpdateCandidate(),)
    measures = oracle.MEASURES
    reference = oracle.update
    reference_guarantee = _guarantee.of_reference
    probes = (
        {"shape": (999,), "element": "f32"},
        {
            "shape": (999,),
            "element": "bf16",
            "momentum_buffer_element": "f32",
            "nesterov": True,
            "master_element": "f32",
        },
    )


class RmspropUpdatePlan(Plan[RmspropUpdateDescriptor]):
    """A step of RMSprop: operands `param`, `square_avg`, `step` in place, `grad`, and as the problem has them `grad_avg`,
    `momentum_buffer` and `master` in place, `learning_rate`, `grad_scale`, `found_inf`, `table`."""

    descriptor = RmspropUpdateDescriptor
    candidates = (UpdateCandidate(),)
    measures = oracle.MEASURES
    reference = oracle.update
    reference_guarantee = _guarantee.of_reference
    probes = (
        {"shape": (999,), "element": "f32"},
        {"shape": (40, 3), "element": "f64", "grad_avg_element": "f64", "momentum_buffer_element": "f64"},
    )


class AdagradUpdatePlan(Plan[AdagradUpdateDescriptor]):
    """A step of Adagrad: operands `param`, `state_sum`, `step` in place, `grad`, and as the problem has them `master` in place,
    `learning_rate`, `grad_scale`, `found_inf`, `table`."""

    descriptor = AdagradUpdateDescriptor
    candidates = (UpdateCandidate(),)
    measures = oracle.MEASURES
    reference = oracle.update
    reference_guarantee = _guarantee.of_reference
    probes = ({"shape": (999,), "element": "f32"}, {"shape": (40, 3), "element": "f64"})


class LionUpdatePlan(Plan[LionUpdateDescriptor]):
    """A step of Lion: operands `param`, `exp_avg`, `step` in place, `grad`, and as the problem has them `master` in place,
    `learning_rate`, `grad_scale`, `found_inf`, `table`."""

    descriptor = LionUpdateDescriptor
    candidates = (UpdateCandidate(),)
    measures = oracle.MEASURES
    reference = oracle.update
    reference_guarantee = _guarantee.of_reference
    probes = ({"shape": (999,), "element": "f32"}, {"shape": (999,), "element": "bf16", "state_element": "bf16"})


@function_of(SgdUpdatePlan)
def sgd_update(
    param: Any, grad: Any, step: Any, *, momentum_buffer: Any = None, master: Any = None, lr: float = 1e-3,
    momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, learning_rate: Any = None, grad_scale: Any = None,
    found_inf: Any = None, table: Any = None,
) -> Any:  # fmt: skip
    """A step of SGD on one array, in place: as torch.optim.SGD in formula and defaults, for a step count on the device.

    momentum_buffer: of param's shape, of its kind or f32, for a momentum: momentum times the buffer, plus 1 - dampening times
    the gradient; the first step puts the gradient into it. nesterov: move by the gradient plus momentum times the buffer.
    weight_decay times param is added to the gradient. All other arguments, the result and errors are as of `adamw_update`.
    """


@function_of(RmspropUpdatePlan)
def rmsprop_update(
    param: Any, grad: Any, square_avg: Any, step: Any, *, grad_avg: Any = None, momentum_buffer: Any = None,
    master: Any = None, lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0,
    momentum: float = 0.0,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, learning_rate: Any = None, grad_scale: Any = None,
    found_inf: Any = None, table: Any = None,
) -> Any:  # fmt: skip
    """A step of RMSprop on one array, in place: as torch.optim.RMSprop in formula and defaults, for a step count on the device.

    square_avg: the running mean of squares, by `alpha`, of param's shape, of its kind or f32. grad_avg: that of the gradient,
    which makes it centred. momentum_buffer: for a momentum. weight_decay times param is added to the gradient. All other
    arguments, the result and errors are as of `adamw_update`.
    """


@function_of(AdagradUpdatePlan)
def adagrad_update(
    param: Any, grad: Any, state_sum: Any, step: Any, *, master: Any = None, lr: float = 1e-2, lr_decay: float = 0.0,
    weight_decay: float = 0.0, eps: float = 1e-10,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, learning_rate: Any = None, grad_scale: Any = None,
    found_inf: Any = None, table: Any = None,
) -> Any:  # fmt: skip
    """A step of Adagrad on one array, in place: as torch.optim.Adagrad in formula and defaults, for a step count on the device.

    state_sum: the sum of squares, of param's shape, of its kind or f32. lr_decay: step n takes lr / (1 + (n - 1) lr_decay).
    weight_decay times param is added to the gradient. All other arguments, the result and errors are as of `adamw_update`.
    """


@function_of(LionUpdatePlan)
def lion_update(
    param: Any, grad: Any, exp_avg: Any, step: Any, *, master: Any = None, lr: float = 1e-4, beta1: float = 0.9,
    beta2: float = 0.99, weight_decay: float = 0.0,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, learning_rate: Any = None, grad_scale: Any = None,
    found_inf: Any = None, table: Any = None,
) -> Any:  # fmt: skip
    """A step of Lion on one array, in place: param moves by lr times the sign of beta1 exp_avg + (1 - beta1) grad.

    exp_avg: then beta2 exp_avg + (1 - beta2) grad, of param's shape, of its kind or f32. weight_decay times lr is the share that
    param loses. All other arguments, the result and errors are as of `adamw_update`.
    """


register(Op("sgd_update", SgdUpdatePlan, sgd_update, samples.sgd, peers={"torch": "optim.SGD"}))
register(Op("rmsprop_update", RmspropUpdatePlan, rmsprop_update, samples.rmsprop, peers={"torch": "optim.RMSprop"}))
register(Op("adagrad_update", AdagradUpdatePlan, adagrad_update, samples.adagrad, peers={"torch": "optim.Adagrad"}))
register(Op("lion_update", LionUpdatePlan, lion_update, samples.lion, peers={"optax": "lion"}))
