"""Philox4x32-10 in NumPy, and each distribution as a function of its bits in float64 (long double for f64)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...numerics import special
from ...types import ElementKind, MathPrecision, PrecisionGuarantee, Ulp

__all__ = [
    "DROPPED",
    "MEASURES",
    "bits_at",
    "dropout",
    "dropout_backward",
    "fill_bernoulli",
    "fill_exponential",
    "fill_gumbel",
    "fill_integers",
    "fill_normal",
    "fill_random_bits",
    "fill_truncated_normal",
    "fill_uniform",
    "guarantee",
    "philox",
    "positions_of",
    "stochastic_cast",
    "take_position",
]

Array: TypeAlias = np.ndarray[Any, Any]
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def philox(key: tuple[int, int], counter: tuple[Any, Any, Any, Any]) -> Array:
    """The four words of each counter, as the last axis."""
    a, b, c, d = (np.asarray(word, np.uint64) & LOW for word in counter)
    for step in range(10):
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        keys = [np.uint64((part + step * weyl) % 2**32) for part, weyl in zip(key, (0x9E3779B9, 0xBB67AE85))]
        a, b = (second >> HALF) ^ b ^ keys[0], second & LOW
        c, d = (first >> HALF) ^ d ^ keys[1], first & LOW
    return np.stack(np.broadcast_arrays(a, b, c, d), -1)


def bits_at(seed: int, positions: Array, subsequence: int, bits: int) -> Array:
    """The 32, 64 or 128 random bits at positions, lowest words first, as the last axis."""
    per_block, tag = 128 // bits, {32: 0, 64: 1, 128: 2}[bits]
    block, high = positions // np.uint64(per_block), subsequence | tag << 62
    words = philox((seed % 2**32, (seed >> 32) % 2**32), (block & LOW, block >> HALF, high % 2**32, high >> 32))
    parts = words.reshape(*positions.shape, per_block, 4 // per_block)
    place = (positions % np.uint64(per_block)).astype(np.int64)
    return np.asarray(np.take_along_axis(parts, place[..., None, None], -2)[..., 0, :])


def positions_of(desc: Any, count: int, position: Array | None) -> Array:
    """Of elements in C order."""
    begin = int(desc.offset) + (0 if position is None else int(position.reshape(-1)[0]))
    return np.uint64(begin) + np.arange(count, dtype=np.uint64)


def _words(desc: Any, x: Array, position: Array | None) -> Array:
    """The random bits of each element, as u64."""
    words = bits_at(int(desc.seed), positions_of(desc, x.size, position), int(desc.subsequence), desc.bits)
    return _joined(words).reshape(x.shape)


def _joined(words: Array) -> Array:
    return words[..., 0] if words.shape[-1] == 1 else words[..., 0] | words[..., 1] << HALF


def _wide(desc: Any) -> Any:
    return np.longdouble if desc.bits == 64 else np.float64


def _minus_log(words: Array, bits: int, wide: Any) -> Array:
    """-log((w + 1/2) / 2**bits), from below 1/2 and from above."""
    top, unit = (1 << bits) - 1, wide(2) ** -bits
    below = words < 1 << (bits - 1)
    near = (np.where(below, words, np.uint64(top) - words).astype(wide) + wide(0.5)) * unit
    return np.asarray(np.where(below, -np.log(near), -np.log1p(-near)))


# ---- distributions -----------------------------------------------------------------------------------------------------


def fill_random_bits(desc: Any, x: Array, position: Array | None = None) -> Array:
    """The lowest bits."""
    return _words(desc, x, position).astype(desc.element.dtype)


def fill_bernoulli(desc: Any, x: Array, position: Array | None = None) -> Array:
    """Bits below p."""
    return np.asarray(_words(desc, x, position) < round(desc.p * 2**32)).astype(desc.element.dtype)


def fill_integers(desc: Any, x: Array, position: Array | None = None) -> Array:
    """Python's integers."""
    words = bits_at(int(desc.seed), positions_of(desc, x.size, position), int(desc.subsequence), desc.bits)
    low, span = int(desc.low), int(desc.high) - int(desc.low)
    numbers = [sum(int(word) << 32 * i for i, word in enumerate(one)) for one in words]
    made = [low + (number * span >> desc.bits) for number in numbers]
    return np.array(made, desc.element.dtype).reshape(x.shape)


