"""Defines ``torch.ops.baracuda.<op>`` for every op: schema, kernels for CUDA and CPU, fake tensors, gradients, vmap.

The kernel for CUDA calls the op's function, which selects at run time: a compiled graph with a dynamic batch keeps no kernel.
That for CPU computes with the reference backend, or with the device that the call names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ...runtime.scope import default_device
from ...types import OperandTypeError
from .batching import batched
from .gradient import differentiable_outputs, gradients_of, needed_for_gradient, recorded_arguments
from .layouts import fake_outputs
from .results import as_list, learn, read_types, result_of, written_by
from .schema import Signature, read_signatures, signature_of

__all__ = ["NAMESPACE", "TWIN", "define_all", "invoke", "no_gradient", "overload"]

NAMESPACE = "baracuda"
TWIN = "_functional"  # the suffix of the op that returns copies of what another one writes to

_library: Any = None  # a Library's ops live as long as it
_overloads: dict[str, Any] = {}


def define_all() -> None:
    """Defines every op, once."""
    global _library
    if _library is not None:
        return
    _library = torch.library.Library(NAMESPACE, "DEF")
    for signature in read_signatures().values():
        _define(signature)


def overload(name: str) -> Any:
    """The custom op of that name. Dynamo traces this."""
    return _overloads[name]


def invoke(name: str, given: dict[str, Any]) -> Any:
    """The result of a call of the custom op, with the arguments of the op's function. Dynamo traces this."""
    signature = signature_of(name)
    return result_of(signature, given, overload(name)(*signature.lowered(given)))


def _define(signature: Signature) -> None:
    name = signature.name
    read_types(signature)
    _add(name, signature.text(), partial(_run, signature), partial(_fake, signature))
    torch.library.register_vmap(f"{NAMESPACE}::{name}", partial(batched, signature, overload, name), lib=_library)
    if signature.op.gradient is not None and not signature.written:
        torch.library.register_autograd(
            f"{NAMESPACE}::{name}",
            _function(_backward, signature),
            setup_context=_function(_setup, signature),
            lib=_library,
        )
    else:
        _library.impl(name, partial(_refuse_gradient, signature, name), "Autograd", with_keyset=True)
    if signature.written:
        twin = name + TWIN
        _add(twin, signature.text(twin=True), partial(_run_twin, signature), partial(_fake_twin, signature))
        _library.impl(twin, partial(_refuse_gradient, signature, twin), "Autograd", with_keyset=True)


def _add(name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Defines one custom op."""
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order))
    for key in ("CUDA", "CPU"):
        _library.impl(name, partial(run, key), key)
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    _overloads[name] = getattr(getattr(torch.ops, NAMESPACE), name).default


def _function(rule: Callable[..., Any], signature: Signature) -> Callable[..., Any]:
    def bound(*args: Any, **kwargs: Any) -> Any:
        return rule(signature, *args, **kwargs)

    return bound


# ---- kernels -------------------------------------------------------------------------------------------------------------


def _call(signature: Signature, key: str, given: dict[str, Any]) -> Any:
    """Calls the op's function on tensors of a device, without recording anything."""
    if key == "CPU" and given.get("device") is None and default_device() is None:
        given = {**given, "device": "cpu"}
    recording = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        return signature.call(given)
    finally:
        torch._C._set_grad_enabled(recording)


def _run(signature: Signature, key: str, *arguments: Any) -> Any:
    given = signature.raised(arguments)
    result = _call(signature, key, given)
    if signature.single:
        return result
    made = as_list(result)
    if not signature.written:
        learn(signature, given, getattr(result, "_fields", signature.outputs[:1]))
        return made
    return _returned(signature, _fresh(made, [given.get(name) for name in signature.written]))


def _fresh(made: list[Any], passed: list[Any]) -> list[Any]:
    """The results that are none of the operands."""
    return [x for x in made if not any(x is y for y in passed)]


def _returned(signature: Signature, fresh: list[Any]) -> Any:
    """What the op returns of its new tensors, as its schema says."""
    if len(signature.outputs) > 1:
        return fresh
    return fresh[0] if signature.outputs else None


def _copies(signature: Signature, given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name].clone() for name in signature.written if given.get(name) is not None}


