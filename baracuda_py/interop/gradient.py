"""The gradients of a recorded call, by the op that its `Op.gradient` names.

What that op does not cover is done here with the framework's own operators: the activation of a product and the terms that are
added to it, the residual of a norm, and the sums over axes along which an operand was broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Protocol

from ..plan.registry import Gradient
from ..types import UnsupportedError
from .signature import Signature

__all__ = ["Operators", "differentiable_outputs", "gradients_of", "needed_for_gradient", "recorded_arguments"]

Invoke = Callable[[str, dict[str, Any]], Any]  # calls an op by its name, with the arguments of its function

_TERMS = ("residual", "c", "bias")  # operands that are added to a product, and to a norm
_CONTEXT = (
    "math",
    "deterministic",
    "bit_stable",
    "batch_invariant",
)  # what a preference says of the gradient's op, too


class Operators(Protocol):
    """What a framework does with its arrays."""

    @property
    def activations(self) -> Mapping[str, Callable[[Any, Any], Any]]:
        """By name of f, the gradient of f(z), of the gradient of its result and z."""

    def signature_of(self, name: str) -> Signature: ...
    def is_array(self, x: Any) -> bool: ...
    def is_half(self, x: Any) -> bool: ...
    def cast(self, x: Any, dtype: Any) -> Any: ...
    def expand(self, x: Any, shape: tuple[Any, ...]) -> Any: ...
    def sum_to(self, x: Any, shape: tuple[Any, ...]) -> Any: ...
    def broadcast_shapes(self, a: Any, b: Any) -> tuple[Any, ...]: ...
    def constant(self, name: str) -> str: ...
    def __hash__(self) -> int: ...


def _gradient_of(signature: Signature) -> Gradient:
    gradient = signature.op.gradient
    assert gradient is not None
    return gradient


def recorded_arguments(signature: Signature, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call that is recorded: it also returns what its gradient's op takes, such as a norm's statistics."""
    gradient = signature.op.gradient
    saved = gradient.saved if gradient else ()
    return {**given, **{flag: True for output, flag in signature.flags.items() if output in saved}}


@lru_cache(maxsize=1024)
def differentiable_outputs(signature: Signature) -> tuple[str, ...]:
    """The results of a recorded call through which gradients flow: others, such as a norm's statistics, are constants."""
    gradient = signature.op.gradient
    return (signature.outputs[0], *(gradient.more if gradient else ()), "residual_out")


@lru_cache(maxsize=1024)
def needed_for_gradient(signature: Signature) -> tuple[str, ...]:
    """The operands and results of a call that its gradient reads."""
    gradient = _gradient_of(signature)
    arguments = {operand: argument for argument, operand in signature.op.arguments.items()}
    saved = [arguments.get(name, name) for name in (*gradient.saved, *gradient.gradients)]
    terms = (name for name in (*_TERMS, *saved) if name in signature.tensors)
    results = ("residual_out",) if "residual_out" in signature.outputs else ()
    return tuple(dict.fromkeys((*saved[: len(gradient.saved)], *terms, *results)))


@dataclass(frozen=True, slots=True)
class _Steps:
    """What the gradients of calls with the same operands take, whatever these hold: worked out once."""

    back: Signature  # of the gradient's op
    product: bool
    aliases: tuple[tuple[str, str], ...]  # operands of other names than the arguments that hold them, with these
    passed: tuple[tuple[str, str], ...]  # arguments of the gradient's op, and what is held that they are
    outputs: tuple[tuple[str, str], ...]  # its arguments that are gradients of results, and the results
    made: tuple[tuple[str, str], ...]  # operands, and the outputs of the gradient's op that are their gradients
    cast: str  # the operand whose dtype the gradient's op is given, if any
    fixed: Mapping[str, Any]
    needed: frozenset[str]  # the operands in need of a gradient
    wanted: tuple[tuple[str, str], ...]  # these, and the arguments that hold them


