"""Calls that a framework itself must see: where torch records a gradient, under torch.compile, for tensors without memory of
their own, and where JAX traces. `interop.torch` and `interop.jax` answer them; each is imported by its name when the first such
call comes, because it stands above this layer.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from types import FunctionType
from typing import Any, ClassVar, NamedTuple

__all__ = [
    "Answers",
    "Described",
    "Symbol",
    "answers",
    "answers_for",
    "breaks_graph",
    "describing",
    "has_tangent",
    "jax_answers",
    "overloads",
    "result_types",
    "trace_as",
    "trace_as_either",
    "trace_as_op",
]


class Described(NamedTuple):
    """A call of `functional.call` as data: the family, the valid descriptor, and what it was given by operand and value."""

    plan: Any
    desc: Any
    operands: Mapping[str, Any]
    values: Mapping[str, Any]


# Whether calls give a `Described` instead of results, so that layouts of results are known without a device.
describing: ContextVar[bool] = ContextVar("describing", default=False)


class Answers:
    """What a framework's bridge does in place of a call. `interop.<framework>` fills this in when it is imported."""

    called: Callable[..., Any]  # the arguments of `functional.call`
    traced: Callable[[str, tuple[Any, ...], dict[str, Any]], Any]  # the name of an op, the arguments of its function
    fused: Callable[..., Any]  # a fused function, its call, out= and how it is made
    conjugated: Callable[..., Any]  # an array, out= and how its conjugate is made
    # How TorchDynamo passes a call to the custom op, and the names and places of its results: see `interop.torch.routes`.
    route: Callable[[str, list[Any], list[str], bool], Any]
    outputs: Callable[[str, list[Any], tuple[str, ...]], Any]
    encode: Callable[[Any, str], Any]

    def __init__(self, framework: str) -> None:
        self._framework = framework

    def load(self) -> Answers:
        """Imports the bridge, if no call has needed it before."""
        if "called" in self.__dict__:
            return self
        importlib.import_module(f"{__package__.partition('.')[0]}.interop.{self._framework}.answers")
        return self


answers, jax_answers = Answers("torch"), Answers("jax")
# torch's custom ops by the names of ops, and the named tuples of their results, once the bridge is loaded.
overloads: dict[str, Any] = {}
result_types: dict[tuple[str, tuple[str, ...]], Any] = {}


class Symbol:
    """An operand that stands for a value, while a function of elements is traced: what traces it answers the calls."""

    answers: ClassVar[Answers]


def answers_for(operands: Iterable[Any]) -> Answers | None:
    """The answers of the framework that must see a call, or of what traces it; None if none must."""
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "nn"):  # not while torch is being imported
        plain = torch.Tensor, torch.nn.Parameter
        others = [x for x in operands if x is not None and type(x) not in plain]
    else:
        others = list(operands)
    if others:
        for x in others:
            if isinstance(x, Symbol):
                return x.answers
        if _is_traced_by_jax(others):
            return jax_answers
    return answers if _is_dispatched_by_torch(operands) else None


def _is_traced_by_jax(operands: Iterable[Any]) -> bool:
    """Whether an operand is a tracer of JAX: under jax.jit, jax.grad or jax.vmap."""
    tracer = getattr(getattr(sys.modules.get("jax"), "core", None), "Tracer", None)
    return tracer is not None and any(isinstance(x, tracer) for x in operands)


