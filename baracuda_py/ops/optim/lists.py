"""Steps of optimizers on lists of arrays, in one launch whatever their number and sizes."""

from __future__ import annotations

from typing import Any

from ...types import PlanPreference
from ._lists import GRADIENTS, PARAMETERS, update_lists
from .adam import adam_update, adamw_update

__all__ = ["adam", "adamw"]


def _learning_rate(lr: Any) -> dict[str, Any]:
    """A number, or an array in device memory."""
    return {"learning_rate": lr} if hasattr(lr, "shape") and not hasattr(lr, "as_integer_ratio") else {"lr": lr}


def _step(op: str, function: Any, lists: dict[str, Any], step: Any, lr: Any, scalars: dict[str, Any], **options: Any) -> None:
    own = {"step": step, **{name: x for name, x in scalars.items() if x is not None}}
    update_lists(op, function, lists, own, **_learning_rate(lr), **options)


def adamw(
    params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, step: Any, *, max_exp_avg_sqs: Any = None, masters: Any = None,
    lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2,
    maximize: bool = False, grad_scale: Any = None, found_inf: Any = None, stream: Any = None,
    pref: PlanPreference | None = None, device: Any = None,
) -> None:  # fmt: skip
    """A step of AdamW on lists of arrays, in place, in one launch behind the one that counts the step.

    params, grads, exp_avgs, exp_avg_sqs: lists of C-ordered arrays, any number and sizes; those of one list are of one kind, as
    `adamw_update` takes it, and those of one parameter of one shape. A parameter whose gradient is None is left out.
    max_exp_avg_sqs: for AMSGrad. masters: f32 copies of 16-bit parameters. step: an f32 scalar in device memory.
    lr: a number, or an f32 scalar in device memory, which the kernel reads when it runs. grad_scale, found_inf: f32 scalars, as
    of `adamw_update`. A table of the arrays is put into device memory at the first call with these arrays, and kept: a graph is
    captured after such a call. The graph reads and writes the arrays of its capture, which the caller keeps. Host arrays are
    copied into one array and back.
    Raises InvalidProblemError for lists of unequal length and for shapes that differ, DeviceMismatchError for devices that
    differ, OverlapError where an array that is written shares memory with another; nothing is written then.
    """
    lists = {
        "param": (PARAMETERS, params), "grad": (GRADIENTS, grads), "exp_avg": ("exp_avgs", exp_avgs),
        "exp_avg_sq": ("exp_avg_sqs", exp_avg_sqs), "max_exp_avg_sq": ("max_exp_avg_sqs", max_exp_avg_sqs),
        "master": ("masters", masters),
    }  # fmt: skip
    _step(
        "adamw", adamw_update, lists, step, lr, {"grad_scale": grad_scale, "found_inf": found_inf}, beta1=betas[0],
        beta2=betas[1], eps=eps, weight_decay=weight_decay, maximize=maximize, stream=stream, pref=pref, device=device,
    )  # fmt: skip


def adam(
    params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, step: Any, *, max_exp_avg_sqs: Any = None, masters: Any = None,
    lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
    maximize: bool = False, grad_scale: Any = None, found_inf: Any = None, stream: Any = None,
    pref: PlanPreference | None = None, device: Any = None,
) -> None:  # fmt: skip
    """A step of Adam on lists of arrays, in place; arguments and errors as of `adamw`, with weight decay in the gradient."""
    lists = {
        "param": (PARAMETERS, params), "grad": (GRADIENTS, grads), "exp_avg": ("exp_avgs", exp_avgs),
        "exp_avg_sq": ("exp_avg_sqs", exp_avg_sqs), "max_exp_avg_sq": ("max_exp_avg_sqs", max_exp_avg_sqs),
        "master": ("masters", masters),
    }  # fmt: skip
    _step(
        "adam", adam_update, lists, step, lr, {"grad_scale": grad_scale, "found_inf": found_inf}, beta1=betas[0],
        beta2=betas[1], eps=eps, weight_decay=weight_decay, maximize=maximize, stream=stream, pref=pref, device=device,
    )  # fmt: skip
