"""Elements at other places by NumPy's functions, on unsigned integers of the elements' width: their bits come untouched; and the
gradients of their copies, by the places that the elements of an array of numbers go to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics.rounding import wide
from ...types import ElementKind

__all__ = [
    "BACKWARD_MEASURES",
    "PAD_MEASURES",
    "diag",
    "flip",
    "join",
    "of_copies",
    "pad",
    "repeat_interleave",
    "roll",
    "tile",
    "triangle",
]

Array: TypeAlias = np.ndarray[Any, Any]


def _bits(x: Array) -> Array:
    """The elements as unsigned integers; those of 16 bytes as complex numbers, whose bits NumPy moves untouched."""
    return x if x.dtype.itemsize == 16 else x.view(f"u{x.dtype.itemsize}")


def _like(moved: Array, x: Array) -> Array:
    return np.ascontiguousarray(moved).view(x.dtype).reshape(moved.shape)


def roll(desc: Any, x: Array) -> Array:
    """numpy.roll, back for the gradient's op."""
    sign = -1 if desc.name == "roll_backward" else 1
    shift = [sign * by for by in desc.shift]
    if desc.axis == ():
        return x.copy()
    return _like(np.roll(_bits(x), shift[0] if len(shift) == 1 else shift, desc.axis), x)


def flip(desc: Any, x: Array) -> Array:
    """numpy.flip."""
    return _like(np.flip(_bits(x), desc.axis), x)


def tile(desc: Any, x: Array) -> Array:
    """numpy.tile."""
    return _like(np.tile(_bits(x), desc.reps), x)


def repeat_interleave(desc: Any, x: Array) -> Array:
    """numpy.repeat."""
    return _like(np.repeat(_bits(x), desc.repeats, desc.axis), x)


def triangle(desc: Any, x: Array) -> Array:
    """numpy.triu and numpy.tril."""
    return _like((np.triu if desc.name == "triu" else np.tril)(_bits(x), desc.k), x)


def diag(desc: Any, x: Array) -> Array:
    """numpy.diag."""
    return _like(np.diag(_bits(x), desc.k), x)


def pad(desc: Any, x: Array) -> Array:
    """numpy.pad, which takes no negative widths: what they cut is cut first. Of the gradients that are sums, see below."""
    if desc.sums:
        return _added(desc, wide(x, desc.element))
    shape = desc.out_shape
    mode: Any = desc.continued or "constant"
    cut = x[tuple(slice(max(-a, 0), max(n - max(-b, 0), 0)) for n, (a, b) in zip(x.shape, desc.pairs))]
    widths = [(max(a, 0), max(b, 0)) for a, b in desc.pairs]
    if mode != "constant":
        return _like(np.pad(_bits(cut), widths, mode), x) if widths else cut.copy()
    out = np.empty(shape, x.dtype)
    out[...] = np.frombuffer(desc.constant, desc.element.dtype)[0]
    out[tuple(slice(a, a + n) for n, (a, _) in zip(cut.shape, widths))] = cut
    return out


def join(desc: Any, **pieces: Array) -> Array:
    """numpy.concatenate and numpy.stack."""
    of = (np.stack if desc.stacked else np.concatenate)([_bits(x) for x in pieces.values()], desc.axis)
    return _like(of, pieces["x0"])


# ---- gradients -----------------------------------------------------------------------------------------------------


def _shape(desc: Any) -> tuple[int, ...]:
    """Of the gradient's sums."""
    return tuple(desc.out_shape if hasattr(desc, "pad_width") else desc.shape)


def _places(desc: Any) -> Array:
    """For each element of the gradient, the place in x whose copy it is of."""
    places = np.arange(math.prod(_shape(desc))).reshape(_shape(desc))
    if hasattr(desc, "pad_width"):
        return np.pad(places, [(-a, -b) for a, b in desc.pairs], desc.continued) if places.ndim else places
    return np.tile(places, desc.reps) if hasattr(desc, "reps") else np.repeat(places, desc.repeats, desc.axis)


def _added(desc: Any, terms: Array) -> Array:
    """The terms of each element of x, added up."""
    made = np.zeros(math.prod(_shape(desc)), terms.dtype)
    with np.errstate(all="ignore"):
        np.add.at(made, _places(desc).reshape(-1), terms.reshape(-1))
    return made.reshape(_shape(desc))


def of_copies(desc: Any, grad: Array, x: Array) -> Array:  # noqa: ARG001
    """The sum of the gradient over the copies of each element, wide."""
    return _added(desc, wide(grad, desc.element))


def _abs_sum(desc: Any, grad: Array, x: Array | None = None) -> Array:  # noqa: ARG001
    return np.asarray(_added(desc, np.abs(wide(grad, desc.element))), np.float64)


def _overflowing(desc: Any, grad: Array, x: Array | None = None) -> Array:  # noqa: ARG001
    """Whether the magnitudes of finite terms add up beyond what is computed in."""
    terms = np.abs(wide(grad, desc.element))
    most = np.longdouble(2) ** (124 if desc.element is not ElementKind.F64 else 1020)
    return np.isfinite(_added(desc, terms)) & (_added(desc, terms) > most)


BACKWARD_MEASURES: dict[str, Callable[..., Array]] = {"abs_sum": _abs_sum, "overflowing": _overflowing}
PAD_MEASURES: dict[str, Callable[..., Array]] = {  # of pad's gradient, whose operand is named x
    "abs_sum": lambda desc, x: _abs_sum(desc, x),
    "overflowing": lambda desc, x: _overflowing(desc, x),
}
