"""fill_uniform, fill_normal, fill_exponential, fill_gumbel, fill_truncated_normal: floats from random bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...numerics.rounding import round_to
from ...plan.descriptor import Slot
from ...types import ElementKind
from .._rows import FLOATS
from ._drawn import Drawn, positioned
from ._family import DrawnPlan, published

__all__ = [
    "DrawnPlan",
    "FillExponentialDescriptor",
    "FillExponentialPlan",
    "FillGumbelDescriptor",
    "FillGumbelPlan",
    "FillNormalDescriptor",
    "FillNormalPlan",
    "FillTruncatedNormalDescriptor",
    "FillTruncatedNormalPlan",
    "FillUniformDescriptor",
    "FillUniformPlan",
    "fill_exponential",
    "fill_gumbel",
    "fill_normal",
    "fill_truncated_normal",
    "fill_uniform",
]

X = Slot("x", "inout", takes=FLOATS)


def _next(number: float, kind: ElementKind, way: int) -> float:
    """The least number of `kind` that is not below (way 1), or the largest that is below (-1)."""
    near = round_to(np.array([number]), kind)
    if float(near[0]) < number if way > 0 else float(near[0]) >= number:
        near = np.nextafter(near, near.dtype.type(way * math.inf))
    return float(near[0])


class Between(Drawn):
    """A distribution of numbers in [`low`, `high`)."""

    def check_ends(self, values: Mapping[str, Any]) -> None:
        least, most = self.ends(values)
        if not values["low"] < values["high"] or not least <= most:
            raise self.refuse(
                f"no {self.element} is in [low, high) = [{values['low']}, {values['high']})", "give low < high"
            )

    def ends(self, values: Mapping[str, Any]) -> tuple[float, float]:
        """The least and the largest number of x's kind in [low, high)."""
        return _next(values["low"], self.element, 1), _next(values["high"], self.element, -1)


PROBES = {"f32": (999,), "bf16": (33, 7), "f64": (40,)}


