"""`bp.fuse`: a Python function of elementwise ops as one kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any, NamedTuple

from ....runtime.untraced import untraced
from ....tensor import intake
from ....tensor.dispatch import Symbol, answers_for, breaks_graph
from ....types import ElementKind, InvalidProblemError, PlanPreference, UnsupportedError
from ....types.errors import shown
from ._kinds import Input
from .gradient import GradientGraph, gradients
from .graph import Graph
from .plan import FusedDescriptor, FusedPlan, outputs_of
from .running import run, summed_to
from .trace import INPUT, trace

__all__ = ["Fused", "fuse"]

MOST_GRADIENTS = 1024  # of other shapes and kinds, that are kept
STATIC = (type(None), bool, str, ElementKind)  # arguments that are part of what is traced


class Call(NamedTuple):
    """The arguments of a call: `given` has `INPUT` for arrays and numbers, which are `inputs`, called x1, x2, ...; `types` are
    those of numbers."""

    given: tuple[Any, ...]
    types: tuple[type | None, ...]
    inputs: tuple[Any, ...]


class Gradient(NamedTuple):
    """A plan of gradients. `inputs` say what its x1, x2, ... are: the function's own, ``x1``, or the gradients of its results,
    ``grad``, or ``grad1``, ``grad2``, ...; `outputs` name for each of its results the function's inputs whose gradient it is."""

    plan: FusedPlan
    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, ...], ...]


