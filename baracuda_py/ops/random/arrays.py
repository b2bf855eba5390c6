"""uniform, normal and the others: new arrays of random numbers, allocated and then filled; and random permutations."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...plan.fields import integer
from ...types import ElementKind, InvalidProblemError, OperandTypeError, PlanPreference
from ...types.elements import ElementLike
from ...types.errors import Renamed
from .._empty import empty_array
from .._numbers import one_or_more
from ..sort.whole.sort import argsort
from .continuous import fill_exponential, fill_gumbel, fill_normal, fill_truncated_normal, fill_uniform
from .discrete import fill_bernoulli, fill_integers, fill_random_bits
from .generator import Generator

__all__ = [
    "bernoulli",
    "drawing",
    "exponential",
    "gumbel",
    "integers",
    "normal",
    "random_bits",
    "randperm",
    "truncated_normal",
    "uniform",
]

Shape = int | Sequence[int]
Place = tuple[int | None, int, int, Generator | None]  # seed, offset, subsequence, generator
INDICES = (ElementKind.I64, ElementKind.I32)
LONGEST = (1 << 31) - 1  # permutation


def random_bits(
    shape: Shape, dtype: ElementLike = ElementKind.U32, *, seed: int | None = None, offset: int = 0, subsequence: int = 0,
    generator: Generator | None = None, stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """An array of random bits: allocated, then `fill_random_bits`.

    seed, offset, subsequence: where the numbers are in all streams; the same arguments give the same array. generator: takes the
    next positions of a `Generator` instead. The array is CuPy's (NumPy's for ``device="cpu"`` and ``"ptx"``); for another
    framework's pass its own array to `fill_random_bits`.
    """
    where = (seed, offset, subsequence, generator)
    return _made("random_bits", fill_random_bits, shape, dtype, {}, where, (stream, pref, device))


def uniform(
    shape: Shape, low: float = 0.0, high: float = 1.0, dtype: ElementLike = ElementKind.F32, *, seed: int | None = None,
    offset: int = 0, subsequence: int = 0, generator: Generator | None = None, stream: Any = None,
    pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """An array of uniform random numbers of [low, high): allocated, then `fill_uniform`. Arguments as of `random_bits`."""
    numbers = {"low": low, "high": high}
    where = (seed, offset, subsequence, generator)
    return _made("uniform", fill_uniform, shape, dtype, numbers, where, (stream, pref, device))


def normal(
    shape: Shape, mean: float = 0.0, std: float = 1.0, dtype: ElementLike = ElementKind.F32, *, seed: int | None = None,
    offset: int = 0, subsequence: int = 0, generator: Generator | None = None, stream: Any = None,
    pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """An array of normal random numbers: allocated, then `fill_normal`. Arguments as of `random_bits`."""
    numbers = {"mean": mean, "std": std}
    where = (seed, offset, subsequence, generator)
    return _made("normal", fill_normal, shape, dtype, numbers, where, (stream, pref, device))


def exponential(
    shape: Shape, scale: float = 1.0, dtype: ElementLike = ElementKind.F32, *, seed: int | None = None, offset: int = 0,
    subsequence: int = 0, generator: Generator | None = None, stream: Any = None, pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:  # fmt: skip
    """An array of exponential random numbers: allocated, then `fill_exponential`. Arguments as of `random_bits`."""
    where = (seed, offset, subsequence, generator)
    return _made("exponential", fill_exponential, shape, dtype, {"scale": scale}, where, (stream, pref, device))


def gumbel(
    shape: Shape, loc: float = 0.0, scale: float = 1.0, dtype: ElementLike = ElementKind.F32, *, seed: int | None = None,
    offset: int = 0, subsequence: int = 0, generator: Generator | None = None, stream: Any = None,
    pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """An array of random numbers of Gumbel's distribution: allocated, then `fill_gumbel`. Arguments as of `random_bits`."""
    numbers = {"loc": loc, "scale": scale}
    where = (seed, offset, subsequence, generator)
    return _made("gumbel", fill_gumbel, shape, dtype, numbers, where, (stream, pref, device))


