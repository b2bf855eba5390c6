"""GGUF blocks by other means than the oracle's table: each format's layout written out, a block at a time."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from baracuda_py.types import GgufFormat

from ...gauntlet.problem import Problem

__all__ = ["CHECKS", "weights_of"]

Array = np.ndarray[Any, Any]
BLOCKS, ROWS = 40, 6  # of a sample that are looked at
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _f32(x: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(x))


def _half(block: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", block, at)[0])


def _nibbles(data: bytes) -> list[int]:
    """Sixteen low nibbles, then sixteen high ones, of every 16 bytes."""
    return [n for i in range(0, len(data), 16) for shift in (0, 4) for n in (b >> shift & 15 for b in data[i : i + 16])]


def _signed(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data)}b", data))


def _fifth(codes: list[int], high: bytes) -> list[int]:
    bits = int.from_bytes(high, "little")
    return [c + 16 * (bits >> j & 1) for j, c in enumerate(codes)]


def _times(d: float, codes: list[int], *, plus: float | None = None) -> list[float]:
    found = [_f32(d * c) for c in codes]
    return found if plus is None else [_f32(x + plus) for x in found]


def _k_scales(s: bytes) -> tuple[list[int], list[int]]:
    scales = [s[j] & 63 if j < 4 else (s[j + 4] & 15) | (s[j - 4] >> 6) << 4 for j in range(8)]
    minima = [s[j + 4] & 63 if j < 4 else s[j + 4] >> 4 | (s[j] >> 6) << 4 for j in range(8)]
    return scales, minima


def _q2_k(b: bytes) -> list[float]:
    found, d, least = [], _half(b, 80), _half(b, 82)
    for w in range(256):
        code = b[16 + w // 128 * 32 + w % 32] >> w % 128 // 32 * 2 & 3
        s = b[w // 16]
        found.append(_f32(_f32(_f32(d * (s & 15)) * code) - _f32(least * (s >> 4))))
    return found


def _q3_k(b: bytes) -> list[float]:
    found, d, s = [], _half(b, 108), b[96:108]
    for w in range(256):
        j = w // 16
        scale = (s[j % 8] >> j // 8 * 4 & 15 | (s[8 + j % 4] >> j // 4 * 2 & 3) << 4) - 32
        code = (b[32 + w // 128 * 32 + w % 32] >> w % 128 // 32 * 2 & 3) - (0 if b[w % 32] >> w // 32 & 1 else 4)
        found.append(_f32(_f32(d * scale) * code))
    return found


def _q45_k(b: bytes, high: int, low: int) -> list[float]:
    found, d, least = [], _half(b, 0), _half(b, 2)
    scales, minima = _k_scales(b[4:16])
    for w in range(256):
        j, byte = w // 32, b[low + w // 64 * 32 + w % 32]
        code = (byte >> 4 if j % 2 else byte & 15) + (16 * (b[high + w % 32] >> j & 1) if high else 0)
        found.append(_f32(_f32(_f32(d * scales[j]) * code) - _f32(least * minima[j])))
    return found


def _q6_k(b: bytes) -> list[float]:
    found, d, scales = [], _half(b, 208), _signed(b[192:208])
    for w in range(256):
        half, l, quarter = w // 128, w % 32, w % 128 // 32
        low = b[64 * half + l + 32 * (quarter % 2)] >> quarter // 2 * 4 & 15
        high = b[128 + 32 * half + l] >> 2 * quarter & 3
        found.append(_f32(_f32(d * scales[w // 16]) * ((low | high << 4) - 32)))
    return found


def _iq4_xs(b: bytes) -> list[float]:
    found, d, high = [], _half(b, 0), int.from_bytes(b[2:4], "little")
    for j in range(8):
        scale = (b[4 + j // 2] >> j % 2 * 4 & 15 | (high >> 2 * j & 3) << 4) - 32
        found += _times(_f32(d * scale), [IQ4[n] for n in _nibbles(b[8 + 16 * j : 24 + 16 * j])])
    return found


def _e8m0(e: int) -> float:
    return math.ldexp(1.0, e - 128)


FORMS: dict[GgufFormat, Callable[[bytes], list[float]]] = {
    GgufFormat.Q4_0: lambda b: _times(_half(b, 0), [n - 8 for n in _nibbles(b[2:])]),
    GgufFormat.Q4_1: lambda b: _times(_half(b, 0), _nibbles(b[4:]), plus=_half(b, 2)),
    GgufFormat.Q5_0: lambda b: _times(_half(b, 0), [n - 16 for n in _fifth(_nibbles(b[6:]), b[2:6])]),
    GgufFormat.Q5_1: lambda b: _times(_half(b, 0), _fifth(_nibbles(b[8:]), b[4:8]), plus=_half(b, 2)),
    GgufFormat.Q8_0: lambda b: _times(_half(b, 0), _signed(b[2:])),
    GgufFormat.Q8_1: lambda b: _times(_half(b, 0), _signed(b[4:])),
    GgufFormat.Q2_K: _q2_k,
    GgufFormat.Q3_K: _q3_k,
    GgufFormat.Q4_K: lambda b: _q45_k(b, 0, 16),
    GgufFormat.Q5_K: lambda b: _q45_k(b, 16, 48),
    GgufFormat.Q6_K: _q6_k,
    GgufFormat.Q8_K: lambda b: _times(struct.unpack_from("<f", b)[0], _signed(b[4:260])),
    GgufFormat.IQ4_NL: lambda b: _times(_half(b, 0), [IQ4[n] for n in _nibbles(b[2:])]),
    GgufFormat.IQ4_XS: _iq4_xs,
    GgufFormat.MXFP4: lambda b: _times(_e8m0(b[0]), [E2M1[n] for n in _nibbles(b[1:])]),
    GgufFormat.Q4_SIMPLE32: lambda b: _times(_half(b, 0), [b[2 + w // 2] >> w % 2 * 4 & 15 for w in range(32)]),
}
BYTES = {"Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24, "Q8_0": 34, "Q8_1": 36, "Q2_K": 84, "Q3_K": 110, "Q4_K": 144,
         "Q5_K": 176, "Q6_K": 210, "Q8_K": 292, "IQ4_NL": 18, "IQ4_XS": 136, "MXFP4": 17, "Q4_SIMPLE32": 18}  # fmt: skip


def weights_of(kind: GgufFormat, blocks: Array) -> Array:
    """The weights of blocks, u8 [count, bytes], as float64 [count, weights]."""
    with np.errstate(all="ignore"):
        return np.array([FORMS[kind](bytes(b)) for b in blocks])


def _spread(count: int, most: int) -> list[int]:
    return sorted({round(i * (count - 1) / max(most - 1, 1)) for i in range(min(count, most))}) if count else []


def _dequantized(problem: Problem) -> None:
    kind = problem.desc.format
    blocks = problem.inputs["blocks"].reshape(-1, BYTES[kind.name])
    found = problem.wide["out"].reshape(len(blocks), -1) if len(blocks) else problem.wide["out"]
    dtype = problem.desc.layout("out").element.dtype
    for i in _spread(len(blocks), BLOCKS):
        with np.errstate(all="ignore"):
            wanted = weights_of(kind, blocks[i : i + 1])[0].astype(np.float32).astype(dtype).astype(np.float64)
        assert np.array_equal(found[i], wanted, equal_nan=True)


def _quantized(problem: Problem) -> None:
    """What comes back is within a step: that of the block, or of the sub-block with its scale rounded to six or eight bits."""
    kind, x = problem.desc.format, problem.inputs["x"].astype(np.float64)
    made, steps = problem.wide["out"], {"Q4_0": 8, "Q4_1": 15, "Q5_0": 16, "Q5_1": 31, "Q8_0": 127, "Q8_1": 127}
    weights, columns = (256 if kind.name.endswith("K") else 32), x.shape[-1]
    for i in _spread(len(x), ROWS):
        got = weights_of(kind, made[i].reshape(-1, BYTES[kind.name])).reshape(-1)[:columns]
        row = np.where(np.isfinite(x[i]), x[i], 0)
        for k in range(0, columns, weights):
            part = row[k : k + weights]
            spread = max(part.max(), 0) - min(part.min(), 0)
            of_half = 2.0**-24 if spread < 60000 else math.inf  # a scale beyond f16 is infinite, one below is rounded
            step = spread / (steps.get(kind.name) or 15) * 1.01 + spread * 2.0**-5 * (kind.name in ("Q4_K", "Q6_K"))
            with np.errstate(all="ignore"):
                off = np.abs(got[k : k + weights] - part)
            assert not (off > step + 260 * of_half).any(), (i, k, float(np.nanmax(off)), step)


def _product(problem: Problem) -> None:
    """A few sums, term by term."""
    kind, x, w = problem.desc.format, problem.inputs["x"], problem.inputs["w"]
    rows, found = x.reshape(-1, x.shape[-1]), problem.wide["out"].reshape(-1, len(w))
    for n in _spread(len(w), 3):
        weights = weights_of(kind, w[n].reshape(-1, BYTES[kind.name])).reshape(-1)
        for m in _spread(len(rows), 3):
            terms = [float(a) * b for a, b in zip(rows[m].tolist(), weights.tolist(), strict=True)]
            size = math.fsum(map(abs, terms))
            assert abs(found[m, n] - math.fsum(terms)) <= 2.0**-20 * size  # weights that are f32 or not


CHECKS: dict[str, Callable[[Problem], None]] = {
    "dequantize_gguf": _dequantized, "quantize_gguf": _quantized, "matmul_gguf": _product, "matmul_q4k": _product,
}  # fmt: skip
