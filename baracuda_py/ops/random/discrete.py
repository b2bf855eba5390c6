"""fill_random_bits, fill_bernoulli, fill_integers: integers, and zeros and ones, from random bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind
from .._function import function_of
from .._rows import FLOATS
from . import oracle, samples
from ._drawn import POSITION, VALUES, Drawn, FillRandom

__all__ = [
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


# ---- random bits -------------------------------------------------------------------------------------------------------


@described(Slot("x", "inout", takes=INTEGERS), POSITION)
class FillRandomBitsDescriptor(DrawnBits):
    """x of `shape`, whose elements become random bits."""

    shape: tuple[int, ...]
    element: ElementKind
    seed: int = 0
    offset: int = 0
    subsequence: int = 0

    name = "fill_random_bits"
    values = VALUES
    distribution = "RandomBits"
    instructions = 1


class FillRandomBitsPlan(Plan[FillRandomBitsDescriptor]):
    """Random bits: operand `x`, and `position` where the offset is in memory."""

    descriptor = FillRandomBitsDescriptor
    candidates = (FillRandom(),)
    reference = oracle.fill_random_bits
    probes = (
        {"shape": (999,), "element": "u32"},
        {"shape": (40,), "element": "i64"},
        {"shape": (70,), "element": "u8"},
    )


@function_of(FillRandomBitsPlan)
def fill_random_bits(x: Any, *, seed: int = 0, offset: int = 0, subsequence: int = 0, position: Any = None) -> Any:
    """Sets the elements of `x` to random bits, in place, and returns `x`; `random_bits` makes the array.

    x: an array of integers, any strides. Element i, in C order, has the bits at position p = offset + i of the stream (seed,
    subsequence): word p % 4 of Philox4x32-10 of the counter (p / 4, subsequence) and the key seed, as cuRAND's, or its lowest
    bits where x has fewer; of 64-bit elements the words 2 (p % 2) and the next of the counter (p / 2, subsequence + 2**62).
    position: an array of one i64 in x's memory, which is added to `offset` when the kernel runs.
    """


# ---- bernoulli ---------------------------------------------------------------------------------------------------------


@described(Slot("x", "inout", takes=(*FLOATS, *INTEGERS, ElementKind.BOOL)), POSITION)
class FillBernoulliDescriptor(DrawnBits):
    """x of `shape`, whose elements become 1 with probability `p`, else 0."""

    shape: tuple[int, ...]
    element: ElementKind
    p: float = 0.5
    seed: int = 0
    offset: int = 0
    subsequence: int = 0

    name = "fill_bernoulli"
    values = ("p", *VALUES)
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


class FillBernoulliPlan(Plan[FillBernoulliDescriptor]):
    """Zeros and ones: operand `x`, and `position` where the offset is in memory."""

    descriptor = FillBernoulliDescriptor
    candidates = (FillRandom(),)
    reference = oracle.fill_bernoulli
    probes = (
        {"shape": (999,), "element": "bool"},
        {"shape": (33, 7), "element": "bf16"},
        {"shape": (40,), "element": "f64"},
    )


@function_of(FillBernoulliPlan)
def fill_bernoulli(
    x: Any, p: float = 0.5, *, seed: int = 0, offset: int = 0, subsequence: int = 0, position: Any = None
) -> Any:
    """Sets each element of `x` to 1 with probability `p`, else to 0, in place, and returns `x`; `bernoulli` makes the array.

    x: an array of bool, integers, f16, bf16, f32 or f64, any strides. Element i, in C order, is 1 where the 32 random bits at
    position offset + i of the stream (seed, subsequence) are less than round(p * 2**32), whatever x's kind: p = 0 and p = 1 are
    exact. position: an array of one i64 in x's memory, which is added to `offset` when the kernel runs. Raises
    InvalidProblemError for a `p` outside [0, 1].
    """


# ---- integers ----------------------------------------------------------------------------------------------------------


@described(Slot("x", "inout", takes=INTEGERS), POSITION)
class FillIntegersDescriptor(DrawnBits):
    """x of `shape`, whose elements become integers of [`low`, `high`)."""

    shape: tuple[int, ...]
    element: ElementKind
    low: int = 0
    high: int = 2
    seed: int = 0
    offset: int = 0
    subsequence: int = 0

    name = "fill_integers"
    values = ("low", "high", *VALUES)
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


class FillIntegersPlan(Plan[FillIntegersDescriptor]):
    """Random integers: operand `x`, and `position` where the offset is in memory."""

    descriptor = FillIntegersDescriptor
    candidates = (FillRandom(),)
    reference = oracle.fill_integers
    probes = (
        {"shape": (999,), "element": "i32"},
        {"shape": (40,), "element": "i64"},
        {"shape": (70,), "element": "u8"},
    )


@function_of(FillIntegersPlan)
def fill_integers(
    x: Any, low: int = 0, high: int = 2, *, seed: int = 0, offset: int = 0, subsequence: int = 0, position: Any = None
) -> Any:  # fmt: skip
    """Sets the elements of `x` to random integers of [low, high), in place, and returns `x`; `integers` makes the array.

    x: an array of integers, any strides. Element i, in C order, is low + floor(w * (high - low) / 2**64) of 64 random bits w at
    position offset + i of the stream (seed, subsequence), of their own: the probability of each integer is 1 / (high - low)
    within 2**-64, 2**-32 of itself at most. 64-bit elements take 128 bits, and err by 2**-64 of themselves at most. position:
    an array of one i64 in x's memory, which is added to `offset` when the kernel runs. Raises InvalidProblemError for an empty
    range, and one beyond x's kind or 2**63; for all u64 there is `fill_random_bits`.
    """


register(Op("fill_random_bits", FillRandomBitsPlan, fill_random_bits, samples.fill_random_bits))
register(
    Op(
        "fill_bernoulli",
        FillBernoulliPlan,
        fill_bernoulli,
        samples.fill_bernoulli,
        peers={"torch": "Tensor.bernoulli_"},
    )
)
register(Op("fill_integers", FillIntegersPlan, fill_integers, samples.fill_integers, peers={"torch": "Tensor.random_"}))
