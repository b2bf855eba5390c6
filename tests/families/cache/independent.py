"""Paged caches by other means than the oracle's: token by token, element by element, codes looked for among all there are."""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from ...arena import as_bytes
from ...gauntlet.problem import Problem

__all__ = ["CHECKS"]

Array = np.ndarray[Any, Any]
E4M3 = [
    (float(v), code) for code, v in enumerate(np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)) if v == v
]


def _f32(x: float) -> float:
    """The nearest f32, as IEEE 754 rounds; what overflows is infinite."""
    with np.errstate(over="ignore"):
        return float(np.float32(x))


def _code(y: float, integer: bool) -> int:
    """The byte of a scaled value: of all codes the nearest, of two the even one."""
    if integer:
        return 0 if math.isnan(y) else round(max(-127.0, min(127.0, y))) & 0xFF
    if math.isnan(y):
        return 0x7F
    held, sign = min(abs(y), 448.0), 0x80 if math.copysign(1, y) < 0 else 0
    return sign | min((abs(v - held), code & 1, code) for v, code in E4M3 if code < 0x80)[2]


def _quantized(row: Array, integer: bool, given: float | None) -> tuple[list[int], float]:
    """Codes of a row, and its scale."""
    x = [float(v) for v in row]
    amax = max((abs(v) for v in x if math.isfinite(v)), default=0.0)
    scale = given if given is not None else max(_f32(amax / (127 if integer else 448)), 2.0**-126) if amax else 1.0
    inverse = _f32(1 / scale)
    return [_code(v if math.isnan(v) else _f32(v * inverse), integer) for v in x], scale


def _rotated(held: dict[str, Array], options: Mapping[str, Any], row: Array, position: int) -> list[float]:
    """A key rotated by its position, pair by pair as complex numbers."""
    x = [float(v) for v in row]
    pairs = len(held["inv_freq"]) if "inv_freq" in held else held["cos"].shape[1]
    factor = options.get("attention_factor", 1.0)
    for i in range(pairs):
        a, b = (2 * i, 2 * i + 1) if options.get("style") == "interleaved" else (i, i + pairs)
        if "inv_freq" in held:
            turn = cmath.exp(1j * position * float(held["inv_freq"][i]))
        else:
            turn = complex(held["cos"][position, i], held["sin"][position, i])
        both = complex(x[a], x[b]) * turn * factor
        x[a], x[b] = both.real, both.imag
    return x


def paged_kv_append(problem: Problem) -> None:
    slots, options = problem.slots, problem.sample.options
    held = {name: slot.host() for name, slot in slots.items() if name != "status"}
    nhd, ragged = options.get("layout", "NHD") == "NHD", "cu_seqlens" in held
    status, k = [0] * len(held["lengths"]), held["k"]
    size = held["k_pages"].shape[1 if nhd else 2]
    offsets = held["cu_seqlens"].tolist() if ragged else [b * k.shape[1] for b in range(len(status) + 1)]
    total = k.shape[0] if ragged else k.shape[0] * k.shape[1]
    at = held["positions"].ravel().tolist() if "positions" in held else None
    turns, tables = bool({"inv_freq", "cos"} & set(held)), len(held["cos"]) if "cos" in held else math.inf
    wanted = {
        name: as_bytes(slot.host()).copy() for name, slot in slots.items() if name.endswith(("_pages", "_scales"))
    }
    near: dict[tuple[int, ...], list[float]] = {}
    broken = sorted(offsets) != offsets or offsets[0] < 0 or offsets[-1] > total
    for b in range(len(status)):
        places, outside = [], False
        for i in range(offsets[b + 1] - offsets[b]) if not broken else ():
            slot = int(held["lengths"][b]) + i
            row = held["page_table"][b].tolist()
            if slot < 0 or slot // size >= len(row):
                status[b] = 1
            elif not 0 <= row[slot // size] < len(held["k_pages"]) and status[b] != 1:
                status[b] = 2
            else:
                position = slot if at is None else at[offsets[b] + i]
                outside |= turns and "cos" in held and not 0 <= position < tables
                places.append((offsets[b] + i, row[slot // size], slot % size, position))
        if broken:
            status[b] = 3
        if outside and not status[b]:
            status[b] = 4
        for token, page, slot, position in places if not status[b] else ():
            for part in ("k", "v"):
                new = held[part] if ragged else held[part].reshape(-1, *held[part].shape[2:])
                for h in range(new.shape[1]):
                    to = (page, slot, h) if nhd else (page, h, slot)
                    row = new[token, h]
                    if part == "k" and turns:
                        near[to] = _rotated(held, options, row, position)
                        row = np.array(near[to]).astype(new.dtype)
                    elif new.dtype == held[f"{part}_pages"].dtype:
                        wanted[f"{part}_pages"][to] = as_bytes(new)[token, h]
                        continue
                    if new.dtype == held[f"{part}_pages"].dtype:
                        continue
                    given = float(held[f"{part}_scale"][h]) if f"{part}_scale" in held else None
                    codes, scale = _quantized(row, held[f"{part}_pages"].dtype == np.int8, given)
                    wanted[f"{part}_pages"][to] = np.array(codes, np.uint8)
                    if given is None:
                        wanted[f"{part}_scales"][to] = np.float32(scale).view(np.uint32)
    assert problem.wide["status"].tolist() == status
    for name, bits in wanted.items():
        if name == "k_pages" and problem.wide[name].dtype == np.float64:
            _near(problem, near)
            continue
        assert np.array_equal(as_bytes(np.ascontiguousarray(problem.wide[name])), bits), name


def _near(problem: Problem, near: Mapping[tuple[int, ...], list[float]]) -> None:
    """Rotated keys are near, and everything else is as it was."""
    wide, before = problem.wide["k_pages"], problem.slots["k_pages"].host()
    rest = np.ones(wide.shape[:3], bool)
    for to, row in near.items():
        rest[to] = False
        assert np.abs(wide[to] - row).max() <= 2.0**-30 * np.abs(row).max(), to
    assert np.array_equal(wide[rest], before[rest].astype(np.float64), equal_nan=True)


def copy_pages(problem: Problem) -> None:
    slots = problem.slots
    source, dest = (slots[name].host().tolist() for name in ("source", "dest"))
    names = [name for name in slots if name.endswith(("_pages", "_scales"))]
    layered = slots["k_pages"].host().ndim == 5
    pages = slots["k_pages"].shape[1 if layered else 0]
    good = [0 <= a < pages and 0 <= b < pages for a, b in zip(source, dest)]
    assert problem.wide["status"].tolist() == [0 if fits else 1 for fits in good]
    for name in names:
        wanted = as_bytes(slots[name].host()).copy()
        for a, b in (pair for pair, fits in zip(zip(source, dest), good) if fits):
            for layer in wanted if layered else [wanted]:
                layer[b] = layer[a]
        assert np.array_equal(as_bytes(np.ascontiguousarray(problem.wide[name])), wanted), name


CHECKS = {"paged_kv_append": paged_kv_append, "copy_pages": copy_pages}
