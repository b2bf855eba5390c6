"""Codes of a byte by other means than the oracle's: element by element in Python, scales by a search of their own."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from ...gauntlet.problem import Problem
from .projection import rotated_back

__all__ = ["CHECKS"]

Array = np.ndarray[Any, Any]
E4M3 = [  # from 0 up to 448
    (float(v), code) for code, v in enumerate(np.arange(0x7F, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn))
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
        at, size = bisect(E4M3, (abs(scaled),)), min(abs(scaled), 448.0)
        return sign | min((abs(v - size), code & 1, code) for v, code in E4M3[max(at - 1, 0) : at + 1])[2]
    low = LEAST[dtype] if zero_points or dtype == "uint8" else -127
    return min(max(round(max(-1e4, min(1e4, scaled))) + zero, low), LEAST[dtype] + 255) & 0xFF


def quantize(problem: Problem) -> None:
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
            assert found == wanted or (dtype.startswith("float8") and found & 0x7F == 0x7F == wanted & 0x7F), (
                at,
                found,
            )


def dequantize(problem: Problem) -> None:
    held = {name: slot.host() for name, slot in problem.slots.items() if name != "out"}
    out = problem.wide["out"]
    for place, members in _units(problem, held["codes"]):
        for at in members:
            zero = float(held["zeros"][place]) if "zeros" in held else 0.0
            wanted = _f32((float(held["codes"][at]) - zero) * float(held["scales"][place]))
            found = float(out[at])
            assert found == float(np.asarray(wanted).astype(out.dtype)) or (math.isnan(found) and math.isnan(wanted))


COUNT = 24  # elements of a product that are checked, evenly over it


def _of(held: dict[str, Array], name: str, i: int, default: Any) -> Any:
    """The number of line i of what has one for all or one a line."""
    if name not in held:
        return default
    flat = held[name].reshape(-1)
    return flat[0 if flat.size == 1 else i]


def _activated(x: float, activation: str) -> float:
    forms: dict[str, Callable[[float], float]] = {
        "identity": lambda x: x, "relu": lambda x: max(x, 0.0), "silu": lambda x: x / (1 + math.exp(min(-x, 700.0))),
        "gelu": lambda x: x * math.erfc(-x / math.sqrt(2)) / 2,
        "gelu_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    }  # fmt: skip
    return forms[activation](x)


def matmul(problem: Problem) -> None:
    held = {name: slot.host() for name, slot in problem.slots.items() if name != "out"}
    _product(problem.desc, held, problem.wide["out"])


def project(problem: Problem) -> None:
    """Three products, each by itself, before the rotation."""
    held = {name: slot.host() for name, slot in problem.slots.items()}
    for part in "qkv":
        ours = {"a": "x", "b": f"w{part}", "scale_a": "scale_x", "scale_b": f"scale_{part}", "bias": f"bias_{part}"}
        own = {name: held[theirs] for name, theirs in ours.items() if theirs in held}
        _product(problem.desc.part(part), own, rotated_back(problem, part))


def _product(desc: Any, held: dict[str, Array], result: Array) -> None:
    """Python's integers, of floats fractions, an element at a time."""
    b = held["b"]
    rows = held["a"].reshape(-1, b.shape[0]) if b.shape[0] else np.zeros((math.prod(held["a"].shape[:-1]), 0), np.int8)
    wide = np.asarray(result).reshape(len(rows), -1)
    kind, activation = desc.layout("out").element.value, desc.activation.value
    for place in np.linspace(0, wide.size - 1, COUNT).astype(int) if wide.size else ():
        m, n = divmod(int(place), wide.shape[1])
        line, scale_a = [x.item() if x.dtype.kind in "iu" else float(x) for x in rows[m]], _of(held, "scale_a", m, 1.0)
        if desc.dynamic:
            scale_a, _ = _scale(line, "int8", False)
            line = [(_code(x, scale_a, 0, "int8", False) + 128) % 256 - 128 for x in line]
        scales = held.get("scale_b", np.ones((), np.float32))
        grouped = scales.ndim == 2 and scales.shape[0] > 1
        size = b.shape[0] // scales.shape[0] if grouped else 1
        each = [Fraction(float(scales[k // size, n])) if grouped else Fraction(1) for k in range(len(line))]
        zeros = int(_of(held, "zero_a", m, 0)), int(_of(held, "zero_b", n, 0))
        total = sum(
            ((Fraction(x) - zeros[0]) * (int(b[k, n]) - zeros[1]) * each[k] for k, x in enumerate(line)), Fraction(0)
        )
        scale_b, bias = 1.0 if grouped else _of(held, "scale_b", n, 1.0), _of(held, "bias", n, 0)
        if kind == "i32":
            wanted: Any = max(min(int(total) + int(bias), 2**31 - 1), -(2**31))
            assert int(wide[m, n]) == (max(wanted, 0) if activation == "relu" else wanted)
        elif kind == "i8":
            x = _f32(_f32(float(total)) * _f32(float(scale_a) * float(scale_b)))
            x = _activated(_f32(x + float(bias)) if "bias" in held else x, activation)
            assert int(wide[m, n]) == round(max(-128.0, min(127.0, x)))
        else:
            x = float(total * Fraction(float(scale_a)) * Fraction(float(scale_b)) + Fraction(float(bias)))
            found, near = float(wide[m, n]), float(sum(abs(Fraction(v)) for v in line)) * 2.0**-36 + 1e-30
            assert abs(found - _activated(x, activation)) <= near + 2.0**-40 * abs(x), (m, n, found, x)


CHECKS = {
    "matmul_int8": matmul,
    "qkv_project_int8": project,
    **dict.fromkeys(("quantize_int8", "quantize_fp8"), quantize),
    **dict.fromkeys(("dequantize_int8", "dequantize_fp8"), dequantize),
}
