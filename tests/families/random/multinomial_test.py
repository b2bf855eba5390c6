"""multinomial: distributions with and without replacement, zeros, seeds and generators, refusals, weights that are none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

DEVICES = ("cpu", "ptx")
WEIGHTS = np.array([1, 2, 0, 5, 0.5], np.float32)


def _chi_squared(seen: Counter[Any], wanted: dict[Any, float]) -> float:
    draws = sum(seen.values())
    assert seen.keys() <= wanted.keys()
    return sum((seen[key] - p * draws) ** 2 / (p * draws) for key, p in wanted.items())


def test_multinomial_draws_by_weight() -> None:
    """Chi-squared of 3 degrees of freedom: above 16.3 once in a thousand samples."""
    made = bp.multinomial(np.stack([WEIGHTS, WEIGHTS * 1e-39]), 20_000, True, seed=5, device="cpu")
    wanted = {i: float(w / WEIGHTS.sum()) for i, w in enumerate(WEIGHTS) if w}
    assert made.shape == (2, 20_000) and made.dtype == np.int64
    assert all(_chi_squared(Counter(row.tolist()), wanted) < 16.3 for row in made)
    assert not np.array_equal(*made)


@pytest.mark.parametrize("kind", ["f16", "bf16", "f64"])
def test_multinomial_without_replacement_draws_from_the_rest(kind: str) -> None:
    """Every ordered pair: chi-squared of 11 degrees of freedom, above 31.3 once in a thousand samples."""
    p = np.broadcast_to(WEIGHTS, (20_000, 5)).astype(bp.ElementKind.of(kind).dtype)
    made = bp.multinomial(p, 2, seed=6, device="cpu")
    w = (WEIGHTS / WEIGHTS.sum()).tolist()
    wanted = {(i, j): w[i] * w[j] / (1 - w[i]) for i, j in permutations((0, 1, 3, 4), 2)}
    assert _chi_squared(Counter(map(tuple, made.tolist())), wanted) < 31.3


@pytest.mark.parametrize("device", DEVICES)
def test_multinomial_of_all_categories_is_a_permutation(device: str) -> None:
    p = np.random.default_rng(1).uniform(0.1, 1, (3, 2, 300)).astype(np.float32)
    made = bp.multinomial(p, 300, seed=3, subsequence=1, offset=7, device=device)
    assert (np.sort(made, axis=-1) == np.arange(300)).all()
    scores = np.log(p) + bp.gumbel(p.shape, seed=3, subsequence=1, offset=7, device="cpu")
    assert np.array_equal(made[..., :5], np.argsort(-scores, axis=-1)[..., :5])


@pytest.mark.parametrize("device", DEVICES)
def test_multinomial_marks_draws_that_are_none(device: str) -> None:
    p = np.array([[0, 3, 0], [np.nan, 1, 1], [1, -1, 1], [1, 1, np.inf], [0, 0, 0], [1, 1, 1]], np.float32)
    made = bp.multinomial(p, 3, seed=1, device=device)
    assert made[:5].tolist() == [[1, -1, -1], *[[-1] * 3] * 4] and sorted(made[5].tolist()) == [0, 1, 2]
    again = bp.multinomial(p, 4, True, seed=1, device=device)
    assert again[:5].tolist() == [[1] * 4, *[[-1] * 4] * 4] and again[5].min() >= 0


@pytest.mark.parametrize("replacement", [False, True])
def test_multinomial_of_a_generator_counts_its_noise(replacement: bool) -> None:
    g, p = bp.Generator(31, subsequence=2, device="cpu"), np.ones((4, 9), np.float32)
    made = [bp.multinomial(p, 3, replacement, generator=g) for _ in range(2)]
    each = 4 * 3 if replacement else p.size  # the draws, or the noise
    assert g.state() == (31, 2, 2 * each)
    for i, found in enumerate(made):
        right = bp.multinomial(p, 3, replacement, seed=31, subsequence=2, offset=i * each, device="cpu")
        assert np.array_equal(found, right)


def test_multinomial_in_a_recorded_step_moves_on() -> None:
    g, p = bp.Generator(31, device="cpu"), np.ones((4, 90), np.float32)
    with bp.record() as step:
        out = bp.multinomial(p, 5, generator=g)
    seen = set()
    for _ in range(3):
        step()
        seen.add(out.tobytes())
    assert len(seen) == 3


def test_multinomial_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    p = torch.tensor(WEIGHTS, requires_grad=True)
    made = bp.multinomial(p, 3, seed=2, device="cpu")
    assert made.dtype is torch.int64 and not made.requires_grad
    assert made.tolist() == bp.multinomial(WEIGHTS, 3, seed=2, device="cpu").tolist()


ONES = np.ones((2, 3), np.float32)
RAISE: dict[str, Any] = {"seed": 0, "mode": "raise", "device": "cpu"}
REFUSED: tuple[tuple[Callable[..., Any], type[bp.BaracudaError], str], ...] = (
    (lambda: bp.multinomial(ONES, 4, seed=0, device="cpu"), bp.InvalidProblemError, "num_samples=4: give 1 to 3"),
    (
        lambda: bp.multinomial(ONES, 0, True, seed=0, device="cpu"),
        bp.InvalidProblemError,
        "num_samples=0: give 1 or more",
    ),
    (lambda: bp.multinomial(ONES[:, :0], 1, seed=0, device="cpu"), bp.InvalidProblemError, "no categories"),
    (lambda: bp.multinomial(ONES.astype(int), 1, seed=0, device="cpu"), bp.OperandTypeError, "p must hold f16"),
    (lambda: bp.multinomial(ONES, 1, device="cpu"), bp.InvalidProblemError, "neither seed nor generator"),
    (lambda: bp.multinomial(ONES, 1, seed=0, mode="clip", device="cpu"), bp.InvalidProblemError, "one of drop, raise"),
    (lambda: bp.multinomial(ONES, 1, seed=0, mode="raise", device="h200"), bp.UnsupportedError, "mode='drop'"),
    (lambda: bp.multinomial(np.array([1, -2.0]), 1, **RAISE), bp.InvalidProblemError, r"p\[1\] = -2.0"),
    (lambda: bp.multinomial(ONES * np.nan, 1, **RAISE), bp.InvalidProblemError, r"p\[0, 0\] = nan"),
    (
        lambda: bp.multinomial(ONES * 0, 1, True, **RAISE),
        bp.InvalidProblemError,
        r"row \[0\] of p has 0 weights above 0",
    ),
    (
        lambda: bp.multinomial(ONES * [[1], [0]], 2, **RAISE),
        bp.InvalidProblemError,
        r"row \[1\] of p has 0 .* expected 2",
    ),
)


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_multinomial_refuses(call: Callable[..., Any], error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_multinomial_that_raises_takes_no_position() -> None:
    g = bp.Generator(1, device="cpu")
    with pytest.raises(bp.InvalidProblemError):
        bp.multinomial(ONES * 0, 1, generator=g, mode="raise")
    assert g.state().offset == 0
    assert bp.multinomial(ONES, 1, generator=g, mode="raise").shape == (2, 1)


@pytest.mark.parametrize("device", DEVICES)
def test_multinomial_again_follows_from_uniform_numbers(device: str) -> None:
    """The category of each number, by whole weights that Python adds up."""
    rng = np.random.default_rng(9)
    p = rng.uniform(0, 3, (4, 2, 75)).astype(np.float32) * (rng.random((4, 2, 75)) < 0.7)
    p[1, 1, 7] = 1e-38
    made = bp.multinomial(p, 40, True, seed=3, subsequence=1, offset=7, device=device)
    u = bp.uniform((4, 2, 40), dtype="f64", seed=3, subsequence=1, offset=7, device="cpu")
    for row in np.ndindex(4, 2):
        weights = p[row].astype(np.float64)
        sums = np.cumsum([math.ceil(w / weights.max() * 2.0**46) for w in weights])
        assert made[row].tolist() == [int(np.argmax(sums > x * float(sums[-1]))) for x in u[row]]


@pytest.mark.parametrize("device", DEVICES)
def test_multinomial_again_draws_the_rarest_and_never_nothing(device: str) -> None:
    p = np.array([0, 1e-300, 0, 1, 0], np.float64)
    u = bp.uniform(100_000, dtype="f64", seed=1, device="cpu") if device == "cpu" else np.zeros(0)
    made = bp.multinomial(p, u.size or 500, True, seed=1, device=device)
    assert set(made.tolist()) == {3}
    tiny = np.full((2, 3), 5e-324)
    tiny[1] = 0, np.finfo(np.float64).max, 0
    made = bp.multinomial(tiny, 50, True, seed=2, device=device)
    assert set(made[0].tolist()) == {0, 1, 2} and set(made[1].tolist()) == {1}
