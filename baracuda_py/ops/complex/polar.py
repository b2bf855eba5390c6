"""angle, and `abs` of complex arrays: atan2 and hypot of the parts."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from ...plan.registry import composed
from ...tensor.pytorch import is_tensor
from ...types import OperandTypeError, PlanPreference
from ...types.errors import Renamed
from ..elementwise import binary
from .parts import is_complex, is_jax, part

__all__ = ["angle", "check_resolved", "magnitude"]

_atan2: Callable[..., Any] = vars(binary)["atan2"]  # made of a row: the module declares no such name
_hypot: Callable[..., Any] = vars(binary)["hypot"]


@composed("complex", "argument", "phase")
def angle(
    x: Any, /, *, out: Any = None, stream: Any = None, pref: PlanPreference | None = None, device: Any = None
) -> Any:
    """The angle of `x` in the complex plane, from -pi to pi, as numpy.angle: ``atan2(imag(x), real(x))``, in one launch.

    x: an array of complex64 (the result is f32) or complex128 (f64), or a real array, whose angle is 0 or pi: ``atan2(0.0, x)``.
    Any shape and strides. The signs of zeros count, as in IEEE 754's atan2. The error is that of `atan2`.
    out: an array of x's shape and the result's type; allocated in x's axis order if not given.
    The gradient by a complex x is torch's: the derivative by the real part plus i times that by the imaginary part, 0 at 0.
    Returns out. Raises OperandTypeError for a dtype that is not taken, and for a torch tensor that is lazily conjugated.
    """
    how: dict[str, Any] = {"out": out, "stream": stream, "pref": pref, "device": device}
    if not is_complex(x, "angle: x"):
        with Renamed("atan2", "angle", partial(_reworded, x2="x")):
            return _atan2(0.0, x, **how)
    re_x, im_x = _parts(x, "angle")
    with Renamed("atan2", "angle", partial(_reworded, x1="bp.imag(x)", x2="bp.real(x)")):
        return _atan2(im_x, re_x, **how)


def magnitude(x: Any, /, **how: Any) -> Any:
    """`abs` of a complex array: ``hypot(real(x), imag(x))``, in one launch."""
    re_x, im_x = _parts(x, "abs")
    with Renamed("hypot", "abs", partial(_reworded, x1="bp.real(x)", x2="bp.imag(x)")):
        return _hypot(re_x, im_x, **how)


def check_resolved(x: Any, what: str) -> None:
    """Raises OperandTypeError for a torch tensor whose memory does not hold its values: a lazy conjugate or negative."""
    if not is_tensor(x) or sys.modules["torch"].compiler.is_dynamo_compiling():  # a traced op asks when it runs
        return
    if x.is_conj() or x.is_neg():
        lazy, fix = ("conjugated", "resolve_conj") if x.is_conj() else ("negated", "resolve_neg")
        raise OperandTypeError(
            f"{what}: the torch tensor is lazily {lazy}: its memory holds other values",
            f"pass {what.rpartition(' ')[2]}.{fix}()",
        )


def _parts(x: Any, op: str) -> tuple[Any, Any]:
    """The real and the imaginary part: views, but of an array of JAX."""
    check_resolved(x, f"{op}: x")
    return (x.real, x.imag) if is_jax(x) else (part(x, f"{op}: x", 0), part(x, f"{op}: x", 1))


def _reworded(text: str, **operands: str) -> str:
    """A text about the operands of an op, which are called otherwise here."""
    return re.sub(rf"\b({'|'.join(operands)})\b", lambda found: operands[found[1]], text)
