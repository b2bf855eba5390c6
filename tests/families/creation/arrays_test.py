"""full, eye, arange, linspace beside NumPy's, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

COVERS = ("fill", "fill_arange", "fill_eye", "fill_linspace", "one_hot")

ALIKE: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = (
    ("full", ((2, 3), 7), {}), ("full", (5, 0.25), {}), ("full", ((2,), 300, "int16"), {}), ("full", (2, True), {}),
    ("eye", (3,), {}),
    ("eye", (3, 5, -1), {}),
    ("arange", (7,), {}), ("arange", (2, 9, 3), {}), ("arange", (9, 2, -2), {}), ("arange", (0.0, 1.0, 0.125), {}),
    ("arange", (5, 5), {}), ("arange", (0.0, 1.0, 0.3), {}), ("arange", (0, -1, -0.3), {}), ("arange", (1.0, 0.0), {}),
    ("arange", (0, 7, 3), {}), ("eye", (3, 4, 3), {}), ("eye", (3, 4, 4), {}), ("eye", (3, 4, -3), {}), ("eye", (3, 4, -2), {}),
    ("arange", (9,), {"dtype": "float32"}), ("linspace", (0.0, 1.0), {}), ("linspace", (1.0, 2.0, 5), {"endpoint": False}),
    ("linspace", (3.0, 4.0, 1), {}), ("linspace", (3.0, 4.0, 0), {}),
)  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("name", "args", "options"), ALIKE, ids=[f"{n} {a} {o}" for n, a, o in ALIKE])
def test_arrays_are_those_of_numpy(name: str, args: tuple[Any, ...], options: dict[str, Any], device: str) -> None:
    got, wanted = getattr(bp, name)(*args, **options, device=device), getattr(np, name)(*args, **options)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    assert np.allclose(got, wanted, rtol=1e-15, atol=1e-15)


F32 = np.zeros(4, np.float32)
REFUSED: tuple[tuple[str, Callable[..., Any], type[bp.BaracudaError], str], ...] = (
    ("fill byte", lambda **how: bp.fill(np.zeros(3, np.uint8), 256, **how), bp.InvalidProblemError, "is no u8"),
    ("fill nan", lambda **how: bp.fill(np.zeros(3, np.int8), float("nan"), **how), bp.InvalidProblemError, "is no i8"),
    ("fill complex", lambda **how: bp.fill(F32.copy(), 1j, **how), bp.OperandTypeError, "real number"),
    ("fill strided", lambda **how: bp.fill(F32.copy()[::2], 1, **how), bp.InvalidProblemError, "strides"),
    ("fill_eye vector", lambda **how: bp.fill_eye(F32.copy(), **how), bp.InvalidProblemError, "is no matrix"),
    ("one_hot classes", lambda **how: bp.one_hot(np.zeros(3, int), -1, **how), bp.InvalidProblemError, "negative"),
    ("one_hot floats", lambda **how: bp.one_hot(F32, 3, **how), bp.OperandTypeError, "indices"),
    ("fill_arange end", lambda **how: bp.fill_arange(np.zeros(300, np.int8), **how), bp.InvalidProblemError, "beyond i8"),
    ("fill_arange part", lambda **how: bp.fill_arange(np.zeros(3, np.int8), 0.5, **how), bp.InvalidProblemError, "by integers"),
    ("fill_arange inf", lambda **how: bp.fill_arange(F32.copy(), float("inf"), **how), bp.InvalidProblemError, "not finite"),
    ("fill_linspace nan", lambda **how: bp.fill_linspace(F32.copy(), 0, np.nan, **how), bp.InvalidProblemError, "not finite"),
    ("fill_linspace ints", lambda **how: bp.fill_linspace(np.zeros(3, int), 0, 1, **how), bp.OperandTypeError, "x must hold"),
    ("full extent", lambda **how: bp.full((2, -1), 0, **how), bp.InvalidProblemError, "negative"),
    ("arange step", lambda **how: bp.arange(0, 5, 0, **how), bp.InvalidProblemError, "never reaches"),
    ("arange inf", lambda **how: bp.arange(0, float("inf"), **how), bp.InvalidProblemError, "no finite count"),
    ("linspace num", lambda **how: bp.linspace(0, 1, -2, **how), bp.InvalidProblemError, "negative"),
)  # fmt: skip


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("call", "error", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_creation_bad_arguments_are_refused(call: Any, error: Any, says: str, device: str) -> None:
    with pytest.raises(error, match=says):
        call(device=device)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fill_either_zero_after_the_other(device: str) -> None:
    for value in (0.0, -0.0, 0, -0.0, 0.0):
        sign = np.signbit(value)
        assert (np.signbit(bp.full(3, value, "float32", device=device)) == sign).all()
        assert np.signbit(bp.pad(F32[:1], 1, constant_values=value, device=device)).tolist() == [sign, False, sign]
        assert not np.signbit(bp.arange(value, 2.0, device=device)).any()
        assert not np.signbit(bp.linspace(value, 2.0, 3, device=device)).any()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_fill_takes_all_numbers_of_64_bits(device: str) -> None:
    most, least = 2**64 - 1, -(2**63)
    assert bp.full(2, least, device=device).tolist() == [least, least]
    assert bp.arange(least, least + 2, device=device).tolist() == [least, least + 1]
    assert bp.full(2, most, "uint64", device=device).tolist() == [most, most]
    assert bp.pad(np.zeros(1, np.uint64), 1, constant_values=most, device=device).tolist() == [most, 0, most]
    assert bp.arange(2**63 - 1, 2**63 + 2, dtype="uint64", device=device).tolist() == [2**63 - 1, 2**63, 2**63 + 1]
    with pytest.raises(bp.InvalidProblemError, match="beyond 64 bits"):
        bp.full(2, most + 1, "uint64", device=device)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_arrays_beyond_memory_are_refused(device: str) -> None:
    for call in (lambda: bp.full((1 << 62, 1 << 62), 1, device=device), lambda: bp.arange(1 << 60, device=device)):
        with pytest.raises(bp.InvalidProblemError, match=r"2\*\*63 bytes"):
            call()
