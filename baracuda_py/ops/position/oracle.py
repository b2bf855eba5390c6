"""Rotary embedding in long double, angles from exact products, and the measures that its bounds name."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ...numerics.guarantee import widely
from ...types import ElementKind, PrecisionGuarantee

__all__ = ["MEASURES", "guarantee", "rope"]

Array: TypeAlias = np.ndarray[Any, Any]
MOST_POSITION, MOST_ANGLE = 2.0**53, 2.0**40  # up to which bounds speak


def _wide(x: Array) -> Array:
    return np.asarray(x).astype(np.longdouble)


def _own_positions(desc: Any, positions: Array | None) -> Array:
    """As many as there are, int64, which wrap as they do on the device."""
    own = np.arange(*desc.tokens) if positions is None else np.asarray(positions).astype(np.int64)
    return np.asarray(own + np.int64(desc.offset))


def _positions(desc: Any, positions: Array | None) -> Array:
    """[batch, tokens]."""
    return np.broadcast_to(_own_positions(desc, positions), desc.extents[:2])


def _angles(desc: Any, read: dict[str, Array]) -> tuple[Array, Array, Array]:
    """Cosines and sines, [batch, tokens, pairs], and which tokens have any, [batch, tokens]."""
    at = _positions(desc, read.get("positions"))
    if "cos" in read:
        rows = len(read["cos"])
        known = (at >= 0) & (at < rows)
        picked = np.where(known, at, 0)
        cosine, sine = (
            _wide(read[name])[picked] if rows else np.zeros((*at.shape, desc.half), np.longdouble)
            for name in ("cos", "sin")
        )
        return cosine, sine, known
    # Both parts of a position are of 32 bits, so that their products are exact in 64 digits; then the sum of angles.
    frequency = _wide(read["inv_freq"])
    high, low = (_wide(part)[..., None] * frequency for part in ((at >> 32) << 32, at & 0xFFFFFFFF))
    cosine = np.cos(high) * np.cos(low) - np.sin(high) * np.sin(low)
    sine = np.sin(high) * np.cos(low) + np.cos(high) * np.sin(low)
    return cosine, sine, np.ones(at.shape, bool)


def _canonical(desc: Any, x: Array) -> Array:
    """A view [batch, tokens, heads, width]."""
    return np.asarray(desc.view(_wide(x)))


def _halves(desc: Any, x: Array) -> tuple[Array, Array]:
    """Either member of every pair, [batch, tokens, heads, pairs], as views."""
    if desc.style == "interleaved":
        return x[..., 0 : 2 * desc.half : 2], x[..., 1 : 2 * desc.half : 2]
    return x[..., : desc.half], x[..., desc.half : 2 * desc.half]


def _read(given: dict[str, Array | None]) -> dict[str, Array]:
    return {name: x for name, x in given.items() if x is not None}


def rope(desc: Any, **arrays: Any) -> Any:
    """Every written operand, in order."""
    read = _read(arrays)
    with np.errstate(all="ignore"):
        cosine, sine, known = _angles(desc, read)
        factor = np.longdouble(desc.attention_factor)
        cosine, sine = (part[:, :, None, :] * factor for part in (cosine, -sine if desc.inverse else sine))
        results = []
        for name in desc.rotated_inputs:
            made = _wide(read[name]).copy()
            a, b = _halves(desc, desc.view(made))
            valid = known[:, :, None, None]
            pair = np.where(valid, a * cosine - b * sine, 0), np.where(valid, b * cosine + a * sine, 0)
            a[...], b[...] = pair
            results.append(made if desc.element is ElementKind.F64 else made.astype(np.float64))
    if desc.has("status"):
        at = _own_positions(desc, read.get("positions"))
        results.append(np.where((at >= 0) & (at < len(read["cos"])), 0, 1).astype(np.int32))
    return tuple(results) if len(results) > 1 else results[0]


def guarantee(desc: Any, kernel: PrecisionGuarantee) -> PrecisionGuarantee:
    """What the oracle itself promises. "abs_pair" is what its angles err by, in long double whatever the operands are."""
    return widely(kernel, desc, fixed={"abs_pair": "abs_pair"})


# ---- measures ------------------------------------------------------------------------------------------------------


def _spread(desc: Any, shape: tuple[int, ...], first: Array, second: Array) -> Array:
    """What is true of pairs, in the place of both members; 0 elsewhere."""
    made = np.zeros(shape)
    a, b = _halves(desc, desc.view(made))
    a[...], b[...] = first, second
    return made


def _operand(desc: Any, output: str, read: dict[str, Array]) -> Array:
    return np.asarray(read[desc.rotated_into[output]])


def _abs_pair(desc: Any, *, output: str, **arrays: Array) -> Array:
    """|factor| (|a| + |b|)."""
    x = _operand(desc, output, arrays)
    a, b = (np.abs(part) for part in _halves(desc, _canonical(desc, x)))
    size = abs(desc.attention_factor) * (a + b)
    return _spread(desc, x.shape, size, size)


def _abs_products(desc: Any, *, output: str, **arrays: Array) -> Array:
    """|factor| (|a cos| + |b sin|), and |factor| (|b cos| + |a sin|)."""
    x = _operand(desc, output, arrays)
    a, b = (np.abs(part) for part in _halves(desc, _canonical(desc, x)))
    cosine, sine, _ = _angles(desc, arrays)
    c, s = (np.abs(part[:, :, None, :] * desc.attention_factor) for part in (cosine, sine))
    with np.errstate(all="ignore"):
        return _spread(desc, x.shape, a * c + b * s, b * c + a * s)


def _smallest_normal(desc: Any, *, output: str, **arrays: Array) -> Array:
    x = _operand(desc, output, arrays)
    size = np.asarray(desc.element.smallest_normal)
    return _spread(desc, x.shape, size, size)  # columns that are not rotated are not rounded


def _unbounded(desc: Any, *, output: str, **arrays: Array) -> Array:
    """Whether a position or an angle is beyond what is reduced exactly, or products beyond what they are computed in."""
    x = _operand(desc, output, arrays)
    most = 2.0**126 if desc.element is not ElementKind.F64 else 2.0**1022
    products = _abs_products(desc, output=output, **arrays) > most
    if "cos" in arrays:
        return products
    at = np.abs(_positions(desc, arrays.get("positions")).astype(np.float64))[..., None]
    far = (at > MOST_POSITION) | (at * np.abs(np.asarray(arrays["inv_freq"], np.float64)) >= MOST_ANGLE)
    return products | (_spread(desc, x.shape, far[:, :, None, :], far[:, :, None, :]) > 0)


MEASURES = {
    "abs_pair": _abs_pair,
    "abs_products": _abs_products,
    "smallest_normal": _smallest_normal,
    "unbounded": _unbounded,
}
