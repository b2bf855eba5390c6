"""The same results by other means: NumPy slicing, NumPy's own ufuncs at higher precision, SciPy, mpmath. No oracle code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from baracuda_py.reference.rounding import round_to
from baracuda_py.samples import Packed

from .arena import as_bytes
from .gauntlet import Problem
from .independent_gemm import check_matmul

__all__ = ["INDEPENDENT", "nibbles_of"]

Array = np.ndarray[Any, Any]


def _close(wide: Array, wanted: Array, digits: int) -> None:
    """Within a few units of float64's last place (the independent side errs too), corners alike."""
    wide, wanted = np.asarray(wide, np.float64), np.asarray(wanted, np.float64)
    with np.errstate(all="ignore"):
        alike = (wide == wanted) | (np.isnan(wide) & np.isnan(wanted))
        near = np.abs(wide - wanted) <= np.abs(wanted) * 2.0**-digits + 1e-300
    bad = ~(alike | near)
    if bad.any():
        at = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise AssertionError(
            f"oracle {wide[at]!r}, independent {wanted[at]!r} at {at}, {int(bad.sum())} of {bad.size} differ"
        )


def _map(function: Callable[..., Array], digits: int = 48) -> Callable[[Problem], None]:
    def check(problem: Problem) -> None:
        arrays = [problem.slots[o.name].host() for o in problem.desc.operands if o.role == "in"]
        element = problem.desc.layout("out").element
        with np.errstate(all="ignore"):
            if element.is_float:
                _close(problem.wide["out"], function(*(a.astype(np.float64) for a in arrays)), digits)
            else:
                wanted = function(*(a.astype(element.dtype) for a in arrays))
                assert np.array_equal(round_to(problem.wide["out"], element), wanted.astype(element.dtype))

    return check


def _integer_power(a: Array, b: Array) -> Array:
    """Exact powers by Python's integers, wrapped; a negative exponent truncates toward zero."""
    if a.dtype.kind == "f":
        return np.power(a, b)
    bits = a.dtype.itemsize * 8

    def one(x: int, y: int) -> int:
        if y < 0:
            result = 1 if x == 1 else (1 if y % 2 == 0 else -1) if x == -1 else 0
        else:
            result = pow(x, y, 1 << bits)
        result %= 1 << bits
        return result - (1 << bits) if a.dtype.kind == "i" and result >= 1 << (bits - 1) else result

    x, y = np.broadcast_arrays(a, b)
    return np.array([one(int(p), int(q)) for p, q in zip(x.ravel(), y.ravel())], a.dtype).reshape(x.shape)


