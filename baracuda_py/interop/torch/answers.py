"""Answers the calls that torch must see (`tensor.dispatch`): in place of the kernel they get the op's custom op, or, in eager
code that records a gradient, an autograd function around the op's own function."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd import forward_ad

from ...functional import call as call_function
from ...runtime.scope import default_device
from ...tensor import dispatch
from ...types import OperandTypeError, UnsupportedError
from ..called import answering, arguments_of, op_of
from ..codec import encode
from .autocast import cast_operands
from .conjugate import conjugated
from .fused import called as fused_called
from .gradient import recorded_arguments
from .library import define_all, invoke, no_gradient
from .packed import unpacked
from .recorded import RecordedCall, no_tangent, record, record_transformed, recorded_call
from .results import named
from .routes import outputs, route
from .schema import Signature, signature_of

__all__ = ["call_op"]


def call_op(name: str, given: dict[str, Any]) -> Any:
    """Calls an op with the arguments of its function, as torch must see it."""
    signature = signature_of(name)
    if not torch.compiler.is_dynamo_compiling() and (tangents := _tangents(signature, given)):
        return _without_tangent(signature, given, tangents)
    given = cast_operands(signature, given)
    tensors = [given[n] for n in signature.tensors if isinstance(given.get(n), torch.Tensor)]
    _refuse_nested(signature, given)
    if not torch.compiler.is_dynamo_compiling() and not _is_transformed(tensors):
        _refuse_recorded_outputs(signature, given)
        if "trim" in signature.names:  # the function that made the call trims what it gets
            given["trim"] = False
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            return _recorded(signature, given)
        with (
            torch.no_grad(),
            torch.autocast(tensors[0].device.type, enabled=False),
        ):  # which autocast is why torch saw it
            return signature.call(given)
    if not torch.compiler.is_dynamo_compiling():
        given = {n: _tensor(x) if n in signature.tensors else x for n, x in given.items()}
    passed = [n for n in signature.given_outputs if given.get(n) is not None]
    if given.get("stream") is not None:
        raise UnsupportedError(f"{name}: torch chooses the stream of a traced call", "leave stream= out")
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        _refuse_outputs(signature, passed)
        if signature.op.gradient is not None and _is_functional(tensors):
            return _dropped(
                signature, given, record_transformed(signature, recorded_arguments(signature, given), call_op)
            )
        return _dropped(signature, given, invoke(name, recorded_arguments(signature, given)))
    result = invoke(name, {n: x for n, x in given.items() if n not in passed})
    return _copied(given, passed, result)


def traced(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Answers a call of an op's function that TorchDynamo traces and that has no route (`routes`). Dynamo traces this too."""
    signature = signature_of(name)
    return call_op(name, unpacked(signature, signature.bind(args, kwargs)))


# ---- operands ------------------------------------------------------------------------------------------------------------


def _tensor(x: Any) -> Any:
    """An array of NumPy or CuPy, such as the frequencies of a rotation, as a tensor."""
    if isinstance(x, np.ndarray):
        return torch.from_numpy(x.copy())
    return torch.as_tensor(x) if hasattr(x, "__cuda_array_interface__") and not isinstance(x, torch.Tensor) else x


def _is_transformed(tensors: list[Any]) -> bool:
    """Whether an operand is a fake tensor, a wrapper of torch.func, or another tensor that torch dispatches on; or a mode or a
    transform is active."""
    plain = torch._C._disabled_torch_dispatch_impl
    active = torch._C._len_torch_dispatch_stack() > 0 or torch._C._functorch.peek_interpreter_stack() is not None
    return active or any(
        type(x).__torch_dispatch__ is not plain or torch._C._functorch.is_functorch_wrapped_tensor(x) for x in tensors
    )


def _is_functional(tensors: list[Any]) -> bool:
    """Whether an operand is a wrapper of torch.func. Dynamo traces this."""
    return not torch.compiler.is_dynamo_compiling() and any(
        map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)
    )


def _refuse_nested(signature: Signature, given: Mapping[str, Any]) -> None:
    """Raises for a nested tensor, whose rows have lengths of their own. Dynamo traces this."""
    for name in signature.tensors:
        if isinstance(x := given.get(name), torch.Tensor) and x.is_nested:
            raise OperandTypeError(
                f"{signature.name}: {name} is a nested tensor, and an array of one shape is needed",
                f"pass {name}.values(), or torch.nested.to_padded_tensor({name}, 0.0)",
            )


