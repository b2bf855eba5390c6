"""Codes of a byte by other means than the oracle's: element by element in Python, scales by a search of their own."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from .gauntlet.problem import Problem

__all__ = ["INT8"]

Array = np.ndarray[Any, Any]
E4M3 = [
    (float(v), code) for code, v in enumerate(np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)) if v == v
]
LEAST = {"int8": -128, "uint8": 0}


def _f32(x: float) -> float:
    """The nearest f32."""
    with np.errstate(over="ignore"):
        return float(np.float32(x))


def _units(problem: Problem, x: Array) -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """For each scale its place, and the places of the elements that share it."""
    per, size = problem.desc.per, problem.desc.group_size
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for at in np.ndindex(*x.shape):
        place = {
            "tensor": (), "row": at[:-1], "column": at[-1:], "group": (*at[:-1], at[-1] // (size or 1)),
        }[per]  # fmt: skip
        found.setdefault(place, []).append(at)
    return list(found.items())


def _scale(values: list[float], dtype: str, zero_points: bool) -> tuple[float, int]:
    finite = [v for v in values if math.isfinite(v)]
    top, low = max([0.0, *finite]), min([0.0, *finite])
    if zero_points:
        width = _f32(_f32(-low / 255) + _f32(top / 255)) if top > low else 0.0
        scale = max(width, 2.0**-126) if top > low else 1.0
        return scale, min(LEAST[dtype] + round(_f32(-low * _f32(1 / scale))), LEAST[dtype] + 255)
    most = {"int8": 127, "uint8": 255}.get(dtype, 448)
    furthest = top if dtype == "uint8" else max(top, -low)
    return (max(_f32(furthest / most), 2.0**-126) if furthest else 1.0), 0


def _code(value: float, scale: float, zero: int, dtype: str, zero_points: bool) -> int:
    """The nearest code, of two the even one."""
    if math.isnan(value):
        return 0x7F if dtype.startswith("float8") else zero & 0xFF
    scaled = _f32(value * _f32(1 / scale))
    if dtype.startswith("float8"):
        sign = 0x80 if math.copysign(1, scaled) < 0 else 0
        return sign | min((abs(v - min(abs(scaled), 448.0)), code & 1, code) for v, code in E4M3 if code < 0x80)[2]
    low = LEAST[dtype] if zero_points or dtype == "uint8" else -127
    return min(max(round(max(-1e4, min(1e4, scaled))) + zero, low), LEAST[dtype] + 255) & 0xFF


def quantise(problem: Problem) -> None:
    x, wide = problem.slots["x"].host(), problem.wide
    dtype, zero_points = wide["codes"].dtype.name, "zeros" in wide
    codes = wide["codes"].view(np.uint8)
    for place, members in _units(problem, x):
        scale, zero = _scale([float(x[at]) for at in members], dtype, zero_points)
        assert float(wide["scales"][place]) == scale, (place, float(wide["scales"][place]), scale)
        if zero_points:
            assert int(wide["zeros"][place]) == zero
        for at in members[:64]:
            wanted = _code(float(x[at]), scale, zero, dtype, zero_points)
            found = int(codes[at])
            assert found == wanted or (dtype.startswith("float8") and found & 0x7F == 0x7F == wanted & 0x7F), (at, found)


def dequantise(problem: Problem) -> None:
    held = {name: slot.host() for name, slot in problem.slots.items() if name != "out"}
    out = problem.wide["out"]
    for place, members in _units(problem, held["codes"]):
        for at in members:
            zero = float(held["zeros"][place]) if "zeros" in held else 0.0
            wanted = _f32((float(held["codes"][at]) - zero) * float(held["scales"][place]))
            found = float(out[at])
            assert found == float(np.asarray(wanted).astype(out.dtype)) or (math.isnan(found) and math.isnan(wanted))


INT8 = {
    **dict.fromkeys(("quantize_int8", "quantize_fp8"), quantise),
    **dict.fromkeys(("dequantize_int8", "dequantize_fp8"), dequantise),
}
