"""Numbers of f32 rounded to 16 bits at random, so that the mean is the number itself (kernels/random/stochastic_cast.cu)."""

from __future__ import annotations

from typing import Any

from ...plan.candidate import exact_results
from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Step
from ...types import DeviceSpec, ElementKind, InvalidProblemError, PrecisionGuarantee
from .._function import function_of
from . import oracle, samples
from ._by_position import ByPosition
from ._drawn import POSITION, VALUES, Positioned

__all__ = ["StochasticCastDescriptor", "StochasticCastPlan", "stochastic_cast"]

SHORT = (ElementKind.BF16, ElementKind.F16)


@described(
    Slot("out", "out", takes=SHORT, element="made"),
    Slot("x", takes=(ElementKind.F32,)),
    POSITION,
    fields=("shape", "element", "dtype", *VALUES),
)
class StochasticCastDescriptor(Positioned):
    """x of `shape`, whose numbers become ones of the kind `dtype` at random."""

    dtype: ElementKind = ElementKind.BF16

    name = "stochastic_cast"
    values = VALUES

    @property
    def made(self) -> ElementKind:
        return self.dtype

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype not in SHORT:
            raise InvalidProblemError(
                f"stochastic_cast: dtype={self.dtype}", "give bf16 or f16; `cast` rounds to nearest"
            )


class CastByPosition(ByPosition):
    launches = ("random/stochastic_cast.cu:stochastic_cast",)
    instructions, single_instructions = 16, 12

    def arrays(self, desc: StochasticCastDescriptor) -> tuple[str, ...]:
        return "out", "x"

    def guarantee(self, desc: StochasticCastDescriptor, device: DeviceSpec, config: int) -> PrecisionGuarantee:
        return exact_results(desc)

    def lower(self, desc: StochasticCastDescriptor, device: DeviceSpec, config: int) -> tuple[Step, ...]:
        return self.launch(desc, device, config, (desc.dtype.number,))


class StochasticCastPlan(Plan[StochasticCastDescriptor]):
    """The cast: operands `out`, `x`, and `position` where the offset is in memory."""

    descriptor = StochasticCastDescriptor
    candidates = (CastByPosition(),)
    reference = oracle.stochastic_cast
    probes = ({"shape": (999,), "element": "f32"}, {"shape": (33, 7), "element": "f32", "dtype": "f16"})


@function_of(StochasticCastPlan)
def stochastic_cast(
    x: Any, dtype: Any = "bf16", *, seed: int = 0, offset: int = 0, subsequence: int = 0, position: Any = None
) -> Any:
    """`x` in 16 bits, rounded at random so that the mean of the result is x (stochastic rounding: M. Croci, M. Fasi, N. J.
    Higham, T. Mary and M. Mikaitis, *Stochastic rounding: implementation, error analysis and applications*, 2022).

    x: f32 of any shape and strides. dtype: bf16 or f16. Of the two neighbours of a number in `dtype`, the one further from 0 is
    taken with a probability that is the number's place between them, to 2**-32; numbers that `dtype` has are unchanged. Beyond
    its largest number the neighbour is infinite. Small updates of 16-bit parameters are lost where each is rounded to nearest,
    and not in the mean of these. Element i, in C order, is rounded by the 32 random bits at position offset + i of the stream
    (seed, subsequence): the same ones for every layout and device. position: an array of one i64 in x's memory, which is added to
    `offset` when the kernel runs (`take_position`).
    out: of x's shape and of `dtype`; allocated in C order if not given. Returns out. NaN stays NaN, without its payload. Raises
    InvalidProblemError for another dtype.
    """


register(Op("stochastic_cast", StochasticCastPlan, stochastic_cast, samples.stochastic_cast))