# ---- forward mode --------------------------------------------------------------------------------------------------------


def _tangents(signature: Signature, given: Mapping[str, Any]) -> list[str]:
    """The operands that carry a tangent: under torch.func.jvp and jacfwd, and dual tensors."""
    if getattr(forward_ad, "_current_level", 0) < 0:  # no tensor is dual outside a level
        return []
    tensors = {n: x for n in signature.tensors if isinstance(x := given.get(n), torch.Tensor)}
    return [n for n, x in tensors.items() if dispatch.has_tangent(torch, x)]


def _without_tangent(signature: Signature, given: dict[str, Any], tangents: list[str]) -> Any:
    """The results of a call whose operands carry tangents, if they are whole numbers: others would need tangents as well."""
    result = None
    if signature.op.gradient is None and not signature.written:
        result = call_op(
            signature.name, {n: forward_ad.unpack_dual(x).primal if n in tangents else x for n, x in given.items()}
        )
    made = result if isinstance(result, tuple) else (result,)
    if all(isinstance(x, torch.Tensor) and not x.is_floating_point() for x in made):
        return result
    raise no_tangent(signature, tangents[0])


# ---- recording -----------------------------------------------------------------------------------------------------------


def _recorded(signature: Signature, given: dict[str, Any]) -> Any:
    """An eager call of which torch records a gradient."""
    needing = [n for n in signature.tensors if isinstance(given.get(n), torch.Tensor) and given[n].requires_grad]
    passed = [n for n in signature.given_outputs if given.get(n) is not None]
    given = {"device": default_device(), **given}
    if signature.op.gradient is None or signature.written:
        if signature.written:
            raise no_gradient(signature, needing[0])
        with torch.no_grad():
            result = signature.call(given)
        made = result if isinstance(result, tuple) else (result,)
        if any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in made):
            raise no_gradient(signature, needing[0])
        return result
    _refuse_outputs(signature, passed)
    return _dropped(signature, given, record(*recorded_call(signature, recorded_arguments(signature, given), _call_op)))


def _call_op(name: str, given: dict[str, Any]) -> Any:
    return signature_of(name).call(given)


def _refuse_outputs(signature: Signature, passed: list[str]) -> None:
    if passed:
        raise UnsupportedError(
            f"{signature.name}: {passed[0]} was passed, and torch records no gradient of what is written in place",
            f"leave {passed[0]} out, or call it under torch.no_grad()",
        )


def _refuse_recorded_outputs(signature: Signature, given: Mapping[str, Any]) -> None:
    """Raises for an output of which torch records a gradient: what is written there would not be what it records."""
    for name in signature.given_outputs:
        if torch.is_grad_enabled() and getattr(given.get(name), "requires_grad", False):
            raise OperandTypeError(
                f"{signature.name}: {name} requires a gradient, and torch records none of what is written in place",
                f"pass {name}.detach(), or call it under torch.no_grad()",
            )


def _dropped(signature: Signature, given: Mapping[str, Any], result: Any) -> Any:
    """The result without what only the recording asked for."""
    added = [output for output, flag in signature.flags.items() if not given.get(flag)]
    fields = getattr(result, "_fields", ())
    kept = [name for name in fields if name not in added]
    if not fields or len(kept) == len(fields):
        return result
    if len(kept) == 1:
        return getattr(result, kept[0])
    return named(signature, kept, [getattr(result, name) for name in kept])


def _copied(given: Mapping[str, Any], passed: list[str], result: Any) -> Any:
    """The result in the outputs that were passed."""
    if not passed:
        return result
    if isinstance(result, torch.Tensor):
        return given[passed[0]].copy_(result)
    parts = [given[n].copy_(getattr(result, n)) if n in passed else getattr(result, n) for n in result._fields]
    return type(result)(*parts)


# ---- repeated recorded calls ---------------------------------------------------------------------------------------------

_PLAIN = (torch.Tensor, torch.nn.Parameter)
MAX_RECIPES = 4096


class _Recipe(NamedTuple):
    """A kind of call that was recorded before: where the arguments of the op's function are found among those of
    `functional.call`. What a key says is not read again."""

    signature: Signature
    names: tuple[str, ...]  # of the tensors, as arguments
    operands: tuple[str, ...]  # and as operands
    constants: Mapping[str, Any]  # the arguments that are the same in every call of this kind
    values: tuple[
        tuple[str, str, bool], ...
    ]  # those that vary, the run-time values they are, and whether they are whole numbers
    flags: Mapping[str, bool]  # what only the recording asks for