def nibbles_of(data: Array, shape: tuple[int, ...]) -> Array:
    """Packed rows as one nibble a byte, by integer arithmetic on the flat bytes."""
    rows = data.reshape(-1, data.shape[-1]) if data.size else data.reshape(0, max(data.shape[-1], 1))
    columns = np.arange(shape[-1])
    picked = (
        (rows[:, columns // 2].astype(int) // (16 ** (columns % 2))) % 16
        if rows.size
        else np.zeros((len(rows), shape[-1]))
    )
    return picked.astype(np.uint8).reshape(shape)


def _write_slice(problem: Problem) -> None:
    options, slots = problem.sample.options, problem.slots
    ranges = [list(r) for r in options["ranges"]]
    axis = options.get("dynamic_axis")
    image = slots["dest"].initial.copy()
    dest, source = slots["dest"].view(image), slots["source"].host()
    if axis is not None:
        start, extent = int(slots["start"].host()), ranges[axis][1] - ranges[axis][0]
        fits = start >= 0 and start + extent <= dest.shape[axis]
        assert int(problem.wide["status"]) == (0 if fits else 1)
        if not fits:
            assert np.array_equal(slots["dest"].expected(problem.wide["dest"]), image)
            return
        ranges[axis] = [start, start + extent]
    packed = problem.sample.operands["dest"]
    if isinstance(packed, Packed):
        _write_nibbles(problem, packed, ranges)
        return
    as_bytes(dest)[tuple(slice(a, b) for a, b in ranges)] = as_bytes(source)
    assert np.array_equal(slots["dest"].expected(problem.wide["dest"]), image)


def _write_nibbles(problem: Problem, packed: Packed, ranges: list[list[int]]) -> None:
    source: Packed = problem.sample.operands["source"]
    wanted = nibbles_of(packed.data, packed.shape)
    wanted[tuple(slice(a, b) for a, b in ranges)] = nibbles_of(source.data, source.shape)
    got = np.asarray(problem.wide["dest"])
    assert np.array_equal(nibbles_of(got, packed.shape), wanted)
    if packed.shape[-1] % 2:
        assert np.array_equal(got[..., -1] >> 4, packed.data[..., -1] >> 4), "a spare nibble changed"


def _contiguize(problem: Problem) -> None:
    x = problem.sample.operands["x"]
    got = np.asarray(problem.wide["out"])
    if not isinstance(x, Packed):
        assert got.flags.c_contiguous
        assert got.tobytes() == x.tobytes(order="C")
        return
    strides = x.strides if x.strides is not None else (x.data.shape[-1] * 2, 1)
    flat = nibbles_of(x.data.reshape(1, -1), (1, x.data.size * 2))[0]
    wanted = np.zeros(x.shape, np.uint8)
    for index in np.ndindex(*x.shape):
        wanted[index] = flat[x.offset + sum(i * s for i, s in zip(index, strides))]
    assert np.array_equal(nibbles_of(got, x.shape), wanted)


def _kv_append(problem: Problem) -> None:
    slots, axis = problem.slots, {"BHSD": 1, "BSHD": 0}[problem.sample.options["layout"]]
    positions = slots["positions"].host()
    for cache, new in (("k_cache", "k"), ("v_cache", "v")):
        image = slots[cache].initial.copy()
        held, tokens = as_bytes(slots[cache].view(image)), as_bytes(slots[new].host())
        for b, position in enumerate(positions):
            count = tokens.shape[axis + 1]
            if position < 0 or position + count > held.shape[axis + 1]:
                continue
            for t in range(count):
                index = (slice(None),) * axis
                held[(b, *index, int(position) + t)] = tokens[(b, *index, t)]
        assert np.array_equal(slots[cache].expected(problem.wide[cache]), image)
    limit = slots["k_cache"].shape[axis + 1] - slots["k"].shape[axis + 1]
    assert np.array_equal(problem.wide["status"], [0 if 0 <= p <= limit else 1 for p in positions])


def _take_along_axis(problem: Problem) -> None:
    """Line by line, by `np.take`, whose modes are NumPy's own."""
    x, indices = problem.slots["x"].host(), problem.slots["indices"].host()
    mode, axis = problem.sample.options["mode"], problem.sample.options.get("axis", -1)
    got = np.moveaxis(as_bytes(np.ascontiguousarray(problem.wide["out"])), axis, -1)
    x, indices = np.moveaxis(as_bytes(x), axis, -1), np.moveaxis(indices, axis, -1)
    bad = 0
    for line in np.ndindex(*got.shape[:-1]):
        at = tuple(0 if n == 1 else i for n, i in zip(x.shape, line))
        places = indices[tuple(0 if n == 1 else i for n, i in zip(indices.shape, line))]
        for j, place in enumerate(places.tolist()):
            if mode != "raise":
                assert got[(*line, j)].tobytes() == np.take(x[at], [place], mode=mode).tobytes()
                continue
            try:
                assert got[(*line, j)].tobytes() == list(x[at])[place].tobytes()
            except IndexError:
                bad += 1
                assert got[(*line, j)].tobytes() == bytes(x.itemsize)
    if mode == "raise":
        assert int(problem.wide["status"]) == (bad > 0)


def _topk(problem: Problem) -> None:
    """Python's own sort, of (is NaN, number, -place)."""
    options, x = problem.sample.options, problem.slots["x"].host()
    axis, largest, k = options.get("axis", -1), options.get("largest", True), options["k"]
    rows, values, indices = (np.moveaxis(a, axis, -1) for a in (x, problem.wide["values"], problem.wide["indices"]))
    for at in np.ndindex(*rows.shape[:-1]):
        numbers = [float(v) if problem.desc.element.is_float else int(v) for v in rows[at]]
        keys = [(v != v, 0 if v != v else v) for v in numbers]
        order = sorted(range(len(keys)), key=keys.__getitem__, reverse=largest)  # stable, reversed too
        first = order[:k] if options.get("sorted", True) else sorted(order[:k])
        assert indices[at].tolist() == first
        assert (
            as_bytes(np.ascontiguousarray(values[at])).tolist()
            == as_bytes(np.ascontiguousarray(rows[at]))[first].tolist()
        )


def _nonzero(problem: Problem) -> None:
    x = problem.slots["x"].host()
    wanted = [list(at) for at in np.ndindex(*x.shape) if bool(x[at])]
    assert problem.wide["out"].tolist() == wanted
    assert problem.wide["count"].tolist() == [len(wanted)]


def _gelu(x: Array) -> Array:
    return np.where(np.isneginf(x), -0.0, x * scipy.special.ndtr(x))


def _silu(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.where(np.isneginf(x), -0.0, x * scipy.special.expit(x))


INDEPENDENT: dict[str, Callable[[Problem], None]] = {
    "add": _map(np.add),
    "subtract": _map(np.subtract),
    "multiply": _map(np.multiply),
    "divide": _map(np.true_divide),
    "maximum": _map(np.maximum),
    "minimum": _map(np.minimum),
    "pow": _map(_integer_power, 44),
    "copysign": _map(np.copysign),
    "neg": _map(np.negative),
    "abs": _map(np.absolute),
    "sign": _map(np.sign),
    "square": _map(np.square),
    "sqrt": _map(np.sqrt),
    "rsqrt": _map(lambda x: (1 / np.sqrt(x.astype(np.longdouble))).astype(np.float64)),
    "exp": _map(np.exp),
    "log": _map(np.log),
    "tanh": _map(np.tanh),
    "sigmoid": _map(scipy.special.expit, 46),
    "erf": _map(scipy.special.erf, 46),
    "relu": _map(lambda x: np.maximum(x, np.zeros((), x.dtype))),
    "gelu": _map(_gelu, 38),
    "silu": _map(_silu, 46),
    "write_slice": _write_slice,
    "contiguize": _contiguize,
    "kv_append": _kv_append,
    "take_along_axis": _take_along_axis,
    "topk": _topk,
    "nonzero": _nonzero,
    **dict.fromkeys(("matmul", "matmul_tc", "matmul_tc_bf16", "matmul_tc_async", "matmul_tc_bf16_async"), check_matmul),
}
