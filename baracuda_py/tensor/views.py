"""Views of arrays, of the kind of the array: nothing is copied, and no element is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..types import OperandTypeError, UnsupportedError
from .arrays import intake
from .axes import self_overlapping
from .buffer import GpuBuffer
from .pytorch import is_tensor

__all__ = ["Strided", "view_of"]


class Strided(NamedTuple):
    """A layout: shape, strides and the place of the first element, in elements of the array that it is a view of."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


def view_of(
    x: Any, what: str, layout: Callable[[tuple[int, ...], tuple[int, ...]], Strided], torch: Callable[[Any], Any]
) -> Any:
    """The view of `x` whose layout `layout(shape, strides)` gives; raises what that raises.

    PyTorch makes the view of its own tensors, by `torch(x)`, so that autograd sees it. A view whose elements share memory is
    read-only where its framework knows of that. Raises UnsupportedError for JAX, whose arrays have no views.
    """
    if is_tensor(x):
        layout(tuple(x.shape), tuple(x.stride()))
        return torch(x)
    held = intake(x, what=what)
    if held.framework == "jax":
        function = what.partition(":")[0]
        raise UnsupportedError(f"{what}: an array of JAX has no views", f"use jax.numpy in place of bp.{function}")
    made = layout(held.shape, held.strides)
    if isinstance(x, GpuBuffer):
        return GpuBuffer(x, x.element, made.shape, made.strides, x.offset + made.offset)
    if held.framework not in ("numpy", "cupy"):
        raise OperandTypeError(
            f"{what}: an array of {held.framework} cannot be viewed here", f"pass cupy.from_dlpack({what.split()[-1]})"
        )
    shared = held.readonly or self_overlapping(made.shape, made.strides)
    pointer = held.pointer + made.offset * np.dtype(x.dtype).itemsize
    return replace(held, pointer=pointer, shape=made.shape, strides=made.strides, readonly=shared, bounds=None).array(
        x.dtype
    )
