"""Reductions and their gradients by other means: NumPy's own ufuncs in float64, and SciPy. No oracle code."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from ...gauntlet import Problem
from ..answers import given_of, near

__all__ = ["CHECKS"]

Array = np.ndarray[Any, Any]


def _reduced(of: Callable[..., Any], digits: float = 40.0) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        options = problem.sample.options
        x, axis, keepdims = given_of(problem)["x"], options.get("axis"), bool(options.get("keepdims", False))
        more = {"ddof": options["correction"]} if "correction" in options else {}
        more |= {"p": options["p"]} if "p" in options else {}
        if x.size == 0 and problem.op.name in ("var", "std", "logsumexp"):
            return
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of nothing
            wanted = np.asarray(of(x, axis=axis, keepdims=keepdims, **more))
            if x.dtype.kind in "iu" or wanted.dtype.kind in "bi":
                assert np.array_equal(problem.wide["out"], wanted)
                return
            added = problem.op.name in ("sum", "mean", "nansum", "nanmean")
            size = np.nansum(np.abs(x), axis=axis, keepdims=keepdims) if added else None
            if problem.op.name in ("var", "std"):
                size = (x * x).sum(axis=axis, keepdims=keepdims)
                if (np.abs(x[np.isfinite(x)]) > 1e100).any():
                    return  # NumPy's squares overflow
                size = np.sqrt(size) if problem.op.name == "std" else size
            near(problem, "out", wanted, digits, size)

    return check


def _pair(**of: Callable[..., Any]) -> Callable[[Problem], None]:
    """Each output by its own function, in rows of NumPy's."""

    def check(problem: Problem) -> None:
        options = problem.sample.options
        x, axis, keepdims = given_of(problem)["x"], options.get("axis"), bool(options.get("keepdims", False))
        for output, function in of.items():
            if x.dtype.kind in "iu":
                assert np.array_equal(problem.wide[output], function(x, axis=axis, keepdims=keepdims))
                continue
            if x.size == 0 or (output == "var" and (np.abs(x[np.isfinite(x)]) > 1e100).any()):
                continue  # NumPy's squares overflow
            more = {"ddof": options.get("correction", 0)} if output == "var" else {}
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                wanted = np.asarray(function(x, axis=axis, keepdims=keepdims, **more))
                size = {"var": x * x, "mean": np.abs(x)}.get(output, np.zeros_like(x))
                near(problem, output, wanted, 40.0, size.sum(axis=axis, keepdims=keepdims))

    return check


def _argmax(x: Array, *, axis: int | None, keepdims: bool) -> Array:
    return np.asarray(np.argmax(x, axis=axis, keepdims=keepdims))  # the first NaN where there is one


def _argmin(x: Array, *, axis: int | None, keepdims: bool) -> Array:
    return np.asarray(np.argmin(x, axis=axis, keepdims=keepdims))  # the first NaN where there is one


def _norm(x: Array, *, p: float, axis: Any, keepdims: bool) -> Array:
    """By powers, or NumPy's own extremum, in long double."""
    sizes = np.abs(np.longdouble(x))
    if p == 0:
        return np.asarray(np.count_nonzero(sizes, axis=axis, keepdims=keepdims), float)
    if np.isinf(p):
        return np.asarray((np.max, np.min)[p < 0](sizes, axis=axis, keepdims=keepdims))
    return np.asarray(np.power(np.power(sizes, p).sum(axis=axis, keepdims=keepdims), 1 / p))


def _asks(of: Callable[..., Any]) -> Callable[[Problem], None]:
    """Questions of elements, in their own type."""

    def check(problem: Problem) -> None:
        options, x = problem.sample.options, problem.slots["x"].host()
        wanted = of(x.astype(bool), axis=options.get("axis"), keepdims=bool(options.get("keepdims", False)))
        assert np.array_equal(problem.wide["out"], wanted)

    return check


def _gradient(of: Callable[..., Any]) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        """Row by row, each a matrix of one column per reduced axis' place."""
        options, given = problem.sample.options, given_of(problem)
        x, axis = given["x"], options.get("axis")
        if not x.size:
            return
        axes = range(x.ndim) if axis is None else [a % x.ndim for a in np.atleast_1d(axis)]
        kept = [a for a in range(x.ndim) if a not in axes]
        order = np.argsort([*kept, *axes])
        rows = x.transpose([*kept, *axes]).reshape(int(np.prod([x.shape[a] for a in kept])), -1)
        grad, y = (given[n].reshape(-1, 1) if n in given else None for n in ("grad", "y"))
        with np.errstate(all="ignore"):
            made, size = of(grad, rows, y, options)
        shape = [x.shape[a] for a in (*kept, *axes)]
        made, size = (np.broadcast_to(each, rows.shape).reshape(shape).transpose(order) for each in (made, size))
        near(problem, "grad_x", made, 36.0, size)

    return check


