"""Plan: select, can_implement, run. A family subclasses it with a descriptor, its candidates and a reference."""

from __future__ import annotations

import inspect
import json
import logging
import math
from collections import namedtuple
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np

from ..runtime.compiler import compile_kernels
from ..runtime.device import spec_of
from ..runtime.driver import require_gpu
from ..runtime.inspect import KernelView
from ..runtime.launch import Executable
from ..runtime.steps import Call, Launch, Step, workspace_size
from ..runtime.streams import is_capturing, stream_pointer
from ..tensor import HOST_ORDINAL, GpuBuffer, Tensor, intake
from ..tensor.axes import c_strides
from ..types import (
    BaracudaError,
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    KernelSku,
    OpCategory,
    PlanPreference,
    PrecisionGuarantee,
    UnsupportedError,
    WorkspaceTooSmallError,
)
from .bound import BoundPlan
from .candidate import Candidate, Cost, Feasibility, OK, Reference
from .descriptor import Descriptor, Layout, Operand
from .recipe import Recipe, array_type, framework_stream, key_of, written_stream
from .select import Assessment, assess, choose
from .tuned import apply
from .validate import check_operands

if TYPE_CHECKING:
    from .explain import Explanation

__all__ = ["LaunchConfig", "Plan"]

D = TypeVar("D", bound=Descriptor)
log = logging.getLogger("baracuda_py")