def fill_uniform(desc: Any, x: Array, position: Array | None = None) -> Array:
    """low + u (high - low), within the numbers of x's kind."""
    wide = _wide(desc)
    least, most = desc.ends({"low": desc.low, "high": desc.high})
    return np.asarray(
        np.clip(wide(desc.low) + _unit(desc, x, position) * (wide(desc.high) - wide(desc.low)), least, most)
    )


def _unit(desc: Any, x: Array, position: Array | None) -> Array:
    """Multiples of 2**-digits of [0, 1)."""
    wide, digits = _wide(desc), desc.element.digits
    return np.asarray((_words(desc, x, position) >> np.uint64(desc.bits - digits)).astype(wide) * wide(2) ** -digits)


def fill_normal(desc: Any, x: Array, position: Array | None = None) -> Array:
    """By Box and Muller."""
    wide = _wide(desc)
    return np.asarray(wide(desc.mean) + wide(desc.std) * _standard_normal(desc, x, position))


def _pair(desc: Any, x: Array, position: Array | None, second: int) -> tuple[Array, Array]:
    """The positions, and the random bits of the first or second of the two elements that are made together."""
    positions = positions_of(desc, x.size, position)
    at = (positions & ~np.uint64(1)) + np.uint64(second)
    return positions, _joined(bits_at(int(desc.seed), at, int(desc.subsequence), desc.bits))


def _radius(desc: Any, x: Array, position: Array | None) -> Array:
    return np.asarray(np.sqrt(2 * _minus_log(_pair(desc, x, position, 0)[1], desc.bits, _wide(desc))))


def _standard_normal(desc: Any, x: Array, position: Array | None) -> Array:
    wide, bits = _wide(desc), desc.bits
    positions, second = _pair(desc, x, position, 1)
    radius = _radius(desc, x, position)
    quarter = (second + (np.uint64(1) << np.uint64(bits - 3))) >> np.uint64(bits - 2)
    rest = (second - (quarter << np.uint64(bits - 2))).astype(np.int64).astype(wide)
    angle = rest * wide(2) ** -bits * wide(8) * np.arctan(wide(1))
    turns = (quarter.astype(np.int64) - (positions & np.uint64(1)).astype(np.int64)) % 4  # sin(x) = cos(x - a quarter)
    sine, cosine = np.sin(angle), np.cos(angle)
    return np.asarray((radius * np.choose(turns, (cosine, -sine, -cosine, sine))).reshape(x.shape))


def fill_exponential(desc: Any, x: Array, position: Array | None = None) -> Array:
    """By the inverse."""
    return np.asarray(_wide(desc)(desc.scale) * _minus_log(_words(desc, x, position), desc.bits, _wide(desc)))


def fill_gumbel(desc: Any, x: Array, position: Array | None = None) -> Array:
    """By the inverse."""
    wide = _wide(desc)
    return np.asarray(
        wide(desc.loc) - wide(desc.scale) * np.log(_minus_log(_words(desc, x, position), desc.bits, wide))
    )


def fill_truncated_normal(desc: Any, x: Array, position: Array | None = None) -> Array:
    """By the inverse, within the numbers of x's kind."""
    made = np.longdouble(desc.mean) + np.longdouble(desc.std) * _truncated(desc, x, position)
    least, most = desc.ends({"low": desc.low, "high": desc.high})
    return np.asarray(np.clip(made, least, most).astype(_wide(desc)))


def _truncated(desc: Any, x: Array, position: Array | None) -> Array:
    root = np.sqrt(np.longdouble(2))
    low, high = (
        special.erf(np.asarray((end - desc.mean) / desc.std / root, np.float64)) for end in (desc.low, desc.high)
    )
    u = (_words(desc, x, position).astype(np.longdouble) + np.longdouble(0.5)) * np.longdouble(2) ** -desc.bits
    return np.asarray(root * special.erfinv(low + u * (np.longdouble(high) - low)))


def take_position(desc: Any, counter: Array) -> tuple[Array, Array]:
    """The counter before and after."""
    return counter.copy(), counter + np.int64(desc.count)


