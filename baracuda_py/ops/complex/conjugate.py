"""conj: the complex conjugate, by the sign bit of the imaginary part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...plan.registry import composed
from ...runtime.untraced import untraced
from ...tensor import GpuBuffer, Tensor, intake, overlaps, same_view
from ...tensor.dispatch import Symbol, answers_for, breaks_graph
from ...tensor.pytorch import dtype_of, is_tensor
from ...types import (
    ElementKind,
    InvalidProblemError,
    MisalignedOperandError,
    OperandTypeError,
    OverlapError,
    PlanPreference,
    UnsupportedError,
)
from ...types.errors import Renamed
from ..elementwise import binary
from ..elementwise.cast import cast
from ..shape_layout.contiguize import contiguize
from .parts import check_viewed, is_complex, is_jax, part
from .polar import check_resolved

__all__ = ["conj", "conjugated"]

U32, U64 = ElementKind.U32, ElementKind.U64
SIGN = {U32: 1 << 31, U64: 1 << 63}  # of a float whose bits are read as such an integer
_xor: Callable[..., Any] = vars(binary)["bitwise_xor"]  # made of a row: the module declares no such name


@composed("complex", "conjugate", "conjphysical")
@untraced
def conj(
    x: Any, /, *, out: Any = None, stream: Any = None, pref: PlanPreference | None = None, device: Any = None
) -> Any:
    """The complex conjugate of `x`, as numpy.conj: a new array, which differs from `x` in the signs of the imaginary parts.

    x: an array of complex64 or complex128 of NumPy, CuPy or PyTorch, of any shape and strides, or a GpuBuffer; a real array is
    copied. Nothing is computed but the sign bit, as IEEE 754 has it for a negation: those of zeros and NaN change, and a NaN's
    payload stays. complex64 at addresses of 8 bytes takes one launch; complex64 at others and complex128 take two, a copy and the
    signs. out: an array of x's shape and kind, x itself included; allocated in x's axis order if not given.
    The gradient is the conjugate of that of the result.
    Returns out. Raises OperandTypeError for a torch tensor that is lazily conjugated, OverlapError where out partly overlaps x,
    UnsupportedError for an array of JAX.
    """
    how = {"stream": stream, "pref": pref, "device": device}
    if isinstance(x, Symbol):  # while a function of elements is traced, which are real
        return x
    if not is_complex(x, "conj: x"):
        with Renamed("cast", "conj"):
            return cast(x, intake(x, what="conj: x").element, out=out, **how)
    if is_jax(x):
        raise UnsupportedError("conj: x: an array of JAX has no views", "use jax.numpy.conj")
    check_resolved(x, "conj: x")
    for name, array in (("x", x), ("out", out)):
        if array is not None:
            check_viewed(array, f"conj: {name}")
    answers = answers_for((x,) if out is None else (x, out))
    if answers is not None:
        return answers.load().conjugated(x, out, how)
    return conjugated(x, out, how)


breaks_graph(
    conj, "conj moves the bits of complex tensors, which no graph takes: torch.compile runs it between two graphs"
)


def conjugated(x: Any, out: Any, how: dict[str, Any]) -> Any:
    """The conjugate of a complex array that no framework has to see."""
    held = intake(x, what="conj: x")
    to = held if out is None else _checked(out, held)
    with Renamed("bitwise_xor", "conj", lambda text: text.replace("x1", "x")):
        if held.element is ElementKind.COMPLEX64 and not (held.pointer % 8 or to.pointer % 8):
            words = _xor(_view(x, U64), SIGN[U64], out=None if out is None else _view(out, U64), **how)
            return out if out is not None else _view(words, held.element)
        if out is None:
            return _by_two(x, held, how)
        return _into(x, out, held, to, how)


def _checked(out: Any, x: Tensor) -> Tensor:
    """The output that was passed, which is right in all that the parts of it do not show."""
    check_resolved(out, "conj: out")
    to, half = intake(out, what="conj: out"), x.element.bits // 16
    if to.element is not x.element:
        raise OperandTypeError(
            f"conj: out must hold {x.element}, as x does, got {to.element}", f"pass one of {x.element}"
        )
    if to.shape != x.shape:
        raise InvalidProblemError(f"conj: out must have shape {x.shape}, got {to.shape}", "pass an array of that shape")
    if to.pointer % half and 0 not in to.shape:
        raise MisalignedOperandError(
            f"conj: out is aligned to {to.align} bytes, expected {half}", f"pass out on a multiple of {half} bytes"
        )
    if overlaps(to, x) and not same_view(to, x):
        raise OverlapError("conj: out partly overlaps x", "pass x itself, or an array that shares no memory with it")
    return to


def _by_two(x: Any, held: Tensor, how: dict[str, Any]) -> Any:
    """A copy in x's axis order, whose signs are changed."""
    order = sorted(range(len(held.shape)), key=lambda axis: -abs(held.strides[axis]))
    if isinstance(x, GpuBuffer):
        order = sorted(order)
    elif is_tensor(x):
        x = x.permute(order)
    else:
        x = x.transpose(order)
    with Renamed("contiguize", "conj"):
        made = contiguize(x, **how)
    signs = _view(part(made, "conj: out", 1), _half(held))
    _xor(signs, SIGN[_half(held)], out=signs, **how)
    back = [order.index(axis) for axis in range(len(order))]
    return made if order == sorted(order) else made.permute(back) if is_tensor(made) else made.transpose(back)


def _into(x: Any, out: Any, held: Tensor, to: Tensor, how: dict[str, Any]) -> Any:
    """The real parts copied to those of out, and the imaginary parts with other signs."""
    words = _half(held)
    signs, onto = (_view(part(a, f"conj: {name}", 1), words) for a, name in ((x, "x"), (out, "out")))
    if not same_view(held, to):
        if how["pref"] is not None:  # what it refuses is refused before the copy
            vars(_xor)["plan"](signs, SIGN[words], out=onto, **how)
        of, real = (_view(part(a, f"conj: {name}", 0), words) for a, name in ((x, "x"), (out, "out")))
        with Renamed("cast", "conj"):
            cast(of, words, out=real, **how)
    _xor(signs, SIGN[words], out=onto, **how)
    return out


def _half(x: Tensor) -> ElementKind:
    return U32 if x.element is ElementKind.COMPLEX64 else U64


def _view(x: Any, kind: ElementKind) -> Any:
    """The same bytes as another kind of that width."""
    if isinstance(x, GpuBuffer):
        return GpuBuffer.view(x, kind)
    return x.view(dtype_of(kind) if is_tensor(x) else kind.dtype)
