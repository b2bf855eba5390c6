"""Defines ``torch.ops.baracuda.<op>`` for every op: schema, kernels for CUDA and CPU, fake tensors, gradients, vmap.

The kernel for CUDA calls the op's function, which selects at run time: a compiled graph with a dynamic batch keeps no kernel.
That for CPU computes with the reference backend, or with the device that the call names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from ...runtime.scope import default_device
from ...tensor.dispatch import overloads
from .batching import batched
from .differentiate import add_kernels, autograd_kernel, no_gradient
from .layouts import fake_outputs
from .results import as_list, learn, read_types, result_of
from .schema import Signature, read_signatures, signature_of

__all__ = ["NAMESPACE", "TWIN", "define_all", "invoke", "no_gradient", "overload"]

NAMESPACE = "baracuda"
TWIN = "_functional"  # the suffix of the op that returns copies of what another one writes to

_library: Any = None  # a Library's ops live as long as it


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
    return overloads[name]


def invoke(name: str, given: dict[str, Any]) -> Any:
    """The result of a call of the custom op, with the arguments of the op's function. Dynamo traces this."""
    signature = signature_of(name)
    return result_of(signature, given, overload(name)(*signature.lowered(given)))


def _define(signature: Signature) -> None:
    name = signature.name
    read_types(signature)
    direct = None if signature.written else signature.kernel(partial(_note, signature))
    _add(name, signature.text(), partial(_run, signature), partial(_fake, signature), direct)
    torch.library.register_vmap(f"{NAMESPACE}::{name}", partial(batched, signature, overload, name), lib=_library)
    _library.impl(name, autograd_kernel(signature, overload(name), invoke), "Autograd", with_keyset=True)
    if signature.written:
        twin = name + TWIN
        _add(twin, signature.text(twin=True), partial(_run_twin, signature), partial(_fake_twin, signature))
        _library.impl(twin, autograd_kernel(signature, overload(twin), invoke), "Autograd", with_keyset=True)


def _add(
    name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any], direct: Callable[..., Any] | None = None
) -> None:
    """Defines one custom op. `direct` is its kernel for CUDA where autograd has seen that nothing is recorded."""
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order))
    kernels: dict[str, Callable[..., Any]] = {key: partial(run, key) for key in ("CUDA", "CPU")}
    for key, kernel in kernels.items():
        _library.impl(name, kernel, key)
    if direct is not None:
        kernels["CUDA"] = direct
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    overloads[name] = getattr(getattr(torch.ops, NAMESPACE), name).default
    add_kernels(overloads[name], kernels)


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


def _note(signature: Signature, arguments: Sequence[Any], made: Any) -> None:
    """Notes the names of what a call writes."""
    learn(signature, signature.raised(arguments), getattr(made, "_fields", signature.outputs[:1]))


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
