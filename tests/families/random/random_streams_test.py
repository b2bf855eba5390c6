"""Elements are functions of (seed, position) alone: of no grid, split, stride, kind or device; generators count positions."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import DeviceSpec

COVERS = (
    "fill_bernoulli", "fill_exponential", "fill_gumbel", "fill_integers", "fill_normal", "fill_random_bits",
    "fill_truncated_normal", "fill_uniform", "take_position",
)  # fmt: skip
BEGIN, SEED = 5, 31
FILLS: tuple[tuple[Callable[..., Any], str], ...] = (
    (bp.fill_uniform, "float16"), (bp.fill_normal, "float32"), (bp.fill_normal, "float64"), (bp.fill_exponential, "float32"),
    (bp.fill_gumbel, "float32"), (bp.fill_truncated_normal, "float32"), (bp.fill_random_bits, "uint8"),
    (bp.fill_random_bits, "uint64"), (bp.fill_bernoulli, "bool"), (bp.fill_integers, "int8"), (bp.fill_integers, "int64"),
)  # fmt: skip
IDS = [f"{function.__name__} {dtype}" for function, dtype in FILLS]


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("fill", "dtype"), FILLS, ids=IDS)
def test_random_fills_equal_those_of_their_parts(fill: Any, dtype: str, device: str) -> None:
    whole = fill(np.zeros(67, dtype), seed=SEED, offset=BEGIN, device=device)
    for cut in (1, 18, 64):
        parts = np.zeros(67, dtype)
        fill(parts[:cut], seed=SEED, offset=BEGIN, device=device)
        fill(parts[cut:], seed=SEED, offset=BEGIN + cut, device=device)
        assert parts.tobytes() == whole.tobytes()


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize(("fill", "dtype"), FILLS, ids=IDS)
def test_random_fills_do_not_depend_on_strides(fill: Any, dtype: str, device: str) -> None:
    whole = fill(np.zeros((6, 11), dtype), seed=SEED, offset=BEGIN, device=device)
    views = np.zeros((11, 6), dtype).T, np.zeros((7, 24), dtype)[1:, 1:23:2], np.zeros((6, 11), dtype)[::-1, ::-1]
    for view in views:
        assert np.array_equal(fill(view, seed=SEED, offset=BEGIN, device=device), whole)
    unaligned = np.zeros(66 * whole.itemsize + 16, np.uint8)[whole.itemsize :][: 66 * whole.itemsize].view(dtype)
    assert np.array_equal(fill(unaligned, seed=SEED, offset=BEGIN, device=device), whole.ravel())


def test_random_fill_of_several_steps_of_the_grid() -> None:
    """On a device of one SM, a thread takes several chunks."""
    x = np.zeros(20_011, np.float32)
    plan = bp.FillUniformPlan.select(bp.FillUniformDescriptor.of(x), device=replace(DeviceSpec.named("ptx"), sms=1))
    assert plan.launch_config[0].grid[0] * 256 * 4 < x.size
    plan.run(x=x, seed=SEED, offset=BEGIN)
    assert np.array_equal(x, bp.uniform(x.size, seed=SEED, offset=BEGIN, device="cpu"))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_random_position_in_memory_adds_to_the_offset(device: str) -> None:
    wanted = bp.normal(9, seed=SEED, offset=12, device=device)
    x = bp.fill_normal(np.zeros(9, np.float32), seed=SEED, offset=5, position=np.array([7]), device=device)
    assert np.array_equal(x, wanted)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_uniform_never_rounds_to_high(device: str) -> None:
    for dtype, digits in (("float16", 11), ("bfloat16", 8), ("float32", 24)):
        kind = bp.ElementKind.of(dtype)
        x = np.asarray(bp.uniform(4099, 0.0, 1.0, kind, seed=3, device=device), np.float64)
        assert x.min() >= 0 and x.max() < 1 and np.array_equal(x * 2**digits, np.round(x * 2**digits))
        y = np.asarray(bp.uniform(4099, 7.0, 7.25, kind, seed=3, device=device), np.float64)
        assert y.min() >= 7 and y.max() < 7.25


def _kolmogorov(x: Any, distribution: Callable[[Any], Any]) -> float:
    """The statistic of Kolmogorov and Smirnov times sqrt(n): above 1.95 once in a thousand samples."""
    shares = distribution(np.sort(np.asarray(x, np.float64)))
    steps = np.arange(len(shares) + 1) / len(shares)
    return float(max((steps[1:] - shares).max(), (shares - steps[:-1]).max()) * np.sqrt(len(shares)))


def _phi(x: Any) -> Any:
    return 0.5 * (1 + bp.erf(np.asarray(x / np.sqrt(2)), device="cpu"))


DISTRIBUTIONS: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "uniform": (bp.uniform, lambda x: x), "normal": (bp.normal, _phi), "exponential": (bp.exponential, lambda x: 1 - np.exp(-x)),
    "gumbel": (bp.gumbel, lambda x: np.exp(-np.exp(-x))),
    "truncated_normal": (bp.truncated_normal, lambda x: (_phi(x) - _phi(-2.0)) / (_phi(2.0) - _phi(-2.0))),
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_random_numbers_follow_their_distribution(name: str, seed: int) -> None:
    make, distribution = DISTRIBUTIONS[name]
    assert 0.3 < _kolmogorov(make(20_000, seed=seed, device="cpu"), distribution) < 1.95


def test_normal_neighbours_are_not_correlated() -> None:
    z = np.asarray(bp.normal(20_000, seed=4, device="cpu"), np.float64)
    for lag in (1, 2, 4):
        assert abs(np.mean(z[:-lag] * z[lag:])) * np.sqrt(len(z)) < 3.3
        assert abs(np.mean((z[:-lag] ** 2 - 1) * (z[lag:] ** 2 - 1))) * np.sqrt(len(z)) / 2 < 3.3


def test_integers_are_uniform() -> None:
    """Chi-square of 36 degrees of freedom: above 67.99 once in a thousand samples."""
    for dtype in ("int8", "int64"):
        counts = np.bincount(bp.integers(20_000, 0, 37, dtype, seed=2, device="cpu"), minlength=37)
        assert len(counts) == 37 and 10 < ((counts - 20_000 / 37) ** 2).sum() / (20_000 / 37) < 68


def test_bernoulli_shares() -> None:
    for p in (0.0, 0.125, 0.9, 1.0):
        share = np.mean(bp.bernoulli(20_000, p, seed=8, device="cpu"))
        assert abs(share - p) <= 3.3 * np.sqrt(p * (1 - p) / 20_000)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_generator_goes_on_in_its_stream(device: str) -> None:
    g = bp.Generator(SEED, subsequence=2, device=device)
    first, second = bp.uniform(5, generator=g), bp.integers((2, 3), 0, 9, generator=g)
    assert g.state() == (SEED, 2, 11)
    assert np.array_equal(first, bp.uniform(5, seed=SEED, subsequence=2, device=device))
    assert np.array_equal(second, bp.integers((2, 3), 0, 9, seed=SEED, offset=5, subsequence=2, device=device))
    g.set_offset(0)
    assert np.array_equal(bp.uniform(5, generator=g), first)
    other = g.split(3)
    assert other.state() == (SEED, 3, 0) and not np.array_equal(bp.uniform(5, generator=other), first)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_generator_in_a_recorded_step_moves_on(device: str) -> None:
    g = bp.Generator(SEED, device=device)
    x, position = np.zeros(6, np.float32), np.zeros(1, np.int64)
    with bp.record() as step:
        bp.take_position(g.counter, 6, position=position, device=device)
        bp.fill_uniform(x, seed=SEED, position=position, device=device)
    before, seen = g.state().offset, []
    for _ in range(3):
        step()
        seen.append(x.copy())
    assert g.state().offset == before + 18
    wanted = bp.uniform(18, seed=SEED, offset=before, device=device)
    assert np.array_equal(np.concatenate(seen), wanted)


def test_generator_threads_share_no_position() -> None:
    g = bp.Generator(SEED, device="cpu")
    with ThreadPoolExecutor(4) as pool:
        begins = list(pool.map(lambda _: int(g.take(3)[0]), range(40)))
    assert sorted(begins) == list(range(0, 120, 3))


BAD_DRAWS: dict[str, Callable[[bp.Generator], Any]] = {
    "uniform": lambda g: bp.uniform(3, 2.0, 1.0, generator=g),
    "uniform kind": lambda g: bp.uniform(3, dtype="i32", generator=g),
    "normal": lambda g: bp.normal(3, std=-1.0, generator=g),
    "bernoulli": lambda g: bp.bernoulli(3, 2.0, generator=g),
    "integers": lambda g: bp.integers(3, 5, 5, generator=g),
    "pref": lambda g: bp.uniform(3, generator=g, pref=bp.PlanPreference(variant="nothing")),
    "fill": lambda g: g.fill(bp.fill_uniform, np.zeros(3, np.int32), 3),
    "other": lambda g: g.fill(lambda x, **how: bp.fill_uniform(x, 2.0, 1.0, **how), F32, 4),
    "dropout": lambda g: g.dropout(np.ones(3, np.float32), 1.5),
    "dropout residual": lambda g: g.dropout(np.ones(3, np.float32), residual=np.ones(2, np.float32)),
    "stochastic_cast": lambda g: g.stochastic_cast(np.ones(3, np.float64)),
    "gumbel_softmax": lambda g: g.gumbel_softmax(np.ones(3, np.float32), -1.0),
    "randperm": lambda g: bp.randperm(3, generator=g, out=np.zeros(2, np.int64)),
    "randperm kind": lambda g: bp.randperm(3, "f32", generator=g),
    "randperm pref": lambda g: bp.randperm(3, generator=g, pref=bp.PlanPreference(variant="nothing")),
}


@pytest.mark.parametrize("draw", BAD_DRAWS.values(), ids=BAD_DRAWS)
def test_generator_refused_draw_takes_nothing(draw: Callable[[bp.Generator], Any]) -> None:
    g = bp.Generator(SEED, offset=7, device="cpu")
    for _ in range(2):
        with pytest.raises(bp.BaracudaError):
            draw(g)
        assert g.state().offset == 7


def test_generator_refused_draw_records_nothing() -> None:
    g = bp.Generator(SEED, device="cpu")
    with bp.record() as step:
        made = bp.uniform(5, generator=g)
        with pytest.raises(bp.InvalidProblemError, match="give low < high"):
            bp.uniform(5, 1.0, 1.0, generator=g)
    step()
    assert g.state().offset % 5 == 0 and np.array_equal(
        made, bp.uniform(5, seed=SEED, offset=g.state().offset - 5, device="cpu")
    )


def test_generator_threads_draw_no_number_twice() -> None:
    g = bp.Generator(SEED, device="cpu")
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda _: bp.random_bits(5, "u64", generator=g), range(40)))
    wanted = bp.random_bits(200, "u64", seed=SEED, device="cpu").reshape(40, 5)
    assert sorted(map(tuple, made)) == sorted(map(tuple, wanted))


G = bp.Generator(1, device="cpu")
F32 = np.zeros(4, np.float32)
REFUSED: tuple[tuple[str, Callable[..., Any], type[bp.BaracudaError], str], ...] = (
    ("offset", lambda: bp.fill_uniform(F32, offset=-1, device="cpu"), bp.InvalidProblemError, "offset=-1 is negative"),
    ("offset far", lambda: bp.fill_uniform(F32, offset=1 << 64, device="cpu"), bp.InvalidProblemError, "beyond 64 bits"),
    ("subsequence", lambda: bp.fill_normal(F32, subsequence=1 << 62, device="cpu"), bp.InvalidProblemError, r"2\*\*62"),
    ("position", lambda: bp.fill_normal(F32, position=np.array([-3]), device="cpu"), bp.InvalidProblemError, "negative"),
    ("position kind", lambda: bp.fill_normal(F32, position=np.zeros(1), device="cpu"), bp.OperandTypeError, "must hold i64"),
    ("position shape", lambda: bp.fill_normal(F32, position=np.zeros(2, int), device="cpu"), bp.InvalidProblemError, "position"),
    ("low", lambda: bp.fill_uniform(F32, 1.0, 1.0, device="cpu"), bp.InvalidProblemError, "give low < high"),
    ("low nan", lambda: bp.fill_uniform(F32, float("nan"), device="cpu"), bp.InvalidProblemError, "not finite"),
    ("range", lambda: bp.fill_uniform(F32, -3e38, 3e38, device="cpu"), bp.InvalidProblemError, "not finite"),
    ("empty f16", lambda: bp.uniform(3, 1.0001, 1.0002, "f16", seed=0, device="cpu"), bp.InvalidProblemError, "no f16"),
    ("std", lambda: bp.fill_normal(F32, std=-1.0, device="cpu"), bp.InvalidProblemError, "std=-1.0 is negative"),
    ("scale", lambda: bp.fill_exponential(F32, float("inf"), device="cpu"), bp.InvalidProblemError, "not finite"),
    ("tail", lambda: bp.fill_truncated_normal(F32, low=8.0, high=9.0, device="cpu"), bp.InvalidProblemError, "probability"),
    ("p", lambda: bp.bernoulli(3, 1.5, seed=0, device="cpu"), bp.InvalidProblemError, "p=1.5 is no probability"),
    ("integers", lambda: bp.integers(3, 5, 5, seed=0, device="cpu"), bp.InvalidProblemError, "give low < high"),
    ("integers kind", lambda: bp.integers(3, 0, 257, "u8", seed=0, device="cpu"), bp.InvalidProblemError, "beyond u8"),
    ("seed", lambda: bp.uniform(3, device="cpu"), bp.InvalidProblemError, "neither seed nor generator"),
    ("both", lambda: bp.uniform(3, seed=1, generator=G), bp.InvalidProblemError, "both seed and generator"),
    ("generator", lambda: bp.uniform(3, generator=np.random), bp.OperandTypeError, "generator is module"),
    ("generator offset", lambda: bp.uniform(3, offset=2, generator=G), bp.InvalidProblemError, "leave them"),
    ("count", lambda: bp.take_position(G.counter, -1, device="cpu"), bp.InvalidProblemError, "count=-1"),
    ("counter", lambda: bp.take_position(np.zeros(2, int), 1, device="cpu"), bp.InvalidProblemError, "one element"),
    ("set_offset", lambda: G.set_offset(-1), bp.InvalidProblemError, "negative"),
)  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_random_bad_arguments_are_refused(call: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        call()
    assert not F32.any() and G.state().offset == 0
