"""A kernel that may serve a problem: what it supports, its cost, its guarantee, and its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ..runtime.steps import Call, Step
from ..types import (
    BackendKind,
    BaracudaError,
    DeviceSpec,
    MisalignedOperandError,
    PlanPreference,
    PrecisionGuarantee,
)
from ..types.units import bytes_text, time_text
from .descriptor import Descriptor
from .lowering import Sub, lowered

__all__ = [
    "OK",
    "Candidate",
    "Change",
    "Constraint",
    "Cost",
    "Feasibility",
    "Reference",
    "exact_results",
    "natural",
    "no",
    "steps_of",
]

D = TypeVar("D", bound=Descriptor)
Config = Any  # hashable, printed with str(): "" if a candidate has only one


@dataclass(frozen=True)
class Change:
    """A change of a request: other fields of the descriptor or the preference, or another device."""

    desc: Mapping[str, Any] = field(default_factory=dict)
    pref: Mapping[str, Any] = field(default_factory=dict)
    device: DeviceSpec | None = None

    def __or__(self, then: Change) -> Change:
        return Change({**self.desc, **then.desc}, {**self.pref, **then.pref}, then.device or self.device)

    def applied(
        self, desc: Descriptor, pref: PlanPreference, device: DeviceSpec
    ) -> tuple[Descriptor, PlanPreference, DeviceSpec]:
        """The changed request, with the descriptor canonical; raises if the changed problem is invalid."""
        changed = replace(desc, **self.desc)
        changed.validate()
        return changed.canonical(), replace(pref, **self.pref), self.device or device

    def __str__(self) -> str:
        words = [f"{name}={getattr(x, 'value', x)!r}" for name, x in {**self.desc, **self.pref}.items()]
        return ", ".join([*words, *([f"device={self.device.arch!r}"] if self.device else [])])


@dataclass(frozen=True)
class Feasibility:
    """Truthy, or falsy with a `reason`.

    `fix` (text) and `change` (data) are the smallest change that would admit the candidate; `instead` is a variant that serves
    if no change does. `error` is raised if nothing serves.
    """

    reason: str = ""
    fix: str = ""
    error: BaracudaError | None = None
    change: Change | None = field(default=None, compare=False)
    instead: str = ""

    def __bool__(self) -> bool:
        return not self.reason

    @property
    def advice(self) -> str:
        """The advice that follows the reason in a message; empty if there is none."""
        if self.fix:
            return f"to admit it: {self.fix}"
        return f"serves instead: {self.instead}" if self.instead else ""

    def raise_on_error(self) -> None:
        if self.error is not None:
            raise self.error

    @staticmethod
    def of(error: BaracudaError) -> Feasibility:
        return Feasibility(error.reason, error.fix, error)


OK = Feasibility()


def no(reason: str, fix: str = "", change: Change | None = None) -> Feasibility:
    """A refusal. `change`, if known, would admit the candidate; `fix` is its text (default: ``str(change)``)."""
    return Feasibility(reason, fix or (str(change) if change else ""), change=change)


def natural(desc: Descriptor) -> Feasibility:
    """Whether every operand is aligned to its element's size, as kernels that access elements need."""
    low = [o for o in desc.operands for x in (desc.layout(o.name),) if x.align < x.natural and 0 not in x.shape]
    if not low:
        return OK
    needed = {o.name: desc.layout(o.name).natural for o in low}
    name, x = low[0].name, desc.layout(low[0].name)
    reason = (
        f"{name}'s first touched element is aligned to {x.align} bytes, between two elements: "
        f"kernels need {x.natural} for {x.element}"
    )
    such = "a fresh array" if low[0].written else f"contiguize({name}), which takes any address"
    error = MisalignedOperandError(
        f"{desc.op}: {reason}", f"pass {name} on a multiple of {x.natural} bytes, such as {such}"
    )
    said = " and ".join(f"{name} on a multiple of {n} bytes" for name, n in needed.items())
    return Feasibility(reason, said, error, Change({f"{name}_align": n for name, n in needed.items()}))


@dataclass(frozen=True)
class Cost:
    """A prediction: useful bytes moved, FLOPs, seconds, and which resource sets the time."""

    bytes: int
    flops: int
    seconds: float
    limit: str = "bandwidth"

    def __repr__(self) -> str:
        said = (bytes_text(self.bytes), f"{self.flops:.3g} FLOPs", time_text(self.seconds), f"limited by {self.limit}")
        return f"<Cost {', '.join(said)}>"

    @staticmethod
    def streaming(
        device: DeviceSpec, nbytes: int, *, flops: int = 0, instructions: float = 0.0, efficiency: float = 1.0
    ) -> Cost:
        """The cost of a kernel that streams `nbytes` at `efficiency` times the device's bandwidth and issues `instructions`
        thread instructions in total."""
        times = {
            "bandwidth": nbytes / (device.bandwidth * efficiency),
            "instruction issue": instructions / device.rate("issue"),
        }
        limit = max(times, key=lambda name: times[name])
        if times[limit] < device.overhead:
            limit = "launch latency"
        return Cost(nbytes, flops, device.overhead + max(times.values()), limit)


