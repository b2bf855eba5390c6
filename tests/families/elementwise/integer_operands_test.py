"""ldexp: every exponent that moves a number from one end of its type to the other, kinds that meet, and refusals."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import ElementKind

COVERS = ("ldexp", "ldexp_backward")
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_ldexp_rounds_once(kind: str) -> None:
    """Against exact fractions: among results below the normal range halfway cases too, whose even neighbour is taken."""
    dtype, rng = ElementKind.of(kind).dtype, np.random.default_rng(2)
    lowest = {"f16": -24, "bf16": -133, "f32": -149, "f64": -1074}[kind]
    x = np.concatenate([np.arange(1, 130), rng.uniform(1, 2, 130) * 2.0**9]).astype(dtype)
    exponents = np.arange(lowest - 12, lowest + 2)[:, None]
    for device in ("cpu", "ptx"):
        got = np.asarray(bp.ldexp(x, exponents, device=device)).astype(np.float64)
        for i, e in enumerate(exponents[:, 0].tolist()):
            for j, value in enumerate(x.astype(np.float64).tolist()):
                units = Fraction(value) * Fraction(2) ** (e - lowest)  # of the smallest number
                if units >= 1 << 7:
                    continue  # a normal number of bf16 already, which is rounded by its own digits
                assert got[i, j] == math.ldexp(round(units), lowest), (value, e)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_ldexp_is_that_of_numpy_bit_by_bit(kind: str, device: str) -> None:
    dtype = ElementKind.of(kind).dtype
    x = np.array([0.0, -0.0, np.inf, -np.inf, 1, -1.5, np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal], dtype)
    exponents = np.arange(-2200, 2201, 7, dtype=np.int16)[:, None]
    with np.errstate(all="ignore"):
        wanted = np.ldexp(x, exponents)
    got = bp.ldexp(x, exponents, device=device)
    assert got.dtype == dtype
    assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("kind", INTEGERS)
def test_ldexp_takes_exponents_of_every_integer_type(kind: str, device: str) -> None:
    dtype = ElementKind.of(kind).dtype
    info = np.iinfo(dtype)
    got = bp.ldexp(np.full(4, -1.5, np.float32), np.array([info.min, 0, 3, info.max], dtype), device=device)
    low = math.ldexp(-1.5, max(int(info.min), -200))
    high = math.ldexp(-1.5, int(info.max)) if info.max < 128 else -math.inf
    assert np.array_equal(got, np.array([low, -1.5, -12, high], np.float32))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_ldexp_results_are_of_the_floats_kind(device: str) -> None:
    for kind in ("f16", "bf16", "f32", "f64"):
        x = np.ones(3, ElementKind.of(kind).dtype)
        for exponent in (2, np.full(3, 2, np.int64), np.full(1, 2, np.uint8)):
            got = bp.ldexp(x, exponent, device=device)
            assert got.dtype == x.dtype
            assert (got.astype(float) == 4).all()
    assert bp.ldexp(0.5, np.array([1, 2]), device=device).dtype == np.float64
    assert bp.ldexp(np.ones(3, np.float32)[::-1], np.arange(6)[::-2], device=device).tolist() == [32, 8, 2]


REFUSED: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "a float": ((np.ones(2), 1.5), bp.OperandTypeError, "exponent must hold integers, got a float"),
    "a bool": ((np.ones(2), True), bp.OperandTypeError, "exponent must hold integers, got a bool"),
    "floats": ((np.ones(2), np.ones(2)), bp.OperandTypeError, "exponent .* must hold integers, got f64"),
    "bools": ((np.ones(2), np.ones(2, bool)), bp.OperandTypeError, "exponent .* must hold integers, got bool"),
    "integers": ((np.arange(2), np.arange(2)), bp.OperandTypeError, "i64 is not supported"),
    "shapes": ((np.ones(2), np.arange(3)), bp.InvalidProblemError, "do not broadcast"),
    "a large number": ((np.ones(2), 1 << 64), bp.InvalidProblemError, "outside i64"),
}


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("what", REFUSED)
def test_ldexp_refuses_other_kinds(what: str, device: str) -> None:
    args, error, said = REFUSED[what]
    out = np.full(2, 7.0)
    with pytest.raises(error, match=said):
        bp.ldexp(*args, out=out, device=device)
    assert (out == 7).all()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_ldexp_in_fused_functions(device: str) -> None:
    """Exponents as arrays, as numbers and as casts in the function."""
    x, e = np.array([1.5, -2, 3], np.float32), np.array([1, -2, 30], np.int16)
    assert np.array_equal(bp.fuse(lambda x, e: -bp.ldexp(x, e))(x, e.astype(np.int64), device=device), -np.ldexp(x, e))
    assert np.array_equal(bp.fuse(lambda x, e: bp.ldexp(x, e) + 1)(x, e, device=device), np.ldexp(x, e) + 1)
    assert np.array_equal(bp.fuse(lambda x, e: bp.ldexp(x, e) + 1)(x, -3, device=device), np.ldexp(x, -3) + 1)
    assert np.array_equal(
        bp.fuse(lambda x: bp.ldexp(x, bp.cast(x, "i32")))(x, device=device), np.ldexp(x, x.astype(int))
    )
    with pytest.raises(bp.OperandTypeError, match="exponent must hold integers, got f32"):
        bp.fuse(lambda x: bp.ldexp(x, x))(x, device=device)
    with pytest.raises(bp.OperandTypeError, match="exponent must hold integers, got a float"):
        bp.fuse(lambda x: bp.ldexp(x, 2.0))(x, device=device)
