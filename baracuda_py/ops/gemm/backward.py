"""The gradients of a matrix product, dA = G·Bᵀ and dB = Aᵀ·G, as two products of transposed views.

Nothing is transposed or padded in memory, so that any ragged size goes; sums are those of `matmul`, in f32. An operand that
every matrix of the batch shares gets one product whose K runs over the batch as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ...call.intake import device_for
from ...call.validate import common_device
from ...runtime.streams import current_stream, stream_pointer
from ...tensor import GpuBuffer, Tensor, intake
from ...tensor.axes import merge_axes
from ...types import ElementKind, InvalidProblemError, OperandTypeError, PlanPreference, UnsupportedError
from ._elements import check_elements
from .matmul import MatmulDescriptor, matmul

__all__ = ["MatmulGradients", "matmul_backward"]

OP = "matmul_backward"


class MatmulGradients(NamedTuple):
    """The gradients with respect to `a` and `b`, in their shapes."""

    grad_a: Any
    grad_b: Any


def matmul_backward(
    grad: Any,
    a: Any,
    b: Any,
    /,
    *,
    out_dtype: Any = None,
    stream: Any = None,
    pref: PlanPreference | None = None,
    device: Any = None,
) -> MatmulGradients:
    """The gradients of ``a @ b``, given that of the result: ``grad @ b.mT`` and ``a.mT @ grad``, each rounded once.

    grad has the shape of ``a @ b`` and the dtype of a and b. out_dtype="f32" keeps the f32 sums of 16-bit operands as they
    are. A weight that a batch shares gets the sum over the batch, where the batch's rows follow on in memory; other
    broadcasts are refused. Raises InvalidProblemError, OperandTypeError or UnsupportedError, each with what to do.
    """
    given = {"grad": grad, "a": a, "b": b}
    tensors = {name: intake(x, what=f"{OP}: {name}") for name, x in given.items()}
    desc = _check(a, b, tensors, out_dtype)
    common_device(desc, list(tensors.items()), device_for(device, given.values()))
    views = {name: _native(name, x, tensors[name], stream) for name, x in given.items()}
    if len(tensors["a"].shape) == 1:
        views["a"] = views["a"][None]
    if len(tensors["b"].shape) == 1:
        views["b"] = views["b"][:, None]
        views["grad"] = views["grad"][..., None]
    if len(tensors["a"].shape) == 1:
        views["grad"] = views["grad"][..., None, :]
    g, x, y = (_Matrices(name, views[name]) for name in ("grad", "a", "b"))
    pairs = {"a": (x, g, y.mT), "b": (y, x.mT, g)}
    asked = {
        name: _product(mine, first, second) for name, (mine, first, second) in pairs.items()
    }  # refuses before any launch
    made = {
        name: matmul(*pair, out_dtype=out_dtype, stream=stream, pref=pref, device=device).reshape(tensors[name].shape)
        for name, pair in asked.items()
    }
    return MatmulGradients(made["a"], made["b"])


def _check(a: Any, b: Any, tensors: Mapping[str, Tensor], out_dtype: Any) -> MatmulDescriptor:
    desc = MatmulDescriptor.of(a, b, out_dtype=out_dtype, name=OP)
    check_elements(desc)
    grad = tensors["grad"]
    if grad.shape != desc.shape:
        raise InvalidProblemError(
            f"{OP}: grad must have the shape of a @ b, {desc.shape}, got {grad.shape}", "pass the result's gradient"
        )
    if grad.element is not desc.a_element:
        raise OperandTypeError(
            f"{OP}: grad holds {grad.element}, a and b hold {desc.a_element}",
            f"cast grad to {desc.a_element}: nothing is cast silently",
        )
    return desc


def _native(name: str, x: Any, tensor: Tensor, stream: Any) -> Any:
    """`x` as an array that views of itself can be taken of: NumPy's, CuPy's and torch's are, JAX's views are copies."""
    if isinstance(x, GpuBuffer):
        return x.array
    if hasattr(x, "swapaxes") and tensor.framework != "jax":
        return x
    if tensor.on_host:
        return tensor.array()
    handle = current_stream() if stream is None else stream_pointer(stream)
    return intake(x, what=f"{OP}: {name}", stream=handle).array()


class _Matrices:
    """An operand as a batch of matrices."""

    def __init__(self, name: str, view: Any) -> None:
        self.name, self.view = name, view
        self.tensor = intake(view, what=f"{OP}: {name}")
        self.batch = self.tensor.shape[:-2]

    @property
    def mT(self) -> _Matrices:
        return _Matrices(self.name, self.view.swapaxes(-1, -2))

    def as_tall(self) -> Any:
        """The matrices one below the other, as a view; None where their rows do not follow on."""
        *lead, columns = self.tensor.shape
        if 0 not in lead and len(merge_axes(lead, [self.tensor.strides[:-1]])[0]) > 1:
            return None
        return self.view.reshape(math.prod(lead), columns)


def _product(mine: _Matrices, first: _Matrices, second: _Matrices) -> tuple[Any, Any]:
    """The operands whose product is the gradient of `mine`: ``first @ second``, summed over the batch that `mine` lacks."""
    whole = np.broadcast_shapes(first.batch, second.batch, mine.batch)

    def padded(batch: tuple[int, ...]) -> tuple[int, ...]:
        return (1,) * (len(whole) - len(batch)) + batch

    own = padded(mine.batch)
    if own == whole:
        return first.view, second.view
    summed = tuple(axis for axis, (n, all_of_it) in enumerate(zip(own, whole)) if n != all_of_it)
    fix = _by_hand(mine, summed)
    left, right = first.mT, second
    if math.prod(own) != 1 or padded(left.batch) != whole or padded(right.batch) != whole:
        raise UnsupportedError(f"{OP}: {mine.name} of batch {mine.batch} is broadcast to {whole}", fix)
    talls = left.as_tall(), right.as_tall()
    if any(tall is None for tall in talls):
        scattered = " and ".join(x.name for x, tall in zip((left, right), talls) if tall is None)
        raise UnsupportedError(
            f"{OP}: the batch {whole} shares {mine.name}, and in {scattered} the rows of its matrices do not follow on",
            f"contiguize {scattered} where that makes them, or {fix}",
        )
    return talls[0].swapaxes(-1, -2), talls[1]


def _by_hand(mine: _Matrices, axes: tuple[int, ...]) -> str:
    """What gives the same sum at the cost of memory."""
    product = "matmul(grad, b.swapaxes(-1, -2)" if mine.name == "a" else "matmul(a.swapaxes(-1, -2), grad"
    kind = "f64" if mine.tensor.element is ElementKind.F64 else "f32"
    return f"sum {product}, out_dtype={kind!r}) over the axes {axes}"