def _is_dispatched_by_torch(operands: Iterable[Any]) -> bool:
    """Whether torch must see a call: an operand requires a gradient, has no memory of its own (fake tensors, the wrappers of
    torch.func) or carries a tangent; a dispatch mode, a transform of torch.func, which new tensors belong to, or autocast is
    active."""
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "_C") or not hasattr(torch, "compiler"):  # not while torch is being imported
        return False
    tensors = [x for x in operands if isinstance(x, torch.Tensor)]
    return bool(tensors) and (
        (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or any(_is_wrapper(torch, x) for x in tensors)
        or _is_autocast(torch, tensors[0])
        or any(has_tangent(torch, x) for x in tensors)
    )


def has_tangent(torch: Any, x: Any) -> bool:
    """Whether torch differentiates in forward mode by that tensor. Below autograd, as in a dispatch mode, nothing does any more:
    autograd's kernel has answered for the tangents, and torch cannot say there whether there are any."""
    forward, below = torch.autograd.forward_ad, torch._C.DispatchKey.AutogradFunctionality
    return (
        getattr(forward, "_current_level", 0) >= 0
        and not torch._C._dispatch_tls_is_dispatch_key_excluded(below)
        and forward.unpack_dual(x).tangent is not None
    )


def _is_autocast(torch: Any, x: Any) -> bool:
    """Whether torch.autocast is on for a tensor's device."""
    kind = x.device.type
    return kind in ("cpu", "cuda") and bool(torch.is_autocast_enabled(kind))


def _is_wrapper(torch: Any, x: Any) -> bool:
    """Whether torch dispatches on a tensor's class, or it is a wrapper of torch.func."""
    plain = torch._C._disabled_torch_dispatch_impl
    return type(x).__torch_dispatch__ is not plain or bool(torch._C._functorch.is_functorch_wrapped_tensor(x))


_NAME = "the name of the op"


def _traced(*args: Any, **kwargs: Any) -> Any:
    """A call of an op's function as Dynamo traces it. Dynamo adds a guard, which every compiled call checks, for each global,
    attribute and function that it reads. What decides here therefore comes from functions that Dynamo carries out, whose
    results are constants to it; and the name is a constant of the code, of which each op has its own."""
    name = "the name of the op"  # replaced by `trace_as_op`
    values, names = [*args, *kwargs.values()], [*kwargs]
    types = [type(x) for x in values]
    route, recorded, nested = _route(name, types, names, False), False, False
    if route is not None:
        for place in route[0]:
            nested = nested or values[place].is_nested
            recorded = recorded or values[place].requires_grad
    if recorded:
        route = _route(name, types, names, True)
    if route is None or nested:
        return answers.traced(name, args, kwargs)
    _, steps, deciding, dropped = route
    passed = []
    for way, held, what in steps:
        if way == "text":
            passed.append(_encoded(values[held], what))
        else:
            passed.append(values[held] if way == "argument" else held)
    made = overloads[name](*passed)
    if deciding is None:
        return made
    outputs, places = _outputs(name, [passed[place] if place >= 0 else True for place in deciding], dropped)
    parts = [made[place] for place in places]
    return parts[0] if outputs is None else result_types[name, outputs](*parts)


def _restating(restated: Callable[..., Any], traced: Callable[..., Any]) -> Callable[..., Any]:
    def restating(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = restated(args, kwargs)
        return traced(*args, **kwargs)

    return restating


def trace_as_op(name: str, function: Any, restated: Callable[..., Any] | None = None) -> None:
    """Makes TorchDynamo trace a call of an op's public function as the op's custom op, and torch.compile of the function itself
    as well. This sets attributes that Dynamo reads, so that it imports nothing and costs an ordinary call nothing. `restated`
    makes the custom op's arguments of the function's, where they differ."""
    code = _traced.__code__
    constants = tuple(name if x == _NAME else x for x in code.co_consts)
    traced: Callable[..., Any] = FunctionType(code.replace(co_consts=constants), globals())
    trace_as(function, traced if restated is None else _restating(restated, traced))


def trace_as(function: Any, traced: Callable[..., Any]) -> None:
    """Makes TorchDynamo trace `traced` in place of a function."""
    function._torchdynamo_inline = function._torchdynamo_orig_callable = traced
    function._torchdynamo_wrapper_id = id(function)  # without which later versions of torch do not read the second


def trace_as_either(function: Any, for_complex: Callable[[], Callable[..., Any]]) -> None:
    """Makes TorchDynamo trace a call of an op's public function with a complex tensor as one of what `for_complex` gives."""
    traced = function._torchdynamo_inline

    def either(x: Any, /, **how: Any) -> Any:
        if not x.is_complex():
            return traced(x, **how)
        _load()
        return for_complex()(x, **how)

    trace_as(function, either)


def breaks_graph(method: Any, reason: str) -> None:
    """Has TorchDynamo run a method as it is, between two graphs; ``fullgraph=True`` raises with the reason."""
    method._torchdynamo_disable, method._torchdynamo_disable_msg = True, reason


# ---- what Dynamo carries out while it traces ---------------------------------------------------------------------------


def _route(name: str, types: list[Any], names: list[str], recorded: bool) -> Any:
    return answers.load().route(name, types, names, recorded)


def _outputs(name: str, deciding: list[Any], dropped: tuple[str, ...]) -> Any:
    return answers.load().outputs(name, deciding, dropped)


def _encoded(value: Any, what: str) -> Any:
    return answers.load().encode(value, what)


def _mark(*functions: Any) -> None:
    for function in functions:
        function._dynamo_marked_constant = True


def _load() -> bool:
    answers.load()
    return True


_mark(_route, _outputs, _encoded, _load)
