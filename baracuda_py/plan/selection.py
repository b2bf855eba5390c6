"""Selection: the kernel that was chosen for a problem, and everything derived from it. Plans show it, calls run it."""

from __future__ import annotations

import inspect
import logging
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..runtime.compile.inspect import KernelView
from ..runtime.gpu.device import check_arch, spec_of
from ..runtime.launch import Executable
from ..runtime.ranges import in_ranges
from ..runtime.steps import Call, Launch, Step, workspace_size
from ..types import DeviceSpec, InvalidProblemError, KernelSku, PlanPreference, PrecisionGuarantee
from .about.tuned import recommended
from .backend import Program, backend
from .candidate import Candidate, Cost, steps_of
from .descriptor import Operand
from .select import Assessment, checked

if TYPE_CHECKING:
    from .family import Family

__all__ = ["LaunchConfig", "Selection", "result_type", "selected"]

log = logging.getLogger("baracuda_py")
_new = tuple.__new__  # tuple.__new__, without a named tuple's check of the length


class LaunchConfig(NamedTuple):
    """The launch configuration of one kernel; `shared_memory_bytes` is dynamic shared memory per CTA."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_memory_bytes: int


@dataclass(frozen=True, eq=False)
class Selection:
    """A candidate and its configuration for one problem on one kind of device; `provenance` says how it was chosen.

    Equal and hashable by (family, descriptor, preference, device, variant, configuration). Derived properties are computed on
    first use. It owns no device memory and no stream, only loaded kernels.
    """

    family: type[Family[Any]]
    desc: Any
    pref: PlanPreference
    device: DeviceSpec
    candidate: Candidate[Any]
    config: Any
    provenance: str
    _executables: dict[int, Executable] = field(default_factory=dict, init=False, repr=False)

    @staticmethod
    def of(
        family: type[Family[Any]],
        desc: Any,
        pref: PlanPreference,
        device: DeviceSpec,
        answer: Assessment,
        provenance: str = "model",
    ) -> Selection:
        """The selection of a candidate's answer."""
        return Selection(family, desc, pref, device, answer.candidate, answer.config, provenance)

    def known_as(self, provenance: str) -> Selection:
        """The same selection with another provenance."""
        return replace(self, provenance=provenance)

    def _identity(self) -> tuple[Any, ...]:
        return self.family, self.desc, self.pref, self.device, self.candidate.variant, str(self.config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selection) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    # ---- the problem ----------------------------------------------------------------------------------------------

    @cached_property
    def canonical(self) -> Any:
        """The descriptor with neutral run-time values, which is the only one that candidates see."""
        return self.desc.canonical()

    @property
    def operands(self) -> tuple[Operand, ...]:
        return self.desc.operands  # type: ignore[no-any-return]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The operands' names, in order."""
        return tuple(operand.name for operand in self.operands)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The names of run-time values."""
        return type(self.desc).values  # type: ignore[no-any-return]

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The operands that make the result, in order."""
        return tuple(o.name for o in self.operands if o.written and not o.optional)

    @cached_property
    def result(self) -> Callable[[Mapping[str, Any]], Any]:
        """The function from a call's operands to its result: the written operand, or a named tuple of several."""
        names = self.written
        if len(names) == 1:
            return itemgetter(names[0])
        kind = result_type(self.family, names)
        of: Callable[[Mapping[str, Any]], Any] = itemgetter(*names)
        return lambda given: _new(kind, of(given))

    # ---- the kernel -----------------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The launches, copies, fills and calls."""
        return steps_of(self.candidate, self.canonical, self.device, self.config)

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(step for step in self.steps if isinstance(step, Launch))

    @property
    def kernels(self) -> tuple[KernelView, ...]:
        return tuple(KernelView(launch, self.device.arch) for launch in self.launches)

    @property
    def launch_config(self) -> tuple[LaunchConfig, ...]:
        return tuple(LaunchConfig(launch.grid, launch.block, launch.shared_bytes) for launch in self.launches)

    @cached_property
    def workspace_size(self) -> int:
        """Bytes of scratch."""
        return workspace_size(self.steps)

    @property
    def capture_safe(self) -> bool:
        """Whether a CUDA graph can hold the steps."""
        return not self.device.host_memory and all(s.capturable for s in self.steps if isinstance(s, Call))

    @property
    def deterministic(self) -> bool:
        """Whether no sum depends on the order of scheduling."""
        return not any(launch.float_atomics for launch in self.launches)

    @cached_property
    def sku(self) -> KernelSku:
        element, aux = self.family.sku_elements(self.canonical)
        return KernelSku(
            self.family.category, self.desc.op, element, self.device.tier, self.candidate.backend, self.candidate.variant,
            str(self.config), self.device.arch, self.guarantee, aux, *self.family.sku_traits(self.canonical),
        )  # fmt: skip

    @cached_property
    def cost(self) -> Cost:
        return self.candidate.cost(self.canonical, self.device, self.config)

    # ---- guarantee ------------------------------------------------------------------------------------------------

    @cached_property
    def guarantee(self) -> PrecisionGuarantee:
        """The guarantee of the results; ``guarantee.of(name)`` is that of one result."""
        return self.candidate.guarantee(self.canonical, self.device, self.config).for_outputs(
            [operand.name for operand in self.operands if operand.written]
        )

    def measured(self, desc: Any = None, output: str | None = None) -> dict[str, Callable[..., Any]]:
        """The measures that the bound of `output` (by default the first) names, as functions of the read operands by name;
        `desc` has run-time values other than the plan's."""
        about = (output or self.written[0],)
        return {
            name: partial(measure, desc or self.desc, **dict(zip(("output",), about) if _asks_output(measure) else ()))
            for name, measure in self.family.measures.items()
        }

    # ---- on a device ----------------------------------------------------------------------------------------------

    def executable(self, ordinal: int) -> Executable:
        """The executable of the steps on a CUDA device, which must be current; compiled and loaded on first use."""
        executable = self._executables.get(ordinal)
        if executable is None:
            check_arch(self.desc.op, self.device, ordinal)
            made = Executable(self.steps, self.names, self.device.arch, ordinal)
            executable = self._executables[ordinal] = in_ranges(made, f"{self.desc.op}/{self.candidate.variant}")
        return executable

    def is_loaded(self, ordinal: int) -> bool:
        """Whether `executable` would neither compile nor load."""
        return ordinal in self._executables

    @cached_property
    def program(self) -> Program:
        """The counterpart of an executable for an emulated plan."""
        return backend(self.desc.op).program(self.desc.op, self.steps, self.names, self.device.arch)


