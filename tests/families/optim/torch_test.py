"""Steps of lists of arrays beside those of torch.optim on the CPU, 200 of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")

COVERS = ("adam_update", "adamw_update", "sgd_update", "rmsprop_update", "adagrad_update", "gradient_clip")
SHAPES = ((37,), (5, 7), (), (0, 3), (3, 1, 2))
STEPS = 200
EMULATED = 1  # of these, the first

# What a call of each optimizer takes: the functions' arguments, and those of torch's under other names.
Case = tuple[str, Mapping[str, Any]]
CASES: tuple[Case, ...] = (
    ("adamw", {}),
    ("adamw", {"amsgrad": True, "maximize": True, "weight_decay": 0.2}),
    ("adam", {"weight_decay": 0.1, "betas": (0.5, 0.9)}),
    ("adam", {"amsgrad": True, "eps": 1e-3}),
    ("sgd", {"weight_decay": 0.1, "lr": 0.1}),
    ("sgd", {"momentum": 0.9, "dampening": 0.5, "maximize": True}),
    ("sgd", {"momentum": 0.9, "nesterov": True}),
    ("rmsprop", {"weight_decay": 0.1}),
    ("rmsprop", {"centered": True, "momentum": 0.5, "alpha": 0.9}),
    ("adagrad", {"lr_decay": 0.1, "weight_decay": 0.1}),
)


def _adam(name: str, params: list[Any], options: dict[str, Any]) -> tuple[Callable[..., None], Callable[..., None]]:
    """A step of ours and one of torch, on arrays of their own."""
    ours, theirs = ([[torch.zeros_like(p) for p in params] for _ in range(3)] for _ in range(2))
    amsgrad, (beta1, beta2) = options.pop("amsgrad", False), options.pop("betas", (0.9, 0.999))
    step, counts = torch.zeros(()), [torch.zeros(()) for _ in params]
    more = {"max_exp_avg_sqs": ours[2]} if amsgrad else {}
    decay = {"weight_decay": 1e-2 if name == "adamw" else 0.0}
    function, module = getattr(bp, name), importlib.import_module(f"torch.optim.{name}")

    def mine(params: list[Any], grads: list[Any], **how: Any) -> None:
        function(params, grads, *ours[:2], step, betas=(beta1, beta2), **more, **options, **how)

    def torchs(params: list[Any], grads: list[Any]) -> None:
        known = {"lr": 1e-3, "eps": 1e-8, "maximize": False, **decay, **options}
        getattr(module, name)(
            params, grads, *theirs[:2], theirs[2] if amsgrad else [], counts, foreach=False, amsgrad=amsgrad, beta1=beta1,
            beta2=beta2, **known,
        )  # fmt: skip

    return mine, torchs


# The states of each other optimizer: our lists, what torch calls them, and the option that asks for them ("" for all calls).
STATES = {
    "sgd": (("momentum_buffers", "momentum_buffer_list", "momentum"),),
    "rmsprop": (
        ("square_avgs", "square_avgs", ""), ("grad_avgs", "grad_avgs", "centered"),
        ("momentum_buffers", "momentum_buffer_list", "momentum"),
    ),
    "adagrad": (("state_sums", "state_sums", ""),),
}  # fmt: skip
DEFAULTS: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False, "maximize": False},
    "rmsprop": {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0, "centered": False},
    "adagrad": {"lr": 1e-2, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10, "maximize": False},
}


def _other(name: str, params: list[Any], options: dict[str, Any]) -> tuple[Callable[..., None], Callable[..., None]]:
    known = {**DEFAULTS[name], **options}
    asked = [ours for ours, _, option in STATES[name] if not option or known[option]]
    held = {ours: [torch.zeros_like(p) for p in params] for ours in asked}
    theirs: dict[str, Any] = {
        torchs: [torch.zeros_like(p) for p in params] if ours in asked else [] for ours, torchs, _ in STATES[name]
    }
    if name == "sgd":
        theirs = {"momentum_buffer_list": [None] * len(params)}
    else:
        theirs["state_steps"] = [torch.zeros(()) for _ in params]
    step, function = torch.zeros(()), getattr(importlib.import_module(f"torch.optim.{name}"), name)
    own = {option: x for option, x in options.items() if option != "centered"}

    def mine(params: list[Any], grads: list[Any], **how: Any) -> None:
        getattr(bp, name)(params, grads, step=step, **held, **own, **how)

    def torchs(params: list[Any], grads: list[Any]) -> None:
        function(params, grads, foreach=False, **theirs, **known)

    return mine, torchs


BY_NAME = {"adam": _adam, "adamw": _adam, "sgd": _other, "rmsprop": _other, "adagrad": _other}


@pytest.mark.parametrize(
    ("name", "options"), CASES, ids=lambda x: x if isinstance(x, str) else "-".join(x) or "default"
)
def test_torch_optimizers_take_the_same_200_steps(name: str, options: Mapping[str, Any]) -> None:
    """In f64 to its digits; of the emulated kernel the first steps."""
    generator = torch.Generator().manual_seed(3)
    params = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    wanted = [p.clone() for p in params]
    mine, torchs = BY_NAME[name](name, params, dict(options))
    for i in range(STEPS):
        grads = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
        mine(params, grads, device="ptx" if i < EMULATED else "cpu")
        torchs(wanted, [g.clone() for g in grads])
    for got, want in zip(params, wanted):
        torch.testing.assert_close(got, want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("max_norm", [0.5, 1e3])
def test_torch_clips_gradients_to_the_same(max_norm: float) -> None:
    params = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    for i, p in enumerate(params):
        p.grad = torch.linspace(-1, 2, p.numel()).reshape(p.shape) + i
    grads = [p.grad.clone() for p in params]
    wanted = torch.nn.utils.clip_grad_norm_(params, max_norm, foreach=False)
    norm = torch.as_tensor(bp.clip_grad_norm(grads, max_norm, device="ptx"))
    torch.testing.assert_close(norm, wanted, rtol=1e-6, atol=0)
    for got, p in zip(grads, params):
        torch.testing.assert_close(got, p.grad, rtol=1e-6, atol=0)
