"""Which elements are among others, by the set of their values."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["isin"]

Array: TypeAlias = np.ndarray[Any, Any]


def isin(desc: Any, elements: Array, test_elements: Array) -> Array:
    """Whether each element has the value of one that is tested; NaN has none."""
    given, tested = (
        x.astype(np.float64) if desc.element.is_float else x for x in (elements, test_elements.reshape(-1))
    )
    known = set(tested[tested == tested].tolist())
    found = np.fromiter((x in known for x in given.reshape(-1).tolist()), bool, given.size).reshape(given.shape)
    return np.asarray(found != desc.invert)
