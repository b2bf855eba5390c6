"""Samples of random fills: every kind, odd extents, strides, offsets inside blocks, positions in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...samples.sample import Sample, adversarial, values
from ...types import ElementKind

__all__ = [
    "dropout",
    "dropout_backward",
    "fill_bernoulli",
    "fill_exponential",
    "fill_gumbel",
    "fill_integers",
    "fill_normal",
    "fill_random_bits",
    "fill_truncated_normal",
    "fill_uniform",
    "stochastic_cast",
    "take_position",
]

FLOATS = ("f32", "bf16", "f16", "f64")
INTEGERS = ("u32", "i64", "u8", "i8", "i16", "u16", "i32", "u64")
FAR = (1 << 34) + 3  # a position whose block needs more than 32 bits
Options = dict[str, Any]


def _sample(kind: str, shape: tuple[int, ...], options: Options, **more: Any) -> Sample:
    """x of `shape`; `more` are `position`, and `transposed`: every other element of a transposed array, backwards."""
    rng = np.random.default_rng(7)
    x = values(rng, shape, ElementKind.of(kind))
    label = f"{kind}{list(shape)} {' '.join(f'{k}={v}' for k, v in options.items())}"
    operands = {"x": x}
    if "position" in more:
        operands["position"] = np.array([more["position"]], np.int64)
        label += f" position={more['position']}"
    if more.get("transposed"):
        operands["x"] = values(rng, tuple(2 * n for n in shape[::-1]), ElementKind.of(kind)).T[::-2, ::2]
        label += " transposed"
    return Sample(label, operands, options)


def _samples(kinds: tuple[str, ...], own: Options, *, full: bool, sure: Options | None = None) -> Iterator[Sample]:
    """`own` are numbers of the distribution, `sure` further ones."""
    first, second = kinds[0], kinds[1]
    for i, kind in enumerate(kinds if full else kinds[:4]):
        yield _sample(kind, (317,), {**own, "seed": 5 + i, "offset": i})
    yield _sample(first, (5, 7), {"seed": -1, "offset": FAR, "subsequence": 3}, transposed=True)
    yield _sample(second, (41,), {"seed": 1 << 40, "offset": 2}, position=FAR)
    yield _sample(first, (), {"seed": 1})
    yield _sample(first, (0, 3), {"seed": 1})
    if sure is not None:
        yield _sample(second, (9,), {**sure, "seed": 1})


def _of(kinds: tuple[str, ...], own: Options, sure: Options | None = None) -> Callable[..., Iterator[Sample]]:
    def samples(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
        return _samples(kinds, own, full=full, sure=sure)

    return samples


fill_uniform = _of(FLOATS, {"low": -0.75, "high": 2.5}, {"low": 1.0, "high": 1.0078125})
fill_normal = _of(FLOATS, {"mean": 0.5, "std": 3.0}, {"mean": 2.0, "std": 0.0})
fill_exponential = _of(FLOATS, {"scale": 2.5}, {"scale": 0.0})
fill_gumbel = _of(FLOATS, {"loc": -1.0, "scale": 0.5})
fill_truncated_normal = _of(FLOATS, {"mean": 1.0, "std": 2.0, "low": -3.0, "high": 1.5}, {"low": -10.0, "high": 10.0})
fill_random_bits = _of(INTEGERS, {})
fill_bernoulli = _of(("bool", "f16", "i64", "f64", "bf16", "f32", "u8"), {"p": 0.3}, {"p": 1.0})
fill_integers = _of(INTEGERS, {"low": 3, "high": 100}, {"low": -(1 << 63), "high": (1 << 63) - 1})


def take_position(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """From the start, and far from it."""
    for begin, count in ((0, 5), (FAR, FAR), (7, 0)):
        yield Sample(f"{count} from {begin}", {"counter": np.array([begin], np.int64)}, {"count": count})


def dropout(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Every kind, with and without a residual, strides, none and all dropped, values that are not finite."""
    yield from _dropped("x", full=full)


def dropout_backward(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """As of dropout, without residuals."""
    yield from _dropped("grad", full=full)


def _dropped(name: str, *, full: bool) -> Iterator[Sample]:
    rng = np.random.default_rng(8)
    for i, kind in enumerate(FLOATS):
        element, options = ElementKind.of(kind), {"p": 0.25, "seed": 3 + i, "offset": i}
        given = {name: values(rng, (277,), element)}
        if name == "x" and i % 2:
            given["residual"] = values(rng, (277,), element)
        yield Sample(f"{kind}[277] {', '.join(given)}", given, options)
    wide = values(rng, (14, 10), ElementKind.F32)
    given = {name: wide.T[::-2, ::2], **({"residual": wide[:5, :7]} if name == "x" else {})}
    yield Sample("f32[5, 7] transposed", given, {"p": 0.6, "seed": -4, "offset": FAR, "subsequence": 9})
    given = {name: values(rng, (3, 13), ElementKind.BF16), "position": np.array([FAR], np.int64)}
    yield Sample("bf16[3, 13] position", given, {"p": 0.5, "seed": 1, "offset": 1})
    for p in (0.0, 1.0):
        yield Sample(f"f32 corners p={p}", {name: adversarial(ElementKind.F32)}, {"p": p, "seed": 2})
    yield Sample("f16 corners", {name: adversarial(ElementKind.F16)}, {"p": 0.5, "seed": 2})
    if full:
        yield Sample("f64 none", {name: np.zeros((0, 3))}, {"p": 0.5})
        yield Sample("f64 one", {name: np.array(2.5)}, {"p": 0.5})


def stochastic_cast(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Both kinds, normal numbers and those below them, ends of the range, numbers that stay, strides, positions in memory."""
    rng = np.random.default_rng(9)
    for i, kind in enumerate(("bf16", "f16")):
        dtype = ElementKind.of(kind)
        x = values(rng, (297,), ElementKind.F32)
        yield Sample(f"{kind}[297]", {"x": x}, {"dtype": kind, "seed": 3 + i, "offset": i})
        small = np.ldexp(rng.standard_normal(200), rng.integers(-150, -10, 200)).astype(np.float32)
        yield Sample(f"{kind} small", {"x": small}, {"dtype": kind, "seed": 4})
        ends = np.float32(dtype.largest) * (1 + rng.uniform(-1, 1, 64).astype(np.float32) * 2.0**-8)
        yield Sample(f"{kind} ends", {"x": ends.astype(np.float32)}, {"dtype": kind, "seed": 5})
        yield Sample(f"{kind} corners", {"x": adversarial(ElementKind.F32)}, {"dtype": kind, "seed": 6})
        kept = values(rng, (40,), dtype).astype(np.float32)
        yield Sample(f"{kind} stay", {"x": kept}, {"dtype": kind, "seed": 7})
    wide = values(rng, (14, 10), ElementKind.F32)
    yield Sample("transposed", {"x": wide.T[::-2, ::2]}, {"seed": -4, "offset": FAR, "subsequence": 9})
    yield Sample(
        "position", {"x": wide, "position": np.array([FAR], np.int64)}, {"dtype": "f16", "seed": 1, "offset": 1}
    )
    if full:
        yield Sample("none", {"x": wide[:0]}, {})
        yield Sample("one", {"x": np.float32(1.001) * np.ones((), np.float32)}, {})