def dropout(desc: Any, x: Array, residual: Array | None = None, position: Array | None = None) -> Array:
    """Zeros where the bits are below p, plus the residual."""
    made = _scaled(desc, x, position)
    return made if residual is None else made + residual


def dropout_backward(desc: Any, grad: Array, position: Array | None = None) -> Array:
    """Zeros where the bits are below p."""
    return _scaled(desc, grad, position)


def stochastic_cast(desc: Any, x: Array, position: Array | None = None) -> Array:
    """One of two neighbours, by an integer multiple of the distance between them: x / unit and its part behind the point."""
    words = bits_at(int(desc.seed), positions_of(desc, x.size, position), int(desc.subsequence), 32)[..., 0]
    digits, least = (8, -133) if desc.dtype is ElementKind.BF16 else (11, -24)
    finite = np.isfinite(x)
    size = np.where(finite, np.abs(x.astype(np.float64)), 0)
    unit = np.ldexp(1.0, np.maximum(np.frexp(size)[1] - digits, least))
    below = np.floor(size / unit)
    up = words.reshape(x.shape) < np.floor((size / unit - below) * 2.0**32)
    with np.errstate(over="ignore"):
        signed = np.copysign(np.where(finite, (below + up) * unit, np.inf), np.where(np.signbit(x), -1, 1))
        made = np.asarray(signed.astype(np.float32).astype(desc.dtype.dtype))
    bits = made.view(np.uint16)
    return np.where(np.isnan(x), bits | np.uint16(1 << (digits - 2)), bits).view(made.dtype)


def _scaled(desc: Any, x: Array, position: Array | None) -> Array:
    wide: Any = np.longdouble if x.dtype in (np.float64, np.longdouble) else np.float64
    words = bits_at(int(desc.seed), positions_of(desc, x.size, position), int(desc.subsequence), 32)[..., 0]
    kept = words.reshape(x.shape) >= round(desc.p * 2**32)
    with np.errstate(all="ignore"):
        return np.asarray(np.where(kept, x.astype(wide) / (1 - wide(desc.p)), wide(0)))


# ---- precision ---------------------------------------------------------------------------------------------------------


def guarantee(desc: Any) -> PrecisionGuarantee:  # noqa: ARG001
    """The oracle's own results: computed wide, rounded once."""
    return PrecisionGuarantee.fixed_order(MathPrecision.F64, ElementKind.F64, Ulp(1.0))


def _spread(desc: Any, position: Array | None = None, **_: Any) -> Array:
    """What is added up, without signs."""
    x = np.empty(desc.shape, np.uint8)
    if desc.name == "fill_uniform":
        return np.asarray(abs(desc.low) + _unit(desc, x, position) * (desc.high - desc.low))
    if desc.name == "fill_normal":
        return np.asarray(abs(desc.mean) + desc.std * np.abs(_standard_normal(desc, x, position)))
    if desc.name == "fill_exponential":
        return fill_exponential(desc, x, position)
    if desc.name == "fill_gumbel":
        standard = np.log(_minus_log(_words(desc, x, position), desc.bits, _wide(desc)))
        return np.asarray(abs(desc.loc) + desc.scale * (1 + np.abs(standard)))
    return np.asarray(abs(desc.mean) + desc.std * np.abs(_truncated(desc, x, position)))


def _tail(desc: Any, position: Array | None = None, **_: Any) -> Array:
    """The slope of the inverse."""
    z = _truncated(desc, np.empty(desc.shape, np.uint8), position)
    return np.asarray(desc.std * np.sqrt(np.pi / 2) * np.exp(z * z / 2))


def _of_radius(desc: Any, position: Array | None = None, **_: Any) -> Array:
    """What sine and cosine are multiplied by, without signs, and what is added."""
    x = np.empty(desc.shape, np.uint8)
    return np.asarray(abs(desc.mean) + desc.std * _radius(desc, x, position).reshape(x.shape))


MEASURES: dict[str, Callable[..., Any]] = {"spread": _spread, "tail": _tail, "radius": _of_radius}


def _magnitude(desc: Any, position: Array | None = None, **arrays: Array) -> Array:
    """What is kept, without signs."""
    return np.abs(_scaled(desc, arrays[desc.read], position))


DROPPED: dict[str, Callable[..., Any]] = {"scaled": _magnitude}
