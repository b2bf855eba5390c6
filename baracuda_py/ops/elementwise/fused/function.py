"""`bp.fuse`: a Python function of elementwise ops as one kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, NamedTuple

from .... import functional
from ....tensor import intake
from ....tensor.dispatch import Symbol, answers_for
from ....types import ElementKind, InvalidProblemError, PlanPreference, UnsupportedError
from ....types.errors import shown
from ._kinds import Input
from .graph import Graph
from .plan import FusedDescriptor, FusedPlan
from .trace import INPUT, trace

__all__ = ["Fused", "fuse"]

STATIC = (type(None), bool, str, ElementKind)  # arguments that are part of what is traced


class _Call(NamedTuple):
    """The arguments of a call: `given` has `INPUT` for arrays and numbers, which are `inputs`, called x1, x2, ...; `types` are
    those of numbers."""

    given: tuple[Any, ...]
    types: tuple[type | None, ...]
    inputs: tuple[Any, ...]


class Fused:
    """What `fuse` makes of a function: call it as the function.

    ``fused.plan(*args)`` is the plan that such a call would run, ``fused.of(*args)`` its descriptor, ``fused.graph(*args)`` what
    the function computes.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._signature = inspect.signature(function)
        self._graphs: dict[Any, Graph] = {}  # by arguments and kinds
        self._outputs: dict[Any, tuple[str, ...]] = {}
        update_wrapper(self, function)

    def __call__(
        self, *args: Any, out: Any = None, stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
        **named: Any,
    ) -> Any:  # fmt: skip
        """Runs the kernel; `out` is an array, or a tuple of arrays for several results."""
        call = self._call(args, named)
        if any(isinstance(x, Symbol) for x in call.inputs):  # inside another function that is traced
            if any(x is not None for x in (out, stream, pref, device)):
                raise UnsupportedError(
                    f"fuse: {self._named} is given out=, stream=, pref= or device= inside a fused function",
                    "pass those to the outer function",
                )
            return self._function(*args, **named)
        if answers_for(call.inputs) is not None:
            raise UnsupportedError(
                f"fuse: {self._named} is called where torch records gradients, or torch or JAX trace",
                "call it under torch.no_grad() or on x.detach(), outside of torch.compile and jax.jit",
            )
        names = self._outputs.get(call[:2])
        if names is None:
            names = self._outputs[call[:2]] = self._describe(call, None).outputs
        outs = out if isinstance(out, tuple) else (out,) * (1 if out is not None else len(names))
        if len(outs) != len(names):
            raise InvalidProblemError(
                f"fuse: {self._named} returns {len(names)} results and out has {len(outs)}", "pass out=(y1, y2, ...)"
            )
        named_inputs = [f"x{place + 1}" for place in range(len(call.inputs))]
        values = {name: x for name, x, of in zip(named_inputs, call.inputs, call.types) if of is not None}
        operands = dict(zip(names, outs)) | {n: x for n, x in zip(named_inputs, call.inputs) if n not in values}
        how: dict[str, Any] = {"options": (self, *call[:2]), "values": values}
        how |= {"stream": stream, "pref": pref, "device": device}
        describe = partial(self._describe, call, out)
        try:
            return functional.call(FusedPlan, operands, describe, **how)
        except OverflowError:  # a number that the kind as which it is used does not hold
            describe()
            raise

    def of(self, *args: Any, out: Any = None, **named: Any) -> FusedDescriptor:
        """The descriptor of a call."""
        return self._describe(self._call(args, named), out)

    def plan(
        self, *args: Any, out: Any = None, pref: PlanPreference | None = None, device: Any = None, **named: Any
    ) -> FusedPlan:
        """The plan that a call would run."""
        return FusedPlan.select(self.of(*args, out=out, **named), pref, device=device)

    def graph(self, *args: Any, **named: Any) -> Graph:
        """What the function computes of such arguments."""
        return self.of(*args, **named).parsed

    def __repr__(self) -> str:
        return f"<fused {self._named}>"

    @property
    def _named(self) -> str:
        return str(getattr(self._function, "__name__", type(self._function).__name__))

    def _call(self, args: tuple[Any, ...], named: dict[str, Any]) -> _Call:
        """The arguments in the order of the function's parameters."""
        try:
            bound = self._signature.bind(*args, **named)
        except TypeError as error:
            raise InvalidProblemError(
                f"fuse: {self._named}{self._signature}: {error}", "call it as the function"
            ) from None
        bound.apply_defaults()
        if bound.kwargs:
            raise UnsupportedError(f"fuse: {self._named} has parameters by name alone", "give it positional ones")
        inputs = tuple(x for x in bound.args if type(x) not in STATIC)
        given = tuple(x if type(x) in STATIC else INPUT for x in bound.args)
        return _Call(given, tuple(type(x) if type(x) in (int, float) else None for x in inputs), inputs)

    def _describe(self, call: _Call, out: Any) -> FusedDescriptor:
        if all(of is not None for of in call.types):
            raise InvalidProblemError(f"fuse: {self._named} is given no array", "pass an array among the arguments")
        kinds: list[Input] = []
        for place, (x, of) in enumerate(zip(call.inputs, call.types)):
            kinds.append(of if of is not None else intake(x, what=f"fuse: x{place + 1}").element)
        key = call.given, tuple(kinds)
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs[key] = self._used(trace(self._function, kinds, call.given))
        return FusedDescriptor.of(str(graph), *call.inputs, out=out)

    def _used(self, graph: Graph) -> Graph:
        """The graph, of which every array is a part."""
        used = graph.used(graph.outputs)
        for name in graph.names:
            if name not in used:
                raise InvalidProblemError(
                    f"fuse: {self._named} does not use {name}, its argument {int(name[1:])}", "leave it out"
                )
        return graph


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
