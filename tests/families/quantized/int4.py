"""int4 weights by other means than the oracle's: element by element, with shifts, as the formats' own documents have them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...gauntlet.problem import Problem
from ..gemm.independent import ACTIVATIONS, places
from .projection import rotated_back

__all__ = ["CHECKS", "code_of", "zero_of"]

Array = np.ndarray[Any, Any]
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
PICKED = 40


def code_of(layout: str, words: Array, k: int, n: int) -> int:
    """The code of (k, n), 0 to 15."""
    if layout == "plain":
        return int(words[k, n])
    if layout == "kaio":  # word k / 8 of column n; two's complement, the lowest k in the lowest nibble
        return (int(words[n, k // 8]) >> 4 * (k % 8) & 15) ^ 8
    if layout == "gptq":
        return int(words[k // 8, n]) >> 4 * (k % 8) & 15
    if layout == "awq":
        return int(words[k, n // 8]) >> 4 * AWQ_ORDER.index(n % 8) & 15
    # the fragment of m16n8k16's a: register r of lane (g, t) holds row g + 8 (r % 2), columns 2 t + 8 (r / 2) and the next; rows
    # are n = 2 g and 2 g + 1, columns of step j the four k's from 32 (j / 2) + 8 t + 4 (j % 2) on
    tile = words[n // 16, k // 64].reshape(8, 4, 4)
    for j in range(4):
        for t in range(4):
            start = 32 * (j // 2) + 8 * t + 4 * (j % 2)
            if start <= k % 64 < start + 4:
                column, row = k % 64 - start, n % 2
                register, half = 2 * (column // 2) + row, column % 2
                return int(tile[n % 16 // 2, t, j]) >> (4 * register + 16 * half) & 15
    raise AssertionError((k, n))


def zero_of(layout: str, zeros: Array | None, group: int, n: int) -> int:
    if zeros is None:
        return 8
    if layout in ("tiled", "plain"):
        return int(zeros[group, n])
    place = AWQ_ORDER.index(n % 8) if layout == "awq" else n % 8
    return (int(zeros[group, n // 8]) >> 4 * place & 15) + (layout == "gptq")


def _weight(problem: Problem, k: int, n: int, called: dict[str, str] | None = None) -> float:
    """W[k, n], exact; `called` says what its arrays are called."""
    desc, names = problem.desc, called or {name: name for name in ("codes", "scales", "zeros", "order")}
    slots = {name: problem.slots[own] for name, own in names.items() if own in problem.slots}
    layout, size = str(desc.packing), desc.group_size
    zeros = slots["zeros"].host() if "zeros" in slots else None
    place, group = k, k // size
    if "order" in slots:
        order = slots["order"].host().tolist()
        if layout == "gptq":
            group = order[k]
        else:
            place = order.index(k)
            group = place // size
    code = code_of(layout, slots["codes"].host(), place, n)
    return (code - zero_of(layout, zeros, group, n)) * float(slots["scales"].host()[group, n])


def _matmul(problem: Problem) -> None:
    wide, desc = problem.wide["out"], problem.desc
    x = problem.slots["x"].host()
    bias = problem.slots["bias"].host() if "bias" in problem.slots else None
    for at in places(wide.shape, PICKED):
        row = x[at[:-1]].astype(np.float64)
        terms = [float(row[k]) * _weight(problem, k, at[-1]) for k in range(len(row))]
        added = 0.0 if bias is None else float(np.broadcast_to(bias, wide.shape)[at])
        size = math.fsum(map(abs, terms)) + abs(added)
        wanted = float(ACTIVATIONS[str(desc.activation)](math.fsum([*terms, added])))
        assert abs(float(wide[at]) - wanted) <= 1e-12 * size + 1e-300, at


def _project(problem: Problem) -> None:
    x, slots = problem.slots["x"].host().astype(np.float64), problem.slots
    for part in "qkv":
        wide = rotated_back(problem, part)
        called = {"codes": f"w{part}"} | {name: f"{name}_{part}" for name in ("scales", "zeros", "order")}
        for at in places(wide.shape, PICKED // 2):
            terms = [float(x[at[0], k]) * _weight(problem, k, at[1], called) for k in range(x.shape[1])]
            terms += [float(slots[f"bias_{part}"].host()[at[1]])] if f"bias_{part}" in slots else []
            assert abs(float(wide[at]) - math.fsum(terms)) <= 1e-12 * math.fsum(map(abs, terms)) + 1e-300, (part, at)


def _dequantize(problem: Problem) -> None:
    wide = problem.wide["out"]
    for at in places(wide.shape, 4 * PICKED):
        assert float(wide[at]) == _weight(problem, *at), at


def _relayout(problem: Problem) -> None:
    desc, slots, wide = problem.desc, problem.slots, problem.wide
    (k, n), source, to = desc.weight_shape, str(desc.packing), str(desc.to)
    codes, scales = slots["codes"].host(), slots["scales"].host()
    gather = slots["gather"].host().tolist() if "gather" in slots else range(k)
    for at in places((k, n), 4 * PICKED):
        assert code_of(to, wide["out"], *at) == code_of(source, codes, gather[at[0]], at[1]), at
    assert np.array_equal(wide["out_scales"][:, :n], scales[:, :n])
    assert not wide["out_scales"][:, n:].any()
    if "zeros" in slots:
        zeros = slots["zeros"].host()
        for at in np.ndindex(len(scales), n):
            assert zero_of(to, wide["out_zeros"], *at) == zero_of(source, zeros, *at), at


def _quantize(problem: Problem) -> None:
    desc, w = problem.desc, problem.slots["w"].host()
    (k, n), size, kind = desc.weight_shape, desc.group_size, problem.slots["scales"].dtype
    for group, column in np.ndindex(k // size, n):
        part = [float(x) for x in w[group * size : (group + 1) * size, column]]
        low, high = min(0.0, *part), max(0.0, *part)
        span = (
            np.float32(high - low) / np.float32(15)
            if desc.has("zeros")
            else np.float32(max(map(abs, part))) / np.float32(7)
        )
        scale = np.float32(kind.type(span)) or np.float32(1)
        assert np.float32(problem.wide["scales"][group, column]) == scale
        zero = 8
        if desc.has("zeros"):
            zero = min(15, max(desc.least_zero, round(float(np.float32(-low) / scale))))
            assert problem.wide["zeros"][group, column] == zero
        for i, x in enumerate(part):
            code = min(15, max(0, round(float(np.float32(x) / scale)) + zero))
            assert code_of("tiled", problem.wide["out"], group * size + i, column) == code, (group, column, i)


CHECKS: dict[str, Callable[[Problem], None]] = {
    "matmul_int4": _matmul,
    "dequantize_int4": _dequantize,
    "relayout_int4": _relayout,
    "quantize_int4": _quantize,
    "qkv_project_int4": _project,
}
