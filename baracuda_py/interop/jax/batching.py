"""jax.vmap of the primitives. Where an op has a free leading axis the batch is put there, and one call does all; other ops are
called once for each element of the batch, in a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from ...types import BaracudaError, OpCategory
from ..codec import decode, encode
from .call import Call, problem_of, shape_of

__all__ = ["batched"]

_ELEMENTWISE = (OpCategory.UNARY_ELEMENTWISE, OpCategory.BINARY_ELEMENTWISE, OpCategory.TERNARY_ELEMENTWISE)
_ROWS = (OpCategory.SOFTMAX, OpCategory.NORM)  # what is computed of each row, along an axis or the last ones


def batched(
    bind: Callable[..., list[Any]], arrays: Sequence[Any], axes: Sequence[int | None], *, call: Call
) -> tuple[list[Any], list[int]]:
    """The results of a call on a batch, and where the batch is in each."""
    count = next(x.shape[axis] for x, axis in zip(arrays, axes) if axis is not None)
    moved = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(arrays, axes)]
    is_batched = [axis is not None for axis in axes]
    made = _at_once(bind, call, moved, is_batched, count)
    if made is None:
        made = _one_by_one(bind, call, moved, is_batched)
    return made, [0] * len(made)


def _one_by_one(bind: Callable[..., list[Any]], call: Call, arrays: list[Any], is_batched: list[bool]) -> list[Any]:
    def each(own: list[Any]) -> list[Any]:
        left = iter(own)
        return bind(*(next(left) if b else x for x, b in zip(arrays, is_batched)), call=call)

    return jax.lax.map(each, [x for x, b in zip(arrays, is_batched) if b])  # type: ignore[no-any-return]


def _at_once(
    bind: Callable[..., list[Any]], call: Call, arrays: list[Any], is_batched: list[bool], count: int
) -> list[Any] | None:
    """The results of one call on the whole batch; None if the op has no axis for it."""
    single = problem_of(call, tuple(shape_of(_element(x, b)) for x, b in zip(arrays, is_batched)))
    whole = _rearranged(call, arrays, is_batched)
    if whole is None:
        return None
    call, arrays = whole
    try:
        results = problem_of(call, tuple(map(shape_of, arrays))).results
    except BaracudaError:
        return None
    if any(x.shape != (count, *y.shape) for x, y in zip(results, single.results)):
        return None
    return bind(*arrays, call=call)


def _element(x: Any, is_batched: bool) -> Any:
    return jax.ShapeDtypeStruct(x.shape[1:], x.dtype) if is_batched else x


def _rearranged(call: Call, arrays: list[Any], is_batched: list[bool]) -> tuple[Call, list[Any]] | None:
    """The call and its arrays with the batch as the leading axis; None if that would be another problem."""
    category, held = call.signature.op.plan.category, set(zip(call.arrays, is_batched))
    if category in _ELEMENTWISE:
        return call, _in_front(arrays, is_batched)
    if category in _ROWS and (call.arrays[0], True) in held:
        # each row is computed separately: a weight must be the same in all of the batch, rows are all in the batch
        rank = arrays[0].ndim
        if any(b != (x.ndim == rank) for x, b in zip(arrays, is_batched)):
            return None
        return _with_axis(call), arrays
    if call.op == "matmul" and {name for name, b in held if b} <= {"a", "b"}:
        factors = dict(zip(call.arrays, zip(arrays, is_batched)))
        if set(factors) == {"a", "b"} and all(x.ndim >= 3 for x, b in factors.values() if b):
            return call, _in_front(arrays, is_batched)
    return None


def _with_axis(call: Call) -> Call:
    """The call with an axis that counts the batch."""

    def moved(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(moved, value))
        return value + 1 if isinstance(value, int) and value >= 0 else value

    others = tuple((n, encode(moved(decode(x)), n) or "" if n == "axis" else x) for n, x in call.others)
    return replace(call, others=others)


def _in_front(arrays: list[Any], is_batched: list[bool]) -> list[Any]:
    """The arrays with the batch in front of all their other axes, ranks aligned."""
    most = max(x.ndim - b for x, b in zip(arrays, is_batched))
    return [
        x.reshape(x.shape[0], *(1,) * (most - x.ndim + 1), *x.shape[1:]) if b else x for x, b in zip(arrays, is_batched)
    ]
