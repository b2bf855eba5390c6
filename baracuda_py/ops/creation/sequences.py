"""fill_arange, fill_linspace: numbers at equal distances (kernels/creation/sequence.cu)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost, exact_results
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.fields import flag
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...types import (
    Componentwise,
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    MathPrecision,
    PrecisionGuarantee,
    Term,
)
from .._function import SignatureRules, function_of
from .._launch import THREADS, grid_of, index_scalar, index_type
from .._numbers import unsigned_zero
from .._rows import FLOATS
from . import oracle, samples
from ._mark import CHUNK, UNROLL

__all__ = [
    "FillArangeDescriptor",
    "FillArangePlan",
    "FillLinspaceDescriptor",
    "FillLinspacePlan",
    "fill_arange",
    "fill_linspace",
]

INTEGERS = tuple(kind for kind in ElementKind if kind.is_integer and not kind.packed)
ELEMENT_INSTRUCTIONS = 8  # estimated from the source, not counted


class Stepped(Descriptor):
    """x of `shape`, whose elements in C order become numbers at equal distances."""

    shape: tuple[int, ...]
    element: ElementKind

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def numbers(self) -> tuple[Any, Any, Any]:
        """The first number, the distance, and the last number, None where it follows from both."""
        raise NotImplementedError


class Sequence(Candidate[Stepped]):
    """One launch: a thread has chunks of 16 bytes, or elements where x is not aligned to that."""

    variant = "sequence"
    launches = ("creation/sequence.cu:sequence",)

    def configs(self, desc: Stepped, device: DeviceSpec) -> Iterable[int]:
        width = desc.element.bits // 8
        return (CHUNK // width, 1) if desc.layout("x").align >= CHUNK else (1,)

    def cost(self, desc: Stepped, device: DeviceSpec, config: int) -> Cost:
        instructions = desc.count * ELEMENT_INSTRUCTIONS * (1 + 1 / config)
        return Cost.streaming(device, desc.nbytes, instructions=instructions)

    def guarantee(self, desc: Stepped, device: DeviceSpec, config: int) -> PrecisionGuarantee:
        """start + i * step errs by the rounding of step, i times, and by its own; 16 bits are rounded by way of f32."""
        if desc.element.is_integer:
            return exact_results(desc)
        terms = [Term(3.0, ElementKind.F64, "span")]
        if desc.element.bits == 16:
            terms.append(Term(1.0, ElementKind.F32, "abs_result"))
        bound = Componentwise.rounded(terms, desc.element, "Higham, section 2.2")
        return PrecisionGuarantee.fixed_order(MathPrecision.F64, ElementKind.F64, bound)

    def lower(self, desc: Stepped, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        whole = desc.element.is_integer
        index = index_type(desc.count)
        start, step, last = desc.numbers
        made = _wrapped if whole else np.float64
        args = (
            Ptr("x"), index_scalar(desc.count, index), made(start), made(step), made(0 if last is None else last),
            np.int32(last is not None),
        )  # fmt: skip
        entry = f"sequence<{index}, {desc.element.number}, {'i64' if whole else 'double'}, {config}, {UNROLL}>"
        grid = grid_of(desc.count, THREADS * UNROLL * config)
        return (Launch(Kernel("creation/sequence.cu", entry), grid, (THREADS, 1, 1), args),)


def _wrapped(value: int) -> np.int64:
    """The 64-bit integer of the same low bits."""
    return np.int64((value + (1 << 63)) % (1 << 64) - (1 << 63))


# ---- fill_arange -------------------------------------------------------------------------------------------------------


@described(Slot("x", "inout", takes=FLOATS + INTEGERS, strided=False))
class FillArangeDescriptor(Stepped):
    """x of `shape`, whose elements in C order become `start`, start + step, ..."""

    shape: tuple[int, ...]
    element: ElementKind
    start: Any = 0
    step: Any = 1

    name = "fill_arange"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("start", "step"), unsigned_zero)

    @property
    def numbers(self) -> tuple[Any, Any, Any]:
        return self.start, self.step, None

    def check(self) -> None:
        start, step = self.start, self.step
        if isinstance(start, str) or isinstance(step, str) or not math.isfinite(start + step * float(self.count)):
            raise InvalidProblemError(
                f"fill_arange: start={start} and step={step} are not finite", "give finite numbers"
            )
        if not self.element.is_integer or not self.count:
            return
        if any(isinstance(one, float) for one in (start, step)):
            raise InvalidProblemError(f"fill_arange: {self.element} steps by integers", "give integers, or x of floats")
        info, ends = np.iinfo(self.element.dtype), (start, start + step * (self.count - 1))
        if min(ends) < info.min or max(ends) > info.max:
            raise InvalidProblemError(
                f"fill_arange: from {ends[0]} to {ends[1]} is beyond {self.element}",
                f"stay within {info.min} to {info.max}",
            )


class FillArangePlan(Plan[FillArangeDescriptor]):
    """Numbers at equal distances, from one on: operand `x`."""

    descriptor = FillArangeDescriptor
    candidates = (Sequence(),)
    measures = oracle.MEASURES
    reference = oracle.fill_arange
    reference_guarantee = oracle.guarantee
    probes = ({"shape": (100,), "element": "f32", "start": 2.5, "step": -0.5}, {"shape": (33,), "element": "u8"})


@function_of(FillArangePlan, rules=SignatureRules(reads={"start": unsigned_zero, "step": unsigned_zero}))
def fill_arange(x: Any, start: int | float = 0, step: int | float = 1) -> Any:
    """Sets the elements of `x`, in C order, to start, start + step, ..., in place, and returns `x`; `arange` makes the array.

    x: a C-ordered array of f16, bf16, f32, f64 or integers. Element i is start + i * step, computed in f64 and rounded once (f16
    and bf16: by way of f32), or exactly in integers. Raises InvalidProblemError for numbers that are not finite, and for those
    beyond x's integers.
    """


# ---- fill_linspace -----------------------------------------------------------------------------------------------------


@described(Slot("x", "inout", takes=FLOATS, strided=False))
class FillLinspaceDescriptor(Stepped):
    """x of `shape`, whose elements in C order go from `start` to `stop`; without `endpoint` the next one would be `stop`."""

    shape: tuple[int, ...]
    element: ElementKind
    start: float = 0.0
    stop: float = 1.0
    endpoint: bool = True

    name = "fill_linspace"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("start", "stop"), lambda value, what: float(unsigned_zero(value, what)))
        self._each(("endpoint",), flag)

    @property
    def numbers(self) -> tuple[Any, Any, Any]:
        parts = self.count - bool(self.endpoint)
        step = (self.stop - self.start) / parts if parts > 0 else 0.0
        return self.start, step, self.stop if self.endpoint and self.count > 1 else None

    def check(self) -> None:
        if not math.isfinite(self.start) or not math.isfinite(self.stop) or not math.isfinite(self.stop - self.start):
            raise InvalidProblemError(
                f"fill_linspace: from {self.start} to {self.stop} is not finite",
                "give finite numbers, at a finite distance",
            )


class FillLinspacePlan(Plan[FillLinspaceDescriptor]):
    """Numbers at equal distances, from one to another: operand `x`."""

    descriptor = FillLinspaceDescriptor
    candidates = (Sequence(),)
    measures = oracle.MEASURES
    reference = oracle.fill_linspace
    reference_guarantee = oracle.guarantee
    probes = ({"shape": (100,), "element": "f32", "start": 2.5, "stop": -0.5}, {"shape": (33,), "element": "f16"})


@function_of(FillLinspacePlan)
def fill_linspace(x: Any, start: float, stop: float, *, endpoint: bool = True) -> Any:
    """Sets the elements of `x`, in C order, to numbers from `start` to `stop`, in place, and returns `x`; `linspace` makes the
    array.

    x: a C-ordered array of f16, bf16, f32 or f64. endpoint: whether the last one is `stop`, exactly; else the distance is
    (stop - start) / x.size. Element i is start + i * step, computed in f64 and rounded. Raises InvalidProblemError for numbers
    that are not finite.
    """


register(
    Op("fill_arange", FillArangePlan, fill_arange, samples.fill_arange, peers={"cupy": "arange", "torch": "arange"})
)
register(
    Op(
        "fill_linspace",
        FillLinspacePlan,
        fill_linspace,
        samples.fill_linspace,
        peers={"cupy": "linspace", "torch": "linspace"},
    )
)
