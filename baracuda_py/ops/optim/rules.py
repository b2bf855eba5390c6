"""adam_update, adamw_update, sgd_update, rmsprop_update, adagrad_update, lion_update, lamb_update, lars_update, and
with 8-bit states adam8bit_update, adamw8bit_update, lion8bit_update, sgd8bit_update, rmsprop8bit_update, adagrad8bit_update:
steps of optimizers, from a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...types import InvalidProblemError
from . import oracle, samples
from ._rule import BY_FORMULA, Rule, plural
from ._update import UpdatePlan, UpdateProblem, publish

__all__ = [
    "RULES",
    "Rule",
    "UpdatePlan",
    "UpdateProblem",
    "plural",
]  # and the descriptors, plans and functions that are published below

OF_GRADIENT = "weight_decay times param is added to the gradient."
OF_NORMS = (
    "; by lr times u where either norm is 0. Norms are of the whole array: squares are added in f64, in an order that the "
    "lengths alone fix, of master where it is given. A row of `table` ends with the number of rows of its array if it is the "
    "first of these, else with 0."
)
KIND = "of param's shape, of its kind or f32"

ADAM_DOC = """as torch.optim.{title} in formula and defaults, for a device step count.

param, exp_avg, exp_avg_sq: C-ordered arrays of one shape (f16, bf16, f32, f64), written; the averages of param's kind or
f32 (f64 for f64). What is computed is f32 (f64), and each result is rounded once. exp_avg_sq is infinite where f32 does not hold
it; where squares are near the end of f32, as of gradients beyond 1e18, no bound is promised of param. max_exp_avg_sq: AMSGrad's
maximum, which `exp_avg_sq` is replaced by in the update. master: the parameters in f32, from which 16-bit ones are then rounded.
step: an f32 scalar in device memory, the steps so far; it is increased first. grad: of param's kind or f32 (f64), not
written. lr, beta1, beta2, eps, weight_decay: run-time values; learning_rate, an f32 scalar in device memory, is read in
place of lr when the kernel runs. weight_decay {decay}. maximize: ascend. grad_scale: an f32 scalar
that the gradient is divided by. stochastic: bf16 parameters are rounded up or down by chance, so that they move by less than
their spacing on average: by 16 random bits, those of element i at position i of Philox's stream (seed, number of the step).
found_inf: an f32 scalar: where it is not 0 nothing is written and no step is counted.
table: int64 rows (elements, number of the first, and where it begins in bytes, in each of param, grad, the averages and
master): what is updated is these parts alone, `{name}` makes it from lists of arrays. A row is checked on the host only.
Returns the named tuple of the written operands. Raises InvalidProblemError for numbers out of range."""

ADAMW_LISTS = """, in one launch behind the one that counts the step.

params, grads, exp_avgs, exp_avg_sqs: lists of C-ordered arrays, any number and sizes; those of one list are of one kind, as
`{op}` takes it, and those of one parameter of one shape. A parameter whose gradient is None is left out.
max_exp_avg_sqs: for AMSGrad. masters: f32 copies of 16-bit parameters. step: an f32 scalar in device memory.
lr: a number, or an f32 scalar in device memory, which the kernel reads when it runs. grad_scale, found_inf, stochastic, seed:
as of `{op}`; an element's position is its place in the list. A table of the arrays is copied into device memory
in the order of the first call with these arrays, and kept; a graph that captures a first call copies it at every replay. It
reads and writes the arrays of its capture, which the caller keeps. Host arrays are copied into one array and back.
Raises InvalidProblemError for lists of unequal length and for shapes that differ, DeviceMismatchError for devices that
differ, OverlapError where an array that is written shares memory with another; nothing is written then."""

ADAM_PROBES: tuple[Mapping[str, Any], ...] = (
    {"shape": (999,), "element": "f32"},
    {"shape": (999,), "element": "bf16", "max_exp_avg_sq_element": "f32", "master_element": "f32"},
    {"shape": (40, 3), "element": "f64", "learning_rate_element": "f32", "grad_scale_element": "f32"},
    {"shape": (999,), "element": "f16", "state_element": "f16", "found_inf_element": "f32", "table_shape": (2, 6)},
)


def _as_torch(title: str) -> str:
    return f"as torch.optim.{title} in formula and defaults, for a step count on the device."


def _refuse_nesterov(desc: Any, values: Mapping[str, float]) -> None:
    """Raises for Nesterov's momentum without a buffer, or dampened."""
    if desc.nesterov and not desc.has("momentum_buffer"):
        raise InvalidProblemError(f"{desc.op}: nesterov without momentum_buffer", "pass momentum and its buffer")
    if desc.nesterov and values["dampening"]:
        raise InvalidProblemError(f"{desc.op}: nesterov with dampening={values['dampening']}", "give dampening=0")


def _refuse_momentum(desc: Any, values: Mapping[str, float]) -> None:
    """Raises for a momentum of a rule that has no buffer for it."""
    if values["momentum"]:
        raise InvalidProblemError(
            f"{desc.op}: momentum={values['momentum']} without a momentum_buffer",
            "give momentum=0, or use rmsprop_update",
        )


