"""histogramdd: how many points there are in each cell of a grid of several axes."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ....call.operands.key import detect_frameworks
from ....call.operands.stream import framework_stream
from ....plan.fields import flag
from ....plan.registry import composed, get_op
from ....runtime.gpu.driver import require_cupy
from ....runtime.gpu.streams import current_stream, is_capturing, made_current, on_stream, stream_pointer
from ....runtime.scope import is_recording
from ....runtime.untraced import untraced
from ....tensor import Tensor, intake
from ....tensor.pytorch import is_tensor
from ....types import ElementKind, InvalidProblemError, OperandTypeError, PlanPreference, UnsupportedError
from ..topk import KEYS
from ._bins import COUNTABLE

__all__ = ["Histogramdd", "histogramdd"]

OP = "histogramdd"
FRAMEWORKS = ("numpy", "cupy", "torch")
F64 = ElementKind.F64

Array = np.ndarray[Any, Any]


class Histogramdd(NamedTuple):
    """What `histogramdd` returns."""

    hist: Any
    edges: list[Any]


@composed("histogram2d")
@untraced
def histogramdd(
    sample: Any, bins: Any = 10, range: Any = None, density: bool = False, weights: Any = None, *, stream: Any = None,
    pref: PlanPreference | None = None, device: Any = None,
) -> Histogramdd:  # fmt: skip
    """How many points there are in each cell of a grid, as numpy.histogramdd: f64 [bins of each axis].

    sample: points [N, D], or D arrays [N] of their coordinates, or one array [N] for D = 1 (NumPy, CuPy or PyTorch): f16, bf16,
    f32, f64 or integers, taken as f64. bins: how many intervals of equal width each axis has, one number or D of them; in the
    place of a number may be the edges of an axis, two numbers or more on the host that never fall. range: D pairs (low, high),
    with None for an axis whose coordinates decide; for axes with edges it has no meaning. Where coordinates decide, the call
    waits for the device. Edges are those of numpy.histogramdd of the sample in f64: linspace(low, high, bins + 1), and half a
    unit to each side where low == high.
    A point belongs to the cell whose lower edges are at most its coordinates, and whose upper edges are above them; the last
    interval of an axis has its upper edge too. Points outside of the grid are left out, as those with a NaN are.
    weights: [N], what each point counts, taken as f64 and added in a fixed order (`index_add`). Without them counts are exact.
    density: each cell over the sum of all and its own volume, so that the integral is 1.
    Returns (hist, edges): edges a list of D arrays in f64, on the device of the sample. Raises InvalidProblemError for shapes
    that do not fit, bins that are no positive integers, edges that fall, ranges that are not finite or fall, and coordinates
    that are not finite where these decide; UnsupportedError in a recording and a capture, for edges are copied from the host.
    """
    columns, given = _columns(sample)
    shared = flag(density, f"{OP}: density")
    weighed = None if weights is None else _weights(weights, given[0])
    asked = _each(bins, len(columns), "bins")
    ranges = [None] * len(columns) if range is None else _each(range, len(columns), "range")
    how = {"pref": pref, "device": device}
    with _on(stream, columns[0], given[0]):
        wide = [get_op("cast").function(x, F64, **how) for x in columns]
        edges = [_edges(*one, axis, how) for axis, one in enumerate(zip(asked, ranges, wide))]
        cells = math.prod(len(each) + 1 for each in edges)
        if cells > COUNTABLE:
            raise InvalidProblemError(
                f"{OP}: {cells} cells, with those of points outside", f"give fewer bins: up to {COUNTABLE} cells"
            )
        hist = _counted(wide, edges, weighed, how)
        if shared:
            hist = _density(hist, edges, columns[0], given[0], how)
        return Histogramdd(hist, [_beside(each, columns[0], given[0]) for each in edges])


def _counted(wide: list[Any], edges: list[Array], weights: Any, how: dict[str, Any]) -> Any:
    """Counts, or sums of weights, of all cells. An axis has two more, of points below and above, which are cut off at the end."""
    multiply, add, cast, search = (get_op(n).function for n in ("multiply", "add", "cast", "searchsorted"))
    extents = tuple(len(each) + 1 for each in edges)
    index = None
    for x, each, extent in zip(wide, edges, extents):
        place = search(_beside(_closed(each), x, intake(x, what=OP)), x, right=True, **how)
        index = place if index is None else add(multiply(index, extent, **how), place, **how)
    cells = get_op("bincount").function(index, math.prod(extents), **how)
    if weights is not None:
        none = multiply(cast(cells, F64, **how), 0.0, **how)
        cells = get_op("index_add").function(none, index, cast(weights, F64, **how), **how)
    inner = cells.reshape(extents)[(slice(1, -1),) * len(extents)]
    return cast(inner, F64, **how)


def _closed(edges: Array) -> Array:
    """The edges with the last one moved up by the least amount, so that what equals it is below; NaN above infinity."""
    last = np.nextafter(edges[-1], np.inf) if edges[-1] < np.inf else np.nan
    return np.append(edges[:-1], last)


def _density(hist: Any, edges: list[Array], x: Any, given: Tensor, how: dict[str, Any]) -> Any:
    divide, total = get_op("divide").function, get_op("sum").function(hist, **how)
    for axis, each in enumerate(edges):
        shape = [1] * len(edges)
        shape[axis] = -1
        hist = divide(hist, _beside(np.diff(each).reshape(shape), x, given), **how)
    return divide(hist, total, **how)


# ---- arguments ------------------------------------------------------------------------------------------------------


def _columns(sample: Any) -> tuple[list[Any], list[Tensor]]:
    """The coordinates along each axis: arrays of one length, and the same as tensors."""
    detect_frameworks()
    if hasattr(sample, "shape"):
        x = sample.detach() if hasattr(sample, "detach") else sample
        if len(x.shape) not in (1, 2):
            raise InvalidProblemError(f"{OP}: sample has shape {tuple(x.shape)}", "pass points as [N, D]")
        columns = [x] if len(x.shape) == 1 else [x[:, i] for i in np.arange(x.shape[1]).tolist()]
    elif isinstance(sample, str) or not isinstance(sample, Iterable):
        raise OperandTypeError(f"{OP}: sample is a {type(sample).__name__}", "pass points as [N, D], or D arrays [N]")
    else:
        columns = [x.detach() if hasattr(x, "detach") else x for x in sample]
    if not columns:
        raise InvalidProblemError(f"{OP}: sample has no coordinates", "pass points as [N, D], or D arrays [N]")
    given = [intake(x, what=f"{OP}: sample") for x in columns]
    for one in given:
        if one.framework not in FRAMEWORKS:
            raise OperandTypeError(
                f"{OP}: sample is an array of {one.framework}", "pass cupy.from_dlpack(sample), or a torch tensor"
            )
        if one.element not in KEYS:
            raise OperandTypeError(f"{OP}: sample must hold floats or integers, got {one.element}", "cast it")
        if len(one.shape) != 1 or one.shape != given[0].shape:
            raise InvalidProblemError(
                f"{OP}: coordinates have shapes {given[0].shape} and {one.shape}", "pass D arrays [N] of one length"
            )
    return columns, given


def _weights(weights: Any, of: Tensor) -> Any:
    x = weights.detach() if hasattr(weights, "detach") else weights
    given = intake(x, what=f"{OP}: weights")
    if given.shape != of.shape:
        raise InvalidProblemError(f"{OP}: weights have shape {given.shape}", f"pass {of.shape}, one for each point")
    if given.element not in KEYS:
        raise OperandTypeError(f"{OP}: weights must hold floats or integers, got {given.element}", "cast them")
    return x


def _each(given: Any, count: int, name: str) -> list[Any]:
    """An entry for each axis."""
    if name == "bins" and _is_scalar(given):
        return [given] * count
    entries = list(given) if not isinstance(given, str) and hasattr(given, "__len__") else []
    if len(entries) != count:
        raise InvalidProblemError(
            f"{OP}: {name}={given!r}, and points have {count} coordinates", f"give {count}, one for each coordinate"
        )
    return entries


def _is_scalar(x: Any) -> bool:
    return not hasattr(x, "__len__") or getattr(x, "shape", None) == ()


def _edges(asked: Any, ends: Any, x: Any, axis: int, how: dict[str, Any]) -> Array:
    """The edges of an axis: as given, or of so many intervals of equal width."""
    if _is_scalar(asked):
        if isinstance(asked, (bool, np.bool_)) or not isinstance(asked, (int, np.integer)) or asked < 1:
            raise InvalidProblemError(f"{OP}: bins[{axis}]={asked!r}", "give 1 or more, or the edges of intervals")
        low, high = _ends(ends, x, axis, how)
        return np.linspace(low, high, int(asked) + 1)
    if hasattr(asked, "shape") and not intake(asked, what=f"{OP}: bins[{axis}]").on_host:
        raise OperandTypeError(f"{OP}: bins[{axis}] is in device memory", "pass edges of the host, such as edges.get()")
    try:
        edges = np.asarray(asked, np.float64)
    except (TypeError, ValueError):
        raise InvalidProblemError(
            f"{OP}: bins[{axis}]={asked!r}", "give 1 or more, or the edges of intervals"
        ) from None
    if edges.ndim != 1 or edges.size < 2 or not all(low <= high for low, high in pairwise(edges.tolist())):
        raise InvalidProblemError(
            f"{OP}: bins[{axis}] are no edges of intervals", "give two numbers or more, none below the one before it"
        )
    return edges


def _ends(ends: Any, x: Any, axis: int, how: dict[str, Any]) -> tuple[float, float]:
    """The ends of an axis: as given, or the least and the greatest coordinate."""
    if ends is not None:
        try:
            low, high = map(float, ends)
        except (TypeError, ValueError):
            raise InvalidProblemError(f"{OP}: range[{axis}]={ends!r}", "give a pair (low, high), or None") from None
    elif x.shape[0]:
        low, high = (float(get_op(name).function(x, **how)) for name in ("min", "max"))
    else:
        low, high = 0.0, 1.0
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        of = f"range[{axis}]" if ends is not None else f"coordinates {axis}"
        raise InvalidProblemError(f"{OP}: {of} from {low} to {high}", "give a finite range that does not fall")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


# ---- places ---------------------------------------------------------------------------------------------------------


def _beside(numbers: Array, x: Any, of: Tensor) -> Any:
    """The numbers in memory of the framework and on the device of `x`."""
    if is_tensor(x):
        return sys.modules["torch"].from_numpy(numbers).to(x.device)
    if of.on_host:
        return numbers
    cupy = require_cupy(OP)
    with cupy.cuda.Device(of.ordinal):
        return cupy.asarray(numbers)


def _on(stream: Any, x: Any, of: Tensor) -> AbstractContextManager[Any]:
    """A context in which `stream` is the current one of the sample's framework. Raises where nothing is copied from the host."""
    if is_recording():
        raise UnsupportedError(
            f"{OP}: a recording replays launches, and copies nothing from the host", "call it outside"
        )
    if of.on_host:
        return nullcontext()
    handle = framework_stream(x) if stream is None else stream_pointer(stream)
    if is_capturing(current_stream() if handle is None else handle):
        raise UnsupportedError(f"{OP}: a graph is being captured, and edges are copied from the host", "call it before")
    if stream is None or handle is None:
        return nullcontext()
    return on_stream(handle, of.ordinal) if is_tensor(x) else made_current(handle)
