"""The emulator's matrix opcodes, against the ISA's tables: which lane's register holds which element, one at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.emulator.tensor_cores import warpgroup
from baracuda_py.emulator.tensor_cores.tensor_core import ldmatrix, mma, stmatrix
from baracuda_py.types import UnsupportedError
from tests.emulator.exact_floats import SHAPES, rounded

RNG = np.random.default_rng(3)
Array = np.ndarray[Any, Any]
Place = Callable[[int, int, int], tuple[int, int]]

WIDTHS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "s4": 4, "u4": 4}
STORED = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


# PTX ISA, Matrix Fragments for mma.*: row and column of element i (the lowest bits of the first register first) that lane
# 4 g + t holds, by the shape and the bits of an element.
A: dict[tuple[str, int], Place] = {
    ("m16n8k8", 16): lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ("m16n8k16", 16): lambda g, t, i: (
        g if i < 2 or 4 <= i < 6 else g + 8,
        t * 2 + (i & 1) if i < 4 else t * 2 + (i & 1) + 8,
    ),
    ("m16n8k4", 32): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("m16n8k8", 32): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
    ("m8n8k4", 64): lambda g, t, i: (g, t),
    ("m16n8k4", 64): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("m16n8k8", 64): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
    ("m16n8k16", 64): lambda g, t, i: (g if i % 2 == 0 else g + 8, i * 2 + t if i % 2 == 0 else i * 2 - 2 + t),
    ("m8n8k16", 8): lambda g, t, i: (g, t * 4 + i),
    ("m16n8k16", 8): lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
    ("m16n8k32", 8): lambda g, t, i: (
        g if i < 4 or 8 <= i < 12 else g + 8,
        t * 4 + (i & 3) if i < 8 else t * 4 + (i & 3) + 16,
    ),
    ("m8n8k32", 4): lambda g, t, i: (g, t * 8 + (i & 7)),
    ("m16n8k32", 4): lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)),
    ("m16n8k64", 4): lambda g, t, i: (
        g if i < 8 or 16 <= i < 24 else g + 8,
        t * 8 + (i & 7) if i < 16 else t * 8 + (i & 7) + 32,
    ),
}
B: dict[tuple[str, int], Place] = {
    ("m16n8k8", 16): lambda g, t, i: (t * 2 + i, g),
    ("m16n8k16", 16): lambda g, t, i: (t * 2 + (i & 1) if i < 2 else t * 2 + (i & 1) + 8, g),
    ("m16n8k4", 32): lambda g, t, i: (t, g),
    ("m16n8k8", 32): lambda g, t, i: (t if i == 0 else t + 4, g),
    ("m8n8k4", 64): lambda g, t, i: (t, g),
    ("m16n8k4", 64): lambda g, t, i: (t, g),
    ("m16n8k8", 64): lambda g, t, i: (t if i == 0 else t + 4, g),
    ("m16n8k16", 64): lambda g, t, i: (t + i * 4, g),
    ("m8n8k16", 8): lambda g, t, i: (t * 4 + i, g),
    ("m16n8k16", 8): lambda g, t, i: (t * 4 + i, g),
    ("m16n8k32", 8): lambda g, t, i: (t * 4 + (i & 3) if i < 4 else t * 4 + (i & 3) + 16, g),
    ("m8n8k32", 4): lambda g, t, i: (t * 8 + (i & 7), g),
    ("m16n8k32", 4): lambda g, t, i: (t * 8 + (i & 7), g),
    ("m16n8k64", 4): lambda g, t, i: (t * 8 + (i & 7) if i < 8 else t * 8 + (i & 7) + 32, g),
}


def c_place(g: int, t: int, i: int) -> tuple[int, int]:
    return (g if i < 2 else g + 8), t * 2 + (i & 1)


def encoded(x: Any, type: str) -> int:
    """The bits of a number."""
    if type in STORED:
        raw = np.array(x, np.float64).astype(STORED[type])
        return int(raw.view(f"u{raw.dtype.itemsize}"))
    return int(x) & (1 << WIDTHS[type]) - 1


def registers(matrices: Array, place: Place, count: int, type: str) -> list[Array]:
    """`count` elements a lane, packed into registers as they come."""
    width = WIDTHS[type]
    each = max(32 // width, 1)
    rows = np.zeros((count // each, len(matrices), 32), np.uint64)
    for w, lane, i in itertools.product(range(len(matrices)), range(32), range(count)):
        bits = encoded(matrices[w][place(lane // 4, lane % 4, i)], type)
        rows[i // each, w, lane] |= np.uint64(bits << i % each * width)
    return [r.view("f8") if type == "f64" else r.astype("u4") for r in rows]


def accumulator_registers(matrices: Array, type: str) -> list[Array]:
    rows = matrices.shape[1]
    flat = np.zeros((rows // 4, len(matrices), 32))
    for w, lane, i in itertools.product(range(len(matrices)), range(32), range(rows // 4)):
        flat[i, w, lane] = matrices[w][c_place(lane // 4, lane % 4, i)]
    if type != "f16":
        return list(flat.astype({"f32": "f4", "f64": "f8", "s32": "i4"}[type]))
    halves = flat.astype("f2").view("u2").astype("u4")
    return [halves[i] | halves[i + 1] << np.uint32(16) for i in range(0, len(halves), 2)]


def accumulator_matrices(regs: Sequence[Array], rows: int, type: str) -> Array:
    if type == "f16":
        regs = [(r >> np.uint32(16 * h)).astype("u2").view("f2") for r in regs for h in (0, 1)]
    out = np.zeros((len(regs[0]), rows, 8))
    for w, lane, i in itertools.product(range(len(out)), range(32), range(rows // 4)):
        out[w][c_place(lane // 4, lane % 4, i)] = regs[i][w, lane]
    return out


MMA = [
    *[(s, (d, t, t, d)) for s in ("m16n8k8", "m16n8k16") for d, t in (("f32", "f16"), ("f16", "f16"), ("f32", "bf16"))],
    *[(s, ("f32", "tf32", "tf32", "f32")) for s in ("m16n8k4", "m16n8k8")],
    *[(s, ("f64",) * 4) for s in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")],
    *[(s, ("s32", a, b, "s32")) for s in ("m8n8k16", "m16n8k16", "m16n8k32") for a, b in (("s8", "s8"), ("u8", "s8"))],
    *[(s, ("s32", a, b, "s32")) for s in ("m8n8k32", "m16n8k32", "m16n8k64") for a, b in (("s4", "s4"), ("s4", "u4"))],
    *[(s, (d, "e4m3", "e5m2", d)) for s in ("m16n8k16", "m16n8k32") for d in ("f16", "f32")],
    ("m16n8k32", ("s32", "u8", "u8", "s32")),
    ("m16n8k32", ("f32", "e5m2", "e4m3", "f32")),
]


def numbers(shape: tuple[int, ...], type: str) -> Array:
    low, high = {"u8": (0, 256), "s8": (-128, 128), "u4": (0, 16), "s4": (-8, 8)}.get(type, (-4, 5))
    return RNG.integers(low, high, shape).astype("f8")


def operands(shape: str, types: tuple[str, ...], warps: int) -> tuple[Array, Array, Array, list[list[Array]]]:
    m, k = int(shape[1:].split("n")[0]), int(shape.split("k")[1])
    a, b = numbers((warps, m, k), types[1]), numbers((warps, k, 8), types[2])
    c = RNG.integers(-50, 50, (warps, m, 8)).astype("f8")
    width = WIDTHS[types[1]]
    return (
        a,
        b,
        c,
        [
            registers(a, A[shape, width], m * k // 32, types[1]),
            registers(b, B[shape, width], k * 8 // 32, types[2]),
            accumulator_registers(c, types[0]),
        ],
    )


@pytest.mark.parametrize(("shape", "types"), MMA, ids=lambda x: x if isinstance(x, str) else "-".join(x))
def test_a_product_of_small_integers_is_exact_and_in_its_place(shape: str, types: tuple[str, str, str, str]) -> None:
    a, b, c, regs = operands(shape, types, warps=2)
    want = a @ b + c
    got = mma(shape, types, *regs)
    dtype = {"f32": "f4", "f64": "f8", "s32": "i4", "f16": "u4"}[types[0]]
    assert len(got) == len(regs[2]) and all(r.dtype == dtype and r.shape == (2, 32) for r in got)
    assert (accumulator_matrices(got, a.shape[1], types[0]) == want).all()
    # No other arrangement of registers or lanes gives this.
    for operand in range(2):
        for i, j in itertools.combinations(range(len(regs[operand])), 2):
            swapped = [list(r) for r in regs]
            swapped[operand][i], swapped[operand][j] = swapped[operand][j], swapped[operand][i]
            assert not all((x == y).all() for x, y in zip(mma(shape, types, *swapped), got, strict=True))
        moved = [list(r) for r in regs]
        moved[operand] = [np.roll(r, 1, axis=1) for r in moved[operand]]
        assert not all((x == y).all() for x, y in zip(mma(shape, types, *moved), got, strict=True))


@pytest.mark.parametrize("types", [("f32", "f16", "f16", "f32"), ("f16", "f16", "f16", "f16")])
def test_sums_are_rounded_once(types: tuple[str, str, str, str]) -> None:
    shape = "m16n8k16"
    a, b, c, _ = operands(shape, types, 1)
    a = (RNG.standard_normal(a.shape) * 2.0 ** RNG.integers(-6, 6, a.shape)).astype("f2").astype("f8")
    b = (RNG.standard_normal(b.shape) * 2.0 ** RNG.integers(-6, 6, b.shape)).astype("f2").astype("f8")
    c = RNG.standard_normal(c.shape).astype("f2").astype("f8")
    regs = [
        registers(a, A[shape, 16], 8, "f16"),
        registers(b, B[shape, 16], 4, "f16"),
        accumulator_registers(c, types[0]),
    ]
    got = accumulator_matrices(mma(shape, types, *regs), 16, types[0])
    for i, j in itertools.product(range(16), range(8)):
        exact = Fraction(c[0, i, j]) + sum(Fraction(x) * Fraction(y) for x, y in zip(a[0, i], b[0, :, j], strict=True))
        assert got[0, i, j] == rounded(exact, SHAPES[types[0]], "rn")


def test_f64_is_a_chain_of_fused_operations() -> None:
    shape, types = "m16n8k8", ("f64",) * 4
    a, b, c = (RNG.standard_normal(s) for s in ((1, 16, 8), (1, 8, 8), (1, 16, 8)))
    regs = [registers(a, A[shape, 64], 4, "f64"), registers(b, B[shape, 64], 2, "f64"), accumulator_registers(c, "f64")]
    got = accumulator_matrices(mma(shape, types, *regs), 16, "f64")
    for i, j in itertools.product(range(16), range(8)):
        value = float(c[0, i, j])
        for k in range(8):
            value = float(Fraction(a[0, i, k]) * Fraction(b[0, k, j]) + Fraction(value))
        assert got[0, i, j] == value


def test_tf32_sees_the_upper_19_bits() -> None:
    shape, types = "m16n8k8", ("f32", "tf32", "tf32", "f32")
    *_, regs = operands(shape, types, 2)
    noisy = [
        [r | RNG.integers(0, 1 << 13, r.shape, "u4") for r in regs[0]],
        [r | np.uint32(0x1FFF) for r in regs[1]],
        regs[2],
    ]
    for x, y in zip(mma(shape, types, *noisy), mma(shape, types, *regs), strict=True):
        assert (x == y).all()


def test_integer_sums_wrap_or_saturate() -> None:
    shape, types = "m16n8k32", ("s32", "u8", "s8", "s32")
    ones = np.full((1, 32), 0x01010101, "u4")
    for limit, b, end in ((2**31 - 1, ones, 32), (-(2**31), np.full((1, 32), 0xFFFFFFFF, "u4"), -32)):
        c = [np.full((1, 32), limit, "i4")] * 4
        assert (mma(shape, types, [ones] * 4, [b] * 2, c, satfinite=True)[0] == limit).all()
        wrapped = (limit + end + 2**31) % 2**32 - 2**31
        assert (mma(shape, types, [ones] * 4, [b] * 2, c)[0] == wrapped).all()


def test_infinities_and_nan_pass_through() -> None:
    shape, types = "m16n8k16", ("f32", "bf16", "bf16", "f32")
    one, infinite = np.full((1, 32), 0x3F803F80, "u4"), np.full((1, 32), 0x7F807F80, "u4")
    c = [np.zeros((1, 32), "f4")] * 4
    assert np.isposinf(mma(shape, types, [infinite] * 4, [one] * 2, c)).all()
    assert np.isnan(mma(shape, types, [infinite] * 4, [np.zeros_like(one)] * 2, c)).all()


# ---- matrices of 8 x 8 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_are_loaded_and_stored(count: int) -> None:
    elements = RNG.integers(0, 1 << 16, (3, count, 8, 8)).astype("u2")
    for transposed in (False, True):
        got = ldmatrix(elements.view("u1"), transposed)
        assert len(got) == count and all(r.dtype == np.uint32 and r.shape == (3, 32) for r in got)
        for w, m, lane, half in itertools.product(range(3), range(count), range(32), range(2)):
            row, column = lane // 4, lane % 4 * 2 + half
            want = elements[w, m, column, row] if transposed else elements[w, m, row, column]
            assert int(got[m][w, lane]) >> 16 * half & 0xFFFF == want
        back = stmatrix(got, transposed)
        assert back.shape == (3, count, 8, 4) and (back.view("u2") == elements).all()


# ---- wgmma -----------------------------------------------------------------------------------------------------------


def test_wgmma_descriptor_is_decoded() -> None:
    bits = 0x1234 | 0x0ABC << 16 | 0x2345 << 32 | 5 << 49 | 2 << 62
    fields = warpgroup.descriptor(np.array([bits, 1 << 62, 3 << 62, 0], "u8"))
    assert [f[0] for f in fields] == [0x12340, 0xABC0, 0x23450, 5, 64]
    assert fields.swizzle.tolist() == [64, 128, 32, 0]


def stored_at(mn: int, k: int, size: int, major: str, mode: int, extent: int, depth: int) -> int:
    """Where a tile of extent x depth elements keeps (mn, k): in slabs of rows of `mode` bytes whose 16-byte units are exchanged
    among each other by the row's number; without a swizzle in blocks of 8 rows of 16 bytes."""
    along, across, rows = (k, mn, extent) if major == "K" else (mn, k, depth)
    width = mode or 16
    k_block, byte = divmod(along * size, width)
    unit, byte = divmod(byte, 16)
    xor_bits = {128: across % 8, 64: across // 2 % 4, 32: across // 4 % 2, 0: 0}[mode]
    return k_block * rows * width + across * width + (unit ^ xor_bits) * 16 + byte


def descriptor_of(base: int, size: int, major: str, mode: int, extent: int, depth: int, step: int) -> int:
    """For the `step`-th 32 bytes of K."""
    rows = extent if major == "K" else depth
    width = mode or 16
    k_block = rows * width  # bytes to the next k_block
    k = step * (32 // size)
    start = base + ((k * size // width) * k_block + k * size % width if major == "K" else k * width)
    leading, stride = k_block, 8 * width
    if mode == 0 and major == "MN":
        leading, stride = stride, leading
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | {128: 1, 64: 2, 32: 3, 0: 0}[mode] << 62


@pytest.mark.parametrize("mode", [128, 64, 32, 0])
@pytest.mark.parametrize(("major", "size"), [("K", 1), ("K", 2), ("K", 4), ("MN", 2)])
def test_addresses_of_a_tile(major: str, size: int, mode: int) -> None:
    each = 32 // size
    depth = 64 if major == "MN" else 128 // size
    for extent in (64, 128, 192):
        bases = [0, 0x2400 & ~1023, 0x10000]
        for step in range(depth // each):
            desc = np.array([descriptor_of(b, size, major, mode, extent, depth, step) for b in bases], "u8")
            got = warpgroup.tile_addresses(desc, extent, each, size, major == "MN")
            want = [
                [stored_at(mn, step * each + k, size, major, mode, extent, depth) for k in range(each)]
                for mn in range(extent)
            ]
            for b, tile in zip(bases, got, strict=True):
                assert (tile - b == want).all()


def test_a_tile_as_the_kernels_lay_it_out() -> None:
    """kernels/include/ptx/warpgroup.cuh: rows of 128 bytes, next 64 of M or N after 64 rows."""
    base, k_major = 0x8000, 1024 >> 4 << 32 | 1 << 62 | 1 << 16
    tile = warpgroup.tile_addresses(np.array([base >> 4 | k_major], "u8"), 64, 16, 2, False)[0]
    assert tile[3, 9] == base + 3 * 128 + ((1 ^ 3) << 4) + 2
    tile = warpgroup.tile_addresses(np.array([(base + 64 * 128 + 32 >> 4) | k_major], "u8"), 8, 16, 2, False)[0]
    assert tile[3, 9] == base + 64 * 128 + 3 * 128 + ((3 ^ 3) << 4) + 2
    mn_major = (64 * 128 >> 4) << 16 | 1024 >> 4 << 32 | 1 << 62
    tile = warpgroup.tile_addresses(np.array([(base + 16 * 128 >> 4) | mn_major], "u8"), 128, 16, 2, True)[0]
    assert tile[64 + 9, 3] == base + 64 * 128 + (16 + 3) * 128 + ((1 ^ 3) << 4) + 2


def d_place(register: int, thread: int) -> tuple[int, int]:
    """PTX ISA, Register Fragments for wgmma: row and column of a D register."""
    lane = thread % 32
    return thread // 32 * 16 + lane // 4 + register // 2 % 2 * 8, register // 4 * 8 + lane % 4 * 2 + register % 2


def d_registers(d: Array, type: str) -> list[Array]:
    groups, _, n = d.shape
    flat = np.zeros((n // 2, groups, 128))
    for r, thread in itertools.product(range(n // 2), range(128)):
        flat[r, :, thread] = d[:, *d_place(r, thread)]
    if type != "f16":
        return list(flat.astype({"f32": "f4", "s32": "i4"}[type]))
    halves = flat.astype("f2").view("u2").astype("u4")
    return [halves[i] | halves[i + 1] << np.uint32(16) for i in range(0, len(halves), 2)]


def patterns(x: Array, type: str) -> Array:
    return np.vectorize(lambda v: encoded(v, type))(x).astype(f"u{WIDTHS[type] // 8}")


WGMMA = [
    ("f32", "bf16", "bf16"),
    ("f32", "f16", "f16"),
    ("f16", "f16", "f16"),
    ("f32", "tf32", "tf32"),
    ("f32", "e4m3", "e5m2"),
    ("f16", "e5m2", "e4m3"),
    ("s32", "s8", "u8"),
]


@pytest.mark.parametrize("types", WGMMA, ids="-".join)
@pytest.mark.parametrize("n", [8, 24, 256])
def test_a_warpgroup_accumulates(types: tuple[str, str, str], n: int) -> None:
    k = 256 // WIDTHS[types[1]]
    a, b = numbers((2, 64, k), types[1]), numbers((2, n, k), types[2])
    d = RNG.integers(-50, 50, (2, 64, n)).astype("f8")
    rows = d_registers(d, types[0])
    floating = types[0] != "s32"
    for keep, scale_a, scale_b in itertools.product(
        (True, False), (1, -1) if floating else (1,), (1, -1) if floating else (1,)
    ):
        want = (a @ b.swapaxes(1, 2)) * scale_a * scale_b + (d if keep else 0)
        got = warpgroup.accumulate(patterns(a, types[1]), patterns(b, types[2]), rows, keep, scale_a, scale_b, types)
        assert all(x.dtype == y.dtype and (x == y).all() for x, y in zip(got, d_registers(want, types[0]), strict=True))
    mixed = warpgroup.accumulate(
        patterns(a, types[1]), patterns(b, types[2]), rows, np.array([True, False]), 1, 1, types
    )
    want = d_registers(a @ b.swapaxes(1, 2) + d * np.array([1, 0])[:, None, None], types[0])
    assert all((x == y).all() for x, y in zip(mixed, want, strict=True))


def test_what_is_not_kept_is_not_looked_at() -> None:
    a = np.zeros((1, 64, 16), "u2")
    rows = [np.full((1, 128), np.nan, "f4")] * 4
    assert not np.any(warpgroup.accumulate(a, a[:, :8], rows, False, 1, 1, ("f32", "f16", "f16")))


@pytest.mark.parametrize("type", ["f16", "tf32", "s8"])
def test_a_from_registers(type: str) -> None:
    """PTX ISA, Register Fragments for wgmma: A."""
    k = 256 // WIDTHS[type]
    each = 32 // WIDTHS[type]
    a = numbers((2, 64, k), type)
    rows = np.zeros((4, 2, 128), "u4")
    for w, m, x in itertools.product(range(2), range(64), range(k)):
        thread = m // 16 * 32 + m % 8 * 4 + x % (k // 2) // each
        register = m // 8 % 2 + 2 * (x // (k // 2))
        rows[register, w, thread] |= np.uint32(encoded(a[w, m, x], type) << x % each * WIDTHS[type])
    got = warpgroup.register_tile(list(rows), type)
    assert (got.view(f"u{WIDTHS[type] // 8}") == patterns(a, type)).all()


# ---- what is not known -----------------------------------------------------------------------------------------------

ROW = [np.zeros((1, 32), "u4")]


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: mma("m8n8k4", ("f32", "f16", "f16", "f32"), ROW * 2, ROW * 2, ROW * 8), "m8n8k4"),
        (lambda: mma("m16n8k128", ("s32", "b1", "b1", "s32"), ROW * 2, ROW, ROW * 4), "b1"),
        (lambda: mma("m16n8k16", ("f32", "f16", "f16", "f16"), ROW * 4, ROW * 2, ROW * 2), "f16"),
        (lambda: warpgroup.tile_addresses(np.array([1 << 49 | 1 << 62], "u8"), 64, 16, 2, False), "base offset 1"),
        (lambda: warpgroup.tile_addresses(np.array([1 << 62], "u8"), 64, 32, 1, True), "MN-major"),
        (lambda: warpgroup.accumulate(ROW[0], ROW[0], ROW, True, 1, 1, ("s32", "b1", "b1")), "b1"),
    ],
)
def test_what_is_not_known_is_named(call: Callable[[], Any], names: str) -> None:
    with pytest.raises(UnsupportedError, match=names):
        call()