class LaunchConfig(NamedTuple):
    """How one kernel is launched; `shared_memory_bytes` is the dynamic part, a CTA."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_memory_bytes: int


class Plan(Generic[D]):
    """A selected kernel for one problem on one kind of device.

    Immutable, data-free and thread-safe; equal and hashable by (type, descriptor, preference, device, variant, config).
    It owns no device memory and no stream.
    """

    descriptor: ClassVar[type[Descriptor]]
    category: ClassVar[OpCategory]
    candidates: ClassVar[tuple[Candidate[Any], ...]] = ()

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
        figures (``"h200"``) or ``"cpu"``. Raises InvalidProblemError for a problem that makes no sense, and
        UnsupportedError, with every candidate's reason, where nothing serves it.
        """
        if not isinstance(desc, cls.descriptor):
            raise InvalidProblemError(
                f"{cls.__name__}.select: expected a {cls.descriptor.__name__}, got {type(desc).__name__}",
                f"{cls.__name__}.select({cls.descriptor.__name__}(...))",
            )
        pref = pref or PlanPreference()
        spec = spec_of(device)
        desc.validate()
        canonical = desc.canonical()
        answers = assess(cls._all_candidates(), canonical, pref, spec)
        measured = apply(cls, canonical, pref, spec, answers)
        chosen, provenance = measured or (choose(answers, desc.op, pref, spec), "model")
        log.debug("%s on %s: %s, by %s", desc.op, spec, chosen.candidate.variant, provenance)
        return cls._make(desc, pref, spec, chosen, provenance)

    @classmethod
    def _all_candidates(cls) -> tuple[Candidate[Any], ...]:
        from .host import run_reference

        return (*cls.candidates, Reference(run_reference, cls.reference_guarantee))

    @classmethod
    def _make(cls, desc: Any, pref: PlanPreference, spec: DeviceSpec, chosen: Assessment, provenance: str) -> Self:
        plan = cls.__new__(cls)
        plan.desc: Any = desc
        plan.pref: PlanPreference = pref
        plan.device: DeviceSpec = spec
        plan.provenance: str = provenance
        plan._candidate: Candidate[Any] = chosen.candidate
        plan._config: Any = chosen.config
        plan._recipes: dict[Any, Recipe] = {}
        plan._executables: dict[int, Executable] = {}
        plan._values: tuple[str, ...] = type(desc).values
        plan._ndarray: type | None = None  # cupy.ndarray, once a recipe for such arrays is kept
        return plan

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
        if self._empty:
            return ()
        return self._candidate.lower(self._canonical, self.device, self._config)

    @property
    def _empty(self) -> bool:
        """Whether nothing is written."""
        written = [o for o in self.desc.operands if o.written and not o.optional]
        return all(0 in self._canonical.layout(o.name).shape for o in written)

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
            str(self._config), self.device.arch, self.precision_guarantee, aux,
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
        return not self.device.is_host and all(s.capturable for s in self._steps if isinstance(s, Call))

    @property
    def deterministic(self) -> bool:
        return not any(isinstance(s, Launch) and s.float_atomics for s in self._steps)

    def explain(self, *, configs: bool = False) -> Explanation:
        """Every candidate, chosen or rejected, with its reason, the mend, and predicted bytes, FLOPs and time."""
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
        """Whether `run` would take these operands; falsy with .reason, .mend and .error. Raises nothing."""
        try:
            desc = self._described(operands)
            check_operands(desc, self._canonical, self._take(operands, None), self.device)
        except BaracudaError as error:
            return Feasibility.of(error)
        return OK

    def run(self, *, workspace: Any = None, stream: Any = None, **operands: Any) -> Any:
        """Validates and launches on a stream; returns the output(s). Asynchronous, never synchronises.

        Outputs that are not given are allocated from CuPy's pool. The stream is `stream`; else, where a written operand
        belongs to another framework, that framework's current stream; else CuPy's current stream.
        """
        if self.device.is_host:
            return self._run_on_host(operands)
        moved = sum(name in operands for name in self._values)
        shifts, values = self.desc.resolve(operands) if moved else self._unmoved
        ndarray = self._ndarray
        key: list[Any] = []
        pointers: list[int] = []
        taken = 0
        for name, shift in zip(self._names, shifts):
            x = operands.get(name)
            if type(x) is ndarray:
                memory = x.data
                address = memory.ptr + shift
                key += (x.shape, x.strides, x.dtype.num, address & 15, memory.device_id)
                pointers.append(address)
                taken += 1
            elif x is None:
                key.append(None)
                pointers.append(0)
            else:
                return self._run_checked(operands, workspace, stream)
        recipe = self._recipes.get(tuple(key))
        if recipe is None or workspace is not None or len(operands) - moved != taken or recipe.meets(pointers):
            return self._run_checked(operands, workspace, stream)
        recipe.fire(pointers, values, 0, None if stream is None else stream_pointer(stream))
        only = self._only_written
        return self._result(operands) if only is None else operands[only]

    def bind(self, *, workspace: Any = None, **operands: Any) -> BoundPlan:
        """Compiles, loads, validates and packs once; ``bound()`` then only launches."""
        return BoundPlan(self, operands, workspace)

    def compile(self, *, force: bool = False) -> Self:
        """Builds the cubins (no GPU needed), from the cache unless `force`."""
        compile_kernels([s.kernel for s in self._steps if isinstance(s, Launch)], self.device.arch, force=force)
        return self

    def load(self) -> Self:
        """Compiles and loads the kernels on the current device, so that a later `run` may be captured."""
        self._executable(int(require_gpu("load").cuda.runtime.getDevice()))
        return self

    def autotune(self, **operands: Any) -> Self:
        """Times every admissible candidate and configuration of at least the same guarantee on these operands (written
        ones on copies) and returns the plan for the fastest; 5 % is needed to displace this one."""
        from .tune import autotune

        return autotune(self, operands)

    def verify(self, **operands: Any) -> None:
        """Runs on copies of the operands and checks the result against the oracle and the guarantee (AssertionError)."""
        from .verify import verify

        verify(self, operands)

    def profile(self, *, repeats: int = 50, **operands: Any) -> float:
        """Seconds a launch takes in a CUDA graph on these operands, the median of `repeats`; written ones on copies."""
        from .tune import profile

        return profile(self, operands, repeats)

    # ---- the way from operands to a launch ------------------------------------------------------------------------

    def _run_checked(self, given: dict[str, Any], workspace: Any, stream: Any) -> Any:
        """The long way: intake, every check, allocation, and a recipe for the next time."""
        recipe, pointers, values, given, scratch, handle = self._resolve(given, workspace, stream)
        recipe.fire(pointers, values, scratch.ptr if scratch is not None else 0, handle)
        return self._result(given)

    def _prepare(self, given: dict[str, Any], workspace: Any) -> tuple[tuple[Any, ...], Any, dict[str, Any]]:
        """For BoundPlan: prepared calls, the result they write, and what must stay alive."""
        if self.device.is_host:
            from .host import prepare

            return prepare(self, given)
        recipe, pointers, values, given, scratch, _ = self._resolve(given, workspace, None)
        calls = recipe.executable.prepare(pointers, values, scratch.ptr if scratch is not None else 0)
        keep = dict(given)
        if scratch is not None:
            keep["workspace"] = scratch
        return calls, self._result(given), given

    def _resolve(
        self, given: dict[str, Any], workspace: Any, stream: Any
    ) -> tuple[Recipe, list[int], Mapping[str, Any], dict[str, Any], Any, int]:
        cupy = require_gpu(self.desc.op)
        desc = self._described(given)
        handle = written_stream(desc, given) if stream is None else stream_pointer(stream)
        if handle is None:
            handle = int(cupy.cuda.get_current_stream().ptr)
        capturing = is_capturing(handle)
        if capturing:
            self._check_foreign(given, handle)
        tensors = self._take(given, handle)
        ordinal = check_operands(desc, self._canonical, tensors, self.device)
        if ordinal == HOST_ORDINAL:
            ordinal = int(cupy.cuda.runtime.getDevice())
        with cupy.cuda.Device(ordinal):
            if capturing:
                self._check_capture(tensors, ordinal, workspace)
            given = self._allocate(given, tensors, handle)
            executable = self._executable(ordinal)
            scratch = self._scratch(workspace, handle)
        feet = {n: desc.footprint(n, t) for n, t in tensors.items() if t is not None}
        recipe = Recipe(desc, executable, ordinal, feet)
        pointers = [feet[n].pointer if n in feet else 0 for n in self._names]
        ndarray = array_type()
        if not self.workspace_size and all(type(given[n]) is ndarray for n in feet):
            self._ndarray = ndarray
            key: list[Any] = []
            for name, pointer in zip(self._names, pointers):
                key += key_of(given[name], pointer) if name in feet else (None,)
            self._recipes[tuple(key)] = recipe
        return recipe, pointers, desc.resolve(given)[1], given, scratch, handle

    @cached_property
    def _unmoved(self) -> tuple[tuple[int, ...], Mapping[str, Any]]:
        """Displacements and launch values where the call gives no run-time values."""
        return self.desc.resolve({})  # type: ignore[no-any-return]

    @cached_property
    def _only_written(self) -> str | None:
        return self._written[0] if len(self._written) == 1 else None

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(operand.name for operand in self.desc.operands)

    def _described(self, given: Mapping[str, Any]) -> Any:
        """The descriptor with the run-time values of this call; refuses names that are neither operands nor values."""
        self._refuse_unknown(given)
        return self.desc.at(given)

    def _refuse_unknown(self, given: Mapping[str, Any]) -> None:
        for name in given:
            if name not in self._names and name not in self._values:
                known = ", ".join((*self._names, *self._values))
                raise InvalidProblemError(f"{self.desc.op}: there is no operand {name!r}", f"it takes {known}")

    def _take(self, given: Mapping[str, Any], stream: int | None) -> dict[str, Tensor | None]:
        tensors: dict[str, Tensor | None] = {}
        for name, role, optional in self.desc.operands:
            x = given.get(name)
            if x is None and role != "out" and not optional:
                raise InvalidProblemError(f"{self.desc.op}: operand {name!r} is missing", f"pass {name}=...")
            what = f"{self.desc.op}: {name}"
            tensors[name] = None if x is None else intake(x, what=what, stream=stream, host=self.device.is_host)
        return tensors

    def _allocate(self, given: Mapping[str, Any], tensors: dict[str, Tensor | None], stream: int) -> dict[str, Any]:
        given = dict(given)
        for operand in self.desc.operands:
            if operand.role == "out" and tensors[operand.name] is None and not operand.optional:
                array = allocate(self._canonical.layout(operand.name), stream)
                given[operand.name] = array
                tensors[operand.name] = intake(array, what=operand.name)
        return given

    def _scratch(self, workspace: Any, stream: int) -> Any:
        needed = self.workspace_size
        if not needed:
            return None
        if workspace is None:
            return allocate(Layout((needed,), (1,), ElementKind.U8), stream).data
        got = int(workspace.nbytes)
        if got < needed:
            raise WorkspaceTooSmallError(
                f"{self.desc.op}: workspace holds {got} bytes and the plan needs {needed}", needed, got, "pass plan.workspace_size bytes"
            )
        return workspace.data

    def _check_capture(self, tensors: Mapping[str, Tensor | None], ordinal: int, workspace: Any) -> None:
        """Refuses, before anything is launched, what a CUDA graph that is being captured cannot hold."""
        op = self.desc.op
        if not self.capture_safe:
            raise UnsupportedError(f"{op}: {self.sku} cannot be captured in a CUDA graph", "run it outside the capture")
        for operand in self.desc.operands:
            tensor = tensors[operand.name]
            if operand.role == "out" and tensor is None and not operand.optional:
                raise UnsupportedError(f"{op}: a capture allocates nothing, and {operand.name} was not passed", f"pass {operand.name}=...")
        if self.workspace_size and workspace is None:
            raise UnsupportedError(f"{op}: a capture allocates nothing, and workspace was not passed", "pass workspace=...")
        if ordinal not in self._executables:
            raise UnsupportedError(f"{op}: a capture loads nothing, and {self.sku} is not loaded", "call plan.load() or bind before it")

    def _check_foreign(self, given: Mapping[str, Any], stream: int) -> None:
        """A capture cannot wait for a stream outside it: foreign operands must come from the capturing stream itself."""
        for name in self._names:
            x = given.get(name)
            foreign = x is not None and type(x) is not array_type() and not hasattr(x, "__baracuda_tensor__")
            if foreign and not isinstance(x, np.ndarray) and framework_stream(x) != stream:
                raise UnsupportedError(
                    f"{self.desc.op}: a graph is being captured, and {name} belongs to {type(x).__module__} on another stream",
                    "capture on that framework's stream, or pass a CuPy array",
                )

    def _executable(self, ordinal: int) -> Executable:
        executable = self._executables.get(ordinal)
        if executable is None:
            executable = self._executables[ordinal] = Executable(self._steps, self._names, self.device.arch, ordinal)
        return executable

    @cached_property
    def _written(self) -> tuple[str, ...]:
        return tuple(o.name for o in self.desc.operands if o.written and not o.optional)

    def _result(self, given: Mapping[str, Any]) -> Any:
        """The written operands: one bare, several as a named tuple."""
        names = self._written
        if len(names) == 1:
            return given[names[0]]
        return namedtuple(f"{type(self).__name__}Result", names)(*(given[n] for n in names))  # type: ignore[misc]

    def _run_on_host(self, given: dict[str, Any]) -> Any:
        from .host import prepare

        calls, result, _ = prepare(self, given)
        for call in calls:
            call(0)
        return result

    # ---- as a value -----------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The plan as JSON: type, descriptor, preference, device, variant and configuration."""
        from .serialize import plan_to_dict

        return json.dumps(plan_to_dict(self))

    @staticmethod
    def from_json(text: str) -> Plan[Any]:
        """Restores that very variant and configuration, and never ranks again; UnsupportedError, naming what `select`
        would choose, where it no longer exists."""
        from .serialize import plan_from_dict

        return plan_from_dict(json.loads(text))

    def __reduce__(self) -> tuple[Any, ...]:
        return Plan.from_json, (self.to_json(),)