def _shared(extremum: Callable[..., Array], without: float = np.nan) -> Callable[..., tuple[Array, Any]]:
    """The gradient in equal parts at the terms that are the extremum; `without` where none is."""

    def of(grad: Array, rows: Array, y: Array, _: Any) -> tuple[Array, Any]:
        assert np.array_equal(extremum(rows, axis=1)[:, None], y, equal_nan=True)
        made = np.zeros_like(rows)
        for i, row in enumerate(rows):
            places = np.flatnonzero(row == y[i])
            made[i, places] = grad[i] / len(places) if len(places) else 0
            if not len(places):
                made[i] = without
        return made, 0

    return of


def _of_product(grad: Array, rows: Array, y: Array, _: Any) -> tuple[Array, Array]:
    """Without a division where a term is 0; what leaves the range of long doubles there is unknown."""
    made = grad * (y / rows)
    for i, j in np.argwhere(rows == 0):
        made[i, j] = grad[i, 0] * np.prod(np.delete(rows[i], j))
    return made, np.where(rows == 0, np.abs(made) * rows.shape[1], 0)


def _of_valid(grad: Array, rows: Array, _y: Any, _: Any) -> tuple[Array, Any]:
    share = np.stack([g / max(np.count_nonzero(~np.isnan(row)), 1) for g, row in zip(grad, rows)])
    return np.where(np.isnan(rows), 0, share), 0


def _of_norm(grad: Array, rows: Array, y: Array, options: Any) -> tuple[Array, Any]:
    p = options.get("p", 2.0)
    if np.isinf(p):
        extremum = np.max if p > 0 else np.min
        made, size = _shared(lambda x, axis: extremum(x, axis=axis))(grad, np.abs(rows), y, options)
        return np.where(rows == 0, made * 0, made * np.sign(rows)), size
    if p == 2:
        return np.where(y == 0, 0, grad * (rows / y)), 0
    if p not in (0, 1):
        moved = np.longdouble(np.abs(rows) / y) ** (p - 1)
        return np.where((rows == 0) | (y == 0), 0, grad * np.sign(rows) * moved), 0
    return (grad * np.sign(rows) if p == 1 else 0 * np.broadcast_to(grad, rows.shape)), 0


def _of_deviation(grad: Array, rows: Array, y: Array, options: Any) -> tuple[Array, Any]:
    made, size = _of_variance(grad, rows, None, options)
    return np.where(y == 0, 0, made / (2 * y)), np.where(y == 0, 0, size / (2 * np.abs(y)))


def _of_variance(grad: Array, rows: Array, _: Any, options: Any) -> tuple[Array, Array]:
    n, correction = rows.shape[1], options.get("correction", 0)
    factor = 2 * grad * np.divide(1.0, max(n - correction, 0))
    around = rows - np.mean(rows, axis=1, keepdims=True)
    big = np.abs(rows).max(axis=1, keepdims=True)
    unknown = np.isfinite(big) & (big > 1e100)  # what cancels there, NumPy's mean has not
    size = np.where(unknown, np.inf, np.abs(factor) * (np.abs(rows) + np.abs(rows).mean(axis=1, keepdims=True)))
    return factor * around, size


def _parts(problem: Problem, options: Any, *grads: str) -> tuple[Array, list[int], list[Array]]:
    """x, its reduced axes, and operands with extents of 1 along these."""
    given, axis = given_of(problem), options.get("axis")
    x = given["x"]
    axes = list(range(x.ndim)) if axis is None else [a % x.ndim for a in np.atleast_1d(axis)]
    shape = [1 if a in axes else n for a, n in enumerate(x.shape)]
    return x, axes, [given[name].reshape(shape) for name in grads]


def _of_extrema(problem: Problem) -> None:
    """By torch's rule: shares of each result's gradient, of the terms that equal NumPy's own extremum."""
    x, axes, grads = _parts(problem, problem.sample.options, "grad_min", "grad_max")
    if not x.size:
        return
    made = np.zeros_like(x)
    with np.errstate(all="ignore"):
        for grad, extremum in zip(grads, (np.min, np.max)):
            winners = x == extremum(x, axis=tuple(axes), keepdims=True)
            made = made + winners * (grad / np.count_nonzero(winners, axis=tuple(axes), keepdims=True))
            made = np.where(winners.any(axis=tuple(axes), keepdims=True), made, np.nan)
        near(problem, "grad_x", made, 36.0, 2 * np.abs(made))


