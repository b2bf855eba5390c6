"""Steps of optimizers on lists of arrays, in one launch whatever their number and sizes."""

from __future__ import annotations

from typing import Any

from ...types import PlanPreference
from ._lists import GRADIENTS, PARAMETERS, call_on_lists
from .adam import adam_update, adamw_update
from .norms import gradient_clip, gradient_norm
from .rules import adagrad_update, lion_update, rmsprop_update, sgd_update

__all__ = ["adagrad", "adam", "adamw", "clip_grad_norm", "grad_norm", "lion", "rmsprop", "sgd"]


def _step(
    op: str, function: Any, params: Any, grads: Any, states: dict[str, tuple[str, Any]], masters: Any, step: Any, lr: Any,
    grad_scale: Any, found_inf: Any, **options: Any,
) -> None:  # fmt: skip
    """The step of one array by `function`, for lists; `states` are by operand what they are called, and the lists."""
    lists = {"param": (PARAMETERS, params), "grad": (GRADIENTS, grads), **states, "master": ("masters", masters)}
    scalars = {"step": step, "grad_scale": grad_scale, "found_inf": found_inf}
    if hasattr(lr, "shape") and not hasattr(lr, "as_integer_ratio"):  # an array, no number of NumPy
        scalars["learning_rate"] = lr
    else:
        options["lr"] = lr
    held = {name: x for name, x in scalars.items() if x is not None}
    call_on_lists(op, function, lists, ("param", *states, "master"), held, **options)


