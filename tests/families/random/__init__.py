"""Random numbers by other means: Philox on Python's integers, and formulas one element at a time. No oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from ...gauntlet import Problem
from .. import Family
from ..answers import near

__all__ = ["FAMILY", "word_at"]

M32 = (1 << 32) - 1


def _block(key: int, counter: int) -> list[int]:
    """The four words of a counter of 128 bits."""
    w = [counter >> 32 * i & M32 for i in range(4)]
    for step in range(10):
        low, high = 0xD2511F53 * w[0], 0xCD9E8D57 * w[2]
        k = (key & M32) + step * 0x9E3779B9, (key >> 32 & M32) + step * 0xBB67AE85
        w = [high >> 32 ^ w[1] ^ k[0] & M32, high & M32, low >> 32 ^ w[3] ^ k[1] & M32, low & M32]
    return w


def word_at(options: dict[str, Any], position: int, bits: int) -> int:
    """The 32, 64 or 128 random bits at a position."""
    per_block, width = 128 // bits, {32: 0, 64: 1, 128: 2}[bits]
    block, place = divmod(position, per_block)
    counter = block | options.get("subsequence", 0) << 64 | width << 126
    words = _block(options.get("seed", 0), counter)[place * 4 // per_block : (place + 1) * 4 // per_block]
    return sum(word << 32 * i for i, word in enumerate(words))


def _begin(problem: Problem) -> int:
    begin = int(problem.sample.options.get("offset", 0))
    return begin + (int(problem.slots["position"].host()[0]) if "position" in problem.slots else 0)


def _each(problem: Problem, of: Callable[[Callable[[int], int], int, int], float], bits: int) -> list[Any]:
    """`of` (word at a position, position, bits) of each element in C order."""
    options, begin = dict(problem.sample.options), _begin(problem)
    count = int(np.prod(problem.slots["x"].host().shape))
    return [of(lambda p: word_at(options, p, bits), begin + i, bits) for i in range(count)]


def _floats(of: Callable[..., float], size: Callable[[dict[str, Any]], float]) -> Callable[[Problem], None]:
    """The check of a distribution of floats: `of` (word at, position, bits, options)."""

    def check(problem: Problem) -> None:
        options, shape = dict(problem.sample.options), problem.slots["x"].host().shape
        bits = 64 if problem.desc.element.bits == 64 else 32
        wanted = _each(problem, lambda word, p, bits: of(word, p, bits, options, problem.desc.element.digits), bits)
        near(problem, "x", np.reshape(wanted, shape), size=size(options))

    return check


def _uniform(word: Any, p: int, bits: int, options: dict[str, Any], digits: int) -> float:
    low, high = options.get("low", 0.0), options.get("high", 1.0)
    return min(low + (word(p) >> (bits - digits)) / 2.0**digits * (high - low), _below(high, digits))


def _below(high: float, digits: int) -> float:
    """The largest number of so many digits that is less than a positive one."""
    part, exponent = math.frexp(high)
    k = math.ceil(part * 2**digits) - 1
    return math.ldexp(k, exponent - digits) if 2 * k >= 2**digits else math.ldexp(2**digits - 1, exponent - 1 - digits)


def _open(word: int, bits: int) -> float:
    return (word + 0.5) / 2.0**bits


def _normal(word: Any, p: int, bits: int, options: dict[str, Any], digits: int) -> float:  # noqa: ARG001
    even = p - p % 2
    angle = 2 * math.pi * word(even + 1) / 2.0**bits
    z = math.sqrt(-2 * math.log(_open(word(even), bits))) * (math.sin if p % 2 else math.cos)(angle)
    return float(options.get("mean", 0.0) + options.get("std", 1.0) * z)


def _exponential(word: Any, p: int, bits: int, options: dict[str, Any], digits: int) -> float:  # noqa: ARG001
    return float(-options.get("scale", 1.0) * math.log(_open(word(p), bits)))


def _gumbel(word: Any, p: int, bits: int, options: dict[str, Any], digits: int) -> float:  # noqa: ARG001
    return float(options.get("loc", 0.0) - options.get("scale", 1.0) * math.log(-math.log(_open(word(p), bits))))


def _truncated(word: Any, p: int, bits: int, options: dict[str, Any], digits: int) -> float:
    """The quantile by bisection of the distribution function."""
    mean, std = options.get("mean", 0.0), options.get("std", 1.0)
    ends = [(options.get(end, other) - mean) / std for end, other in (("low", -2.0), ("high", 2.0))]
    low, high = (math.erf(z / math.sqrt(2)) for z in ends)
    share, (below, above) = low + _open(word(p), bits) * (high - low), ends
    for _ in range(60):
        middle = (below + above) / 2
        below, above = (middle, above) if math.erf(middle / math.sqrt(2)) < share else (below, middle)
    return min(float(mean + std * below), _below(options.get("high", 2.0), digits))


def _bits(problem: Problem) -> None:
    got = np.asarray(problem.wide["x"])
    width = 64 if got.dtype.itemsize == 8 else 32
    wanted = _each(problem, lambda word, p, _: word(p) % 2 ** (8 * got.dtype.itemsize), width)
    assert got.view(got.dtype.str.replace("i", "u")).ravel().tolist() == wanted


def _bernoulli(problem: Problem) -> None:
    p = problem.sample.options.get("p", 0.5)
    wanted = _each(problem, lambda word, at, _: word(at) < round(p * 2**32), 32)
    assert np.asarray(problem.wide["x"], np.float64).ravel().tolist() == wanted


def _integers(problem: Problem) -> None:
    got, options = np.asarray(problem.wide["x"]), problem.sample.options
    low, high, bits = options.get("low", 0), options.get("high", 2), 128 if got.dtype.itemsize == 8 else 64
    assert got.ravel().tolist() == _each(problem, lambda word, p, bits: low + (word(p) * (high - low) >> bits), bits)


def _take(problem: Problem) -> None:
    begin, count = int(problem.slots["counter"].host()[0]), problem.sample.options["count"]
    assert [int(problem.wide[name][0]) for name in ("position", "counter")] == [begin, begin + count]


def _dropout(problem: Problem) -> None:
    """Each element by itself; of numbers that are not finite what is dropped is 0."""
    options, desc = dict(problem.sample.options), problem.desc
    x = problem.slots[desc.read].host()
    rest = problem.slots["residual"].host().ravel() if "residual" in problem.slots else np.zeros(x.size)
    p, begin = options["p"], _begin(problem)
    wanted = []
    for i, (value, other) in enumerate(zip(x.ravel().tolist(), rest.tolist())):
        kept = word_at(options, begin + i, 32) >= round(p * 2**32)
        wanted.append((value / (1 - p) if kept else 0.0) + other)
    near(problem, desc.made, np.reshape(wanted, x.shape), size=np.abs(x.astype(np.float64)))


def _stochastic_cast(problem: Problem) -> None:
    """Each number by whole multiples of the distance between its neighbours, as fractions."""
    options, x, begin = dict(problem.sample.options), problem.slots["x"].host(), _begin(problem)
    digits, least, most = (11, -24, 65504.0) if options.get("dtype") == "f16" else (8, -133, 2.0**128 - 2.0**120)
    got = np.asarray(problem.wide["out"]).astype(np.float32).ravel().tolist()
    for i, (number, made) in enumerate(zip(x.ravel().tolist(), got)):
        if not math.isfinite(number):
            assert repr(abs(number)) == repr(abs(made))
            continue
        unit = Fraction(2) ** max(math.frexp(number)[1] - digits, least)
        below, rest = divmod(abs(Fraction(number)) / unit, 1)
        up = word_at(options, begin + i, 32) < math.floor(rest * 2**32)
        wanted = (below + up) * unit
        assert math.copysign(1, made) == math.copysign(1, number)
        assert abs(made) == (math.inf if wanted > most else float(wanted)), (number, made)


def _rows_of_scores(problem: Problem) -> Iterator[tuple[tuple[Any, ...], list[Any]]]:
    """The index of each row along the axis, and its scores (x + g) / tau, one element at a time."""
    options, x = dict(problem.sample.options), problem.slots["x"].host().astype(np.float64)
    axis, begin, bits = options.get("axis", -1), _begin(problem), 64 if problem.desc.element.bits == 64 else 32
    noise = [-math.log(-math.log(_open(word_at(options, begin + i, bits), bits))) for i in range(x.size)]
    z = np.atleast_1d((x + np.reshape(noise, x.shape)) / options.get("tau", 1.0))
    for place in np.ndindex(*np.delete(z.shape, axis)) if x.size else ():
        index = list(place)
        index.insert(axis % z.ndim, slice(None))
        yield tuple(index), z[tuple(index)].tolist()


def _soft(scores: list[float]) -> list[float]:
    most = max(scores)
    if math.isinf(most) or any(map(math.isnan, scores)):
        return [math.nan] * len(scores)
    terms = [math.exp(z - most) for z in scores]
    total = math.fsum(terms)
    return [term / total for term in terms]


def _gumbel_softmax(problem: Problem) -> None:
    wanted = np.full(np.atleast_1d(problem.slots["x"].host()).shape, 0.0)
    for index, scores in _rows_of_scores(problem):
        p = _soft(scores)
        if problem.sample.options.get("hard") and not math.isnan(p[0]):
            first = p.index(max(p))
            p = [float(i == first) for i in range(len(p))]
        wanted[index] = p
    near(problem, "out", wanted.reshape(problem.slots["x"].host().shape), size=1.0)


def _gumbel_softmax_backward(problem: Problem) -> None:
    grad = np.atleast_1d(problem.slots["grad"].host().astype(np.float64))
    wanted, size = np.zeros(grad.shape), np.zeros(grad.shape)
    tau = problem.sample.options.get("tau", 1.0)
    for index, scores in _rows_of_scores(problem):
        p, g = _soft(scores), grad[index].tolist()
        total = math.fsum(a * b for a, b in zip(p, g))
        wanted[index] = [a * (b - total) / tau for a, b in zip(p, g)]
        size[index] = max(map(abs, g)) / tau
    shape = problem.slots["x"].host().shape
    near(problem, "grad_x", wanted.reshape(shape), size=size.reshape(shape))


def _ends(*names: str) -> Callable[[dict[str, Any]], float]:
    return lambda options: 1.0 + sum(abs(options.get(name, 1.0)) for name in names)


CHECKS: dict[str, Callable[[Problem], None]] = {
    "fill_uniform": _floats(_uniform, _ends("low", "high")), "fill_normal": _floats(_normal, _ends("mean", "std")),
    "fill_exponential": _floats(_exponential, _ends("scale")), "fill_gumbel": _floats(_gumbel, _ends("loc", "scale")),
    "fill_truncated_normal": _floats(_truncated, _ends("mean", "std")), "fill_random_bits": _bits,
    "fill_bernoulli": _bernoulli, "fill_integers": _integers, "take_position": _take,
    "dropout": _dropout, "dropout_backward": _dropout, "gumbel_softmax": _gumbel_softmax,
    "gumbel_softmax_backward": _gumbel_softmax_backward, "stochastic_cast": _stochastic_cast,
}  # fmt: skip

FAMILY = Family(
    independent=CHECKS,
    always=(
        "axis",
        "count",
        "dtype",
        "grad_x",
        "hard",
        "high",
        "loc",
        "low",
        "mean",
        "offset",
        "p",
        "position",
        "residual",
        "scale",
        "seed",
        "std",
        "subsequence",
        "tau",
    ),
    cases={
        "random_streams_test.py::test_uniform_never_rounds_to_high": ("cpu",),
        "gumbel_softmax_test.py::test_gumbel_softmax_takes_the_ends_of_temperatures": ("cpu",),
        "gumbel_softmax_test.py::test_gumbel_softmax_gradient_is_that_of_the_soft_result": ("cpu",),
        "randperm_test.py::test_randperm_puts_elements_at_all_places": 0,
        "randperm_test.py::test_randperm_permutations_are_equally_likely": 0,
        "randperm_test.py::test_randperm_is_a_permutation_of_its_keys": ("0", "1", "700"),
        "random_streams_test.py::test_random_numbers_follow_their_distribution": 5,
        "gumbel_softmax_test.py::test_gumbel_softmax_of_any_layout_is_the_same": ("cpu",),
        "random_streams_test.py::test_random_fills_equal_those_of_their_parts": 2,
        "random_streams_test.py::test_random_fills_do_not_depend_on_strides": 4,
        "gumbel_softmax_test.py::test_gumbel_softmax_is_that_of_the_noise_of_fill_gumbel": ("cpu",),
        "dropout_test.py::test_dropout_drops_the_same_of_every_kind_and_layout": ("cpu",),
    },
)
