"""Plan: select, can_implement, run. A family subclasses it with a descriptor, its candidates and a reference."""

from __future__ import annotations

import inspect
import logging
from collections import namedtuple
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError
from functools import cache, cached_property, partial
from operator import itemgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from ..call.bound import BoundPlan
from ..call.host import prepare, run_reference
from ..call.key import learn, read
from ..call.ready import MISSED, Ready
from ..call.resolve import refuse_unknown, resolve, take
from ..call.validate import check_operands
from ..runtime.compiler import compile_kernels, compile_ptx
from ..runtime.device import check_arch, spec_of
from ..runtime.driver import require_gpu
from ..runtime.inspect import KernelView
from ..runtime.launch import Executable
from ..runtime.steps import Call, Launch, Step, workspace_size
from ..types import (
    BaracudaError,
    DeviceSpec,
    ElementKind,
    EpilogueKind,
    InvalidProblemError,
    KernelSku,
    LayoutSku,
    OpCategory,
    PlanPreference,
    PrecisionGuarantee,
)
from .candidate import OK, Candidate, Cost, Feasibility, Reference, steps_of
from .descriptor import Descriptor, Operand
from .select import Assessment, assess, checked, choose
from .tuned import apply

if TYPE_CHECKING:
    from ..emulator.launch import Program
    from .explain import Explanation

__all__ = ["LaunchConfig", "Plan"]

D = TypeVar("D", bound=Descriptor)
log = logging.getLogger("baracuda_py")
READY = 256  # operand layouts that a plan remembers


