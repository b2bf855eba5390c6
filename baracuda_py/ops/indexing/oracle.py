"""Elements by index, on bytes: NaN payloads come through untouched. Sums by index in float64 (long double for f64)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ...numerics.rounding import wide

__all__ = [
    "MEASURES",
    "add_lines",
    "add_places",
    "along_axis",
    "nonzero",
    "scatter_backward",
    "scatter_lines",
    "scatter_places",
    "select",
    "set_lines_backward",
    "take_along_axis",
]

Array: TypeAlias = np.ndarray[Any, Any]


def _found(desc: Any, indices: Array) -> tuple[Array, Array]:
    """Indices along the axis by the mode, and which of them are in range."""
    given, extent = indices.astype(np.int64), desc.extent
    if desc.mode == "clip":
        found = np.clip(given, 0, max(extent - 1, 0))
    elif desc.mode == "wrap":
        found = given % max(extent, 1)
    else:
        found = np.where(given < 0, given + extent, given) if desc.from_the_end else given
    return found, (found >= 0) & (found < extent)


def take_along_axis(desc: Any, x: Array, indices: Array) -> Any:
    """The elements taken; with mode "status" also the status, and zero bytes where an index is out of range."""
    axis, extent = desc.along, desc.extent
    found, fits = _found(desc, indices)
    shape = desc.out_shape
    taken = np.zeros(shape, x.dtype)
    if extent and taken.size:
        whole = np.broadcast_to(x, (*shape[:axis], extent, *shape[axis + 1 :]))
        kept = np.broadcast_to(fits, shape)
        taken[kept] = along_axis(whole, np.broadcast_to(np.where(fits, found, 0), shape), axis)[kept]
    return _with_status(desc, taken, np.broadcast_to(fits, shape), taken)


def along_axis(x: Array, indices: Array, axis: int) -> Array:
    """`numpy.take_along_axis` of arrays of any rank: NumPy's own takes 63 axes. The arrays agree on every other axis."""
    at = np.moveaxis(indices, axis, -1)
    rows = np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis])
    found: Array = np.take_along_axis(rows, at.reshape(-1, at.shape[-1]), axis=1)
    return np.moveaxis(found.reshape(at.shape), -1, axis)


def nonzero(_desc: Any, x: Array) -> tuple[Array, Array]:
    """The indices of elements other than zero, in C order, a row each, and how many there are."""
    with np.errstate(invalid="ignore"):
        rows = np.argwhere(x != 0)
    return rows.astype(np.int64).reshape(-1, x.ndim), np.asarray([len(rows)], dtype=np.int64)