def adamw(
    params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, step: Any, *, max_exp_avg_sqs: Any = None, masters: Any = None,
    lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, grad_scale: Any = None, found_inf: Any = None,
    stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> None:  # fmt: skip
    """A step of AdamW on lists of arrays, in place, in one launch behind the one that counts the step.

    params, grads, exp_avgs, exp_avg_sqs: lists of C-ordered arrays, any number and sizes; those of one list are of one kind, as
    `adamw_update` takes it, and those of one parameter of one shape. A parameter whose gradient is None is left out.
    max_exp_avg_sqs: for AMSGrad. masters: f32 copies of 16-bit parameters. step: an f32 scalar in device memory.
    lr: a number, or an f32 scalar in device memory, which the kernel reads when it runs. grad_scale, found_inf, stochastic, seed:
    as of `adamw_update`; an element's position is its place in the list. A table of the arrays is put into device memory at the
    first call with these arrays, which waits for that copy, and kept: a graph is captured after such a call. It reads and writes
    the arrays of its capture, which the caller keeps. Host arrays are copied into one array and back.
    Raises InvalidProblemError for lists of unequal length and for shapes that differ, DeviceMismatchError for devices that
    differ, OverlapError where an array that is written shares memory with another; nothing is written then.
    """
    states = {
        "exp_avg": ("exp_avgs", exp_avgs),
        "exp_avg_sq": ("exp_avg_sqs", exp_avg_sqs),
        "max_exp_avg_sq": ("max_exp_avg_sqs", max_exp_avg_sqs),
    }
    _step(
        "adamw", adamw_update, params, grads, states, masters, step, lr, grad_scale, found_inf, beta1=betas[0],
        beta2=betas[1], eps=eps, weight_decay=weight_decay,
        maximize=maximize, stochastic=stochastic, seed=seed, stream=stream, pref=pref, device=device,
    )  # fmt: skip


def adam(
    params: Any, grads: Any, exp_avgs: Any, exp_avg_sqs: Any, step: Any, *, max_exp_avg_sqs: Any = None, masters: Any = None,
    lr: Any = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, grad_scale: Any = None, found_inf: Any = None,
    stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> None:  # fmt: skip
    """A step of Adam on lists of arrays, in place: as `adamw` but for weight decay, which is added to the gradient."""
    states = {
        "exp_avg": ("exp_avgs", exp_avgs),
        "exp_avg_sq": ("exp_avg_sqs", exp_avg_sqs),
        "max_exp_avg_sq": ("max_exp_avg_sqs", max_exp_avg_sqs),
    }
    _step(
        "adam", adam_update, params, grads, states, masters, step, lr, grad_scale, found_inf, beta1=betas[0],
        beta2=betas[1], eps=eps, weight_decay=weight_decay,
        maximize=maximize, stochastic=stochastic, seed=seed, stream=stream, pref=pref, device=device,
    )  # fmt: skip


def sgd(
    params: Any, grads: Any, step: Any, *, momentum_buffers: Any = None, masters: Any = None, lr: Any = 1e-3,
    momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, grad_scale: Any = None, found_inf: Any = None,
    stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> None:  # fmt: skip
    """A step of SGD on lists of arrays, in place: by the formula of `sgd_update`, with all else as of `adamw`.

    momentum_buffers: for a momentum.
    """
    states = {"momentum_buffer": ("momentum_buffers", momentum_buffers)}
    _step(
        "sgd", sgd_update, params, grads, states, masters, step, lr, grad_scale, found_inf, momentum=momentum,
        dampening=dampening, weight_decay=weight_decay, nesterov=nesterov,
        maximize=maximize, stochastic=stochastic, seed=seed, stream=stream, pref=pref, device=device,
    )  # fmt: skip


def rmsprop(
    params: Any, grads: Any, square_avgs: Any, step: Any, *, grad_avgs: Any = None, momentum_buffers: Any = None,
    masters: Any = None, lr: Any = 1e-2, alpha: float = 0.99, eps: float = 1e-8, weight_decay: float = 0.0,
    momentum: float = 0.0,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, grad_scale: Any = None, found_inf: Any = None,
    stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> None:  # fmt: skip
    """A step of RMSprop on lists of arrays, in place: by the formula of `rmsprop_update`, with all else as of `adamw`.

    grad_avgs: those of a centred one. momentum_buffers: for a momentum.
    """
    states = {
        "square_avg": ("square_avgs", square_avgs),
        "grad_avg": ("grad_avgs", grad_avgs),
        "momentum_buffer": ("momentum_buffers", momentum_buffers),
    }
    _step(
        "rmsprop", rmsprop_update, params, grads, states, masters, step, lr, grad_scale, found_inf, alpha=alpha,
        eps=eps, weight_decay=weight_decay, momentum=momentum,
        maximize=maximize, stochastic=stochastic, seed=seed, stream=stream, pref=pref, device=device,
    )  # fmt: skip


def adagrad(
    params: Any, grads: Any, state_sums: Any, step: Any, *, masters: Any = None, lr: Any = 1e-2, lr_decay: float = 0.0,
    weight_decay: float = 0.0, eps: float = 1e-10,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, grad_scale: Any = None, found_inf: Any = None,
    stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> None:  # fmt: skip
    """A step of Adagrad on lists of arrays, in place: by the formula of `adagrad_update`, with all else as of `adamw`."""
    states = {"state_sum": ("state_sums", state_sums)}
    _step(
        "adagrad", adagrad_update, params, grads, states, masters, step, lr, grad_scale, found_inf, lr_decay=lr_decay,
        weight_decay=weight_decay, eps=eps,
        maximize=maximize, stochastic=stochastic, seed=seed, stream=stream, pref=pref, device=device,
    )  # fmt: skip


def lion(
    params: Any, grads: Any, exp_avgs: Any, step: Any, *, masters: Any = None, lr: Any = 1e-4,
    betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0,
    maximize: bool = False, stochastic: bool = False, seed: int = 0, grad_scale: Any = None, found_inf: Any = None,
    stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> None:  # fmt: skip
    """A step of Lion on lists of arrays, in place: by the formula of `lion_update`, with all else as of `adamw`."""
    states = {"exp_avg": ("exp_avgs", exp_avgs)}
    _step(
        "lion", lion_update, params, grads, states, masters, step, lr, grad_scale, found_inf, beta1=betas[0],
        beta2=betas[1], weight_decay=weight_decay,
        maximize=maximize, stochastic=stochastic, seed=seed, stream=stream, pref=pref, device=device,
    )  # fmt: skip


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
