"""The oracle where it could err and every random test would pass: integers to negative powers, roundings that meet a tie."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.reference.rounding import round_to
from baracuda_py.types import ElementKind


@pytest.mark.parametrize("kind", [bp.I8, bp.I16, bp.I32, bp.I64], ids=str)
def test_integers_to_any_power_are_truncated(kind: ElementKind) -> None:
    pairs = [(a, b) for a, b in product(range(-3, 4), range(-4, 4)) if a or b >= 0]
    x1, x2 = (np.array(column, kind.dtype) for column in zip(*pairs))
    wanted = [math.trunc(Fraction(a) ** b) for a, b in pairs]
    assert bp.pow(x1, x2, device="cpu").tolist() == wanted


@pytest.mark.parametrize("kind", [bp.BF16, bp.FP8_E4M3, bp.FP8_E5M2, bp.F16], ids=str)
@pytest.mark.parametrize("beyond", [2.0**-30, 2.0**-40, 2.0**-50])
def test_what_lies_beside_a_tie_is_rounded_once(kind: ElementKind, beyond: float) -> None:
    """Rounded to float32 first, these would be ties, and go to the even side."""
    step = 2.0 ** (1 - kind.digits)
    for low in (1.0, 1.0 + step):  # an even and an odd significand
        tie = low + step / 2
        found = round_to(np.array([tie - beyond, tie + beyond, -tie - beyond]), kind).astype(np.float64)
        assert found.tolist() == [low, low + step, -low - step]