_BYTES_IN_CUPY = (ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)  # kinds that CuPy has no dtype for


def allocator(layout: Layout) -> Callable[[], Any]:
    """What makes fresh arrays of that layout: on the current device, from CuPy's pool, in the current stream's order."""
    cupy = require_gpu("allocating an output")
    shape, element, dtype = layout.shape, layout.element, layout.element.dtype
    if element.packed or element in _BYTES_IN_CUPY:
        return partial(GpuBuffer.zeros, shape, element)
    if layout.strides == c_strides(shape):
        return partial(cupy.ndarray, shape, dtype)
    nbytes = math.prod(shape) * dtype.itemsize
    strides = tuple(s * dtype.itemsize for s in layout.strides)
    return lambda: cupy.ndarray(shape, dtype, cupy.cuda.alloc(nbytes), strides)


def allocate(layout: Layout, stream: int) -> Any:
    """A fresh array of that layout, from the pool in `stream`'s order."""
    with require_gpu("allocating an output").cuda.ExternalStream(stream):
        return allocator(layout)()


def signature(cls: type[Plan[Any]], method: str) -> inspect.Signature:
    """The signature of `run`, `bind` or `can_implement` for a family, made from its descriptor's operands."""
    example = getattr(cls.descriptor, "signature_operands", ())
    keyword = inspect.Parameter.KEYWORD_ONLY
    extra = {"run": ("workspace", "stream"), "bind": ("workspace",), "can_implement": ()}[method]
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += [
        inspect.Parameter(o.name, keyword, default=None if o.optional or o.role == "out" else inspect.Parameter.empty) for o in example
    ]
    parameters += [inspect.Parameter(n, keyword, default=None) for n in (*cls.descriptor.values, *extra)]
    return inspect.Signature(parameters)
