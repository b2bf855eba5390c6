"""What ops of every format take, checked, and hand on: options, the result's type, and operands that may be absent."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...plan.descriptor import Descriptor
from ...runtime.steps import Arg, Packed, Ptr
from ...types import ElementKind, InvalidProblemError, OperandTypeError
from ...types.errors import shown

__all__ = ["asked_element", "flag", "pointer"]


def flag(value: Any, what: str) -> bool:
    """A bool, NumPy's among them; InvalidProblemError for anything else."""
    if not isinstance(value, (bool, np.bool_)):
        raise InvalidProblemError(f"{what}={shown(value)} is neither True nor False", "give one of them")
    return bool(value)


def asked_element(op: str, out_dtype: Any, out: Any) -> ElementKind | None:
    """The result's kind, by `out_dtype` or by what `out` holds; OperandTypeError where they differ."""
    held = out.element if out is not None else None
    if out_dtype is None:
        return held
    wanted = ElementKind.of(out_dtype)
    if held not in (None, wanted):
        raise OperandTypeError(f"{op}: out holds {held} and out_dtype is {wanted}", "give one of them")
    return wanted


def pointer(desc: Descriptor, name: str) -> Arg:
    """An operand's address, null where the problem lacks it."""
    return Ptr(name) if name in desc.slot_of and desc.has(name) else Packed(bytes(8))