def result_type(family: type[Family[Any]], names: tuple[str, ...]) -> Any:
    """The named tuple of a family's results, one class for all its plans."""
    return family.result_type or _result_type(family, names)  # type: ignore[arg-type]  # a class is hashable


@cache
def _result_type(family: type[Family[Any]], names: tuple[str, ...]) -> Any:
    of: Any = namedtuple
    made = of(f"{family.__name__}Result", names)
    made.plan = family  # the Plan class, for `check`
    return made


@cache
def _asks_output(measure: Callable[..., Any]) -> bool:
    return "output" in inspect.signature(measure).parameters


def selected(family: type[Family[Any]], desc: Any, pref: PlanPreference | None, device: Any) -> Selection:
    """The best candidate for `desc`: the recorded winner, if a valid one exists, else the one with the least predicted time.

    Raises InvalidProblemError for an invalid problem, and UnsupportedError if nothing serves it.
    """
    if not isinstance(desc, family.descriptor):
        raise InvalidProblemError(
            f"{family.__name__}.select: expected a {family.descriptor.__name__}, got {type(desc).__name__}",
            f"{family.__name__}.select({family.descriptor.__name__}(...))",
        )
    pref, spec = PlanPreference.of(pref), spec_of(device)
    canonical = checked(desc)
    chosen, provenance = recommended(family, family.all_candidates(), canonical, pref, spec)
    log.debug("%s on %s: %s[%s], by %s", desc.op, spec, chosen.candidate.variant, chosen.config, provenance)
    return Selection.of(family, desc, pref, spec, chosen, provenance)
