"""isin: which elements are among others, by sort and binary search."""

from __future__ import annotations

import math
from typing import Any

from ...plan.fields import flag
from ...plan.registry import get_op
from ...tensor import intake
from ...types import OperandTypeError, PlanPreference
from ..indexing.select import index_select
from .searchsorted import searchsorted
from .whole.sort import sort

__all__ = ["isin"]


def isin(
    elements: Any, test_elements: Any, *, invert: bool = False, stream: Any = None, pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:  # fmt: skip
    """Whether each of `elements` is equal to one of `test_elements`, as numpy.isin and torch.isin: bools of elements' shape.

    elements, test_elements: arrays of one kind (f16, bf16, f32, f64 or integers), of any shapes; the latter are sorted, then
    each element is searched for. A NaN is equal to nothing, -0.0 equals 0.0, and nothing is among none. invert: whether each is
    not. Nothing waits for the device. Raises OperandTypeError where the kinds differ.
    """
    how: dict[str, Any] = {"stream": stream, "pref": pref, "device": device}
    invert = flag(invert, "isin: invert")
    given, tested = intake(elements, what="isin: elements"), intake(test_elements, what="isin: test_elements")
    if given.element is not tested.element:
        raise OperandTypeError(
            f"isin: elements hold {given.element} and test_elements {tested.element}", "cast one of them"
        )
    if math.prod(tested.shape):
        ordered = sort(test_elements.reshape(-1), **how).values
        nearest = index_select(ordered, searchsorted(ordered, elements, **how), mode="clip", **how)
        found = get_op("equal").function(elements, nearest, **how)
    else:
        found = get_op("less").function(elements, elements, **how)
    return get_op("logical_not").function(found, **how) if invert else found