@lru_cache(maxsize=4096)
def _steps(framework: Operators, signature: Signature, present: tuple[str, ...], needs: frozenset[str]) -> _Steps:
    """The steps to the gradients of the arguments in `needs`, of a call that has those in `present`. Raises UnsupportedError for
    one that has none."""
    gradient = _gradient_of(signature)
    aliases = tuple((operand, name) for name, operand in signature.op.arguments.items() if name in present)
    names = {operand: name for name, operand in signature.op.arguments.items()}
    has = {*present, *(operand for operand, _ in aliases)}
    needed = frozenset(signature.op.arguments.get(name, name) for name in needs)
    _check(framework, signature, has, needed)
    back = framework.signature_of(gradient.op)
    saved = {gradient.renames.get(name, name): name for name in gradient.saved if name in has}
    passed = {target: name for target, name in saved.items() if target in back.names}
    if "residual_out" in has:
        passed["x"] = "residual_out"
    options = (p.name for p in signature.passed if not p.tensor and p.name in back.names and "dtype" not in p.name)
    passed |= {name: name for name in options if name in has}
    if "device" in has:
        passed["device"] = "device"
    return _Steps(
        back, "activation" in signature.names, aliases, tuple(passed.items()),
        ((gradient.grad, signature.outputs[0]), *((operand, name) for name, operand in gradient.more.items())),
        tuple(gradient.gradients.items()),
        next(iter(gradient.gradients)) if "dtype" in back.names else "",  # the gradient of a cast is a cast back
        ({"needs": tuple(n for n in ("mask", "alibi_slopes", "bias") if n in needed)} if "needs" in back.names else {})
        | {back.flags[to]: True for name, to in gradient.gradients.items() if name in needed and to in back.flags},
        needed, tuple((name, names.get(name, name)) for name in sorted(needed)),
    )  # fmt: skip


def gradients_of(
    framework: Operators, signature: Signature, held: dict[str, Any], grads: Mapping[str, Any], needs: frozenset[str],
    invoke: Invoke,
) -> dict[str, Any]:  # fmt: skip
    """The gradients of the operands in `needs`. `held` are the call's arguments and results by name, those that there are,
    `grads` the gradients of its results, zeros where there is none."""
    if (views := _gradient_of(signature).views) is not None:
        grad, made = grads[signature.outputs[0]], views(held)
        return {name: made[name](grad) for name in sorted(needs)}
    steps = _steps(framework, signature, tuple(held), needs)
    if steps.aliases:
        held = {**held, **{operand: held[name] for operand, name in steps.aliases}}
    grad = grads[signature.outputs[0]]
    found: dict[str, Any] = {}
    if steps.product:
        grad = _through_terms(framework, signature, held, grad, steps.needed, invoke, found)
        found |= _product(framework, steps.back, held, grad, invoke)
    else:
        unchanged = _gradient_of(signature).unchanged
        found = {} if steps.needed <= {*unchanged} else _core(framework, steps, held, grads, invoke)
        found |= dict.fromkeys(unchanged, grad)
        if "residual" in held and "residual_out" not in signature.outputs:  # is added to the result
            found["residual"] = grad
        elif "residual" in held:  # h = x + residual was normalised, and is a result as well
            found["residual"] = found["x"] = _sum_of(found.get("x"), grads.get("residual_out"))
        if "bias" in steps.needed and found.get("bias") is None:
            found["bias"] = grad
    made = {name: x for operand, name in steps.wanted if (x := found.get(operand)) is not None}
    return {name: _like(framework, x, held[name]) if name in held else x for name, x in made.items()}


def _check(framework: Operators, signature: Signature, has: set[str], needs: frozenset[str]) -> None:
    gradient = _gradient_of(signature)
    known = {
        *gradient.gradients,
        *gradient.unchanged,
        *(_TERMS if "activation" in signature.names or "residual" in signature.names else ()),
    }
    for name in sorted(needs):
        if name not in known or (name.startswith("scale") and "activation" in signature.names):
            raise UnsupportedError(
                f"{signature.name}: there is no gradient of {name}", f"pass {framework.constant(name)}"
            )
    for name in ("scale_a", "scale_b"):
        if name in has:
            raise UnsupportedError(
                f"{signature.name}: there is no gradient of a product of scaled fp8 operands",
                f"pass {framework.constant('a')}",
            )


