"""Casts to 8-bit floats by a scale, and back: beside quantize_fp8 and dequantize_fp8, with scales of every sort, and refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp

COVERS = ("scaled_cast", "cast")
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_scaled_cast_gives_the_codes_of_quantize_fp8(device: str) -> None:
    x = np.random.default_rng(1).standard_normal((5, 40)).astype(np.float32)
    made = bp.quantize_fp8(x, device=device)
    codes = bp.cast(x, "float8_e4m3fn", scale=made.scales[:, None], device=device)
    assert codes.tobytes() == np.asarray(made.codes).tobytes()
    for dtype in ("f32", "bf16", "f16"):
        back = bp.cast(codes, dtype, scale=made.scales[:, None], device=device)
        assert back.tobytes() == bp.dequantize_fp8(made.codes, made.scales, dtype=dtype, device=device).tobytes()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("dtype", "largest"), [(E4M3, 448), (E5M2, 57344)])
def test_scaled_cast_saturates(dtype: Any, largest: float, device: str) -> None:
    x = np.array([1, -2, 1e9, -1e9, np.inf, -np.inf, np.nan], np.float32)
    wanted = np.array([2, -4, largest, -largest, largest, -largest, np.nan])
    for scale in (0.5, np.float32([0.5]), np.full(7, 0.5, np.float32)):
        got = bp.scaled_cast(x, scale, dtype, device=device)
        assert got.dtype == dtype
        assert np.array_equal(got.astype(np.float64), wanted, equal_nan=True)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_scaled_cast_takes_views_and_an_output(device: str) -> None:
    x = np.arange(24, dtype=np.float32).reshape(4, 6)[::-1, ::-2]
    out = np.zeros((4, 3), E5M2)
    assert bp.cast(x, E5M2, scale=2, out=out, device=device) is out
    assert np.array_equal(out.astype(np.float32), (x / 2).astype(E5M2).astype(np.float32))
    assert bp.cast(np.zeros((3, 0), np.float32), E5M2, scale=2.0, device=device).shape == (3, 0)


REFUSED: dict[str, tuple[tuple[Any, ...], type[Exception], str]] = {
    "no codes": ((np.ones(2, np.float32), 2.0, "f16"), bp.OperandTypeError, "f32 is cast to f16"),
    "codes alone": ((np.ones(2, E4M3), 2.0, E5M2), bp.OperandTypeError, "fp8_e4m3 is cast to fp8_e5m2"),
    "f64": ((np.ones(2), 2.0, E5M2), bp.OperandTypeError, "f64 is not supported"),
    "integers": ((np.ones(2, np.float32), 2.0, "i8"), bp.OperandTypeError, "i8 is not supported"),
    "a scale of f64": ((np.ones(2, np.float32), np.ones(2), E5M2), bp.OperandTypeError, "scale must hold f32, got f64"),
    "shapes": ((np.ones(2, np.float32), np.ones(3, np.float32), E5M2), bp.InvalidProblemError, "do not broadcast"),
    "a word": ((np.ones(2, np.float32), "2", E5M2), bp.OperandTypeError, "expected an array"),
}


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("what", REFUSED)
def test_scaled_cast_refuses(what: str, device: str) -> None:
    args, error, said = REFUSED[what]
    with pytest.raises(error, match=said):
        bp.scaled_cast(*args, device=device)
