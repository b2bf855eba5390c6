"""Elementwise rows by other means: the `check` of each, by Python's numbers or mpmath's. No oracle code."""

from __future__ import annotations

import bisect
import math
import struct
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import scipy.special

from baracuda_py.numerics.rounding import round_to
from baracuda_py.ops.elementwise._family import MapPlan
from baracuda_py.plan import all_ops
from baracuda_py.types import ElementKind

from ...gauntlet import Problem
from .independent_gradients import GRADIENTS

__all__ = ["CHECKS"]

COUNT = 300  # elements of a sample that are checked, evenly over it; all of them would be seconds


def _number(x: Any, *, wide: bool) -> Any:
    """An element as a Python number, or as mpmath's."""
    if x.dtype.kind in "iub":
        return int(x)
    return mpmath.mpf(float(x)) if wide else float(x)


def _one(code: Any, names: dict[str, Any]) -> Any:
    """The row's own check of one element; None where Python has no answer (limits are tested elsewhere)."""
    try:
        found = eval(code, {"mpmath": mpmath, "math": math, "np": np, "special": scipy.special}, names)
    except (ArithmeticError, ValueError):
        return None
    return None if isinstance(found, (complex, mpmath.mpc)) else found


def elementwise(problem: Problem) -> None:
    """The row's `check`, element by element, in Python's or mpmath's arithmetic: integers wrap, floats are exact or nearly so."""
    desc, row = problem.desc, problem.desc.row
    assert row.check, f"{row.name} says nothing of how its results can be checked by other means: give its row a check="
    kinds, out = {n: desc.kind_of(n) for n in desc.inputs}, desc.layout("out").element
    held = dict(zip(desc.numbered, desc.numbers or ()))
    arrays = {n: problem.slots[n].host() for n in desc.arrays}
    for name in held.keys() & set(desc.inputs):
        kind = kinds[name]
        arrays[name] = round_to(np.asarray(held[name], np.float64 if kind.is_float else kind.dtype), kind)
    arrays |= {n: np.asarray(desc.stands_in(n)) for n in desc.inputs if n not in arrays}
    shape = problem.wide["out"].shape
    flat = [np.broadcast_to(arrays[n], shape).reshape(-1) for n in desc.inputs]
    wide = np.asarray(problem.wide["out"]).reshape(-1)
    if out.is_float and row.result != "bool":  # integers among floats count as NumPy converts them
        flat = [
            x.astype(out.dtype if out is ElementKind.F64 else np.float32) if x.dtype.kind in "iu" else x for x in flat
        ]
    if row.result == "bool" and desc.common.is_float:
        flat = [x.astype(desc.common.dtype) for x in flat]
    code, precise = compile(row.check, row.name, "eval"), "mpmath" in row.check
    places = sorted({round(i) for i in np.linspace(0, wide.size - 1, COUNT)}) if wide.size else []
    params = {n: float(desc.kind_of(n).dtype.type(held.get(n, default))) for n, default in row.params.items()}
    checked = 0
    with mpmath.workdps(50):
        for i in places:
            names = dict(zip(row.arguments, (_number(x[i], wide=precise and out.is_float) for x in flat)))
            if any(value != value or abs(value) == math.inf for value in names.values()):
                continue
            wanted = _one(code, names | params | {"bits": out.bits if out.is_integer else 0})
            if wanted is not None:
                checked += 1
                terms = _terms([*names.values(), *params.values()]) if row.formula else 0.0
                _alike(wide[i], wanted, out, f"{row.name}{tuple(map(str, names.values()))}", terms)
    finite = all(np.isfinite(x.astype(np.float64)).all() for x in arrays.values())
    none = out.is_float and not np.isfinite(wide[places]).any()  # a logarithm of numbers below zero
    assert checked or not (places and finite) or none, "nothing was checked"


def _terms(numbers: list[Any]) -> Any:
    """At least the size of the terms of a sum of products and quotients of these numbers, which may cancel."""
    return math.prod(max(abs(x), 1 / abs(x), 1) for x in map(mpmath.mpf, numbers) if x)


def _alike(found: Any, wanted: Any, out: ElementKind, what: str, terms: Any = 0.0) -> None:
    if out.is_integer:
        wanted, modulus = int(wanted), 1 << out.bits
        wanted %= modulus
        wanted -= modulus if out.value[0] == "i" and wanted >= modulus // 2 else 0
        assert int(found) == wanted, f"{what}: oracle {int(found)}, independent {wanted}"
    elif out is ElementKind.BOOL:
        assert bool(found) == bool(wanted), f"{what}: oracle {bool(found)}, independent {wanted}"
    else:
        near = 2.0**-46 * abs(wanted) + 2.0**-48 * terms + 1e-300
        with np.errstate(over="ignore"):
            overflows = math.isinf(float(found)) and abs(wanted) > 1.7e308
        assert overflows or abs(mpmath.mpf(float(found)) - wanted) <= near, (
            f"{what}: oracle {found!r}, independent {wanted}"
        )


