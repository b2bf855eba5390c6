"""lexsort: the order of elements by several keys, by a stable sort for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....plan.registry import composed
from ....runtime.untraced import untraced
from ....tensor import intake
from ....tensor.dispatch import breaks_graph
from ....types import InvalidProblemError, PlanPreference
from ....types.elements import ElementLike
from ...indexing.take_along_axis import take_along_axis
from .sort import argsort

__all__ = ["lexsort"]


@composed()
@untraced
def lexsort(
    keys: Sequence[Any], axis: int = -1, *, index_dtype: ElementLike = "i64", stream: Any = None,
    pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """The places of elements in order of several keys along `axis`, the last key first, as numpy.lexsort.

    Where the last key is equal the one before it decides, and so on.
    keys: arrays of one shape, or one array of them along its first axis; each of a kind that `argsort` takes, in whose order NaN
    is the last. index_dtype: int64, or int32. Elements equal in every key keep their order. Nothing waits for the device. Raises
    InvalidProblemError for no keys, for keys of several shapes, and for an axis out of range.
    """
    each, how = list(keys), {"stream": stream, "pref": pref, "device": device}
    shapes = list(dict.fromkeys(intake(key, what="lexsort: keys").shape for key in each))
    if len(shapes) != 1:
        got = f"keys have shapes {', '.join(map(str, shapes))}" if shapes else "there are no keys"
        raise InvalidProblemError(f"lexsort: {got}", "pass one array or more, all of one shape")
    order = argsort(each[0], axis, index_dtype=index_dtype, **how)
    for key in each[1:]:
        moved = take_along_axis(key, order, axis, mode="clip", **how)
        order = take_along_axis(order, argsort(moved, axis, index_dtype=index_dtype, **how), axis, mode="clip", **how)
    return order


breaks_graph(lexsort, "lexsort calls several kernels of baracuda_py: call it outside of the compiled function")