@positioned(X)
class FillUniformDescriptor(Between):
    """x of `shape`, whose elements become uniform numbers of [`low`, `high`)."""

    low: float = 0.0
    high: float = 1.0

    name = "fill_uniform"
    distribution = "RandomUniform"
    instructions = 5
    errors = ((2.0, "spread"),)
    source = "the roundings of low and high - low"

    def check_numbers(self, values: Mapping[str, Any]) -> None:
        self.check_finite(values, "low", "high")
        self.check_finite({"high - low": values["high"] - values["low"]}, "high - low")
        self.check_ends(values)

    def numbers(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return values["low"], values["high"] - values["low"], *self.ends(values)


FillUniformPlan, fill_uniform = published(
    FillUniformDescriptor,
    "uniform random numbers of [low, high)",
    """Element i, in C order, is low + k / 2**d * (high - low), k the highest d random bits at position offset + i of the
    stream (seed, subsequence), d = 11 for f16, 8 for bf16, 24 for f32, 53 for f64; rounded to x's kind, and never `high`.
    Raises InvalidProblemError for numbers that are not finite, and where no number of x's kind is in [low, high).""",
    PROBES,
    "Tensor.uniform_",
)


@positioned(X)
class FillNormalDescriptor(Drawn):
    """x of `shape`, whose elements become normal numbers of `mean` and standard deviation `std`."""

    mean: float = 0.0
    std: float = 1.0

    name = "fill_normal"
    distribution = "RandomNormal"
    instructions = 16
    source = "Higham, section 3.1; sine, cosine and root: PTX ISA, sin.approx, cos.approx and sqrt.approx (f64: CUDA's)"

    @property
    def errors(self) -> tuple[tuple[float, str], ...]:  # type: ignore[override]
        """f64: the root of the logarithm 3.5, sine or cosine 4, products 2. Else, of the root: sine or cosine 2**-20.5, their
        angle pi * 2 / 2; the root of the logarithm 5, products 2; of the sum 1."""
        return ((10.0, "spread"),) if self.element.bits == 64 else ((24.0, "radius"),)

    def check_numbers(self, values: Mapping[str, Any]) -> None:
        self.check_finite(values, "mean", "std", positive="std")

    def numbers(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return values["mean"], values["std"]


FillNormalPlan, fill_normal = published(
    FillNormalDescriptor,
    "normal random numbers",
    """By Box and Muller: of the random bits w at position offset + i of the stream (seed, subsequence), those at an even
    position p and at p + 1 are u = (w + 1/2) / 2**32 and v = w / 2**32 (f64: of 64 bits), and the elements there mean + std
    * sqrt(-2 log u) * cos(2 pi v), and sin. |z| is at most 6.77 (f64: 9.51). Raises InvalidProblemError for numbers that
    are not finite, and a negative `std`.""",
    PROBES,
    "Tensor.normal_",
)


@positioned(X)
class FillExponentialDescriptor(Drawn):
    """x of `shape`, whose elements become exponential numbers of mean `scale`."""

    scale: float = 1.0

    name = "fill_exponential"
    distribution = "RandomExponential"
    instructions = 22
    errors = ((7.0, "spread"),)
    source = "Higham, section 3.1: the logarithm 5, the product 2"

    def check_numbers(self, values: Mapping[str, Any]) -> None:
        self.check_finite(values, "scale", positive="scale")

    def numbers(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return (values["scale"],)


FillExponentialPlan, fill_exponential = published(
    FillExponentialDescriptor,
    "exponential random numbers",
    """Element i, in C order, is -scale * log(u), u = (w + 1/2) / 2**32 of the random bits w at position offset + i of the
    stream (seed, subsequence) (f64: of 64 bits); scale is the mean. Raises InvalidProblemError for a scale that is
    negative or not finite.""",
    PROBES,
    "Tensor.exponential_",
)


@positioned(X)
class FillGumbelDescriptor(Drawn):
    """x of `shape`, whose elements become numbers of Gumbel's distribution, of mode `loc`."""

    loc: float = 0.0
    scale: float = 1.0

    name = "fill_gumbel"
    distribution = "RandomGumbel"
    instructions = 45
    errors = ((8.0, "spread"),)
    source = "Higham, section 3.1: the logarithm 5, which its own logarithm takes as it is, and 3"

    def check_numbers(self, values: Mapping[str, Any]) -> None:
        self.check_finite(values, "loc", "scale", positive="scale")

    def numbers(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return values["loc"], values["scale"]


FillGumbelPlan, fill_gumbel = published(
    FillGumbelDescriptor,
    "random numbers of Gumbel's distribution",
    """Element i, in C order, is loc - scale * log(-log(u)), u = (w + 1/2) / 2**32 of the random bits w at position offset +
    i of the stream (seed, subsequence) (f64: of 64 bits). Raises InvalidProblemError for numbers that are not finite, and
    a negative `scale`.""",
    PROBES,
)


@positioned(X)
class FillTruncatedNormalDescriptor(Between):
    """x of `shape`, whose elements become normal numbers of `mean` and `std` that are between `low` and `high`."""

    mean: float = 0.0
    std: float = 1.0
    low: float = -2.0
    high: float = 2.0

    name = "fill_truncated_normal"
    distribution = "RandomTruncatedNormal"
    instructions = 60
    errors = ((4.0, "spread"), (6.0, "tail"))
    source = "the roundings of erf's values, by the derivative of its inverse"

    @property
    def number(self) -> str:
        return "float64"

    def check_numbers(self, values: Mapping[str, Any]) -> None:
        self.check_finite(values, "mean", "std", "low", "high", positive="std")
        if not values["std"]:
            raise self.refuse("std=0.0", "give a positive number, or fill x with the mean")
        self.check_ends(values)
        low, high = self.probabilities(values)
        if high - low < 2.0**-32:
            raise self.refuse(
                f"a normal number of mean {values['mean']} and std {values['std']} is between low={values['low']} and "
                f"high={values['high']} with a probability of {(high - low) / 2:.3g}",
                "give low < high with a probability of 2**-33 or more",
            )

    @staticmethod
    def probabilities(values: Mapping[str, Any]) -> tuple[float, float]:
        """erf at both ends."""
        low, high = (math.erf((values[end] - values["mean"]) / values["std"] / math.sqrt(2)) for end in ("low", "high"))
        return low, high

    def numbers(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        low, high = self.probabilities(values)
        return low, high - low, values["std"] * math.sqrt(2), values["mean"], *self.ends(values)


FillTruncatedNormalPlan, fill_truncated_normal = published(
    FillTruncatedNormalDescriptor,
    "normal random numbers between `low` and `high`",
    """Element i, in C order, is mean + std * sqrt(2) * erfinv(A + u (B - A)), A and B erf at both ends, u = (w + 1/2) /
    2**32 of the random bits w at position offset + i of the stream (seed, subsequence) (f64: of 64 bits), computed in f64
    and clamped to [low, high) in x's kind. Raises InvalidProblemError for numbers that are not finite, a `std` that is not
    positive, and ends between which there are few normal numbers, less than one of 2**33.""",
    PROBES,
    "nn.init.trunc_normal_",
)