class LaunchConfig(NamedTuple):
    """How one kernel is launched; `shared_memory_bytes` is the dynamic part, a CTA."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_memory_bytes: int


class Plan(Generic[D]):
    """A selected kernel for one problem on one kind of device.

    Immutable, data-free and thread-safe; equal and hashable by (type, descriptor, preference, device, variant, config).
    It owns no device memory and no stream. Setting an attribute raises dataclasses.FrozenInstanceError.
    """

    desc: Any
    pref: PlanPreference
    device: DeviceSpec
    provenance: str
    _candidate: Candidate[Any]
    _config: Any
    _values: tuple[str, ...]
    _on_host: bool
    _ready: dict[Any, Ready]
    _executables: dict[int, Executable]

    descriptor: ClassVar[type[Descriptor]]
    category: ClassVar[OpCategory]
    candidates: ClassVar[tuple[Candidate[Any], ...]] = ()
    measures: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    # Fields of small problems, some for every candidate: what they lower to names the present version of the family's host
    # code (ledger.py). Fields that the op's name fixes are left out.
    probes: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    # ---- what a family adds ---------------------------------------------------------------------------------------

    @classmethod
    def reference(cls, desc: Any, **arrays: Any) -> Any:
        """The oracle: what each written operand must hold, in `operands` order, wide."""
        raise NotImplementedError

    @classmethod
    def reference_guarantee(cls, desc: Any) -> PrecisionGuarantee:
        """What the NumPy backend promises."""
        raise NotImplementedError

    @classmethod
    def sku_elements(cls, desc: Any) -> tuple[ElementKind, ElementKind | None]:
        """The element the sku shows, and the output's where it differs."""
        return desc.layout(desc.operands[0].name).element, None

    @classmethod
    def sku_traits(cls, desc: Any) -> tuple[LayoutSku | None, EpilogueKind | None]:
        """The layout and the epilogue that the sku shows, where the family has them."""
        return None, None

    def measured(self, desc: Any = None) -> dict[str, Callable[..., Any]]:
        """The measures that the guarantee's bound names, as functions of the read operands by name; `desc` has run-time
        values other than this plan's."""
        return {name: partial(measure, desc or self.desc) for name, measure in self.measures.items()}

    # ---- selection ------------------------------------------------------------------------------------------------

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in ("run", "bind", "can_implement"):  # own copies, each with the family's own signature
            base = getattr(Plan, name)
            copy = FunctionType(base.__code__, base.__globals__, name, base.__defaults__, base.__closure__)
            copy.__kwdefaults__, copy.__doc__ = base.__kwdefaults__, base.__doc__
            copy.__qualname__ = f"{cls.__name__}.{name}"
            if "descriptor" in cls.__dict__:
                copy.__signature__ = signature(cls, name)  # type: ignore[attr-defined]
            setattr(cls, name, copy)

    @classmethod
    def select(cls, desc: D, pref: PlanPreference | None = None, *, device: Any = None) -> Self:
        """The best plan for `desc`: host only; compiles, allocates, synchronises and times nothing.

        `device` is None (the current CUDA device), an ordinal, a `bp.Device`, an arch (``"sm_90a"``), a GPU with shipped
        figures (``"h200"``), either of them emulated on the host (``"ptx:sm_80"``, ``"ptx"`` for sm_90a) or ``"cpu"``.
        Raises InvalidProblemError for a problem that makes no sense, and UnsupportedError, with every candidate's reason,
        where nothing serves it.
        """
        if not isinstance(desc, cls.descriptor):
            raise InvalidProblemError(
                f"{cls.__name__}.select: expected a {cls.descriptor.__name__}, got {type(desc).__name__}",
                f"{cls.__name__}.select({cls.descriptor.__name__}(...))",
            )
        pref = PlanPreference.of(pref)
        spec = spec_of(device)
        canonical = checked(desc)
        answers = assess(cls._all_candidates(), canonical, pref, spec)
        measured = apply(cls, canonical, pref, spec, answers)
        chosen, provenance = measured or (choose(answers, canonical, pref, spec), "model")
        log.debug("%s on %s: %s, by %s", desc.op, spec, chosen.candidate.variant, provenance)
        return cls._make(desc, pref, spec, chosen, provenance)

    @classmethod
    def _all_candidates(cls) -> tuple[Candidate[Any], ...]:
        return (*cls.candidates, Reference(run_reference, cls.reference_guarantee))

    @classmethod
    def _make(cls, desc: Any, pref: PlanPreference, spec: DeviceSpec, chosen: Assessment, provenance: str) -> Self:
        plan = cls.__new__(cls)
        plan.__dict__.update(
            desc=desc, pref=pref, device=spec, provenance=provenance, _candidate=chosen.candidate, _config=chosen.config,
            _values=type(desc).values, _on_host=spec.host_memory, _ready={}, _executables={},
        )  # fmt: skip
        return plan

    def _known_as(self, provenance: str) -> Self:
        """The same plan, chosen by something else."""
        chosen = Assessment(self._candidate, self._config, OK)
        return self._make(self.desc, self.pref, self.device, chosen, provenance)

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be set: plans are values, select another one")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be deleted: plans are values")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def _identity(self) -> tuple[Any, ...]:
        return type(self), self.desc, self.pref, self.device, self._candidate.variant, str(self._config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    # ---- what it says of itself -----------------------------------------------------------------------------------

    @cached_property
    def _canonical(self) -> Any:
        return self.desc.canonical()

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        return steps_of(self._candidate, self._canonical, self.device, self._config)

    @cached_property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """What the result is worth, computed from the chosen candidate."""
        return self._candidate.guarantee(self._canonical, self.device, self._config)

    @cached_property
    def sku(self) -> KernelSku:
        """Which kernel this is."""
        element, aux = self.sku_elements(self._canonical)
        return KernelSku(
            self.category, self.desc.op, element, self.device.tier, self._candidate.backend, self._candidate.variant,
            str(self._config), self.device.arch, self.precision_guarantee, aux, *self.sku_traits(self._canonical),
        )  # fmt: skip

    @cached_property
    def cost(self) -> Cost:
        """Predicted bytes, FLOPs and seconds."""
        return self._candidate.cost(self._canonical, self.device, self._config)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """What `run` takes by name, in the order of `plan.desc.operands`."""
        return self.desc.operands  # type: ignore[no-any-return]

    @property
    def kernels(self) -> tuple[KernelView, ...]:
        """The kernels launched, each with source, PTX, SASS and resources."""
        return tuple(KernelView(s, self.device.arch) for s in self._steps if isinstance(s, Launch))

    @property
    def launch_config(self) -> tuple[LaunchConfig, ...]:
        """Grid, block and dynamic shared memory, one a kernel."""
        return tuple(LaunchConfig(s.grid, s.block, s.shared_bytes) for s in self._steps if isinstance(s, Launch))

    @property
    def shared_memory_bytes(self) -> int:
        """The most dynamic shared memory that a CTA of this plan takes."""
        return max((s.shared_bytes for s in self._steps if isinstance(s, Launch)), default=0)

    @cached_property
    def workspace_size(self) -> int:
        """Bytes of scratch that `run` takes from `workspace=` or from CuPy's pool."""
        return workspace_size(self._steps)

    @property
    def capture_safe(self) -> bool:
        """Whether a CUDA graph can hold it: computed from the steps."""
        return not self.device.host_memory and all(s.capturable for s in self._steps if isinstance(s, Call))

    @property
    def deterministic(self) -> bool:
        return not any(isinstance(s, Launch) and s.float_atomics for s in self._steps)

    def explain(self, *, configs: bool = False) -> Explanation:
        """Every candidate, chosen or rejected, with its reason, the fix, and predicted bytes, FLOPs and time."""
        from .explain import Explanation

        answers = assess(self._all_candidates(), self._canonical, self.pref, self.device)
        return Explanation.of(self, answers, configs=configs)

    def __repr__(self) -> str:
        from .explain import summary

        return summary(self)

    def _repr_html_(self) -> str:
        from .explain import summary_html

        return summary_html(self)

    # ---- running --------------------------------------------------------------------------------------------------

    def can_implement(self, **operands: Any) -> Feasibility:
        """Whether `run` would take these operands; falsy with .reason, .fix and .error. Raises nothing.

        Asked of a plan: called on the class, it says so in an InvalidProblemError.
        """
        asked: Any = self
        if not isinstance(asked, Plan):
            family = next((k.__name__ for k in Plan.__subclasses__() if isinstance(asked, k.descriptor)), "Plan")
            raise InvalidProblemError(
                f"{family}.can_implement is asked of a selected plan, and was called on the class: {type(asked).__name__}",
                f"plan = {family}.select(desc, device=...), which raises where nothing serves; then plan.can_implement(...)",
            )
        try:
            refuse_unknown(self, operands)
            check_operands(self.desc.at(operands), self._canonical, take(self, operands, None), self.device)
        except BaracudaError as error:
            return Feasibility.of(error)
        return OK

    def run(self, *, workspace: Any = None, stream: Any = None, **operands: Any) -> Any:
        """Validates and launches on a stream; returns the output(s). Asynchronous, never synchronises.

        Outputs that are not given are made in the kind of the first array: torch tensors by torch's allocator, JAX arrays, else
        CuPy arrays from CuPy's pool. The stream is `stream`; else, where what is written belongs to another framework, that
        framework's current stream; else CuPy's current stream.

        A plan of the host (the reference back end, or emulated kernels) is done when it returns: it takes no notice of
        `stream` and `workspace`, and gives NumPy arrays. An emulated one raises a KernelFault where a kernel does what it must
        not; then no operand is written.
        """
        if self._on_host:
            call, whole = prepare(self, operands)
            call(0)
            return self.result(whole)
        moved = 0
        shifts, values = self._unmoved
        if len(operands) != len(self._names):  # there may be run-time values among them
            for name in self._values:
                moved += name in operands
            if moved:
                shifts, values = self.desc.resolve(operands)
        key: list[Any] = []
        pointers: list[int] = []
        ordinal = read(map(operands.get, self._names), shifts, key, pointers)
        if ordinal is not None and workspace is None:
            ready = self._ready.get(tuple(key))
            if ready is not None and ready.taken == len(operands) - moved:  # so that no operand has another name
                result = ready.launch(operands, pointers, values, stream, ordinal)
                if result is not MISSED:
                    return result
        return self._run_checked(operands, workspace, stream)

    def bind(self, *, workspace: Any = None, **operands: Any) -> BoundPlan:
        """Compiles, loads, validates and packs once; ``bound()`` then only launches."""
        return BoundPlan(self, operands, workspace)

    def compile(self, *, force: bool = False) -> Self:
        """Builds the cubins (no GPU needed), or the PTX of an emulated plan, from the cache unless `force`."""
        kernels = [s.kernel for s in self._steps if isinstance(s, Launch)]
        if self.device.emulated:
            for kernel in kernels:
                compile_ptx(kernel, self.device.arch, lines=True, force=force)
        else:
            compile_kernels(kernels, self.device.arch, force=force)
        return self

    def load(self) -> Self:
        """Compiles and loads the kernels on the current device, so that a later `run` may be captured; an emulated plan's are
        translated."""
        if self.device.emulated:
            self._program  # noqa: B018  # made now, and kept
            return self
        self._executable(int(require_gpu("load").cuda.runtime.getDevice()))
        return self

    def autotune(self, *, top: int | None = 6, **operands: Any) -> Self:
        """Times the `top` best predicted candidates and configurations (None: all) that promise at least what this plan does,
        on these operands (written ones on copies), and returns the plan for the fastest; 5 % is needed to displace this one.

        UnsupportedError for a plan of the host, which is not timed, and without a GPU.
        """
        from .tune import autotune

        tuned: Self = autotune(self, operands, top)
        return tuned

    def verify(self, **operands: Any) -> None:
        """Runs on copies of the operands and checks the result against the oracle and the guarantee (AssertionError).

        Without operands, on those of the op's samples that this variant serves.
        """
        from .verify import verify, verify_samples

        verify(self, operands) if operands else verify_samples(self)

    def profile(self, *, repeats: int = 50, **operands: Any) -> Any:
        """Seconds a launch takes in a CUDA graph on these operands, the median of `repeats`; written ones on copies.

        An emulated plan has no such time: it runs once and gives the emulator's report, counts of instructions, memory
        transactions and barriers. UnsupportedError for a plan of the reference back end, and without a GPU.
        """
        from .tune import profile

        return profile(self, operands, repeats)

    # ---- the way from operands to a launch ------------------------------------------------------------------------

    def _run_checked(self, operands: dict[str, Any], workspace: Any, stream: Any) -> Any:
        learn()
        ready = resolve(self, operands, workspace, stream)
        result = self.result(ready.fire())
        given = {name: operands.get(name) for name in self._names}
        key: list[Any] = []
        if read(given.values(), self.desc.resolve(operands)[0], key, []) is not None:
            while len(self._ready) >= READY:
                self._ready.pop(next(iter(self._ready)), None)
            self._ready[tuple(key)] = Ready(self, ready.recipe, given, ready.made)
        return result

    @cached_property
    def _unmoved(self) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        """Displacements and launch values where the call gives no run-time values."""
        return self.desc.resolve({})  # type: ignore[no-any-return]

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(operand.name for operand in self.desc.operands)

    def _executable(self, ordinal: int) -> Executable:
        executable = self._executables.get(ordinal)
        if executable is None:
            check_arch(self.desc.op, self.device, ordinal)
            executable = self._executables[ordinal] = Executable(self._steps, self._names, self.device.arch, ordinal)
        return executable

    @cached_property
    def _program(self) -> Program:
        """The emulator's counterpart of an executable."""
        from ..emulator.launch import Program

        return Program(self.desc.op, self._steps, self._names, self.device.arch)

    @cached_property
    def _written(self) -> tuple[str, ...]:
        return tuple(o.name for o in self.desc.operands if o.written and not o.optional)

    @cached_property
    def result(self) -> Callable[[Mapping[str, Any]], Any]:
        """What takes the operands of a call to its result: the written one bare, several as a named tuple."""
        names = self._written
        if len(names) == 1:
            return itemgetter(names[0])
        made = result_type(type(self).__name__, names)
        return lambda given: made(*[given[name] for name in names])

    # ---- as a value -----------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The plan as JSON: type, descriptor, preference, device, variant and configuration."""
        from .serialize import plan_to_json

        return plan_to_json(self)

    @staticmethod
    def from_json(text: str) -> Plan[Any]:
        """Restores that very variant and configuration, and never ranks again.

        The text is checked as `select` checks a problem: InvalidProblemError where it is no saved plan or describes a problem
        that makes no sense; UnsupportedError, naming what `select` would choose, where another version saved something that
        this one does not know, or the variant no longer serves.
        """
        from .serialize import plan_from_json

        return plan_from_json(text)

    def __reduce__(self) -> tuple[Any, ...]:
        return Plan.from_json, (self.to_json(),)


@cache
def result_type(family: str, names: tuple[str, ...]) -> Any:
    """The named tuple that a family's plans give, one class for all of them."""
    return namedtuple(f"{family}Result", names)


def signature(cls: type[Plan[Any]], method: str) -> inspect.Signature:
    """The signature of `run`, `bind` or `can_implement` for a family, made from its descriptor's operands."""
    example = cls.descriptor.signature_operands
    keyword = inspect.Parameter.KEYWORD_ONLY
    extra = {"run": ("workspace", "stream"), "bind": ("workspace",), "can_implement": ()}[method]
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += [
        inspect.Parameter(o.name, keyword, default=None if o.optional or o.role == "out" else inspect.Parameter.empty)
        for o in example
    ]
    names = {o.name for o in example}  # an operand may be a run-time value in some problems
    values = (n for n in cls.descriptor.values if n not in names)
    parameters += [inspect.Parameter(n, keyword, default=None) for n in (*values, *extra)]
    return inspect.Signature(parameters)
