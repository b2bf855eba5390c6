"""The gradients of a recorded call, by the op that its `Op.gradient` names.

What that op does not cover is done here with the framework's own operators: the activation of a product and the terms that are
added to it, the residual of a norm, and the sums over axes along which an operand was broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    gradient = signature.op.gradient
    assert gradient is not None
    arguments = {operand: argument for argument, operand in signature.op.arguments.items()}
    saved = [arguments.get(name, name) for name in (*gradient.saved, *gradient.gradients)]
    terms = (name for name in (*_TERMS, *saved) if name in signature.tensors)
    results = ("residual_out",) if "residual_out" in signature.outputs else ()
    return tuple(dict.fromkeys((*saved[: len(gradient.saved)], *terms, *results)))


def gradients_of(
    framework: Operators, signature: Signature, held: Mapping[str, Any], grads: Mapping[str, Any], needs: frozenset[str],
    invoke: Invoke,
) -> dict[str, Any]:  # fmt: skip
    """The gradients of the operands in `needs`. `held` are the call's arguments and results by name, `grads` the gradients of
    its results, zeros where there is none."""
    gradient = signature.op.gradient
    assert gradient is not None
    arguments = signature.op.arguments  # operands may have other names than the arguments that hold them
    held = {**held, **{operand: held[name] for name, operand in arguments.items() if name in held}}
    needs = frozenset(arguments.get(name, name) for name in needs)
    _check(framework, signature, held, needs)
    grad, product = grads[signature.outputs[0]], "activation" in signature.names
    found: dict[str, Any] = {}
    if product:
        grad = _through_terms(framework, signature, held, grad, needs, invoke, found)
    if product:
        core = _product(framework, gradient, held, grad, invoke)
    else:
        core = _core(framework, signature, gradient, held, grad, grads, needs, invoke)
    if held.get("residual") is not None and not product:  # h = x + residual was normalised, and is a result as well
        core["x"] = _sum_of(core.get("x"), grads.get("residual_out"))
        core["residual"] = core["x"]
    if "bias" in needs and "bias" not in found and core.get("bias") is None:
        core["bias"] = grad
    found.update((name, core[name]) for name in needs if core.get(name) is not None)
    named = {operand: name for name, operand in arguments.items()}
    return {named.get(name, name): _like(framework, x, held[name]) for name, x in found.items()}


def _check(framework: Operators, signature: Signature, held: Mapping[str, Any], needs: frozenset[str]) -> None:
    gradient = signature.op.gradient
    assert gradient is not None
    known = {*gradient.gradients, *(_TERMS if "activation" in signature.names or "residual" in signature.names else ())}
    for name in sorted(needs):
        if name not in known or (name.startswith("scale") and "activation" in signature.names):
            raise UnsupportedError(
                f"{signature.name}: there is no gradient of {name}", f"pass {framework.constant(name)}"
            )
    for name in ("scale_a", "scale_b"):
        if held.get(name) is not None:
            raise UnsupportedError(
                f"{signature.name}: there is no gradient of a product of scaled fp8 operands",
                f"pass {framework.constant('a')}",
            )


def _core(
    framework: Operators, signature: Signature, gradient: Gradient, held: Mapping[str, Any], grad: Any, grads: Mapping[str, Any],
    needs: frozenset[str], invoke: Invoke,
) -> dict[str, Any]:  # fmt: skip
    """The gradients that the op's own gradient op computes."""
    back = framework.signature_of(gradient.op)
    known = back.names
    values = {
        gradient.renames.get(name, name): held[name]
        for name in gradient.saved
        if held.get(name) is not None and gradient.renames.get(name, name) in known
    }
    if held.get("residual_out") is not None:
        values["x"] = held["residual_out"]
    options = (p.name for p in signature.passed if not p.tensor and p.name in known and "dtype" not in p.name)
    values.update({name: held[name] for name in options if held.get(name) is not None})
    outputs = {gradient.grad: grad} | {operand: grads.get(name) for name, operand in gradient.more.items()}
    values.update({name: x for name, x in outputs.items() if x is not None})
    values.update(_how(held))
    if "dtype" in known:  # the gradient of a cast is a cast back
        values["dtype"] = held[next(iter(gradient.gradients))].dtype
    if "needs" in known:
        values["needs"] = tuple(n for n in ("mask", "alibi_slopes", "bias") if n in needs)
    made = _by_name(framework, back, invoke(back.name, values))
    return {operand: made.get(output) for operand, output in gradient.gradients.items()}


def _how(held: Mapping[str, Any]) -> dict[str, Any]:
    """The device of the call, and what its preference says of any op."""
    how = {"device": held["device"]} if held.get("device") is not None else {}
    pref = held.get("pref")
    if pref is not None:
        how["pref"] = type(pref)(**{name: getattr(pref, name) for name in _CONTEXT})
    return how


def _by_name(framework: Operators, signature: Signature, result: Any) -> dict[str, Any]:
    """A result's tensors by the names of the op's outputs."""
    if framework.is_array(result):
        return {signature.outputs[0]: result}
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
    framework: Operators, gradient: Gradient, held: Mapping[str, Any], grad: Any, invoke: Invoke
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
    made = invoke(gradient.op, {"grad": grad, "a": a, "b": b, **_how(held)})
    grad_a, grad_b = made
    of_a = prod(grad_a.shape) == prod(held["a"].shape)
    return {"a": grad_a.reshape(held["a"].shape) if of_a else grad_a, "b": grad_b}


def _sum_of(first: Any, second: Any) -> Any:
    return second if first is None else first if second is None else first + second


def _like(framework: Operators, grad: Any, operand: Any) -> Any:
    """A gradient in the shape and dtype of its operand: summed over the axes along which the operand was broadcast."""
    if grad.shape != operand.shape:
        grad = framework.sum_to(grad, operand.shape)
    return grad if grad.dtype == operand.dtype else framework.cast(grad, operand.dtype)
