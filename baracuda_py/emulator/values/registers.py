"""Types by their PTX names: how a register stores a value, and values that are packed in one register."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...types import UnsupportedError

__all__ = ["BITS", "DTYPES", "Lanes", "by_elements", "dtype_of", "join", "split", "unsupported"]

# An array of one value per lane, or a NumPy scalar (or 0-d array) that all lanes share.
Lanes: TypeAlias = Any

_DTYPES: dict[str, np.dtype[Any]] = {
    **{f"{kind}{bits}": np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64) for kind in "bu"},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("e4m3", "e5m2"), np.dtype("u1")),
    **dict.fromkeys(("f16", "bf16", "e4m3x2", "e5m2x2"), np.dtype("u2")),
    **dict.fromkeys(("tf32", "f16x2", "bf16x2", "s16x2", "u16x2"), np.dtype("u4")),
    **dict.fromkeys(("f32x2",), np.dtype("u8")),
    **{f"f{bits}": np.dtype(f"f{bits // 8}") for bits in (32, 64)},
}
BITS = {name: dtype.itemsize * 8 for name, dtype in _DTYPES.items()}
# NumPy's name of the register that holds a type. Halves are stored as bits: `floats` computes with them.
DTYPES = {
    "u8": "u1", "s8": "i1", "b8": "u1", "u16": "u2", "s16": "i2", "b16": "u2", "f16": "u2", "bf16": "u2", "u32": "u4",
    "s32": "i4", "b32": "u4", "f32": "f4", "f16x2": "u4", "bf16x2": "u4", "u64": "u8", "s64": "i8", "b64": "u8", "f64": "f8",
}  # fmt: skip


def unsupported(what: str, got: str, known: Iterable[str]) -> UnsupportedError:
    """The error for a name in an instruction that is not in `known`."""
    return UnsupportedError(
        f"the emulator knows no {what} {got!r} here", f"it knows {', '.join(known)}; select a kernel that does without"
    )


def dtype_of(type: str) -> np.dtype[Any]:
    """The dtype of a register of this PTX type: bit patterns for 16-bit floats, narrower ones and packed values."""
    try:
        return _DTYPES[type]
    except KeyError:
        raise unsupported("type", type, _DTYPES) from None


def split(a: Lanes, type: str) -> Lanes:
    """The elements of lanes of a packed type ("f16x2"), along a new last axis, the low one first."""
    whole = np.asarray(a, dtype_of(type))
    return np.ascontiguousarray(whole.reshape(*whole.shape, 1)).view(dtype_of(type[:-2]))


def join(x: Lanes, type: str) -> Lanes:
    """The inverse of `split`."""
    return np.ascontiguousarray(x).view(dtype_of(type))[..., 0]


def by_elements(function: Callable[..., Lanes], operands: Sequence[Lanes], type: str) -> Lanes:
    """function(*operands, type); for a packed `type` it is applied to each pair of elements, and the results are packed."""
    if not type.endswith("x2"):
        return function(*operands, type)
    return join(function(*(split(x, type) for x in operands), type[:-2]), type)