def select(desc: Any, **arrays: Array) -> Any:
    """The lines that the indices name, zero bytes where one is out of range, and the status where there is one."""
    x, axis = arrays[desc.lines], desc.along
    found, fits = _found(desc, arrays[desc.index])
    picked = np.zeros((*found.shape, *x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)
    if desc.extent and fits.any():
        picked[fits] = np.moveaxis(x, axis, 0)[found[fits]]
    out = np.moveaxis(picked, range(found.ndim), range(axis, axis + found.ndim)) if axis else picked
    return _with_status(desc, out, fits, fits)


def add_lines(desc: Any, **arrays: Array) -> Array:
    """The sums of the lines that name each line of the result, wide; those of `padding_idx` are left out."""
    source = wide(arrays[desc.source], desc.element)
    return _lines_into(desc, np.zeros(desc.lines_shape, source.dtype), source, arrays[desc.index])[0]


def scatter_lines(desc: Any, x: Array, index: Array, src: Array) -> Any:
    """x with lines of src reduced into it, wide where it is summed, and the status where there is one."""
    return _with_status(desc, *_lines_into(desc, *_computed(desc, x, src), index), index)


def _lines_into(desc: Any, base: Array, source: Array, index: Array) -> tuple[Array, Array]:
    """`base`, reduced in place with the lines of `source`, and which indices are in range."""
    axis = desc.along
    found, fits = _found(desc, index)
    kept = fits
    if getattr(desc, "padding_idx", None) is not None:
        kept = fits & (found != desc.padding_idx % desc.extent)
    rows = np.moveaxis(source, range(axis, axis + found.ndim), range(found.ndim))
    _reduce(desc.reduce, np.moveaxis(base, axis, 0), found[kept], rows[kept])
    return base, fits


def add_places(desc: Any, grad: Array, indices: Array, **_: Array) -> Array:
    """The sums of the elements that were taken from each place, wide."""
    source, axis = wide(grad, desc.element), desc.along
    found, fits = _found(desc, indices)
    shared = [
        a if a == axis or n != 1 else -1 for a, n in enumerate(desc.x_shape)
    ]  # axes that x was not broadcast along
    at: list[Array] = [np.indices(grad.shape, sparse=True)[a] if a >= 0 else np.zeros((), np.int64) for a in shared]
    at[axis] = found
    return _places_into(desc, np.zeros(desc.x_shape, source.dtype), source, at, fits)


def scatter_places(desc: Any, x: Array, indices: Array, src: Array) -> Any:
    """x with elements of src reduced into it, wide where it is summed, and the status where there is one."""
    at, fits = _places(desc, indices, src.shape)
    base, source = _computed(desc, x, src)
    return _with_status(desc, _places_into(desc, base, source, at, fits), fits, src)


def _places(desc: Any, indices: Array, shape: tuple[int, ...]) -> tuple[list[Array], Array]:
    """Where each element goes, by axes, and which indices are in range."""
    found, fits = _found(desc, indices)
    at: list[Array] = list(np.indices(shape, sparse=True))
    at[desc.along] = found
    return at, fits


def _places_into(desc: Any, base: Array, source: Array, at: list[Array], fits: Array) -> Array:
    """`base`, reduced in place with the elements of `source`."""
    kept = np.broadcast_to(fits, source.shape)
    _reduce(desc.reduce, base, tuple(np.broadcast_to(a, source.shape)[kept] for a in at), source[kept])
    return base


def set_lines_backward(desc: Any, grad: Array, index: Array) -> tuple[Array, Array]:
    """grad without the lines that an index names, and of each index the line that it names, if no later index names it."""
    axis = desc.along
    found, fits = _found(desc, index)
    lines = np.moveaxis(grad, axis, 0)
    wins, rest = _winners(found, fits, lines.shape[:1]), lines.copy()
    sent = np.zeros((*found.shape, *lines.shape[1:]), grad.dtype)
    sent[wins], rest[found[fits]] = lines[found[wins]], 0
    return np.moveaxis(rest, 0, axis), np.moveaxis(sent, range(found.ndim), range(axis, axis + found.ndim))


def scatter_backward(desc: Any, grad: Array, indices: Array, **given: Array) -> tuple[Array, Array]:
    """The gradients of x and src, by the reduction."""
    if desc.reduce in ("set", "add"):
        return _set_places_backward(desc, grad, indices)
    named: dict[str, Callable[..., tuple[Array, Array]]] = {"mean": _parts_of_mean, "prod": _parts_of_product}
    parts = named.get(desc.reduce, _parts_of_extremum)
    at, fits = _places(desc, indices, indices.shape)
    at = [np.broadcast_to(a, indices.shape)[fits] for a in at]
    wides = {name: wide(x, desc.element) for name, x in given.items() if name in desc.read}
    with np.errstate(all="ignore"):
        own, sent = parts(wide(grad, desc.element), tuple(at), fits, **wides)
    made = np.zeros(indices.shape, own.dtype)
    made[fits] = sent
    return own, made


def _parts_of_mean(grad: Array, at: tuple[Array, ...], fits: Array) -> tuple[Array, Array]:  # noqa: ARG001
    terms = np.ones(grad.shape)
    np.add.at(terms, at, 1)
    return grad / terms, grad[at] / terms[at]


def _parts_of_extremum(
    grad: Array, at: tuple[Array, ...], fits: Array, x: Array, src: Array, y: Array
) -> tuple[Array, Array]:
    """Shared by the elements that are y, or NaN."""
    own, sent = (x == y) | np.isnan(x), (src[fits] == y[at]) | np.isnan(src[fits])
    ties = own.astype(grad.dtype)
    np.add.at(ties, at, sent)
    return np.where(own, grad / ties, 0), np.where(sent, grad[at] / ties[at], 0)


def _parts_of_product(
    grad: Array, at: tuple[Array, ...], fits: Array, x: Array, src: Array, y: Array
) -> tuple[Array, Array]:
    """By the product of the elements of a place that are not 0, and how many are."""
    product, zeros, terms = np.where(x == 0, 1, x), (x == 0).astype(int), src[fits]
    np.multiply.at(product, at, np.where(terms == 0, 1, terms))
    np.add.at(zeros, at, terms == 0)

    def part(grad: Array, x: Array, product: Array, zeros: Array, y: Array) -> Array:
        others = np.where(x == 0, product, product / np.where(x == 0, 1, x))
        return np.asarray(grad * np.where(zeros == (x == 0), others, y))

    return part(grad, x, product, zeros, y), part(grad[at], terms, product[at], zeros[at], y[at])


def _set_places_backward(desc: Any, grad: Array, indices: Array) -> tuple[Array, Array]:
    """grad without the places that an index names, and of each index the element at its place, if no later index names that.
    Where elements were added: grad itself, and the element of every index."""
    found, fits = _found(desc, indices)
    at: list[Array] = list(np.indices(indices.shape))
    at[desc.along] = np.where(fits, found, 0)
    rest, sent = grad.copy(), np.zeros(indices.shape, grad.dtype)
    if not desc.extent:
        return rest, sent
    summed = desc.reduce == "add"
    wins = fits if summed else _winners(np.ravel_multi_index(tuple(at), grad.shape), fits, (grad.size,))
    sent[wins] = grad[tuple(a[wins] for a in at)]
    if not summed:
        rest[tuple(a[fits] for a in at)] = 0
    return rest, sent


def _winners(places: Array, fits: Array, shape: tuple[int, ...]) -> Array:
    """Which indices are in range and the last ones, in C order, of their place among `shape`."""
    last, positions = np.full(shape, -1), np.arange(places.size).reshape(places.shape)
    last[places[fits]] = positions[fits]
    wins = np.zeros(places.shape, bool)
    wins[fits] = last[places[fits]] == positions[fits]
    return wins


def _reduce(by: str, base: Array, at: Any, source: Array) -> None:
    """Reduces into base[at], in order; the last of equal indices stands where it sets."""
    if by == "set":
        base[at] = source
        return
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        ufuncs = {"add": np.add, "mean": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
        ufuncs[by].at(base, at, source)
        if by == "mean":
            terms = np.ones(base.shape)
            np.add.at(terms, at, np.ones(source.shape))
            base /= terms


def _computed(desc: Any, x: Array, src: Array) -> tuple[Array, Array]:
    """A copy of x, and src, in the type that reduces them."""
    whole = desc.reduce == "set" or desc.element.is_integer
    return (x.copy(), src) if whole else (wide(x, desc.element).copy(), wide(src, desc.element))


def _with_status(desc: Any, out: Array, fits: Array, src: Array) -> Any:
    return (out, np.asarray(0 if fits.all() or not src.size else 1, np.int32)) if desc.has("status") else out


def _abs_sums(desc: Any, **arrays: Array) -> Array:
    """The sums of the magnitudes that are added to each element."""
    sizes = {name: np.abs(x) if name in (desc.source, desc.base) else x for name, x in arrays.items()}
    if desc.base:
        made = scatter_places(desc, **sizes) if desc.op == "scatter" else scatter_lines(desc, **sizes)
        return np.asarray(made[0] if desc.has("status") else made, np.longdouble)
    made = add_places(desc, **sizes) if desc.op == "take_along_axis_backward" else add_lines(desc, **sizes)
    return np.asarray(made, np.longdouble)


def _product(desc: Any, x: Array, indices: Array, src: Array) -> Array:
    """The magnitude of each product; infinite where a part of it may be beyond what is computed in, or below what is normal."""
    made = _magnitudes(desc, "prod", np.abs, x, indices, src)
    return np.asarray(np.where(_beyond(desc, x, indices, src), np.inf, made), np.longdouble)


def _magnitudes(desc: Any, by: str, of: Callable[[Array], Array], x: Array, indices: Array, src: Array) -> Array:
    """Those of x's elements reduced with those of src."""
    asked = replace(desc, reduce=by, mode="drop" if desc.mode == "status" else desc.mode)
    at, fits = _places(asked, indices, src.shape)
    return _places_into(asked, of(wide(x, desc.element)).copy(), of(wide(src, desc.element)), at, fits)


def _beyond(desc: Any, x: Array, indices: Array, src: Array) -> Array:
    """Whether a part of a place's product may be beyond what is computed in, or below what is normal."""
    exponent = 1020 if x.dtype == np.float64 else 124

    def logs(sign: int) -> Array:
        def of(a: Array) -> Array:
            sized = np.isfinite(a) & (a != 0)
            return np.where(sized, np.maximum(sign * np.log2(np.where(sized, np.abs(a), 1)), 0), 0)

        return _magnitudes(desc, "add", of, x, indices, src)

    return np.asarray(np.maximum(logs(1), logs(-1)) > exponent)


def _product_grad_x(desc: Any, grad: Array, indices: Array, x: Array, src: Array, y: Array) -> Array:
    """The magnitude of x's gradient; infinite where a part of the product may be beyond what is computed in."""
    own, _ = scatter_backward(desc, grad, indices, x=x, src=src, y=y)
    return np.asarray(np.where(_beyond(desc, x, indices, src), np.inf, np.abs(own)), np.longdouble)


def _product_grad_src(desc: Any, grad: Array, indices: Array, x: Array, src: Array, y: Array) -> Array:
    """The same of src's."""
    _, sent = scatter_backward(desc, grad, indices, x=x, src=src, y=y)
    at, fits = _places(desc, indices, src.shape)
    beyond = np.zeros(src.shape, bool)
    beyond[fits] = _beyond(desc, x, indices, src)[tuple(np.broadcast_to(a, src.shape)[fits] for a in at)]
    return np.asarray(np.where(beyond, np.inf, np.abs(sent)), np.longdouble)


MEASURES: dict[str, Callable[..., Any]] = {
    "abs_sums": _abs_sums, "product": _product, "product_grad_x": _product_grad_x, "product_grad_src": _product_grad_src,
}  # fmt: skip
