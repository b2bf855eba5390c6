"""real and imag: the parts of a complex array as views; of a real array itself, and zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plan.registry import composed
from ...runtime.gpu.driver import cupy
from ...tensor import GpuBuffer, intake
from ...tensor.dispatch import Symbol
from ...tensor.pytorch import is_tensor
from ...types import ElementKind, OperandTypeError, UnsupportedError
from ..creation.arrays import full

__all__ = ["HALF", "check_viewed", "imag", "is_complex", "is_jax", "part", "real"]

# The kind of the parts of a complex kind, which is stored as the real part and then the imaginary part.
HALF = {ElementKind.COMPLEX64: ElementKind.F32, ElementKind.COMPLEX128: ElementKind.F64}


@composed("complex", "realpart", "viewasreal")
def real(x: Any, /) -> Any:
    """The real part of `x`, as numpy.real: of a complex array a view that shares its memory and is writable where `x` is.

    x: an array of NumPy, CuPy or PyTorch, or a GpuBuffer, of any shape and strides. A real array is returned itself. PyTorch
    makes the view of its own tensors, so that autograd sees it. Nothing is copied or launched.
    Raises UnsupportedError for a complex array of JAX, whose arrays have no views.
    """
    return part(x, "real: x", 0) if is_complex(x, "real: x") else x


@composed("complex", "imaginary", "imaginarypart", "viewasreal")
def imag(x: Any, /) -> Any:
    """The imaginary part of `x`, as numpy.imag: of a complex array a view that shares its memory and is writable where `x` is.

    x: an array of NumPy, CuPy or PyTorch, or a GpuBuffer, of any shape and strides. Of a real array it is a new array of zeros of
    x's kind. PyTorch makes the view of its own tensors, so that autograd sees it; of a tensor that is lazily conjugated it is
    lazily negated, and `x.imag.resolve_neg()` is what kernels take.
    Raises UnsupportedError for an array of JAX, whose arrays have no views.
    """
    return part(x, "imag: x", 1) if is_complex(x, "imag: x") else _zeros(x)


def is_complex(x: Any, what: str) -> bool:
    """Whether an array is complex. Raises OperandTypeError for what is no array."""
    if is_tensor(x):
        return bool(x.is_complex())
    if isinstance(x, Symbol):  # stands for a value while a function of elements is traced
        return False
    return x.dtype.kind == "c" if is_jax(x) else intake(x, what=what).element in HALF


def is_jax(x: Any) -> bool:
    """Whether it is an array or a tracer of JAX."""
    return type(x).__module__.partition(".")[0] in ("jax", "jaxlib")


def part(x: Any, what: str, place: int) -> Any:
    """The view of the real parts (0) or the imaginary parts (1) of a complex array."""
    if is_jax(x):
        function = what.partition(":")[0]
        raise UnsupportedError(f"{what}: an array of JAX has no views", f"use jax.numpy in place of bp.{function}")
    if isinstance(x, GpuBuffer):
        return GpuBuffer(x, HALF[x.element], x.shape, tuple(2 * s for s in x.strides), place)
    check_viewed(x, what)
    return x.imag if place else x.real


def check_viewed(x: Any, what: str) -> None:
    """Raises OperandTypeError for an array that has no views as other kinds of elements."""
    if is_tensor(x) or isinstance(x, (GpuBuffer, np.ndarray)):
        return
    if not (type(x).__module__.partition(".")[0] == "cupy" and hasattr(x, "real")):
        raise OperandTypeError(
            f"{what}: a {type(x).__name__} cannot be viewed here", f"pass cupy.from_dlpack({what.split()[-1]})"
        )


def _zeros(x: Any) -> Any:
    if isinstance(x, Symbol):
        raise UnsupportedError("imag: x is real in a fused function", "write 0.0")
    if is_jax(x):
        raise UnsupportedError("imag: x: an array of JAX has no views", "use jax.numpy in place of bp.imag")
    if is_tensor(x):
        return x.new_zeros(x.shape)
    held = intake(x, what="imag: x")
    kind = held.element
    if kind.packed:
        raise OperandTypeError(f"imag: x: {kind} is not supported", "zeros of packed codes are bytes of 0")
    if held.on_host:
        zeros = np.zeros(held.shape, kind.dtype)
        return GpuBuffer.view(zeros, kind) if isinstance(x, GpuBuffer) else zeros
    with cupy().cuda.Device(held.ordinal):
        return full(held.shape, 0, kind)
