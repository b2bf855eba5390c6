"""Opcodes on single bits, bit fields and bytes of a register (PTX ISA, Integer Arithmetic Instructions: bfe, bfi, bfind, brev,
clz, popc; Data Movement Instructions: prmt)."""

from __future__ import annotations

import numpy as np

from .registers import BITS, Lanes, dtype_of, unsupported

__all__ = ["bfe", "bfi", "bfind", "brev", "clz", "popc", "prmt"]

_BYTE = np.uint32(0xFF)
_ONE = np.uint64(1)


def popc(a: Lanes) -> Lanes:
    """The number of ones, as a u32."""
    return np.bitwise_count(_unsigned(a)).astype("u4")


def clz(a: Lanes) -> Lanes:
    """The number of leading zeros, as a u32."""
    x = _unsigned(a)
    bits = x.dtype.itemsize * 8
    step = 1
    while step < bits:  # every bit below the leading one
        x = x | x >> x.dtype.type(step)
        step *= 2
    return np.uint32(bits) - np.bitwise_count(x).astype("u4")


def bfind(a: Lanes, type: str, shiftamt: bool = False) -> Lanes:
    """The position of the leading one (of the leading zero for a negative number), or all ones if there is none; with
    `shiftamt`, the left shift that moves it to the top bit."""
    leading = clz(a ^ (a >> a.dtype.type(BITS[type] - 1)) if type[0] == "s" else a)
    none = leading == BITS[type]
    return np.where(none, np.uint32(0xFFFFFFFF), leading if shiftamt else np.uint32(BITS[type] - 1) - leading)


def brev(a: Lanes) -> Lanes:
    """The bits in reverse order."""
    x = _unsigned(a)
    every = int(np.iinfo(x.dtype).max)
    step = x.dtype.itemsize * 4
    while step:
        low = x.dtype.type(every // ((1 << step) + 1))  # alternating groups of `step` bits
        n = x.dtype.type(step)
        x = (x >> n) & low | (x & low) << n
        step //= 2
    return x


def bfe(a: Lanes, pos: Lanes, length: Lanes, type: str) -> Lanes:
    """`length` bits of `a` from bit `pos` on, extended by zeros or, for a signed type, by the field's upper bit; a field that
    exceeds the register is filled with zeros or the sign."""
    wide = np.dtype("i8" if type[0] == "s" else "u8")
    field = np.right_shift(a.astype(wide), (pos & _BYTE).astype(wide))
    unused = np.uint32(64) - np.minimum(length & _BYTE, np.uint32(64))
    return (field << unused.astype(wide) >> unused.astype(wide)).astype(dtype_of(type))


def bfi(a: Lanes, b: Lanes, pos: Lanes, length: Lanes, bits: int) -> Lanes:
    """`b` with the low `length` bits of `a` inserted from bit `pos` on; bits beyond the register are dropped."""
    whole = dtype_of(f"b{bits}")
    at = (pos & _BYTE).astype("u8")
    mask = (((_ONE << (length & _BYTE).astype("u8")) - _ONE) << at).astype(whole)
    moved = (a.astype("u8") << at).astype(whole)
    return b ^ ((b ^ moved) & mask)


# The modes that read only the selector's low two bits: for each of the four values, the byte of b:a for each byte of the result.
_PERMUTATIONS = {
    "f4e": [[i + j for j in range(4)] for i in range(4)],
    "b4e": [[(i - j) % 8 for j in range(4)] for i in range(4)],
    "rc8": [[i] * 4 for i in range(4)],
    "ecl": [[max(i, j) for j in range(4)] for i in range(4)],
    "ecr": [[min(i, j) for j in range(4)] for i in range(4)],
    "rc16": [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]],
}


def prmt(a: Lanes, b: Lanes, selector: Lanes, mode: str = "") -> Lanes:
    """Four of the eight bytes of b:a. By default each nibble of `selector` names one byte, and the nibble's upper bit replaces
    the byte by eight copies of its sign; the modes are fixed permutations."""
    if mode and mode not in _PERMUTATIONS:
        raise unsupported("mode of prmt", mode, _PERMUTATIONS)
    pairs = np.broadcast_arrays(a, b)
    eight = np.ascontiguousarray(np.stack(pairs, -1).astype("u4", copy=False)).view("u1")
    chosen = np.asarray(selector).reshape(*np.shape(selector), 1)
    if mode:
        picks = np.array(_PERMUTATIONS[mode])[chosen[..., 0] & np.uint32(3)]
        signs = np.zeros((), bool)
    else:
        nibbles = chosen >> np.arange(0, 16, 4, dtype="u4")
        picks, signs = (nibbles & np.uint32(7)).astype(np.intp), (nibbles & np.uint32(8)) != 0
    if picks.ndim == 1:
        bytes_ = eight[..., picks]
    else:
        lanes = np.broadcast_shapes(eight.shape[:-1], picks.shape[:-1])
        bytes_ = np.take_along_axis(np.broadcast_to(eight, (*lanes, 8)), np.broadcast_to(picks, (*lanes, 4)), -1)
    if signs.any():
        bytes_ = np.where(signs, (bytes_.view("i1") >> np.int8(7)).view("u1"), bytes_)
    return np.ascontiguousarray(bytes_).view("u4")[..., 0]


def _unsigned(a: Lanes) -> Lanes:
    return a.view(f"u{a.dtype.itemsize}")