def truncated_normal(
    shape: Shape, mean: float = 0.0, std: float = 1.0, low: float = -2.0, high: float = 2.0,
    dtype: ElementLike = ElementKind.F32, *, seed: int | None = None, offset: int = 0, subsequence: int = 0,
    generator: Generator | None = None, stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """An array of normal random numbers between `low` and `high`: allocated, then `fill_truncated_normal`. Arguments as of
    `random_bits`."""
    numbers = {"mean": mean, "std": std, "low": low, "high": high}
    where = (seed, offset, subsequence, generator)
    return _made("truncated_normal", fill_truncated_normal, shape, dtype, numbers, where, (stream, pref, device))


def bernoulli(
    shape: Shape, p: float = 0.5, dtype: ElementLike = ElementKind.BOOL, *, seed: int | None = None, offset: int = 0,
    subsequence: int = 0, generator: Generator | None = None, stream: Any = None, pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:  # fmt: skip
    """An array of ones with probability `p`, else zeros: allocated, then `fill_bernoulli`. Arguments as of `random_bits`."""
    where = (seed, offset, subsequence, generator)
    return _made("bernoulli", fill_bernoulli, shape, dtype, {"p": p}, where, (stream, pref, device))


def integers(
    shape: Shape, low: int, high: int, dtype: ElementLike = ElementKind.I64, *, seed: int | None = None, offset: int = 0,
    subsequence: int = 0, generator: Generator | None = None, stream: Any = None, pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:  # fmt: skip
    """An array of random integers of [low, high): allocated, then `fill_integers`. Arguments as of `random_bits`."""
    numbers = {"low": low, "high": high}
    where = (seed, offset, subsequence, generator)
    return _made("integers", fill_integers, shape, dtype, numbers, where, (stream, pref, device))


def randperm(
    n: int, index_dtype: ElementLike = ElementKind.I64, *, seed: int | None = None, offset: int = 0, subsequence: int = 0,
    generator: Generator | None = None, out: Any = None, stream: Any = None, pref: PlanPreference | None = None,
    device: Any = None,
) -> Any:  # fmt: skip
    """A random permutation of 0 to n - 1, as torch.randperm: the places of n random 64-bit keys in order, by `argsort`.

    n: 0 to 2**31 - 1. index_dtype: int64, or int32. out: an array of n of that kind, allocated if not given. The keys are the
    `random_bits` of the n positions from offset on, and n is what a `generator` counts: the permutation depends on n and these
    alone, not on the device or the grid. All permutations are equally likely, as far as the keys are random, but that equal keys
    stay in their order; there are any with a probability of at most n**2 / 2**65. seed, offset, subsequence, generator: as of
    `random_bits`. Nothing waits for the device. pref: as of `argsort`. Raises InvalidProblemError for an n out of range.
    """
    if not 0 <= integer(n, "randperm: n") <= LONGEST:
        raise InvalidProblemError(f"randperm: n={n}", f"give a number from 0 to {LONGEST}")
    if (kind := ElementKind.of(index_dtype)) not in INDICES:
        raise OperandTypeError(f"randperm: index_dtype={kind}", "give i64 or i32")
    device = generator.device if device is None and isinstance(generator, Generator) else device
    where = (seed, offset, subsequence, generator)
    keys, draw = _prepared("randperm", n, ElementKind.U64, where, device)
    if out is not None or pref is not None:  # what may be refused, before a generator moves on
        with Renamed("argsort", "randperm", _by_index_dtype):
            asked: Any = argsort
            plan = asked.plan(keys, index_dtype=kind, out=out, pref=pref, device=device)
            if out is not None and (error := plan.can_implement(x=keys, out=out).error) is not None:
                raise error
    draw(fill_random_bits, stream=stream)
    return argsort(keys, index_dtype=kind, out=out, stream=stream, pref=pref, device=device)


def _by_index_dtype(text: str) -> str:
    return re.sub(r"describe the problem with index_element=\S+ \(of a call, (.*?)\)", r"pass \1", text)


def _made(
    op: str, fill: Callable[..., Any], shape: Shape, dtype: ElementLike, numbers: Mapping[str, Any], where: Place,
    how: tuple[Any, Any, Any],
) -> Any:  # fmt: skip
    stream, pref, device = how
    return _prepared(op, shape, dtype, where, device)[1](fill, **numbers, stream=stream, pref=pref)


def _prepared(op: str, shape: Shape, dtype: ElementLike, where: Place, device: Any) -> tuple[Any, Callable[..., Any]]:
    """The new array, and `drawing` into it."""
    extents, generator = one_or_more(shape, f"{op}: shape"), where[-1]
    kind = ElementKind.of(dtype)
    _check_place(op, where)
    device = generator.device if device is None and generator is not None else device
    made = empty_array(op, extents, kind, device)
    return made, drawing(op, made, where, device)


def drawing(op: str, x: Any, where: Place, device: Any) -> Callable[..., Any]:
    """A function that fills `x` by one of an array and its place in all streams."""
    seed, offset, subsequence, generator = where
    _check_place(op, where)
    if generator is not None:
        return partial(_drawn, op, generator, x, math.prod(x.shape), device=device)
    return partial(_filled, op, x, seed=seed, offset=offset, subsequence=subsequence, device=device)


def _check_place(op: str, where: Place) -> None:
    seed, offset, subsequence, generator = where
    if (seed is None) == (generator is None):
        passed = "neither seed nor generator" if seed is None else "both seed and generator"
        raise InvalidProblemError(f"{op}: {passed}", "pass one of them: seed=... or generator=...")
    if generator is not None and not isinstance(generator, Generator):
        raise OperandTypeError(f"{op}: generator is {type(generator).__name__}", "pass a baracuda_py.Generator")
    if generator is not None and (offset or subsequence):
        raise InvalidProblemError(f"{op}: generator and {offset=}, {subsequence=}", "leave them to the generator")


def _filled(op: str, made: Any, fill: Callable[..., Any], **given: Any) -> Any:
    with Renamed(fill.__name__, op):
        return fill(made, **given)


def _drawn(op: str, generator: Generator, made: Any, count: int, fill: Callable[..., Any], **given: Any) -> Any:
    with Renamed(fill.__name__, op):
        return generator.fill(fill, made, count, **given)
