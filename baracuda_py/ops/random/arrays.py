"""uniform, normal and the others: new arrays of random numbers, allocated and then filled."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...types import ElementKind, InvalidProblemError, OperandTypeError, PlanPreference
from ...types.elements import ElementLike
from .._empty import empty_array
from .._numbers import one_or_more
from .continuous import fill_exponential, fill_gumbel, fill_normal, fill_truncated_normal, fill_uniform
from .discrete import fill_bernoulli, fill_integers, fill_random_bits
from .generator import Generator

__all__ = [
    "bernoulli",
    "exponential",
    "gumbel",
    "integers",
    "normal",
    "random_bits",
    "truncated_normal",
    "uniform",
]

Shape = int | Sequence[int]


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


def _made(
    op: str, fill: Callable[..., Any], shape: Shape, dtype: ElementLike, numbers: Mapping[str, Any],
    where: tuple[int | None, int, int, Generator | None], how: tuple[Any, Any, Any],
) -> Any:  # fmt: skip
    seed, offset, subsequence, generator = where
    stream, pref, device = how
    extents, kind = one_or_more(shape, f"{op}: shape"), ElementKind.of(dtype)
    if (seed is None) == (generator is None):
        raise InvalidProblemError(f"{op}: one of seed and generator is needed", "pass seed=... or generator=...")
    if generator is None:
        made = empty_array(op, extents, kind, device)
        given = {"seed": seed, "offset": offset, "subsequence": subsequence}
        return fill(made, **numbers, **given, stream=stream, pref=pref, device=device)
    if not isinstance(generator, Generator):
        raise OperandTypeError(f"{op}: generator is {type(generator).__name__}", "pass a baracuda_py.Generator")
    if offset or subsequence:
        raise InvalidProblemError(f"{op}: generator and {offset=}, {subsequence=}", "leave them to the generator")
    device = generator.device if device is None else device
    made = empty_array(op, extents, kind, device)
    return generator.fill(fill, made, math.prod(extents), **numbers, stream=stream, pref=pref, device=device)