class Constraint(Protocol):
    """A requirement of a kernel on its operands (plan/constraints.py)."""

    def of(self, desc: Any) -> Feasibility:
        """Whether it holds for the canonical `desc`."""
        raise NotImplementedError


class Candidate(Generic[D]):
    """One variant of a plan. Stateless: every answer depends on the canonical descriptor and the device only.

    Tile sizes are the candidate's own: `configs` lists them, `cost` ranks them, and the winner shows as `sku.config`.
    """

    variant: ClassVar[str]
    backend: ClassVar[BackendKind] = BackendKind.BESPOKE
    launches: ClassVar[tuple[str, ...]] = ()  # the kernels that it may launch, as "file:kernel"
    constraints: ClassVar[tuple[Constraint, ...]] = ()  # requirements on operands; `supports` checks the others
    unaligned: ClassVar[bool] = False  # whether operands may start between two of their elements
    on_request: ClassVar[
        tuple[str, ...]
    ] = ()  # flags of a preference; if there are any, one must be set for the candidate to be considered

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: variant {self.variant}>"

    def supports(self, desc: D, device: DeviceSpec) -> Feasibility:
        return next((said for constraint in self.constraints if not (said := constraint.of(desc))), OK)

    def configs(self, desc: D, device: DeviceSpec) -> Iterable[Config]:
        return ("",)

    def cost(self, desc: D, device: DeviceSpec, config: Config) -> Cost:
        raise NotImplementedError

    def floor(self, desc: D, device: DeviceSpec) -> float:
        """A lower bound of the predicted seconds of all configurations, found without pricing them: `select` skips a candidate
        whose bound is above the best prediction so far. Infinite where there are no configurations."""
        return 0.0

    def ranked(self, desc: D, device: DeviceSpec) -> Iterator[tuple[Config, float]]:
        """Its configurations with their predicted seconds, the least first, ties in the order of `configs`."""
        priced = [(config, self.cost(desc, device, config).seconds) for config in self.configs(desc, device)]
        return iter(sorted(priced, key=lambda pair: pair[1]))

    def guarantee(self, desc: D, device: DeviceSpec, config: Config) -> PrecisionGuarantee:
        """The error bounds: one for all outputs, or ``PrecisionGuarantee.by_output(...)`` where they differ. By default every
        result is exact, as where bytes are only moved."""
        return exact_results(desc)

    def lower(self, desc: D, device: DeviceSpec, config: Config) -> tuple[Step | Sub, ...]:
        raise NotImplementedError


def steps_of(candidate: Candidate[D], desc: D, device: DeviceSpec, config: Config) -> tuple[Step, ...]:
    """The steps to which a candidate lowers the canonical `desc`; no steps if nothing is written."""
    return () if desc.empty else lowered(candidate.lower(desc, device, config))


def exact_results(desc: Descriptor) -> PrecisionGuarantee:
    """The default guarantee: every bit of every result is right. The kind is that of the first written operand."""
    written = next(operand.name for operand in desc.operands if operand.written)
    return PrecisionGuarantee.exact(desc.layout(written).element)


class Reference(Candidate[Descriptor]):
    """The NumPy oracle on the host, selected only by ``device="cpu"``."""

    variant = "reference"
    backend = BackendKind.REFERENCE
    unaligned = True

    def __init__(self, run: Callable[..., None], guarantee: Callable[[Any], PrecisionGuarantee]) -> None:
        self._run, self._guarantee = run, guarantee

    def supports(self, desc: Descriptor, device: DeviceSpec) -> Feasibility:
        return (
            OK
            if device.is_host
            else no("runs on the host only", 'device="cpu"', Change(device=DeviceSpec.named("cpu")))
        )

    def cost(self, desc: Descriptor, device: DeviceSpec, config: Config) -> Cost:
        return Cost.streaming(device, desc.nbytes)

    def guarantee(self, desc: Descriptor, device: DeviceSpec, config: Config) -> PrecisionGuarantee:
        return self._guarantee(desc)

    def lower(self, desc: Descriptor, device: DeviceSpec, config: Config) -> tuple[Step, ...]:
        return (Call("reference", self._run),)