def _core(
    framework: Operators, steps: _Steps, held: Mapping[str, Any], grads: Mapping[str, Any], invoke: Invoke
) -> dict[str, Any]:
    """The gradients that the op's own gradient op computes."""
    values = {target: held[name] for target, name in steps.passed}
    for target, name in steps.outputs:
        if (x := grads.get(name)) is not None:
            values[target] = x
    if "pref" in held:
        values["pref"] = _context_of(held["pref"])
    if steps.cast:
        values["dtype"] = held[steps.cast].dtype
    values.update(steps.fixed)
    numbers = {output for operand, output in steps.made if isinstance(held.get(operand), (bool, int, float))}
    made = _by_name(framework, steps.back, invoke(steps.back.name, values), numbers)
    return {operand: made.get(output) for operand, output in steps.made}


@lru_cache(maxsize=256)
def _context_of(pref: Any) -> Any:
    """What a preference says of any op."""
    return type(pref)(**{name: getattr(pref, name) for name in _CONTEXT})


def _by_name(framework: Operators, signature: Signature, result: Any, absent: Collection[str] = ()) -> dict[str, Any]:
    """A result's tensors by the names of the op's outputs, of which some are `absent`, as are gradients of numbers."""
    if framework.is_array(result):
        return {next(name for name in signature.outputs if name not in absent): result}
    return dict(zip(result._fields, result))


# ---- products ------------------------------------------------------------------------------------------------------------


def _through_terms(
    framework: Operators,
    signature: Signature,
    held: Mapping[str, Any],
    grad: Any,
    needs: frozenset[str],
    invoke: Invoke,
    found: dict[str, Any],
) -> Any:
    """The gradient of alpha a @ b, given that of residual + f(alpha a @ b + beta c + bias); those of the terms go into
    `found`."""
    if "residual" in needs:
        found["residual"] = grad
    activation = held.get("activation")
    if activation is not None and str(activation) != "identity":
        core = ("a", "b", "bias", "c", "alpha", "beta", "math", "pref", "device")
        values = {name: held[name] for name in core if held.get(name) is not None}
        if framework.is_half(held["a"]):
            values["out_dtype"] = "f32"
        z = framework.cast(invoke(signature.name, values), grad.dtype)
        grad = framework.activations[str(activation)](grad, z)
    if "bias" in needs:
        found["bias"] = grad
    if "c" in needs:
        found["c"] = grad * held.get("beta", 1.0)
    alpha = held.get("alpha", 1.0)
    return grad if alpha == 1.0 else grad * alpha


def _product(
    framework: Operators, back: Signature, held: Mapping[str, Any], grad: Any, invoke: Invoke
) -> dict[str, Any]:
    """The gradients of a and b of ``a @ b``. A weight that a batch shares is multiplied as one product of all rows; other
    operands that are broadcast along the batch are expanded."""
    a, b = held["a"], held["b"]
    grad = framework.cast(grad, a.dtype)
    if b.ndim == 2 and a.ndim > 2:
        a, grad = a.reshape(-1, a.shape[-1]), grad.reshape(-1, grad.shape[-1])
    elif a.ndim >= 2 and b.ndim >= 2 and a.shape[:-2] != b.shape[:-2]:
        batch = framework.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        a, b = (framework.expand(x, (*batch, *x.shape[-2:])) for x in (a, b))
    elif a.ndim == 1 and b.ndim > 2:
        a = framework.expand(a, (*b.shape[:-2], 1, a.shape[0]))
        grad = grad.reshape(*grad.shape[:-1], 1, grad.shape[-1])
    elif b.ndim == 1 and a.ndim > 2:
        a, grad = a.reshape(-1, a.shape[-1]), grad.reshape(-1)
    values = {"grad": grad, "a": a, "b": b}
    if "device" in held:
        values["device"] = held["device"]
    if "pref" in held:
        values["pref"] = _context_of(held["pref"])
    grad_a, grad_b = invoke(back.name, values)
    if a is not held["a"] and prod(grad_a.shape) == prod(held["a"].shape):
        grad_a = grad_a.reshape(held["a"].shape)
    return {"a": grad_a, "b": grad_b}


def _sum_of(first: Any, second: Any) -> Any:
    return second if first is None else first if second is None else first + second


def _like(framework: Operators, grad: Any, operand: Any) -> Any:
    """A gradient in the shape and dtype of its operand: summed over the axes along which the operand was broadcast."""
    if grad.shape != operand.shape:
        grad = framework.sum_to(grad, operand.shape)
    return grad if grad.dtype == operand.dtype else framework.cast(grad, operand.dtype)
