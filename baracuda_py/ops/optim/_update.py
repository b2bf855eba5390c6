"""The descriptor, the plan and the function of a step of one array, made from an optimizer's row (kernels/optim/update.cu)."""

from __future__ import annotations

from typing import Any

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind
from .._function import function_of
from .._rows import FLOATS
from . import _guarantee, oracle
from ._blockwise import BlockwiseCandidate
from ._problem import NormedCandidate, UpdateCandidate, UpdateProblem
from ._rule import NO_DEFAULT, SHARED, Rule

__all__ = ["UpdatePlan", "UpdateProblem", "publish"]

F32 = ElementKind.F32


class UpdatePlan(Plan[UpdateProblem]):
    """What the plans of all optimizers share."""

    measures = oracle.MEASURES
    reference = oracle.update
    reference_guarantee = _guarantee.of_reference


def _slot(name: str, role: str = "inout", **more: Any) -> Slot:
    return Slot(name, role, strided=False, aligned=False, **more)


def _slots(rule: Rule) -> tuple[Slot, ...]:
    """The operands, in the order of plans."""
    kind: dict[str, Any] = (
        {"element": ElementKind.U8} if rule.blockwise else {"takes": FLOATS, "element": "state_element"}
    )
    return (
        _slot("param", takes=FLOATS),
        *(_slot(name, **kind) for name in rule.states),
        *(_slot(name, element=F32, shape="blocks") for name in rule.absmaxes),
        *(_slot(name, optional=True, takes=FLOATS, shape="shape") for name in rule.optional),
        _slot("master", optional=True, takes=(F32,), shape="shape"),
        _slot("step", element=F32, shape="scalar_shape"),
        _slot("grad", "in", takes=FLOATS, element="grad_element"),
        *(_slot(name, "in", optional=True, takes=(F32,), shape="scalar_shape") for name in ("learning_rate", *SHARED)),
        _slot("table", "in", optional=True, element=ElementKind.I64),
    )


def publish(rule: Rule, module: str) -> tuple[Any, ...]:
    """Registers the op of a rule, as of `module`. Returns its descriptor, its plan and its function."""
    fields = tuple(rule.fields)
    own = {
        "__annotations__": {name: kind for name, kind, _ in fields},
        **{name: default for name, _, default in fields if default is not NO_DEFAULT},
        "__doc__": f"A step of {rule.title} on arrays of `shape`{rule.variants}.",
        "name": rule.op, "rule": rule, "values": ("lr", *rule.hyper, "seed"), "declared_as": UpdateProblem, "__module__": module,
    }  # fmt: skip
    descriptor: type[UpdateProblem] = described(*_slots(rule))(
        type(rule.class_name("Descriptor"), (UpdateProblem,), own)
    )
    candidate = BlockwiseCandidate if rule.blockwise else NormedCandidate if rule.normed else UpdateCandidate
    parts = {
        "candidates": (candidate(),),
        "descriptor": descriptor,
        "probes": rule.probes,
        "declared_as": UpdatePlan,
        "__module__": module,
    }
    documented = {**parts, "__doc__": rule.documentation_of_plan()}
    plan: type[UpdatePlan] = type(rule.class_name("Plan"), (UpdatePlan,), documented)

    def template() -> Any:
        """Has the signature of the rule."""

    template.__signature__, template.__module__ = rule.signature(), module  # type: ignore[attr-defined]
    function = function_of(plan, called=rule.op, doc=rule.documentation())(template)
    register(Op(rule.op, plan, function, rule.samples, peers=rule.peers))
    return descriptor, plan, function
