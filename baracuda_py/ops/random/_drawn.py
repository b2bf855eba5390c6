"""What random fills have in common: elements that are functions of the bits at their position (kernels/random/fill.cu)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np

from ...plan.candidate import Candidate, Cost, exact_results
from ...plan.descriptor import Descriptor, Slot, described
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Run, Step, Struct
from ...tensor.axes import merge_axes
from ...types import Componentwise, DeviceSpec, ElementKind, InvalidProblemError, PrecisionGuarantee, Term
from .._launch import THREADS, index_scalar, index_type, pack_dims
from .._rows import computed_in

__all__ = [
    "BLOCK", "MOST_SUBSEQUENCES", "POSITION", "VALUES", "Drawn", "FillRandom", "Positioned", "grid_stride", "merged",
    "place", "positioned",
]  # fmt: skip

BLOCK = 128  # bits of a Philox block
CHUNK = 16  # bytes of the widest store
MOST_BLOCKS = 4  # that a thread computes for one store
MOST_SUBSEQUENCES = 1 << 62
CTAS_PER_SM = 8  # with less to do than that each, a thread has one step
MOST_STEPS = 4  # of a thread: what it prepares is then little of its work
PHILOX_INSTRUCTIONS = (
    72  # of a block: 20 wide products, which take two issue slots each, 20 three-input xors, 12 for the counter
)
VALUES = ("seed", "offset", "subsequence")
NUMBERS = ("a", "b", "c", "d", "e", "f")  # of the kernel's `Numbers`

POSITION = Slot("position", optional=True, takes=(ElementKind.I64,), shape="single", strided=False)


class Positioned(Descriptor):
    """A problem whose elements depend on the random bits at positions `offset` + i of the stream (`seed`, `subsequence`); with
    the operand `position` at position[0] + `offset` + i."""

    shape: tuple[int, ...]
    element: ElementKind
    seed: int = 0
    offset: int = 0
    subsequence: int = 0

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def single(self) -> tuple[int, ...]:
        """The shape of `position`."""
        return (1,)

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        made = super().scalars(given)
        if made["offset"] < 0:
            raise InvalidProblemError(f"{self.op}: offset={made['offset']} is negative", "give a position of 0 or more")
        if not 0 <= made["subsequence"] < MOST_SUBSEQUENCES:
            raise InvalidProblemError(
                f"{self.op}: subsequence={made['subsequence']} is not in [0, 2**62)", "give a number of 0 or more"
            )
        return made

    def refuse_values(self, tensors: Mapping[str, Any]) -> None:
        if "position" in tensors and int(tensors["position"].array()[0]) < 0:
            raise InvalidProblemError(f"{self.op}: position holds a negative number", "give a position of 0 or more")


P = TypeVar("P", bound=Positioned)


@dataclass_transform(frozen_default=True)
def positioned(*slots: Slot) -> Callable[[type[P]], type[P]]:
    """Makes a class that declares run-time numbers a descriptor with the operands `slots` and `position`."""

    def made(cls: type[P]) -> type[P]:
        own = tuple(inspect.get_annotations(cls))
        cls.values = (*own, *VALUES)
        return described(*slots, POSITION, fields=("shape", "element", *cls.values))(cls)

    return made


class Drawn(Positioned):
    """x of `shape`, whose elements in C order become random numbers of a distribution."""

    derived = NUMBERS
    distribution: ClassVar[str]  # of kernels/include/random/distributions.cuh
    instructions: ClassVar[float]  # of an element, beside Philox; estimated from the source
    errors: ClassVar[tuple[tuple[float, str], ...]] = ()  # terms of the bound, in roundings of what it is computed in
    source: ClassVar[str] = ""

    @property
    def bits(self) -> int:
        """Random bits of an element."""
        return 64 if self.element.bits == 64 else 32

    @property
    def number(self) -> str:
        """NumPy's type of the numbers that the kernel takes."""
        return computed_in(self.element).numpy

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        made = super().scalars(given)
        self.check_numbers(made)
        return made

    def check_numbers(self, values: Mapping[str, Any]) -> None:
        """Raises InvalidProblemError for numbers that are none of the distribution."""

    def numbers(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The numbers that the kernel takes, at most six."""
        return ()

    def resolve(self, given: Mapping[str, Any]) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        values = self.scalars(given)
        numbers = (*self.numbers(values), *(0,) * len(NUMBERS))
        return self.displacements(), {**values, **dict(zip(NUMBERS, numbers))}

    def refuse(self, what: str, fix: str) -> InvalidProblemError:
        return InvalidProblemError(f"{self.op}: {what}", fix)

    def check_finite(self, values: Mapping[str, Any], *names: str, positive: str = "") -> None:
        """Raises unless the numbers are finite as f32, or as f64 of f64, and `positive` is not negative."""
        with np.errstate(over="ignore"):
            held = {name: float(np.dtype(self.number).type(values[name])) for name in names}
        for name, value in held.items():
            if not math.isfinite(value):
                raise self.refuse(f"{name}={values[name]} is not finite in {self.number}", "give a finite number")
        if positive and held[positive] < 0:
            raise self.refuse(f"{positive}={values[positive]} is negative", "give a number of 0 or more")


class FillRandom(Candidate[Drawn]):
    """One launch: a thread has chunks of 16 bytes, of which it computes the blocks; or single elements of one block where x is
    not contiguous or not aligned to 16 bytes."""

    variant = "philox"
    launches = ("random/fill.cu:fill_random",)

    def configs(self, desc: Drawn, device: DeviceSpec) -> Iterable[int]:
        per_block, size = BLOCK // desc.bits, desc.element.bits // 8
        wide = max(per_block, min(CHUNK // size, MOST_BLOCKS * per_block))
        whole = wide * size <= CHUNK and _contiguous(desc) and desc.layout("x").align >= wide * size
        return (wide if whole else -per_block,)

    def cost(self, desc: Drawn, device: DeviceSpec, config: int) -> Cost:
        element = desc.instructions + PHILOX_INSTRUCTIONS * desc.bits / BLOCK + (0 if config > 0 else 8)
        return Cost.streaming(device, desc.nbytes, instructions=desc.count * element)

    def guarantee(self, desc: Drawn, device: DeviceSpec, config: int) -> PrecisionGuarantee:
        """Of the distribution's function, computed from the same bits."""
        if not desc.errors:
            return exact_results(desc)
        computed = computed_in(desc.element)
        terms = [
            Term(n, ElementKind.F64 if measure == "tail" else computed.element, measure) for n, measure in desc.errors
        ]
        bound = Componentwise.rounded(terms, desc.element, desc.source)
        return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound)

    def lower(self, desc: Drawn, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        index, width = index_type(desc.count), abs(config)
        extents, (strides,) = ((), ((),)) if config > 0 else merged(desc, ("x",))
        args = (
            Ptr("x"), index_scalar(desc.count, index), *place(desc),
            Struct(tuple(Run(name, desc.number) for name in NUMBERS)), pack_dims(extents, (strides,), index),
        )  # fmt: skip
        kind = desc.element.cuda if desc.element is ElementKind.BOOL else desc.element.number
        entry = f"fill_random<{index}, philox::{desc.distribution}<{kind}>, {width}, {len(extents)}>"
        grid = grid_stride(desc.count, width, device)
        return (Launch(Kernel("random/fill.cu", entry), grid, (THREADS, 1, 1), args),)


def grid_stride(count: int, width: int, device: DeviceSpec) -> tuple[int, int, int]:
    """CTAs for `count` elements, `width` per thread and step. Many short ones, which fill each SM to the end whatever number of
    them it holds at once."""
    steps = -(-count // (THREADS * width))
    return max(1, min(steps, max(device.sms * CTAS_PER_SM, -(-steps // MOST_STEPS)))), 1, 1


def merged(desc: Any, names: Sequence[str]) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Extents, and strides in bytes of the operands of these names."""
    arrays = [desc.layout(name) for name in names]
    extents, strides = merge_axes(desc.shape, [tuple(s * one.natural for s in one.strides) for one in arrays])
    return (extents, strides) if extents else ((1,), tuple((one.natural,) for one in arrays))


def place(desc: Positioned) -> tuple[Arg, ...]:
    """The kernel's arguments that say where in all streams a call's words are."""
    return *(Run(name) for name in VALUES), Ptr("position") if desc.has("position") else Packed(bytes(8))


def _contiguous(desc: Drawn) -> bool:
    extents, (strides,) = merged(desc, ("x",))
    return len(extents) == 1 and strides == (desc.element.bits // 8,)
