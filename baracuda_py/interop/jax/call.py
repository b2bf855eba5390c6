"""A traced call as data: the op, which of its arguments are arrays, and the others as text.

A `Call` is a static parameter of a primitive, and its text is an attribute of a custom call: an exported computation holds all
that the call needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from ...ops.elementwise.fused.running import OP as FUSED
from ...plan.descriptor import Descriptor, Layout
from ...plan.family import Family
from ...plan.registry import get_op
from ...runtime.scope import default_device
from ...tensor.axes import c_strides
from ...tensor.dispatch import describing
from ...types import ElementKind, OperandTypeError, UnsupportedError
from ..codec import decode, encode
from ..signature import HOW, Signature

__all__ = ["Call", "Problem", "problem_of", "signature_of"]


@lru_cache(maxsize=1024)
def signature_of(name: str) -> Signature:
    """The parameters of an op's function."""
    return Signature(FUSED if name == FUSED.name else get_op(name))


@dataclass(frozen=True)
class Call:
    """A call of an op's function. `arrays` are the names of the arguments that are arrays, `others` name the other arguments
    with their texts."""

    op: str
    arrays: tuple[str, ...]
    others: tuple[tuple[str, str], ...]

    @staticmethod
    def of(signature: Signature, given: Mapping[str, Any]) -> tuple[Call, tuple[Any, ...]]:
        """The call with these arguments, and its arrays. The device in effect is a part of it."""
        _refuse(signature, given)
        held = {"device": default_device(), **{name: x for name, x in given.items() if x is not None}}
        arrays = {name: held.pop(name) for name in signature.tensors if is_array(held.get(name))}
        texts = ((name, encode(x, f"{signature.name}: {name}")) for name, x in sorted(held.items()))
        others = tuple((name, text) for name, text in texts if text is not None)
        return Call(signature.name, tuple(arrays), others), tuple(arrays.values())

    @staticmethod
    @lru_cache(maxsize=1024)
    def of_text(text: str) -> Call:
        """The call of an attribute."""
        op, arrays, others = json.loads(text)
        return Call(op, tuple(arrays), tuple((name, x) for name, x in others))

    @cached_property
    def text(self) -> str:
        return json.dumps([self.op, self.arrays, self.others])

    @cached_property
    def signature(self) -> Signature:
        return signature_of(self.op)

    @cached_property
    def options(self) -> dict[str, Any]:
        """The arguments that are no arrays, without how the call is made."""
        return {name: decode(text) for name, text in self.others if name not in HOW}

    @cached_property
    def how(self) -> dict[str, Any]:
        """The preference and the device, if the call names them."""
        return {name: decode(text) for name, text in self.others if name in HOW}


def is_array(x: Any) -> bool:
    """Whether JAX takes it as an array: a tracer, one of its arrays, or one of NumPy's."""
    return isinstance(x, (jax.Array, np.ndarray, np.generic))


def _refuse(signature: Signature, given: Mapping[str, Any]) -> None:
    """Raises for arguments that a traced call cannot have."""
    op = signature.name
    for name in (*signature.given_outputs, *(n for n in signature.written if n == "status")):
        if given.get(name) is not None:
            raise OperandTypeError(
                f"{op}: {name} was passed, and arrays of JAX are immutable", f"leave {name}= out: the call returns it"
            )
    if given.get("stream") is not None:
        raise UnsupportedError(f"{op}: JAX chooses the stream of a traced call", "leave stream= out")
    for name in signature.tensors:
        x = given.get(name)
        if x is None or is_array(x) or isinstance(x, (bool, int, float, complex)):
            continue
        kind = f"{type(x).__module__.partition('.')[0]}.{type(x).__name__}"
        raise OperandTypeError(
            f"{op}: {name} is a {kind} and another operand is a tracer of JAX",
            f"pass an array of JAX: jax.numpy.from_dlpack({name}), or jax.numpy.asarray({name})",
        )


# ---- the problem ---------------------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """A call on arrays of known shapes. `places` are the operands that arguments hold, by the arguments' numbers; `constants` are
    operands that the function makes itself; `written` are the results, in order."""

    plan: type[Family[Any]]
    desc: Descriptor
    values: Mapping[str, Any]
    places: Mapping[str, int]
    constants: Mapping[str, Any]
    written: tuple[str, ...]

    @property
    def results(self) -> tuple[Layout, ...]:
        return tuple(self.desc.layout(name) for name in self.written)

    @property
    def aliases(self) -> dict[int, int]:
        """The numbers of the results that are written over arguments, by the numbers of these."""
        return {self.places[name]: i for i, name in enumerate(self.written) if name in self.places}


@lru_cache(maxsize=4096)
def problem_of(call: Call, shapes: tuple[tuple[tuple[int, ...], Any], ...]) -> Problem:
    """The problem of a call on arrays of such shapes and dtypes."""
    signature = call.signature
    shells = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    token = describing.set(True)
    try:
        whole = {"trim": False} if "trim" in signature.names else {}  # a function trims what this call gives
        described = signature.call({**dict(zip(call.arrays, shells)), **call.options, **whole})
    finally:
        describing.reset(token)
    desc = described.desc
    written = tuple(o.name for o in desc.operands if o.written and not o.optional)
    held = {name: x for name, x in described.operands.items() if x is not None}
    places = {name: i for name, x in held.items() for i, shell in enumerate(shells) if x is shell}
    constants = {name: _on_host(x) for name, x in held.items() if name not in places}
    _check_results(call.op, desc, written)
    return Problem(described.plan, desc, described.values, places, constants, written)


def _on_host(x: Any) -> Any:
    return x.get() if hasattr(x, "get") else np.asarray(x)


def _check_results(op: str, desc: Descriptor, written: Sequence[str]) -> None:
    for name in written:
        layout = desc.layout(name)
        if layout.element.packed:
            raise UnsupportedError(
                f"{op}: {name} holds {layout.element}, for which JAX has no dtype here", "call it outside jax.jit"
            )
        if layout.strides != c_strides(layout.shape) and np.prod(layout.shape) > 1:
            raise UnsupportedError(f"{op}: {name} is not in C order, as JAX's arrays are", "call it outside jax.jit")


def shape_of(x: Any) -> tuple[tuple[int, ...], Any]:
    """The shape and the dtype of an array or of an abstract value, as `problem_of` takes them."""
    for n in x.shape:
        if not isinstance(n, int):
            raise UnsupportedError(
                f"an array has the symbolic extent {n}, and kernels are selected for numbers",
                "export the computation with fixed shapes",
            )
    ElementKind.of(x.dtype)
    return tuple(x.shape), np.dtype(x.dtype)
