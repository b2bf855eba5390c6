"""randperm: permutations that follow from n, seed and position, equally likely; generators, kinds, refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

SEED = 31
DEVICES = ("cpu", "ptx")


@pytest.mark.parametrize("n", [0, 1, 2, 700, 5003])
def test_randperm_is_a_permutation_of_its_keys(n: int) -> None:
    made = [bp.randperm(n, seed=SEED, offset=3, subsequence=2, device=device) for device in DEVICES]
    keys = bp.random_bits(n, "u64", seed=SEED, offset=3, subsequence=2, device="cpu")
    for found in made:
        assert found.dtype == np.int64 and found.tolist() == sorted(range(n), key=keys.tolist().__getitem__)


def test_randperm_follows_seed_and_position() -> None:
    places = ({}, {"offset": 1}, {"offset": 300}, {"subsequence": 1}, {"seed": 1})
    made = [bp.randperm(300, **{"seed": SEED, **place}, device="cpu").tolist() for place in places]
    assert len(set(map(tuple, made))) == len(places)


def test_randperm_permutations_are_equally_likely() -> None:
    """Chi-square of 23 degrees of freedom: above 49.73 once in a thousand samples."""
    draws = 6000
    g = bp.Generator(7, device="cpu")
    counts = Counter(tuple(bp.randperm(4, generator=g).tolist()) for _ in range(draws))
    assert len(counts) == 24
    assert 8 < sum((count - draws / 24) ** 2 for count in counts.values()) / (draws / 24) < 49.7


def test_randperm_puts_elements_at_all_places() -> None:
    """Of a longer permutation, the places of one element, in eighths: chi-square of 7 degrees of freedom."""
    n, draws = 64, 2000
    made = np.array([bp.randperm(n, seed=3, offset=i * n, device="cpu") for i in range(draws)])
    for element in (0, 17, 63):
        counts = np.bincount(np.argwhere(made == element)[:, 1] // 8, minlength=8)
        assert ((counts - draws / 8) ** 2).sum() / (draws / 8) < 24.4


@pytest.mark.parametrize("device", DEVICES)
def test_randperm_of_a_generator_takes_n_positions(device: str) -> None:
    g = bp.Generator(SEED, subsequence=2, device=device)
    first, second = bp.randperm(9, generator=g), bp.randperm(5, "i32", generator=g)
    assert g.state() == (SEED, 2, 14)
    assert np.array_equal(first, bp.randperm(9, seed=SEED, subsequence=2, device=device))
    assert np.array_equal(second, bp.randperm(5, seed=SEED, subsequence=2, offset=9, device=device))
    assert second.dtype == np.int32


def test_randperm_writes_what_is_given() -> None:
    out = np.zeros(12, np.int32)[::2]
    assert bp.randperm(6, "i32", seed=SEED, out=out, device="ptx") is out
    assert out.tolist() == bp.randperm(6, seed=SEED, device="cpu").tolist()


def test_randperm_in_a_recorded_step_moves_on() -> None:
    g = bp.Generator(SEED, device="cpu")
    out = np.zeros(40, np.int64)
    with bp.record() as step:
        bp.randperm(40, generator=g, out=out)
    seen = []
    for _ in range(3):
        step()
        seen.append(tuple(out.tolist()))
    assert len(set(seen)) == 3 and all(sorted(one) == list(range(40)) for one in seen)
    assert g.state().offset % 40 == 0


REFUSED: tuple[tuple[Callable[..., Any], type[bp.BaracudaError], str], ...] = (
    (lambda: bp.randperm(-1, seed=0, device="cpu"), bp.InvalidProblemError, "randperm: n=-1"),
    (lambda: bp.randperm(1 << 31, seed=0, device="cpu"), bp.InvalidProblemError, "n=2147483648"),
    (lambda: bp.randperm(2.5, seed=0, device="cpu"), bp.BaracudaError, "randperm: n"),  # type: ignore[arg-type]
    (lambda: bp.randperm(3, device="cpu"), bp.InvalidProblemError, "randperm: neither seed nor generator"),
    (lambda: bp.randperm(3, "f32", seed=0, device="cpu"), bp.OperandTypeError, "randperm: index_dtype=f32"),
    (lambda: bp.randperm(3, seed=0, offset=-1, device="cpu"), bp.InvalidProblemError, "randperm: offset=-1"),
    (lambda: bp.randperm(3, seed="x", device="cpu"), bp.OperandTypeError, "randperm: seed"),  # type: ignore[arg-type]
    (lambda: bp.randperm(3, seed=0, out=[1], device="cpu"), bp.OperandTypeError, "randperm: out"),
    (lambda: bp.randperm(3, seed=0, out=np.zeros(2, int), device="cpu"), bp.InvalidProblemError, r"randperm: out .*\(3,\)"),
    (lambda: bp.randperm(3, seed=0, out=np.zeros(3, "i4"), device="cpu"), bp.OperandTypeError,
     "randperm: out must hold i64.*pass index_dtype='i32'"),
    (lambda: bp.randperm(3, seed=0, pref=bp.PlanPreference(variant="x"), device="cpu"), bp.UnsupportedError, "randperm: no"),
)  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_randperm_refuses(call: Callable[..., Any], error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        call()