class Fused:
    """What `fuse` makes of a function: call it as the function.

    ``fused.plan(*args)`` is the plan that such a call would run, ``fused.of(*args)`` its descriptor, ``fused.graph(*args)`` what
    the function computes. ``fused.backward(grad, *args)`` gives the gradients of its arguments, and ``fused.gradient(*args)`` the
    plans that compute them.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        self._graphs: dict[Any, Graph] = {}  # by arguments and kinds
        self._gradients: dict[Any, tuple[GradientGraph, ...]] = {}
        self._outputs: dict[Any, tuple[str, ...]] = {}
        update_wrapper(self, function)

    @untraced
    def __call__(
        self, *args: Any, out: Any = None, stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
        **named: Any,
    ) -> Any:  # fmt: skip
        """Runs the kernel; `out` is an array, or a tuple of arrays for several results."""
        call = self._call(args, named)
        if any(isinstance(x, Symbol) for x in call.inputs):  # inside another function that is traced
            if any(x is not None for x in (out, stream, pref, device)):
                raise UnsupportedError(
                    f"fuse: {self.named} is given out=, stream=, pref= or device= inside a fused function",
                    "pass those to the outer function",
                )
            return self._function(*args, **named)
        how = {"stream": stream, "pref": pref, "device": device}
        answers = answers_for(call.inputs)
        if answers is not None:
            return answers.load().fused(self, call, out, how)
        return self.launch(call, out, how)

    def launch(self, call: Call, out: Any, how: Mapping[str, Any]) -> Any:
        """Runs the kernel of a call that no framework has to see."""
        names = self._outputs.get(call[:2])
        if names is None:
            names = self._outputs[call[:2]] = self.describe(call, None).outputs
        outs = out if isinstance(out, tuple) else (out,) * (1 if out is not None else len(names))
        if len(outs) != len(names):
            raise InvalidProblemError(
                f"fuse: {self.named} returns {len(names)} results and out has {len(outs)}", "pass out=(y1, y2, ...)"
            )
        return run(dict(zip(names, outs)), call.inputs, partial(self.describe, call, out), (self, *call[:2]), how)

    def backward(
        self, grad: Any, /, *args: Any, stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
        **named: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        """The gradients of the function's arguments: one each, of its shape and kind, and None for what has none.

        grad: the gradient of the result, of its shape and kind, or a tuple of them for several results. A kernel computes the
        gradients of arguments of one kind; `sum` adds up those of an argument that is broadcast. Arguments of equal gradients get
        one array.
        """
        how = {"stream": stream, "pref": pref, "device": device}
        call = self._call(args, named)
        grads = grad if isinstance(grad, tuple) else (grad,)
        if answers_for((*call.inputs, *grads)) is not None:
            raise UnsupportedError(
                f"fuse: the gradient of {self.named} has none of its own, and is not traced",
                "call backward under torch.no_grad(), outside of jax.jit; or differentiate the function itself",
            )
        found = iter(self.gradients(call, grads, None, how))
        return tuple(next(found) if x is INPUT else None for x in call.given)

    def gradients(
        self, call: Call, grads: tuple[Any, ...], wanted: tuple[str, ...] | None, how: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        """The gradients of the inputs of a call (those of them that are `wanted`, x1, x2, ...), None for the others."""
        kinds = tuple((x.dtype, tuple(x.shape)) if hasattr(x, "dtype") else type(x) for x in call.inputs)
        key = (*call[:2], kinds, wanted)
        parts = self._gradients.get(key)
        if parts is None:
            if len(self._gradients) >= MOST_GRADIENTS:
                self._gradients.clear()
            parts = self._gradients[key] = self.gradient_graphs(call, wanted)
        held = {f"x{place + 1}": x for place, x in enumerate(call.inputs)}
        grads = parts[0].whole(grads) if parts else grads
        held |= {f"grad{place + 1 if len(grads) > 1 else ''}": x for place, x in enumerate(grads)}
        found: dict[str, Any] = {}
        for place, part in enumerate(parts):
            if missing := [name for name in part.inputs if name not in held]:
                raise InvalidProblemError(
                    f"fuse: {self.named} has several results, and {missing[0]} is not given", "pass a gradient for each"
                )
            describe = partial(self._describe_gradient, call, part, grads)
            inputs = [held[name] for name in part.inputs]
            outs = dict.fromkeys(outputs_of(len(part.outputs)))
            made = run(outs, inputs, describe, (self, "gradient", place, *key), how)
            for names, grad in zip(part.outputs, made if len(part.outputs) > 1 else (made,)):
                found |= dict.fromkeys(names, grad)
        return tuple(
            summed_to(found[name], held[name].shape, how) if name in found else None
            for name in (f"x{place + 1}" for place in range(len(call.inputs)))
        )

    def of(self, *args: Any, out: Any = None, **named: Any) -> FusedDescriptor:
        """The descriptor of a call."""
        return self.describe(self._call(args, named), out)

    def plan(
        self, *args: Any, out: Any = None, pref: PlanPreference | None = None, device: Any = None, **named: Any
    ) -> FusedPlan:
        """The plan that a call would run."""
        return FusedPlan.select(self.of(*args, out=out, **named), pref, device=device)

    def gradient(
        self, *args: Any, pref: PlanPreference | None = None, device: Any = None, **named: Any
    ) -> tuple[Gradient, ...]:
        """The plans of the gradients of a call, one for each kind of its arguments: what `backward` runs where gradients of
        results are dense arrays, before it adds up those of arguments that are broadcast."""
        call = self._call(args, named)
        desc = self.describe(call, None)
        parts = self.gradient_graphs(call, None)
        plans = (FusedPlan.select(part.describe(desc), pref, device=device) for part in parts)
        return tuple(Gradient(plan, part.inputs, part.outputs) for plan, part in zip(plans, parts))

    def graph(self, *args: Any, **named: Any) -> Graph:
        """What the function computes of such arguments."""
        return self.of(*args, **named).parsed

    def __repr__(self) -> str:
        return f"<fused {self.named}>"

    @property
    def named(self) -> str:
        """What the function is called."""
        return str(getattr(self._function, "__name__", type(self._function).__name__))

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Call:
        """The arguments in the order of the function's parameters."""
        try:
            bound = self._signature.bind(*args, **named)
        except TypeError as error:
            raise InvalidProblemError(
                f"fuse: {self.named}{self._signature}: {error}", "call it as the function"
            ) from None
        bound.apply_defaults()
        if bound.kwargs:
            raise UnsupportedError(f"fuse: {self.named} has parameters by name alone", "give it positional ones")
        inputs = tuple(x for x in bound.args if type(x) not in STATIC)
        given = tuple(x if type(x) in STATIC else INPUT for x in bound.args)
        return Call(given, tuple(type(x) if type(x) in (int, float) else None for x in inputs), inputs)

    def describe(self, call: Call, out: Any) -> FusedDescriptor:
        if all(of is not None for of in call.types):
            raise InvalidProblemError(f"fuse: {self.named} is given no array", "pass an array among the arguments")
        kinds = self._kinds(call)
        key = call.given, tuple(kinds)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._used(trace(self._function, kinds, call.given))
        return FusedDescriptor.of(str(graph), *call.inputs, out=out)

    def _describe_gradient(self, call: Call, part: GradientGraph, grads: tuple[Any, ...]) -> FusedDescriptor:
        return part.describe(self.describe(call, None), grads)

    def gradient_graphs(self, call: Call, wanted: tuple[str, ...] | None) -> tuple[GradientGraph, ...]:
        """The graphs of the gradients of a call."""
        return gradients(self.describe(call, None), tuple(self._kinds(call)), wanted)

    @staticmethod
    def _kinds(call: Call) -> list[Input]:
        given = enumerate(zip(call.inputs, call.types), 1)
        return [of if of is not None else intake(x, what=f"fuse: x{place}").element for place, (x, of) in given]

    def _used(self, graph: Graph) -> Graph:
        """The graph, of which every array is a part."""
        used = graph.used(graph.outputs)
        for name in graph.names:
            if name not in used:
                raise InvalidProblemError(
                    f"fuse: {self.named} does not use {name}, its argument {int(name[1:])}", "leave it out"
                )
        return graph


breaks_graph(Fused.__call__, "a fused function of baracuda_py is a kernel of its own, between two graphs")


def fuse(function: Callable[..., Any], /) -> Fused:
    """Makes one kernel of a function of elementwise ops.

    function: takes arrays and Python numbers, and returns what it computes of them by functions of this package that work
    element by element, Python's operators and numbers, comparisons, ``bp.where`` and ``bp.cast``: one array, or a tuple of
    arrays of one kind and shape. It is called once for each combination of kinds, on symbols. Arguments that are None, a bool,
    a text or an element kind are part of what is traced.

    The result takes the arguments of the function, and ``out=``, ``stream=``, ``pref=`` and ``device=`` as every function.
    Numbers are given at run time: other ones take the same kernel. Values between two ops stay in the type that is computed in,
    f32 or f64; ``bp.cast`` does round. Raises UnsupportedError for what cannot be traced, with the line of the function.

    >>> gate = bp.fuse(lambda x, y, scale: bp.silu(x) * y * scale)  # doctest: +SKIP
    """
    if not callable(function):
        raise InvalidProblemError(
            f"fuse: expected a function, got {shown(function)}", "fuse(lambda x, y: bp.silu(x) * y)"
        )
    return Fused(function)