def _run_twin(signature: Signature, key: str, *arguments: Any) -> Any:
    given = signature.raised(arguments)
    copies = _copies(signature, given)
    made = as_list(_call(signature, key, {**given, **copies}))
    return [*copies.values(), *_fresh(made, list(copies.values()))]


def _fake(signature: Signature, *arguments: Any) -> Any:
    given = signature.raised(arguments)
    outputs, made = fake_outputs(signature, given)
    learn(signature, given, outputs.written)
    return _returned(signature, made)


def _fake_twin(signature: Signature, *arguments: Any) -> Any:
    given = signature.raised(arguments)
    outputs, made = fake_outputs(signature, given)
    learn(signature, given, outputs.written)
    return [*_copies(signature, given).values(), *made]


# ---- gradients -----------------------------------------------------------------------------------------------------------


def _setup(signature: Signature, ctx: Any, inputs: Any, output: Any) -> None:
    given = signature.raised(inputs)
    results = {signature.outputs[0]: output} if signature.single else _named(signature, given, output)
    held = {**given, **results}
    saved = {name: held[name] for name in needed_for_gradient(signature) if isinstance(held.get(name), torch.Tensor)}
    ctx.save_for_backward(*saved.values())
    ctx.saved_names, ctx.result_names = tuple(saved), tuple(results)
    ctx.options = {name: x for name, x in given.items() if not isinstance(x, torch.Tensor)}
    constant = [x for name, x in results.items() if name not in differentiable_outputs(signature)]
    ctx.mark_non_differentiable(*constant)


def _named(signature: Signature, given: dict[str, Any], output: Any) -> dict[str, Any]:
    return dict(zip(written_by(signature, given), output))


def _backward(signature: Signature, ctx: Any, *grads: Any) -> Any:
    received = grads if signature.single else grads[0]
    needs = frozenset(
        name for name, needed in zip(signature.places, ctx.needs_input_grad) if needed and name in signature.tensors
    )
    held = {**ctx.options, **dict(zip(ctx.saved_names, ctx.saved_tensors))}
    missing = [name for name in signature.flags if name in signature.op.gradient.saved and name not in held]  # type: ignore[union-attr]
    if missing:  # the op was called without the results that its gradient reads
        again = recorded_arguments(signature, held)
        held = {**held, **_by_name(invoke(signature.name, again))}
    found = gradients_of(signature, held, dict(zip(ctx.result_names, received)), needs, invoke)
    # torch leaves out trailing arguments that have their default, here as well
    return tuple(found.get(name) for name in signature.places[: len(ctx.needs_input_grad)])


def _by_name(result: Any) -> dict[str, Any]:
    return dict(zip(result._fields, result))


def _refuse_gradient(signature: Signature, name: str, keyset: Any, *arguments: Any) -> Any:
    """The autograd kernel of an op without a gradient: an operand that requires one is refused, unless the results are whole
    numbers."""
    needing = [
        place
        for place, x in zip(signature.places, arguments)
        if torch.is_grad_enabled() and isinstance(x, torch.Tensor) and x.requires_grad
    ]
    if needing and signature.written:
        raise no_gradient(signature, needing[0])
    with torch._C._AutoDispatchBelowAutograd():
        result = overload(name).redispatch(keyset & torch._C._after_autograd_keyset, *arguments)
    if needing and any(x.is_floating_point() for x in as_list(result)):
        raise no_gradient(signature, needing[0])
    return result


def no_gradient(signature: Signature, operand: str) -> OperandTypeError:
    """The error for an operand that requires a gradient, and of which there is none."""
    return OperandTypeError(
        f"{signature.name}: {operand} requires a gradient, and {signature.name} has none",
        f"pass {operand}.detach(), or call it under torch.no_grad()",
    )
