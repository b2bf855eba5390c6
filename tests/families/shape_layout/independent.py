"""Copies by other means: NumPy's slices, and nibbles by integer arithmetic. No oracle code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from baracuda_py.samples import Packed

from ...arena import as_bytes
from ...gauntlet import Problem

__all__ = ["CHECKS", "nibbles_of"]

Array = np.ndarray[Any, Any]


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
    positions, wrap = slots["positions"].host(), problem.sample.options.get("wrap", False)
    for cache, new in (("k_cache", "k"), ("v_cache", "v")):
        image = slots[cache].initial.copy()
        held, tokens = as_bytes(slots[cache].view(image)), as_bytes(slots[new].host())
        for b, position in enumerate(positions):
            count, length = tokens.shape[axis + 1], held.shape[axis + 1]
            if position < 0 or (position + count > length and not wrap):
                continue
            for t in range(count):
                index = (slice(None),) * axis
                place = int(position) + t
                held[(b, *index, place % length if wrap else place)] = tokens[(b, *index, t)]
        assert np.array_equal(slots[cache].expected(problem.wide[cache]), image)
    limit = slots["k_cache"].shape[axis + 1] - slots["k"].shape[axis + 1]
    assert np.array_equal(problem.wide["status"], [0 if p >= 0 and (p <= limit or wrap) else 1 for p in positions])


CHECKS: dict[str, Callable[[Problem], None]] = {
    "write_slice": _write_slice,
    "contiguize": _contiguize,
    "kv_append": _kv_append,
}