def _of_moments(problem: Problem) -> None:
    options = problem.sample.options
    x, axes, (grad_var, grad_mean) = _parts(problem, options, "grad_var", "grad_mean")
    if not x.size:
        return
    n = int(np.prod([x.shape[a] for a in axes]))
    with np.errstate(all="ignore"):
        factor = 2 * grad_var * np.divide(1.0, max(n - options.get("correction", 0), 0))
        made = factor * (x - x.mean(axis=tuple(axes), keepdims=True)) + grad_mean / n
        sizes = np.abs(x)
        size = np.abs(factor) * (sizes + sizes.mean(axis=tuple(axes), keepdims=True)) + np.abs(grad_mean) / n
        big = sizes.max(axis=tuple(axes), keepdims=True)
        near(problem, "grad_x", made, 36.0, np.where(np.isfinite(big) & (big > 1e100), np.inf, size))


def _of_view(of: Callable[..., Any]) -> Callable[[Problem], None]:
    """By `of` x and the options: NumPy's own sum over a view."""

    def check(problem: Problem) -> None:
        x, options = given_of(problem)["x"], problem.sample.options
        with np.errstate(all="ignore"):
            if x.dtype.kind in "iu":
                assert np.array_equal(problem.wide["out"], of(x, **options))
            else:
                near(problem, "out", of(x, **options), 40.0, of(np.abs(x), **options))

    return check


def _shrunk(x: Array, *, shape: tuple[int, ...]) -> Array:
    """One axis at a time, from the front."""
    while x.ndim > len(shape):
        x = np.add.reduce(x, axis=0)
    for axis, n in enumerate(shape):
        x = x if n == x.shape[axis] else np.add.reduce(x, axis=axis, keepdims=True)
    return np.asarray(x)


def _traced_back(problem: Problem) -> None:
    """Element by element of NumPy's diagonal of places."""
    given, options = given_of(problem), problem.sample.options
    made = np.zeros(problem.slots["x"].host().shape)
    places = np.arange(made.size).reshape(made.shape)
    along = np.diagonal(places, options.get("offset", 0), options.get("axis1", 0), options.get("axis2", 1))
    for result in np.ndindex(along.shape[:-1]):
        made.reshape(-1)[along[result]] = given["grad"][result]
    near(problem, "grad_x", made)


CHECKS: dict[str, Callable[[Problem], None]] = {
    "sum": _reduced(np.sum),
    "mean": _reduced(np.mean),
    "max": _reduced(np.max),
    "min": _reduced(np.min),
    "argmax": _reduced(_argmax),
    "var": _reduced(np.var),
    "prod": _reduced(np.prod),
    "argmin": _reduced(_argmin),
    "std": _reduced(np.std, 36.0),
    "nansum": _reduced(np.nansum),
    "nanmean": _reduced(np.nanmean),
    "nanmax": _reduced(np.nanmax),
    "nanmin": _reduced(np.nanmin),
    "norm": _reduced(_norm),
    "any": _asks(lambda x, axis, keepdims: np.sum(x, axis=axis, keepdims=keepdims) > 0),
    "all": _asks(lambda x, axis, keepdims: np.sum(~x, axis=axis, keepdims=keepdims) == 0),
    "count_nonzero": _asks(lambda x, axis, keepdims: np.sum(x, axis=axis, keepdims=keepdims)),
    "logsumexp": _reduced(scipy.special.logsumexp),
    "aminmax": _pair(min=np.min, max=np.max),
    "var_mean": _pair(var=np.var, mean=np.mean),
    "trace": _of_view(np.trace),
    "reduce_to": _of_view(_shrunk),
    "trace_backward": _traced_back,
    "reduce_to_backward": lambda problem: near(
        problem, "grad_x", np.broadcast_to(given_of(problem)["grad"], problem.slots["x"].host().shape)
    ),
    "aminmax_backward": _of_extrema,
    "var_mean_backward": _of_moments,
    "sum_backward": _gradient(lambda grad, *_: (grad, 0)),
    "mean_backward": _gradient(lambda grad, rows, *_: (grad / rows.shape[1], 0)),
    "max_backward": _gradient(_shared(np.max)),
    "min_backward": _gradient(_shared(np.min)),
    "var_backward": _gradient(_of_variance),
    "prod_backward": _gradient(_of_product),
    "std_backward": _gradient(_of_deviation),
    "nansum_backward": _gradient(lambda grad, rows, *_: (np.where(np.isnan(rows), 0, grad), 0)),
    "nanmean_backward": _gradient(_of_valid),
    "nanmax_backward": _gradient(_shared(np.fmax.reduce, 0.0)),
    "nanmin_backward": _gradient(_shared(np.fmin.reduce, 0.0)),
    "norm_backward": _gradient(_of_norm),
    "logsumexp_backward": _gradient(
        lambda grad, rows, y, _: (grad * np.exp2((rows - y) / np.log(np.longdouble(2))), 0)
    ),
}
