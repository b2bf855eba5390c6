"""NF4 by other means than the oracle's: code by code, with Python's floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from baracuda_py.ops.quantized.nf4.oracle import MAP, VALUES

from ...gauntlet.problem import Problem
from ..gemm.independent import ACTIVATIONS, places

__all__ = ["CHECKS", "nf4_code", "nf4_magnitude"]

Array = np.ndarray[Any, Any]
F32 = np.float32
PICKED = 40


def nf4_code(codes: Array, i: int) -> int:
    """The i-th code of all: the first of a byte is its upper half."""
    byte = int(codes.reshape(-1)[i // 2])
    return byte & 15 if i % 2 else byte >> 4


def nf4_magnitude(arrays: Mapping[str, Array], block: int) -> np.float32:
    kept = arrays["absmax"][block]
    if "offset" not in arrays:
        return F32(kept)
    return F32(F32(MAP[int(kept)] * arrays["scales"][block // 256]) + F32(arrays["offset"]))


def _weight(problem: Problem, i: int) -> float:
    arrays = {name: problem.slots[name].host() for name in ("absmax", "scales", "offset") if name in problem.slots}
    value = float(VALUES[nf4_code(problem.slots["codes"].host(), i)])
    return value * float(nf4_magnitude(arrays, i // problem.desc.block_size))


def _dequantize(problem: Problem) -> None:
    wide = problem.wide["out"]
    for at in places(wide.shape, 4 * PICKED):
        assert float(wide[at]) == _weight(problem, int(np.ravel_multi_index(at, wide.shape))), at


def _matmul(problem: Problem) -> None:
    wide, desc = problem.wide["out"], problem.desc
    x = problem.slots["x"].host().astype(np.float64)
    bias = problem.slots["bias"].host() if "bias" in problem.slots else None
    k = x.shape[-1]
    for at in places(wide.shape, PICKED // 4):
        terms = [float(x[at[:-1]][i]) * _weight(problem, at[-1] * k + i) for i in range(k)]
        added = 0.0 if bias is None else float(np.broadcast_to(bias, wide.shape)[at])
        wanted = float(ACTIVATIONS[str(desc.activation)](math.fsum([*terms, added])))
        size = math.fsum(map(abs, terms)) + abs(added)
        assert abs(float(wide[at]) - wanted) <= 1e-12 * size + 1e-300, at


def _is_nearest(values: Array, code: int, x: float) -> bool:
    """Whether no value is nearer, but for the rounding of x."""
    return abs(float(values[code]) - x) <= min(abs(float(v) - x) for v in values) + 2.0**-22


def _quantize(problem: Problem) -> None:
    desc, x = problem.desc, problem.slots["x"].host().astype(np.float64).reshape(-1)
    x = np.array([each if math.isfinite(each) else 0.0 for each in x])
    size, wide, sizes = desc.block_size, problem.wide, []
    for start in range(0, len(x), size):
        sizes.append(max(map(abs, x[start : start + size].tolist())))
    for at in range(0, len(x), max(1, len(x) // (8 * PICKED))):
        most = sizes[at // size]
        assert _is_nearest(VALUES, nf4_code(wide["out"], at), float(x[at]) / most if most else 0.0), at
    if not desc.double:
        assert wide["absmax"].tolist() == sizes
        return
    offset = F32(wide["offset"])
    assert abs(float(offset) - math.fsum(sizes) / len(sizes)) <= float(np.spacing(offset))
    rest = [F32(F32(each) - offset) for each in sizes]
    for group in range(0, len(rest), 256):
        most = max(abs(float(each)) for each in rest[group : group + 256])
        assert float(wide["scales"][group // 256]) == most
        for at in range(group, min(group + 256, len(rest)), 7):
            assert _is_nearest(MAP, int(wide["absmax"][at]), float(rest[at]) / most if most else 0.0), at


CHECKS: dict[str, Callable[[Problem], None]] = {
    "matmul_nf4": _matmul,
    "dequantize_nf4": _dequantize,
    "quantize_nf4": _quantize,
}
