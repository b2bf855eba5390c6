"""searchsorted beside torch and NumPy, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

from ...gauntlet import readable


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted_is_that_of_torch(right: bool, device: str) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(4)
    sequence, values = np.sort(rng.integers(0, 40, (3, 101))).astype(np.float32), rng.integers(-2, 43, (3, 60))
    values = values.astype(np.float32)
    found = bp.searchsorted(sequence, values, right=right, device=device)
    assert np.array_equal(found, torch.searchsorted(torch.tensor(sequence), torch.tensor(values), right=right))
    places = bp.searchsorted(sequence[0], values, right=right, device=device)
    assert np.array_equal(places, torch.bucketize(torch.tensor(values), torch.tensor(sequence[0]), right=right))


def test_searchsorted_of_nan_and_infinity_is_that_of_numpy() -> None:
    sequence = np.array([-np.inf, -1, -0.0, 0, 2, np.inf, np.nan, np.nan], np.float32)
    values = sequence[::-1].copy()
    for side in ("left", "right"):
        found = bp.searchsorted(sequence, values, right=side == "right", device="ptx")
        assert np.array_equal(found, np.searchsorted(sequence, values, side=side))


def test_searchsorted_of_a_descending_view() -> None:
    sequence, values = np.arange(50, 0, -1).astype(np.int16), np.array([0, 1, 7, 50, 51], np.int16)
    out = np.zeros(5, np.int32)
    assert bp.searchsorted(sequence[::-1], values, out=out, device="ptx") is out and out.tolist() == [0, 0, 6, 49, 50]


@pytest.mark.parametrize(
    ("operands", "options", "error", "said"),
    [
        ((np.zeros((3, 4), "f"), np.zeros((2, 5), "f")), {}, bp.InvalidProblemError, ("(3, 4)", "(2, 5)", "but for the last")),
        ((np.zeros((3, 4), "f"), np.zeros(5, "f")), {}, bp.InvalidProblemError, ("(3, 4)", "(5,)")),
        ((np.zeros((), "f"), np.zeros(5, "f")), {}, bp.InvalidProblemError, ("one axis",)),
        ((np.zeros(4, "f"), np.zeros(5, "d")), {}, bp.OperandTypeError, ("values", "f64", "f32")),
        ((np.zeros(4, bool), np.zeros(5, bool)), {}, bp.OperandTypeError, ("sorted_sequence", "bool")),
        ((np.zeros(4, "f"), np.zeros(5, "f")), {"right": 1}, bp.InvalidProblemError, ("right", "True or False")),
        ((np.zeros(4, "f"), np.zeros(5, "f")), {"out": np.zeros(5, "i2")}, bp.OperandTypeError, ("out", "i16")),
        ((np.zeros(4, "f"), np.zeros(5, "f")), {"out": np.zeros(4, "i8")}, bp.InvalidProblemError, ("out", "(4,)", "(5,)")),
    ],
)  # fmt: skip
def test_searchsorted_refuses(operands: Any, options: Any, error: Any, said: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        bp.searchsorted(*operands, **options, device="cpu")
    readable(caught.value, "searchsorted", *said)
