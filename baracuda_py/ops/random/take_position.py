"""take_position: the next positions of a stream of random numbers, counted in device memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Kernel, Launch, Ptr, Run, Step
from ...types import DeviceSpec, ElementKind, InvalidProblemError
from .._function import function_of
from . import oracle, samples

__all__ = ["TakePositionDescriptor", "TakePositionPlan", "take_position"]

I64 = (ElementKind.I64,)


@described(
    Slot("position", "out", element=ElementKind.I64, shape="single", strided=False, aligned=False),
    Slot("counter", "inout", takes=I64, strided=False, aligned=False),
)
class TakePositionDescriptor(Descriptor):
    """A counter of `shape`, of one element, from which `count` positions are taken."""

    shape: tuple[int, ...]
    element: ElementKind = ElementKind.I64
    count: int = 0

    name = "take_position"
    values = ("count",)

    @property
    def single(self) -> tuple[int, ...]:
        """The shape of `position`."""
        return (1,)

    def check(self) -> None:
        if self.shape != (1,):
            raise InvalidProblemError(
                f"take_position: counter has shape {self.shape}", "pass an array of one element, of shape (1,)"
            )

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        made = super().scalars(given)
        if made["count"] < 0:
            raise InvalidProblemError(f"take_position: count={made['count']} is negative", "give 0 or more")
        return made


class TakePosition(Candidate[TakePositionDescriptor]):
    """One launch of one thread."""

    variant = "counter"
    launches = ("random/take_position.cu:take_position",)

    def cost(self, desc: TakePositionDescriptor, device: DeviceSpec, config: str) -> Cost:
        return Cost.streaming(device, desc.nbytes)

    def lower(self, desc: TakePositionDescriptor, device: DeviceSpec, config: str) -> tuple[Step, ...]:
        kernel = Kernel("random/take_position.cu", "take_position")
        return (Launch(kernel, (1, 1, 1), (1, 1, 1), (Ptr("position"), Ptr("counter"), Run("count"))),)


class TakePositionPlan(Plan[TakePositionDescriptor]):
    """Positions of a stream: operands `position`, `counter`."""

    descriptor = TakePositionDescriptor
    candidates = (TakePosition(),)
    reference = oracle.take_position
    probes = ({"shape": (1,)},)


@function_of(TakePositionPlan)
def take_position(counter: Any, count: int = 0, *, position: Any = None) -> Any:
    """Takes `count` positions: position = counter, counter += count.

    counter, position: arrays of one i64; `counter` is increased in place. Returns the named tuple (position, counter). Every
    random fill and `dropout` take `position`: they read it when they run, so that a replayed graph that holds both calls goes on
    in the stream. `Generator` holds a counter. Nothing waits for the device.
    """


register(Op("take_position", TakePositionPlan, take_position, samples.take_position))
