"""Steps of optimizers on lists of arrays, in one launch whatever their number and sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

from ...plan.registry import get_op
from ...types import InvalidProblemError, OperandTypeError, PlanPreference
from ._lists import GRADIENTS, PARAMETERS, call_on_lists
from ._rule import SHARED, Rule, plural
from .norms import gradient_clip, gradient_norm
from .rules import RULES

__all__ = ["clip_grad_norm", "grad_norm", *(rule.name for rule in RULES)]


def _step(rule: Rule, update: Callable[..., None], given: dict[str, Any]) -> None:
    """A step by `update`, the function of one array, with the arguments of the function for lists."""
    for name in ("params", "grads", *map(plural, rule.given), "step"):
        if given[name] is None:
            what = "a float32 scalar, the steps so far" if name == "step" else "a list of arrays"
            raise OperandTypeError(f"{rule.name}: {name} is None", f"pass {what}")
    states = {name: (plural(name), given.pop(plural(name))) for name in (*rule.arrays, *rule.absmaxes)}
    lists = {"param": (PARAMETERS, given.pop("params")), "grad": (GRADIENTS, given.pop("grads")), **states}
    lists["master"] = ("masters", given.pop("masters"))
    scalars = {name: given.pop(name) for name in ("step", *SHARED)}
    if rule.has_betas:
        given["beta1"], given["beta2"] = _pair(rule.name, given.pop("betas"))
    if hasattr(given["lr"], "shape") and not isinstance(given["lr"], Real):  # an array, no number of NumPy
        scalars["learning_rate"] = given.pop("lr")
    held = {name: x for name, x in scalars.items() if x is not None}
    call_on_lists(
        rule.name, update, lists, ("param", *states, "master"), held, counted=rule.normed,
        blocks=rule.absmaxes, **given,
    )  # fmt: skip


def _pair(function: str, betas: Any) -> tuple[Any, Any]:
    try:
        beta1, beta2 = betas
    except (TypeError, ValueError):
        raise InvalidProblemError(f"{function}: betas={betas!r} is no pair", "give (beta1, beta2)") from None
    return beta1, beta2


def _function(rule: Rule) -> Callable[..., None]:
    """The function for lists; Python itself binds its arguments."""
    signature = rule.signature_of_lists()
    names: dict[str, Any] = {"_step": partial(_step, rule, get_op(rule.op).function)}
    exec(f"def {rule.name}{signature}:\n    return _step(locals())", names)
    made: Callable[..., None] = names[rule.name]
    made.__doc__, made.__module__ = rule.documentation_of_lists(), __name__
    made.__signature__ = signature  # type: ignore[attr-defined]
    return made


globals().update({rule.name: _function(rule) for rule in RULES})


def grad_norm(
    grads: Any, *, max_norm: float = 1e38, grad_scale: Any = None, stream: Any = None, pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:  # fmt: skip
    """The Euclidean norm of all gradients of a list, and the scalars by which an optimizer clips them, in device memory.

    grads: a list of C-ordered arrays of one kind, any number and sizes; None is left out. Returns the named tuple (norm, scale,
    found_inf) of `gradient_norm`: ``adamw(..., grad_scale=scale, found_inf=found_inf)`` takes gradients of norm `max_norm` at
    most, and no step where the norm is infinite or NaN. Lists, captures and errors are as of `adamw`.
    """
    scalars = {} if grad_scale is None else {"grad_scale": grad_scale}
    return call_on_lists(
        "grad_norm", gradient_norm, {"grad": (GRADIENTS, grads)}, (), scalars, max_norm=max_norm, stream=stream, pref=pref,
        device=device,
    )  # fmt: skip


def clip_grad_norm(
    grads: Any, max_norm: float, *, stream: Any = None, pref: PlanPreference | None = None, device: Any = None
) -> Any:
    """Scales all gradients of a list in place so that their norm is `max_norm` at most; returns the norm they had.

    grads: as of `grad_norm`, which spares this pass over them where an optimizer follows. The norm stays in device memory.
    """
    return call_on_lists(
        "clip_grad_norm", gradient_clip, {"grad": (GRADIENTS, grads)}, ("grad",), {}, max_norm=max_norm, stream=stream,
        pref=pref, device=device,
    ).norm  # fmt: skip