def _adam(name: str, title: str, decay: str, weight_decay: float, *, decoupled: bool, lists: str) -> Rule:
    return Rule(
        name, title, f"AdamRule<{str(decoupled).lower()}, {{max_exp_avg_sq}}>", partial(oracle.adam, decoupled=decoupled),
        samples.adam, ("exp_avg", "exp_avg_sq"), ("max_exp_avg_sq",),
        hyper={"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": weight_decay}, below_one=("beta1", "beta2"),
        peers={"torch": f"optim.{title}"}, doc=ADAM_DOC.format(title=title, decay=decay, name=name), lists=lists,
        probes=ADAM_PROBES,
    )  # fmt: skip


RULES: tuple[Rule, ...] = (
    _adam(
        "adam", "Adam", "times param is added to the gradient", 0.0, decoupled=False,
        lists=": as `adamw` but for weight decay, which is added to the gradient.",
    ),
    _adam("adamw", "AdamW", "times lr is the share that param loses", 1e-2, decoupled=True, lists=ADAMW_LISTS),
    Rule(
        "sgd", "SGD", "SgdRule<{momentum_buffer}, {nesterov}>", oracle.sgd, samples.sgd, (), ("momentum_buffer",),
        hyper={"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0}, flags=("nesterov",), refuse=_refuse_nesterov,
        peers={"torch": "optim.SGD"}, variants="; with `momentum_buffer_element` one with momentum",
        doc=f"{_as_torch('SGD')}\n\nmomentum_buffer: {KIND}, for a momentum: momentum times the buffer, plus 1 - dampening "
        "times the gradient; the first step puts the gradient into it. nesterov: move by the gradient plus "
        f"momentum times the buffer. {OF_GRADIENT}",
        lists=f"{BY_FORMULA}\n\nmomentum_buffers: for a momentum.",
        probes=(
            {"shape": (999,), "element": "f32"},
            {"shape": (999,), "element": "bf16", "momentum_buffer_element": "f32", "nesterov": True, "master_element": "f32"},
        ),
    ),
    Rule(
        "rmsprop", "RMSprop", "RmspropRule<{grad_avg}, {momentum_buffer}>", oracle.rmsprop, samples.rmsprop, ("square_avg",),
        ("grad_avg", "momentum_buffer"), 1e-2, {"alpha": 0.99, "eps": 1e-8, "weight_decay": 0.0, "momentum": 0.0}, ("alpha",),
        peers={"torch": "optim.RMSprop"},
        variants="; with `grad_avg_element` centred, with `momentum_buffer_element` with momentum",
        doc=f"{_as_torch('RMSprop')}\n\nsquare_avg: the running mean of squares, by `alpha`, {KIND}. grad_avg: "
        f"that of the gradient, which makes it centred. momentum_buffer: for a momentum. {OF_GRADIENT}",
        lists=f"{BY_FORMULA}\n\ngrad_avgs: those of a centred one. momentum_buffers: for a momentum.",
        probes=(
            {"shape": (999,), "element": "f32"},
            {"shape": (40, 3), "element": "f64", "grad_avg_element": "f64", "momentum_buffer_element": "f64"},
        ),
    ),
    Rule(
        "adagrad", "Adagrad", "AdagradRule", oracle.adagrad, samples.adagrad, ("state_sum",), lr=1e-2,
        hyper={"lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-10}, peers={"torch": "optim.Adagrad"},
        doc=f"{_as_torch('Adagrad')}\n\nstate_sum: the sum of squares, {KIND}. lr_decay: step n takes lr / "
        f"(1 + (n - 1) lr_decay). {OF_GRADIENT}",
        probes=({"shape": (999,), "element": "f32"}, {"shape": (40, 3), "element": "f64"}),
    ),
    Rule(
        "lion", "Lion", "LionRule", oracle.lion, samples.lion, ("exp_avg",), lr=1e-4,
        hyper={"beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0}, below_one=("beta1", "beta2"), peers={"optax": "lion"},
        doc="param moves by lr times the sign of beta1 exp_avg + (1 - beta1) grad.\n\nexp_avg: then beta2 exp_avg + (1 - beta2) "
        f"grad, {KIND}. weight_decay times lr is the share that param loses.",
        probes=({"shape": (999,), "element": "f32"}, {"shape": (999,), "element": "bf16", "state_element": "bf16"}),
    ),
    Rule(
        "lamb", "LAMB", "LambRule", oracle.lamb, samples.lamb, ("exp_avg", "exp_avg_sq"),
        hyper={"beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "weight_decay": 0.0}, below_one=("beta1", "beta2"), normed=True,
        peers={"optax": "lamb"},
        doc="as optax.lamb in formula and defaults, for a step count on the device.\n\nY. You et al., ICLR 2020. exp_avg, "
        "exp_avg_sq: the running means of the gradient and of its square, as of `adamw_update`. The update u is Adam's without "
        f"its rate, plus weight_decay times param; param moves by lr times u times its norm over that of u{OF_NORMS}",
        lists=f"{BY_FORMULA}\n\nNorms are of each array of its own; four launches, whatever the number of arrays.",
        probes=({"shape": (9999,), "element": "f32"}, {"shape": (999,), "element": "f16", "table_shape": (2, 7)}),
    ),
    Rule(
        "lars", "LARS", "LarsRule<{nesterov}>", oracle.lars, samples.lars, ("momentum_buffer",),
        hyper={"momentum": 0.9, "weight_decay": 0.0, "trust_coefficient": 1e-3, "eps": 0.0}, flags=("nesterov",), normed=True,
        peers={"optax": "lars"},
        doc="as optax.lars in formula and defaults.\n\nY. You, I. Gitman, B. Ginsburg, arXiv:1708.03888. momentum_buffer: "
        f"momentum times the buffer, plus the step, which param then moves by, {KIND}. The update u is the gradient plus "
        "weight_decay times param; the step is lr times u times trust_coefficient times the norm of param over that of u plus "
        f"eps. nesterov: move by the step plus momentum times the buffer{OF_NORMS}",
        lists=f"{BY_FORMULA}\n\nNorms are of each array of its own; four launches, whatever the number of arrays.",
        probes=(
            {"shape": (9999,), "element": "f32"}, {"shape": (999,), "element": "bf16", "nesterov": True, "master_element": "f32"},
        ),
    ),
)  # fmt: skip

BLOCKWISE_DOC = """with 8-bit states, of which 256 share an f32: T. Dettmers et al., ICLR 2022.

As `{of}` in all else. {states}: uint8 arrays of param's shape, written.
{absmaxes}: f32 arrays of an entry for every 256 elements in C order, written. A state is the
number of its code times its entry, the greatest size among the states of the block: so a first step takes entries of 0.
Codes count the 256 numbers of a dynamic map of [-1, 1]{squares}, as of bitsandbytes.
States are computed in f32 (f64), and the nearest codes of the new ones are written, of two the greater. A block with a state
that is not finite is not finite as a whole. A row of `table` begins a block, and has the entries' places behind the codes'."""

BLOCKWISE_LISTS = """, with 8-bit states: as `{of}`, but for these.

{lists}: uint8 arrays of the parameters' shapes; {entries}: for each an f32 array of an entry for every 256
elements. Both are as of `{{op}}`."""


def _blockwise(
    of: Rule, cuda: str, squares: tuple[str, ...] = (), *, tried: Mapping[str, Any], states: tuple[str, ...] = (), **more: Any
) -> Rule:  # fmt: skip
    """The same optimizer with 8-bit states, by default all that it always has; those in `squares` are never negative. `tried` are
    options of a sample; `more` replaces parts of the rule."""
    of = replace(of, states=states or of.states, variants="", **more)
    made = replace(of, name=f"{of.name}8bit", cuda=cuda, optional=(), blockwise=True, squares=squares, peers={}, probes=(
        {"shape": (999,), "element": "f32"},
        {"shape": (40, 30), "element": "bf16", "grad_element": "f32", "master_element": "f32", "learning_rate_element": "f32"},
        {"shape": (40, 3), "element": "f64", "grad_scale_element": "f32", "found_inf_element": "f32"},
        {"shape": (999,), "element": "f16", "table_shape": (2, 4 + 2 * len(of.states))},
        {"shape": (999,), "element": "bf16", "stochastic": True},
        *({"shape": (999,), "element": "f32", name: True} for name in of.flags),
    ))  # fmt: skip

    def said(names: Iterable[str]) -> str:
        return ", ".join(names)

    codes, entries = of.states, made.absmaxes
    about = {
        "states": said(codes),
        "absmaxes": said(entries),
        "squares": f", those of {said(squares)} of [0, 1]" if squares else "",
    }
    lists = {"lists": said(map(plural, codes)), "entries": said(map(plural, entries))}
    return replace(
        made, samples=partial(samples.blockwise, codes, tried), doc=BLOCKWISE_DOC.format(of=of.op, **about),
        lists=BLOCKWISE_LISTS.format(of=of.name, **lists),
    )  # fmt: skip


BY_NAME = {rule.name: rule for rule in RULES}
RULES += (
    _blockwise(BY_NAME["adam"], "AdamRule<false, false>", ("exp_avg_sq",), tried={"beta1": 0.5}),
    _blockwise(BY_NAME["adamw"], "AdamRule<true, false>", ("exp_avg_sq",), tried={"beta1": 0.5}),
    _blockwise(BY_NAME["lion"], "LionRule", tried={"beta1": 0.5}),
    _blockwise(
        BY_NAME["sgd"], "SgdRule<true, {nesterov}>", states=("momentum_buffer",), tried={"nesterov": True},
        hyper={**BY_NAME["sgd"].hyper, "momentum": 0.9},
    ),
    _blockwise(
        BY_NAME["rmsprop"], "RmspropRule<false, false>", ("square_avg",), tried={"alpha": 0.5}, refuse=_refuse_momentum
    ),
    _blockwise(BY_NAME["adagrad"], "AdagradRule", ("state_sum",), tried={"lr_decay": 0.5}),
)  # fmt: skip

for _rule in RULES:
    globals().update({made.__name__: made for made in publish(_rule, __name__)})
