"""alpha and beta, the weights of a product and of what is added to it: which numbers they may be."""

from __future__ import annotations

from math import inf

from ....types import ElementKind, InvalidProblemError

__all__ = ["beyond_f32", "check_beta", "check_range"]

_F32_INFINITE = (2 - 2.0**-24) * 2.0**127  # numbers from here on are nearer to 2**128 than to the largest f32


def beyond_f32(value: float) -> bool:
    """Whether a finite number is infinite as f32."""
    return _F32_INFINITE <= abs(value) < inf


def check_beta(op: str, beta: float, *, has_c: bool) -> None:
    """Raises InvalidProblemError for a beta other than 0 and 1 without a c."""
    if not has_c and beta not in (0.0, 1.0):
        raise InvalidProblemError(f"{op}: beta={beta:g} scales c, and there is no c", "pass c, or leave beta out")


def check_range(op: str, weights: dict[str, float], element: ElementKind) -> None:
    """Raises InvalidProblemError for a finite number that is infinite as f32, where sums are f32."""
    for name, value in weights.items():
        if element is not ElementKind.F64 and beyond_f32(value):
            raise InvalidProblemError(
                f"{op}: {name}={value:g} is beyond f32, in which it is multiplied", "scale an operand instead"
            )