def _nextafter(problem: Problem) -> None:
    """By the order of the numbers' codes as Python packs them; of bf16, the upper half of f32's."""
    desc = problem.desc
    out, held = desc.layout("out").element, dict(zip(desc.numbered, desc.numbers or ()))
    given = [
        problem.slots[n].host() if n in desc.arrays else round_to(np.asarray(held[n], float), desc.kind_of(n))
        for n in desc.inputs
    ]
    wide = np.asarray(problem.wide["out"])
    flat = [np.broadcast_to(x, wide.shape).reshape(-1).astype(float).tolist() for x in given]
    number, code, shift = {"f16": ("e", "h", 0), "bf16": ("f", "i", 16), "f32": ("f", "i", 0), "f64": ("d", "q", 0)}[
        str(out)
    ]
    low = -1 << (out.bits - 1)

    def place(x: float) -> int:
        """The number's place in the order of all numbers: 0 for both zeros."""
        found = struct.unpack(code, struct.pack(number, x))[0] >> shift
        return low - found if found < 0 else found

    def at(place: int) -> float:
        return float(struct.unpack(number, struct.pack(code, (place if place >= 0 else low - place) << shift))[0])

    for i in sorted({round(i) for i in np.linspace(0, wide.size - 1, COUNT)}) if wide.size else ():
        a, b, found = flat[0][i], flat[1][i], float(wide.reshape(-1)[i])
        if a != a or b != b:
            assert found != found
            continue
        wanted = at(place(a) + (b > a) - (b < a))
        assert found == wanted, f"nextafter({a!r}, {b!r}) of {out}: oracle {found!r}, not {wanted!r}"


def _cast(problem: Problem) -> None:
    """By search among all numbers of a short type, ties to the even code; by Python's integers; by C's own conversions."""
    x, to = problem.slots["x"].host(), problem.desc.out_element
    for value, found in zip(x.ravel().tolist(), np.asarray(problem.wide["out"]).ravel().tolist()):
        if to is ElementKind.BOOL:
            wanted: Any = value != 0
        elif to.is_integer:
            info = np.iinfo(to.dtype)
            if isinstance(value, float):
                ends = info.min if value < 0 else info.max
                wanted = (
                    0
                    if value != value
                    else ends
                    if abs(value) == math.inf
                    else min(max(int(value), info.min), info.max)
                )
            else:
                wanted = (int(value) - int(info.min)) % (1 << to.bits) + int(info.min)
        else:
            wanted = float(value) if to is ElementKind.F64 else _nearest(value, to)
        assert found == wanted or (found != found and wanted != wanted), (
            f"{value!r} to {to}: oracle {found!r}, not {wanted!r}"
        )


def _scaled_cast(problem: Problem) -> None:
    """By exact fractions, rounded to f32 and then by search among all numbers of the result's type."""
    desc = problem.desc
    x, to, shape = problem.slots["x"].host(), desc.out_element, desc.out_shape
    scale = problem.slots["scale"].host() if "scale" in desc.arrays else np.float32(desc.numbers[0])
    largest = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0}.get(str(to), 0.0)
    flat = [np.broadcast_to(each, shape).ravel().astype(float).tolist() for each in (x, scale)]
    for value, by, found in zip(*flat, np.asarray(problem.wide["out"]).astype(float).ravel().tolist()):
        if not (math.isfinite(value) and math.isfinite(by)) or (largest and by == 0):
            continue
        exact = Fraction(value) / Fraction(by) if largest else Fraction(value) * Fraction(by)
        single = _nearest_f32(exact)
        if largest:
            single = min(max(single, -largest), largest)
        wanted = single if to is ElementKind.F32 else _nearest(single, to)
        assert found == wanted, f"{value!r} by {by!r} to {to}: oracle {found!r}, not {wanted!r}"


@lru_cache
def _numbers_of(kind: ElementKind) -> tuple[list[Any], list[int]]:
    """Every finite number of a short type at or above 0, in order, with its code; then the one that comes after the last."""
    codes = np.arange(1 << (kind.bits - 1), dtype=f"u{kind.bits // 8}")
    with np.errstate(invalid="ignore"):
        held = codes.view(kind.dtype).astype(np.float64)
    finite = [Fraction(float(v)) for v in held if np.isfinite(v)]
    return [*finite, 2 * finite[-1] - finite[-2]], [*range(len(finite) + 1)]


def _nearest(value: Any, to: ElementKind) -> float:
    if value != value or abs(value) == math.inf:
        return math.nan if to is ElementKind.FP8_E4M3 else float(value)
    if to is ElementKind.F32:
        return _nearest_f32(Fraction(value))
    numbers, codes = _numbers_of(to)
    size = abs(Fraction(value))
    at = bisect.bisect_left(numbers, size)
    if at == 0:
        return 0.0
    if at < len(numbers):
        low, high = size - numbers[at - 1], numbers[at] - size
        at -= low < high or (low == high and codes[at - 1] % 2 == 0)
    sign = -1.0 if value < 0 else 1.0
    beyond = math.nan if to is ElementKind.FP8_E4M3 else math.inf
    return sign * (float(numbers[at]) if at < len(numbers) - 1 else beyond)


def _nearest_f32(value: Fraction) -> float:
    """By exact comparison with the neighbours of what C's conversion gives."""
    with np.errstate(over="ignore"):
        middle = np.float32(float(value))
    near = [
        float(x) for x in (np.nextafter(middle, np.float32(-np.inf)), middle, np.nextafter(middle, np.float32(np.inf)))
    ]
    if math.inf in map(abs, near):
        return float(middle)
    return min(near, key=lambda x: (abs(Fraction(x) - value), int(np.float32(x).view(np.uint32)) & 1))


CHECKS: dict[str, Callable[[Problem], None]] = {
    **{name: elementwise for name, op in all_ops().items() if issubclass(op.plan, MapPlan)},
    **GRADIENTS,
    "cast": _cast,
    "scaled_cast": _scaled_cast,
    "nextafter": _nextafter,
}
