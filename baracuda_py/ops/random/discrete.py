"""fill_random_bits, fill_bernoulli, fill_integers: integers, and zeros and ones, from random bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...plan.descriptor import Slot
from ...types import ElementKind
from .._rows import FLOATS
from ._drawn import Drawn, positioned
from ._family import DrawnPlan, published

__all__ = [
    "DrawnPlan",
    "FillBernoulliDescriptor",
    "FillBernoulliPlan",
    "FillIntegersDescriptor",
    "FillIntegersPlan",
    "FillRandomBitsDescriptor",
    "FillRandomBitsPlan",
    "fill_bernoulli",
    "fill_integers",
    "fill_random_bits",
]

INTEGERS = tuple(kind for kind in ElementKind if kind.is_integer and not kind.packed)


class DrawnBits(Drawn):
    """A distribution whose numbers are integers of 64 bits, and whose results are exact."""

    @property
    def number(self) -> str:
        return "uint64"


@positioned(Slot("x", "inout", takes=INTEGERS))
class FillRandomBitsDescriptor(DrawnBits):
    """x of `shape`, whose elements become random bits."""

    name = "fill_random_bits"
    distribution = "RandomBits"
    instructions = 1


FillRandomBitsPlan, fill_random_bits = published(
    FillRandomBitsDescriptor,
    "random bits",
    """Element i, in C order, has the bits at position p = offset + i of the stream (seed, subsequence): word p % 4 of
    Philox4x32-10 of the counter (p / 4, subsequence) and the key seed, as cuRAND's, or its lowest bits where x has fewer; of
    64-bit elements the words 2 (p % 2) and the next of the counter (p / 2, subsequence + 2**62).""",
    {"u32": (999,), "i64": (40,), "u8": (70,)},
    kinds="integers",
)


@positioned(Slot("x", "inout", takes=(*FLOATS, *INTEGERS, ElementKind.BOOL)))
class FillBernoulliDescriptor(DrawnBits):
    """x of `shape`, whose elements become 1 with probability `p`, else 0."""

    p: float = 0.5

    name = "fill_bernoulli"
    distribution = "RandomBernoulli"
    instructions = 3

    @property
    def bits(self) -> int:
        return 32

    def check_numbers(self, values: Mapping[str, Any]) -> None:
        if not 0 <= values["p"] <= 1:
            raise self.refuse(f"p={values['p']} is no probability", "give a number from 0 to 1")

    def numbers(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return (round(values["p"] * 2**32),)


FillBernoulliPlan, fill_bernoulli = published(
    FillBernoulliDescriptor,
    "1 with probability `p`, else 0",
    """Element i, in C order, is 1 where the 32 random bits at position offset + i of the stream (seed, subsequence) are less
    than round(p * 2**32), whatever x's kind: p = 0 and p = 1 are exact. Raises InvalidProblemError for a `p` outside [0,
    1].""",
    {"bool": (999,), "bf16": (33, 7), "f64": (40,)},
    "Tensor.bernoulli_",
    kinds="bool, integers, f16, bf16, f32 or f64",
)


@positioned(Slot("x", "inout", takes=INTEGERS))
class FillIntegersDescriptor(DrawnBits):
    """x of `shape`, whose elements become integers of [`low`, `high`)."""

    low: int = 0
    high: int = 2

    name = "fill_integers"
    distribution = "RandomIntegers"
    instructions = 4

    @property
    def bits(self) -> int:
        """Twice as many as the widest range has."""
        return 128 if self.element.bits == 64 else 64

    def check_numbers(self, values: Mapping[str, Any]) -> None:
        low, high, info = values["low"], values["high"], np.iinfo(self.element.dtype)
        if not low < high:
            raise self.refuse(f"no integer is in [low, high) = [{low}, {high})", "give low < high")
        if low < info.min or high - 1 > info.max:
            raise self.refuse(
                f"[low, high) = [{low}, {high}) is beyond {self.element}",
                f"give low from {info.min} on, and high up to {info.max + 1}",
            )

    def numbers(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        low, high = int(values["low"]), int(values["high"])
        return low % 2**64, high - low


FillIntegersPlan, fill_integers = published(
    FillIntegersDescriptor,
    "random integers of [low, high)",
    """Element i, in C order, is low + floor(w * (high - low) / 2**64) of 64 random bits w at position offset + i of the
    stream (seed, subsequence), of their own: the probability of each integer is 1 / (high - low) within 2**-64, 2**-32 of
    itself at most. 64-bit elements take 128 bits, and err by 2**-64 of themselves at most. Raises InvalidProblemError for
    an empty range, and one beyond x's kind or 2**63; for all u64 there is `fill_random_bits`.""",
    {"i32": (999,), "i64": (40,), "u8": (70,)},
    "Tensor.random_",
    kinds="integers",
)