_recipes: dict[Any, _Recipe | None] = {}


_general = answering(signature_of, call_op)


def called(
    plan: Any, operands: Mapping[str, Any], describe: Any, describe_args: tuple[Any, ...], options: Any, values: Any, *,
    stream: Any = None, pref: Any = None, device: Any = None,
) -> Any:  # fmt: skip
    """Answers a call of `functional.call`. One that torch must see only because a gradient is recorded takes a short way, if a
    call like it was made before."""
    recipe = None
    if _is_plain(operands.values()):
        present = tuple([name for name, x in operands.items() if x is not None])
        own = getattr(describe, "op", None)
        key = plan, own, options, tuple(operands), present, tuple(values) if values else ()
        try:
            recipe = _recipes.get(key)
            if recipe is None and key not in _recipes:
                while len(_recipes) >= MAX_RECIPES:
                    _recipes.pop(next(iter(_recipes)), None)
                _recipes[key] = _recipe_of(plan, operands, describe, describe_args, options, values)
        except TypeError:  # an option that does not hash: the long path reports it
            recipe = None
    if recipe is None:
        return _general(
            plan, operands, describe, describe_args, options, values, stream=stream, pref=pref, device=device
        )
    signature = recipe.signature
    held = dict(recipe.constants)
    for name, value, whole in recipe.values:
        x = values[value]
        held[name] = int(x) if whole and isinstance(x, float) else x
    if pref is not None:
        held["pref"] = pref
    if device is not None:
        held["device"] = device
    tensors = [operands[name] for name in recipe.operands]

    def run(*tensors: Any) -> Any:
        if not recipe.flags:
            return call_function(plan, operands, describe, describe_args, options, values, None, stream, pref, device)
        return signature.call({**held, **dict(zip(recipe.names, tensors)), **recipe.flags, "stream": stream})

    made = record(RecordedCall(signature, recipe.names, held, run, _call_op), tensors)
    return _dropped(signature, held, made) if recipe.flags else made


def _is_plain(operands: Collection[Any]) -> bool:
    """Whether torch must see a call for no other reason than that it records a gradient."""
    recorded = False
    for x in operands:
        if x is not None:
            if type(x) not in _PLAIN or x.is_nested or torch._C._functorch.is_functorch_wrapped_tensor(x):
                return False
            recorded = recorded or x.requires_grad
    return (
        recorded
        and torch.is_grad_enabled()
        and getattr(forward_ad, "_current_level", 0) < 0
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch.is_autocast_enabled("cuda")
        and not torch.is_autocast_enabled("cpu")
    )


def _recipe_of(
    plan: Any, operands: Mapping[str, Any], describe: Any, describe_args: tuple[Any, ...], options: Any, values: Any
) -> _Recipe | None:
    """The recipe of a call; None if it has no gradient, or if its arguments are not all operands, run-time values and options."""
    signature = signature_of(op_of(plan, options, describe))
    given = arguments_of(signature, operands, describe, describe_args, options, values)
    follows = describe_args[0] is operands if describe_args else not hasattr(describe, "arguments_of")
    if not follows or signature.op.gradient is None or signature.written:
        return None
    operand_of = {name: operand for name, operand, _, _ in signature.held if name in given}
    whole = {name: is_whole for name, _, is_whole, _ in signature.held}
    names = tuple(name for name in signature.tensors if operands.get(operand_of.get(name, "")) is not None)
    varying = tuple((n, o, whole[n]) for n, o in operand_of.items() if n not in names and o in (values or ()))
    constants = {n: x for n, x in given.items() if n not in names and all(n != name for name, _, _ in varying)}
    if any(isinstance(x, torch.Tensor) for x in constants.values()):
        return None
    added = recorded_arguments(signature, {})
    flags = {name: value for name, value in added.items() if not constants.get(name)}
    return _Recipe(signature, names, tuple(operand_of[n] for n in names), constants, varying, flags)


define_all()
dispatch.answers.called, dispatch.answers.traced = called, traced
dispatch.answers.fused, dispatch.answers.conjugated = fused_called, conjugated
dispatch.answers.route, dispatch.answers.outputs, dispatch.answers.encode = route, outputs, encode
