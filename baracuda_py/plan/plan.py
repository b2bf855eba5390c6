"""Plan: select, can_implement, run: the public face of a selection. A family subclasses it (see `Family`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import FrozenInstanceError
from functools import cached_property
from types import FunctionType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..call.bound import BoundPlan
from ..call.caller import Caller
from ..call.operands.intake import feasible
from ..runtime.compile.compiler import compile_kernels, compile_ptx
from ..runtime.compile.inspect import KernelView
from ..runtime.gpu.driver import require_gpu
from ..runtime.scope import scoped_preference
from ..types import DeviceSpec, InvalidProblemError, KernelSku, PlanPreference, PrecisionGuarantee
from .candidate import Cost, Feasibility
from .descriptor import Descriptor, Operand
from .family import Family
from .select import assess
from .selection import LaunchConfig, Selection, selected

if TYPE_CHECKING:
    from .about.explain import Explanation
    from .about.report import Report
    from .tables.comparison import Difference
    from .tables.options import Options

__all__ = ["LaunchConfig", "Plan"]

D = TypeVar("D", bound=Descriptor)


class Plan(Family[D]):
    """A selected kernel for one problem on one kind of device.

    Immutable, data-free and thread-safe; equal and hashable by (type, descriptor, preference, device, variant, config).
    It owns no device memory and no stream. Setting an attribute raises dataclasses.FrozenInstanceError.
    """

    selection: Selection  # the choice and everything derived from it, which the plan's attributes show
    desc: Any
    pref: PlanPreference
    device: DeviceSpec
    provenance: str

    def __init__(self, selection: Selection) -> None:
        self.__dict__.update(
            selection=selection, desc=selection.desc, pref=selection.pref, device=selection.device,
            provenance=selection.provenance,
        )  # fmt: skip

    def measured(self, desc: Any = None, output: str | None = None) -> dict[str, Callable[..., Any]]:
        """The measures that the bound of `output` (by default the first) names, as functions of the read operands by name;
        `desc` has run-time values other than this plan's."""
        return self.selection.measured(desc, output)

    # ---- selection ------------------------------------------------------------------------------------------------

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Copies with the family's signature. Methods that call Plan's own would add 0.8 us to the 6.3 us that a repeated
        # `run` takes on the host (paired runs on a simulated device).
        for name in ("run", "bind", "can_implement"):
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
        figures (``"h200"``), either of them emulated on the host (``"ptx:sm_80"``, ``"ptx"`` for sm_90a) or ``"cpu"``. Raises
        InvalidProblemError for an invalid problem, and UnsupportedError with every candidate's reason if nothing serves it.
        """
        return cls(selected(cls, desc, scoped_preference(pref), device))

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be set: plans are values, select another one")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be deleted: plans are values")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.selection == other.selection

    def __hash__(self) -> int:
        return hash(self.selection)

    # ---- description ----------------------------------------------------------------------------------------------

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """The error bounds and flags of the result, computed from the chosen candidate; with several results, ``.of(name)`` has
        those of one."""
        return self.selection.guarantee

    @property
    def sku(self) -> KernelSku:
        """The identity of the kernel."""
        return self.selection.sku

    @property
    def cost(self) -> Cost:
        """Predicted bytes, FLOPs and seconds."""
        return self.selection.cost

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands that `run` takes by name, in the order of `plan.desc.operands`."""
        return self.selection.operands

    @property
    def kernels(self) -> tuple[KernelView, ...]:
        """The kernels launched, each with source, PTX, SASS and resources."""
        return self.selection.kernels

    @property
    def launch_config(self) -> tuple[LaunchConfig, ...]:
        """Grid, block and dynamic shared memory of each kernel."""
        return self.selection.launch_config

    @property
    def shared_memory_bytes(self) -> int:
        """The largest dynamic shared memory of a CTA in this plan, in bytes."""
        return max((launch.shared_bytes for launch in self.selection.launches), default=0)

    @property
    def workspace_size(self) -> int:
        """Bytes of scratch that `run` takes from `workspace=` or from CuPy's pool."""
        return self.selection.workspace_size

    @property
    def capture_safe(self) -> bool:
        """Whether a CUDA graph can hold it: computed from the steps."""
        return self.selection.capture_safe

    @property
    def deterministic(self) -> bool:
        """Whether no sum depends on the order of scheduling: computed from the steps."""
        return self.selection.deterministic

    def explain(self, *, configs: bool = False) -> Explanation:
        """Every candidate, chosen or rejected, with its reason, the fix, and predicted bytes, FLOPs and time."""
        from .about.explain import Explanation

        answers = assess(self.all_candidates(), self.selection.canonical, self.pref, self.device)
        return Explanation.of(self.selection, answers, configs=configs)

    def options(self, *, top: int | None = 10, registers: bool = True) -> Options:
        """The admissible plans for this problem, the preference's variant and configuration left aside: this one first, then the
        others by predicted time, `top` in all (None: every one). `registers` compiles their kernels, which needs no GPU.

        ``plan.options()[1].plan`` is a plan; ``PlanPreference(variant=, config=)`` selects it again.
        """
        from .tables.options import options

        return options(self.selection, top, registers)

    def diff(self, other: Plan[Any]) -> Difference:
        """The facts in which another plan differs from this one: kernel, launch, bound, prediction, problem, preference."""
        from .tables.comparison import difference

        if not isinstance(other, Plan):
            raise InvalidProblemError(f"Plan.diff: expected a plan, got {type(other).__name__}", "pass another plan")
        return difference(self.selection, other.selection)

    def __repr__(self) -> str:
        """One line; ``print(plan)`` shows the facts."""
        from .about.explain import headline

        return headline(self.selection)

    def __str__(self) -> str:
        from .about.explain import summary

        return summary(self.selection)

    def _repr_html_(self) -> str:
        from .about.explain import summary_html
        from .tables.picture import picture

        answers = assess(self.all_candidates(), self.selection.canonical, self.pref, self.device)
        return summary_html(self.selection) + picture(self.selection, answers)

    # ---- running --------------------------------------------------------------------------------------------------

    def can_implement(self, **operands: Any) -> Feasibility:
        """Whether `run` would accept these operands; if not, falsy with .reason, .fix and .error. Raises nothing.

        It is a method of a selected plan; called on the class, it raises InvalidProblemError.
        """
        asked: Any = self
        if not isinstance(asked, Plan):
            family = next((k.__name__ for k in _below(Plan) if isinstance(asked, getattr(k, "descriptor", ()))), "Plan")
            raise InvalidProblemError(
                f"{family}.can_implement is asked of a selected plan, and was called on the class: {type(asked).__name__}",
                f"plan = {family}.select(desc, device=...), which raises where nothing serves; then plan.can_implement(...)",
            )
        return feasible(self.selection, operands)

    def run(self, *, workspace: Any = None, stream: Any = None, **operands: Any) -> Any:
        """Validates and launches on a stream; returns the output(s). Asynchronous, never synchronises.

        Outputs that are not given are allocated in the framework of the first array: torch tensors by torch's allocator, JAX
        arrays, else CuPy arrays from CuPy's pool. The stream is `stream`; else the current stream of the framework that owns
        the written operands; else CuPy's current stream.

        A host plan (the reference back end, or emulated kernels) is synchronous: it ignores `stream` and `workspace`, and
        returns NumPy arrays. An emulated plan raises a KernelFault if a kernel does something illegal, and then writes no
        operand.
        """
        return self._call(operands, workspace, stream)

    def bind(self, *, workspace: Any = None, **operands: Any) -> BoundPlan:
        """Compiles, loads, validates and packs once; ``bound()`` then only launches."""
        return BoundPlan(self.selection, operands, workspace)

    def compile(self, *, force: bool = False) -> Self:
        """Builds the cubins (no GPU needed), or the PTX of an emulated plan, from the cache unless `force`."""
        kernels = [launch.kernel for launch in self.selection.launches]
        if self.device.emulated:
            for kernel in kernels:
                compile_ptx(kernel, self.device.arch, lines=True, force=force)
        else:
            compile_kernels(kernels, self.device.arch, force=force)
        return self

    def load(self) -> Self:
        """Compiles and loads the kernels on the current device, so that a later `run` can be captured. Kernels of an emulated
        plan are translated."""
        if self.device.emulated:
            self.selection.program  # noqa: B018  # made now, and kept
            return self
        self.selection.executable(int(require_gpu("load").cuda.runtime.getDevice()))
        return self

    def autotune(self, *, top: int | None = 6, **operands: Any) -> Self:
        """Times the `top` best predicted candidates and configurations (None: all) whose guarantee is at least this plan's, on
        these operands (written ones on copies), and returns the plan of the fastest. It must be 5 % faster to replace this
        plan.

        Raises UnsupportedError for a host plan, which is not timed, and without a GPU.
        """
        from .about.tune import autotune

        return type(self)(autotune(self.selection, operands, top))

    def verify(self, **operands: Any) -> Report:
        """Runs on copies of the operands and checks the result against the oracle and the guarantee (AssertionError). Returns
        the worst error of each output, its share of the bound, its place, and a histogram.

        Without operands it uses the op's samples that this variant serves.
        """
        from .about.verify import verify, verify_samples

        return verify(self.selection, operands) if operands else verify_samples(self.selection)

    def profile(self, *, repeats: int = 50, **operands: Any) -> Any:
        """Seconds per launch in a CUDA graph on these operands (written ones on copies), the median of `repeats`.

        An emulated plan runs once and returns the emulator's report: counts of instructions, memory transactions and barriers.
        Raises UnsupportedError for a plan of the reference back end, and without a GPU.
        """
        from .about.tune import profile

        return profile(self.selection, operands, repeats)

    @cached_property
    def _call(self) -> Caller:
        return Caller(self.selection)

    @property
    def result(self) -> Callable[[Mapping[str, Any]], Any]:
        """The function from a call's operands to its result: the written operand, or a named tuple of several."""
        return self.selection.result

    # ---- as a value -----------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """The plan as JSON: type, descriptor, preference, device, variant and configuration."""
        from .about.serialize import to_json

        return to_json(self.selection)

    @staticmethod
    def from_json(text: str) -> Plan[Any]:
        """Restores the saved variant and configuration, without ranking candidates again.

        The text is checked as `select` checks a problem. Raises InvalidProblemError if it is not a saved plan or describes an
        invalid problem. Raises UnsupportedError, which names the choice of `select`, if it has a field that this version does
        not know, or if the variant no longer serves.
        """
        from .about.serialize import from_json

        selection = from_json(text)
        return selection.family(selection)  # type: ignore[return-value]  # families are Plan classes

    def __reduce__(self) -> tuple[Any, ...]:
        return Plan.from_json, (self.to_json(),)


def _below(kind: type[Plan[Any]]) -> Iterator[type[Plan[Any]]]:
    """The subclasses of `kind`: the families and their shared bases."""
    for under in kind.__subclasses__():
        yield under
        yield from _below(under)


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
    names = {o.name for o in example}  # an operand may be a run-time value of some problems
    values = (n for n in cls.descriptor.values if n not in names)
    parameters += [inspect.Parameter(n, keyword, default=None) for n in (*values, *extra)]
    return inspect.Signature(parameters)
