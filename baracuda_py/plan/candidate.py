"""A kernel that may serve a problem: what it supports, costs, guarantees, and lowers to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from ..runtime.steps import Call, Step
from ..types import BackendKind, BaracudaError, DeviceSpec, ElementKind, Exact, MathPrecision, PrecisionGuarantee
from .descriptor import Descriptor

__all__ = ["OK", "Candidate", "Cost", "Feasibility", "Reference", "no", "steps_of"]

D = TypeVar("D", bound=Descriptor)
Config = Any  # hashable, printed with str(): "" where a candidate has only one


@dataclass(frozen=True)
class Feasibility:
    """Truthy, or falsy with a `reason`, the smallest change that would admit it (`mend`), and the `error` to raise."""

    reason: str = ""
    mend: str = ""
    error: BaracudaError | None = None

    def __bool__(self) -> bool:
        return not self.reason

    def raise_on_error(self) -> None:
        if self.error is not None:
            raise self.error

    @staticmethod
    def of(error: BaracudaError) -> Feasibility:
        return Feasibility(error.reason, error.mend, error)


OK = Feasibility()


def no(reason: str, mend: str = "") -> Feasibility:
    return Feasibility(reason, mend)


@dataclass(frozen=True)
class Cost:
    """A prediction: useful bytes moved, FLOPs, seconds, and which resource sets the time."""

    bytes: int
    flops: int
    seconds: float
    limit: str = "bandwidth"

    @staticmethod
    def streaming(
        device: DeviceSpec, nbytes: int, *, flops: int = 0, instructions: float = 0.0, efficiency: float = 1.0
    ) -> Cost:
        """A kernel that streams `nbytes` at a share of the device's bandwidth and issues `instructions` a thread sum."""
        times = {
            "bandwidth": nbytes / (device.bandwidth * efficiency),
            "instruction issue": instructions / device.rate("issue"),
        }
        limit = max(times, key=lambda name: times[name])
        if times[limit] < device.overhead:
            limit = "launch latency"
        return Cost(nbytes, flops, device.overhead + max(times.values()), limit)


class Candidate(Generic[D]):
    """One variant of a plan. Stateless; every question is pure in (canonical descriptor, device).

    Tile sizes are the candidate's own: `configs` lists them, `cost` ranks them, and the winner shows as `sku.config`.
    """

    variant: ClassVar[str]
    backend: ClassVar[BackendKind] = BackendKind.BESPOKE

    def supports(self, desc: D, device: DeviceSpec) -> Feasibility:
        raise NotImplementedError

    def configs(self, desc: D, device: DeviceSpec) -> Iterable[Config]:
        return ("",)

    def cost(self, desc: D, device: DeviceSpec, config: Config) -> Cost:
        raise NotImplementedError

    def guarantee(self, desc: D, device: DeviceSpec, config: Config) -> PrecisionGuarantee:
        raise NotImplementedError

    def lower(self, desc: D, device: DeviceSpec, config: Config) -> tuple[Step, ...]:
        raise NotImplementedError


def steps_of(candidate: Candidate[D], desc: D, device: DeviceSpec, config: Config) -> tuple[Step, ...]:
    """What a candidate lowers the canonical `desc` to; no steps where nothing is written, whatever the candidate."""
    written = [o for o in desc.operands if o.written and not o.optional]
    if all(0 in desc.layout(o.name).shape for o in written):
        return ()
    return candidate.lower(desc, device, config)


def exact_movement(element: ElementKind) -> PrecisionGuarantee:
    """What a kernel that only moves bytes guarantees."""
    return PrecisionGuarantee(MathPrecision.EXACT, element, True, True, True, False, Exact())


class Reference(Candidate[Descriptor]):
    """The NumPy oracle on the host, chosen by ``device="cpu"`` and nothing else."""

    variant = "reference"
    backend = BackendKind.REFERENCE

    def __init__(self, run: Callable[..., None], guarantee: Callable[[Any], PrecisionGuarantee]) -> None:
        self._run, self._guarantee = run, guarantee

    def supports(self, desc: Descriptor, device: DeviceSpec) -> Feasibility:
        return OK if device.is_host else no("runs on the host only", 'device="cpu"')

    def cost(self, desc: Descriptor, device: DeviceSpec, config: Config) -> Cost:
        nbytes = sum(lay.element.nbytes(_count(lay.shape)) for lay in map(desc.layout, _names(desc)))
        return Cost.streaming(device, nbytes)

    def guarantee(self, desc: Descriptor, device: DeviceSpec, config: Config) -> PrecisionGuarantee:
        return self._guarantee(desc)

    def lower(self, desc: Descriptor, device: DeviceSpec, config: Config) -> tuple[Step, ...]:
        return (Call("reference", self._run),)


def _names(desc: Descriptor) -> list[str]:
    return [operand.name for operand in desc.operands if not operand.optional]


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count
