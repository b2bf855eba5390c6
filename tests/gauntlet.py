"""The gauntlet that every op of the registry runs: results, guards, repeats, bindings, variants, graphs, streams, refusals.

Every function takes an op and its samples and raises AssertionError naming the sample that broke. Nothing here knows an
op: problems come from `op.samples`, answers from `plan.reference`, tolerances from `plan.precision_guarantee`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import baracuda_py as bp
from baracuda_py.plan import Op, Plan
from baracuda_py.plan.about import tune
from baracuda_py.reference.rounding import round_to
from baracuda_py.runtime.compiler import compile_kernels
from baracuda_py.runtime.steps import Launch
from baracuda_py.samples import Packed, Sample
from baracuda_py.types import PlanPreference

from .arena import Slot, as_bytes, host, materialise, poisoned

__all__ = ["BOUNDED", "Problem", "named", "problems", "spread", "warm"]

BOUNDED = 24  # samples an op in the bounded run
Array = np.ndarray[Any, Any]


def spread(samples: Sequence[Sample], count: int) -> list[Sample]:
    """`count` samples, evenly over the list, the first and the last among them."""
    if len(samples) <= count:
        return list(samples)
    return [samples[round(i * (len(samples) - 1) / (count - 1))] for i in range(count)]


def samples_of(op: Op, *, everything: bool = False, count: int = BOUNDED) -> list[Sample]:
    """The op's samples: all of them, or a deterministic spread."""
    samples = list(op.samples(op.fixed, 0, full=everything))
    return samples if everything else spread(samples, count)


@contextlib.contextmanager
def named(label: str) -> Iterator[None]:
    """Puts the sample's label in front of whatever fails."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"[{label}] {error}") from None
    except Exception as error:
        raise AssertionError(f"[{label}] {type(error).__name__}: {error}") from error


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _once(measure: Callable[..., Array]) -> Callable[..., Array]:
    """The measure, which remembers what it gave last, and of which bytes."""
    last: list[Any] = [None, None]

    def remembered(**operands: Array) -> Array:
        seen = {name: x.tobytes() for name, x in operands.items()}
        if seen != last[0]:
            last[:] = seen, measure(**operands)
        return last[1]  # type: ignore[no-any-return]

    return remembered


@dataclass
class Problem:
    """One sample of an op on one back end: its operands in guarded memory, its plan, and what must come out."""

    op: Op
    sample: Sample
    backend: str

    @cached_property
    def device(self) -> Any:
        return None if self.backend == "cuda" else self.backend

    @cached_property
    def desc(self) -> Any:
        """Read off the operands as they lie (outputs that the sample does not give are left to the op)."""
        known = _parameters(self.op.plan.descriptor.of)  # type: ignore[attr-defined]
        arrays = {name: slot.operand for name, slot in self._given.items()}
        return self.op.of(**{k: v for k, v in {**arrays, **self.sample.options}.items() if k in known})

    @cached_property
    def plan(self) -> Plan[Any]:
        return self.op.plan.select(self.desc, device=self.device)

    @cached_property
    def _given(self) -> dict[str, Slot]:
        return materialise(self.sample.operands, self.backend, poison=lambda name: name in ("out",))

    @cached_property
    def slots(self) -> dict[str, Slot]:
        """Every operand, those that a call would allocate included, by name."""
        slots = dict(self._given)
        canonical = self.desc.canonical()
        for operand in self.desc.operands:
            if operand.name not in slots and not operand.optional:
                slots[operand.name] = poisoned(canonical.layout(operand.name), self.backend)
        return {o.name: slots[o.name] for o in self.desc.operands if o.name in slots}

    @property
    def operands(self) -> dict[str, Any]:
        return {name: slot.operand for name, slot in self.slots.items()}

    @property
    def values(self) -> dict[str, Any]:
        """Run-time values that the sample's options carry under the plan's names."""
        return {k: self.sample.options[k] for k in type(self.desc).values if k in self.sample.options}

    @cached_property
    def written(self) -> list[str]:
        return [o.name for o in self.desc.operands if o.written and o.name in self.slots]

    @cached_property
    def wide(self) -> dict[str, Array]:
        """The oracle's wide answer for each written operand."""
        inputs = {
            o.name: self.slots[o.name].host() for o in self.desc.operands if o.role != "out" and o.name in self.slots
        }
        results = self.op.plan.reference(self.desc, **inputs)
        return dict(zip(self.written, results if isinstance(results, tuple) else (results,)))

    @cached_property
    def measures(self) -> dict[str, dict[str, Callable[..., Array]]]:
        """For each written operand the plan's measures, each taken once of the same contents: many plans are held to one
        problem."""
        return {
            output: {name: _once(measure) for name, measure in self.plan.measured(output=output).items()}
            for output in self.written
        }

    def reset(self) -> None:
        for slot in self.slots.values():
            slot.reset()

    def images(self) -> dict[str, Array]:
        return {name: slot.image() for name, slot in self.slots.items()}

    # -- checks -------------------------------------------------------------------------------------------------------

    def check_images(self, images: Mapping[str, Array], plan: Plan[Any] | None = None) -> None:
        """Inputs unchanged, outputs within the guarantee (exactly, for what only moves), every other byte as it was."""
        promised = (plan or self.plan).precision_guarantee
        canonical = self.desc.canonical()
        for name, slot in self.slots.items():
            if name not in self.written:
                assert np.array_equal(images[name], slot.initial), f"{name} is an input and was changed"
                continue
            element = canonical.layout(name).element
            wide, guarantee = self.wide[name], promised.of(name)
            exact = isinstance(guarantee.bound, bp.Exact) or not (element.is_float or element.is_complex)
            if exact:
                wanted = slot.expected(round_to(wide, element))
                _same_bytes(name, images[name], wanted, slot)
                continue
            touched = slot.touched()
            assert np.array_equal(images[name][~touched], slot.initial[~touched]), f"bytes outside {name} were changed"
            inputs = {n: s.host() for n, s in self.slots.items() if n not in self.written}
            guarantee.check(
                slot.view(images[name]),
                np.asarray(wide).reshape(slot.shape),
                inputs,
                output=element,
                measures=self.measures[name],
            )

    def check_unchanged(self) -> None:
        for name, image in self.images().items():
            assert np.array_equal(image, self.slots[name].initial), f"{name} was changed"

    def check_result(self, name: str, result: Any) -> None:
        """An array that the op allocated itself, for the output of that name."""
        guarantee = self.plan.precision_guarantee.of(name)
        array = host(result)
        layout = self.desc.canonical().layout(name)
        assert array.dtype == layout.element.dtype, f"{name} is {array.dtype}, not {layout.element.dtype}"
        assert array.shape == layout.shape, f"{name}'s shape is {array.shape}, not {layout.shape}"
        if name in self.desc.counted:
            array = array[: len(self.wide[name])]
        if isinstance(guarantee.bound, bp.Exact) or not layout.element.is_float:
            wanted = np.asarray(round_to(self.wide[name], layout.element)).reshape(array.shape)
            same = np.array_equal(as_bytes(np.ascontiguousarray(array)), as_bytes(np.ascontiguousarray(wanted)))
            assert same, f"{name}, which was allocated, differs from the oracle"
            return
        inputs = {n: s.host() for n, s in self.slots.items() if n not in self.written}
        wide, measures = np.asarray(self.wide[name]).reshape(array.shape), self.measures[name]
        guarantee.check(array, wide, inputs, output=layout.element, measures=measures)

    def call_function(self, **extra: Any) -> Any:
        """The public function on this sample, its arguments by position where they have no name to give."""
        given = {
            **{n: s.operand for n, s in self._given.items()},
            **self.sample.options,
            "device": self.device,
            **extra,
        }
        positional, keyword = [], {}
        for parameter in _parameters(self.op.function).values():
            name = self.op.arguments.get(parameter.name, parameter.name)
            if name not in given:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                positional.append(given[name])
            else:
                keyword[parameter.name] = given[name]
        return self.op.function(*positional, **keyword)


def _same_bytes(name: str, got: Array, wanted: Array, slot: Slot) -> None:
    if np.array_equal(got, wanted):
        return
    wrong = np.flatnonzero(got != wanted)
    inside = int(slot.touched()[wrong].sum())
    raise AssertionError(
        f"{name}: {wrong.size} bytes are wrong, {wrong.size - inside} of them outside the operand; first at byte "
        f"{int(wrong[0]) - slot.offset}: got {got[wrong[0]]:#04x}, expected {wanted[wrong[0]]:#04x}"
    )


def problems(op: Op, backend: str, *, everything: bool = False, count: int = BOUNDED) -> Iterator[Problem]:
    for sample in samples_of(op, everything=everything, count=count):
        yield Problem(op, sample, backend)


def warm(plans: Sequence[Plan[Any]]) -> None:
    """Compiles the kernels of many plans at once: those of one file share a program."""
    by_arch: dict[str, list[Any]] = {}
    for plan in plans:
        by_arch.setdefault(plan.device.arch, []).extend(s.kernel for s in plan.selection.steps if isinstance(s, Launch))
    for arch, kernels in by_arch.items():
        compile_kernels(kernels, arch)


# ---- aspects ------------------------------------------------------------------------------------------------------------


def run(problem: Problem) -> None:
    """The plan, twice; bound; and the public function with and without its output given."""
    plan = problem.plan
    assert plan.can_implement(**problem.operands, **problem.values), "can_implement refuses its own operands"
    problem.reset()
    result = plan.run(**problem.operands, **problem.values)
    first = problem.images()
    problem.check_images(first)
    returned = result if isinstance(result, tuple) else (result,)
    for name, array in zip((n for n in problem.written if n in plan.selection.written), returned):
        assert array is problem.operands[name], f"run returns something else than {name}"
    problem.reset()
    bound = plan.bind(**problem.operands, **problem.values)
    problem.check_unchanged()
    bound()
    second = problem.images()
    for name in problem.written:
        if plan.precision_guarantee.of(name).deterministic:
            assert np.array_equal(first[name], second[name]), f"{name} differs between run and bound"
    if not plan.precision_guarantee.deterministic:
        problem.check_images(second)
    problem.reset()
    _function(problem)


def _function(problem: Problem) -> None:
    fresh = problem.call_function()
    outs = [o for o in problem.desc.operands if o.role == "out" and o.name not in problem._given]
    if not outs:
        problem.check_images(problem.images())
    else:
        made = fresh if isinstance(fresh, tuple) else (fresh,)
        for name, result in zip(problem.plan.selection.written, made, strict=True):
            if name not in problem._given:
                problem.check_result(name, result)
    known = _parameters(problem.op.function)
    if all(o.name in known for o in outs) and outs:
        problem.reset()
        problem.call_function(**{o.name: problem.slots[o.name].operand for o in outs})
        problem.check_images(problem.images())


def variants(problem: Problem) -> None:
    """Every admissible variant, and every configuration of it, gives a result within its own guarantee."""
    served(problem, admissible(problem))


def served(problem: Problem, plans: Iterable[Plan[Any]]) -> None:
    """Each of the plans serves the problem within its guarantee and writes nothing else."""
    for plan in plans:
        with named(str(plan.sku)):
            problem.reset()
            plan.run(**problem.operands, **problem.values)
            problem.check_images(problem.images(), plan)


def admissible(problem: Problem) -> list[Plan[Any]]:
    """One plan for every admitted candidate and configuration."""
    plan = problem.plan
    return tune.admissible(type(plan), problem.desc, PlanPreference(deterministic=False), plan.device)


def graph(problem: Problem) -> None:
    """Captured and replayed twice, with other contents the second time round."""
    plan = problem.plan
    if not plan.capture_safe:
        return
    workspace = None
    if plan.workspace_size:
        import cupy

        workspace = cupy.empty(plan.workspace_size, np.uint8)
    bound = plan.bind(**problem.operands, **problem.values, workspace=workspace)
    held = bp.Graph(bound)
    problem.check_unchanged()
    for _ in range(2):
        problem.reset()
        held.launch()
        problem.check_images(problem.images())


def other_stream(problem: Problem) -> None:
    """On a non-blocking stream, given by name and made current."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.runtime.deviceSynchronize()
    problem.plan.run(**problem.operands, **problem.values, stream=stream)
    problem.check_images(problem.images())
    problem.reset()
    cupy.cuda.runtime.deviceSynchronize()
    with stream:
        problem.plan.run(**problem.operands, **problem.values)
    problem.check_images(problem.images())


# ---- refusals -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Refusal:
    """A call that must be refused: which operand is wrong, how, and with which errors."""

    label: str
    operand: str
    errors: tuple[type[bp.BaracudaError], ...]
    given: Mapping[str, Any]
    says: tuple[str, ...] = ()


def refusals(problem: Problem) -> Iterator[Refusal]:
    """A wrong operand of each sort, for every operand of the problem."""
    good, roles = problem.operands, {o.name: o for o in problem.desc.operands}
    yield Refusal(
        "unknown name", "no_such_operand", (bp.InvalidProblemError,), {**good, "no_such_operand": 1}, ("takes",)
    )
    for name, slot in problem.slots.items():
        role = roles[name]

        def having(x: Any, name: str = name) -> dict[str, Any]:
            return {**good, name: x}

        if role.role != "out" and not role.optional:
            yield Refusal(
                "missing", name, (bp.InvalidProblemError,), {k: v for k, v in good.items() if k != name}, ("missing",)
            )
        yield Refusal("not an array", name, (bp.OperandTypeError,), having("text"))
        if slot.packed is not None:
            continue
        other = Slot(np.zeros(slot.shape, np.int16 if slot.dtype != np.int16 else np.float32), problem.backend).operand
        yield Refusal("wrong dtype", name, (bp.OperandTypeError,), having(other))
        longer = Slot(np.zeros((*slot.shape, 2), slot.dtype), problem.backend).operand
        yield Refusal("wrong rank", name, (bp.InvalidProblemError,), having(longer), ("shape",))
        if slot.shape and slot.shape[-1] > 1:
            shorter = Slot(np.zeros((*slot.shape[:-1], slot.shape[-1] - 1), slot.dtype), problem.backend).operand
            yield Refusal("wrong extent", name, (bp.InvalidProblemError,), having(shorter), ("shape",))
            if 0 not in slot.shape:
                stepped = Slot(
                    np.zeros((*slot.shape[:-1], slot.shape[-1] * 3), slot.dtype)[..., ::3], problem.backend
                ).operand
                yield Refusal("other strides", name, (bp.InvalidProblemError,), having(stepped), ("strides",))
        if role.written:
            frozen = readonly(slot)
            if frozen is not None:
                yield Refusal("read-only", name, (bp.OperandTypeError,), having(frozen), ("read-only",))
        if problem.backend == "cuda":
            yield Refusal("host array", name, (bp.OperandTypeError,), having(slot.host()), ("cupy.asarray",))
        if role.role == "out" and 0 not in slot.shape and slot.shape:
            bare = np.zeros(1, slot.dtype)
            twice = Slot(np.broadcast_to(bare, slot.shape), problem.backend).operand
            if max(slot.shape) > 1:
                yield Refusal("broadcast output", name, (bp.InvalidProblemError, bp.OverlapError), having(twice))


class _Frozen:
    """A device array behind a read-only ``__cuda_array_interface__``."""

    def __init__(self, array: Any) -> None:
        self._array = array
        interface = dict(array.__cuda_array_interface__)
        interface["data"] = (interface["data"][0], True)
        self.__cuda_array_interface__ = interface


def readonly(slot: Slot) -> Any:
    """The same operand, not to be written; None where it cannot be said."""
    if slot.backend != "cuda":
        view = slot.operand.view()
        view.flags.writeable = False
        return view
    return _Frozen(slot.operand) if slot.dtype.kind in "biufc" and "float8" not in slot.dtype.name else None


def refused(problem: Problem, refusal: Refusal) -> None:
    """`run`, `bind` and `can_implement` all refuse it, alike, in words one can act on, and nothing is written."""
    plan = problem.plan
    feasible = plan.can_implement(**refusal.given)
    assert not feasible, "can_implement accepts it"
    assert isinstance(feasible.error, refusal.errors), f"can_implement answers {feasible.error!r}"
    for call in (plan.run, plan.bind):
        try:
            call(**refusal.given)
        except refusal.errors as error:
            readable(error, problem.op.name, refusal.operand, *refusal.says)
        else:
            raise AssertionError(f"{call.__name__} accepts it")
    problem.check_unchanged()


def readable(error: BaseException, *words: str) -> None:
    """One readable sentence or two with the fix: short, one line, naming what it is about."""
    text = str(error)
    assert 20 < len(text) < 600 and "\n" not in text, f"not one readable sentence or two: {text!r}"
    assert "0x" not in text and "Traceback" not in text, text
    assert ":" in text, f"no fix in {text!r}"
    for word in words:
        assert word in text, f"{word!r} is not named in {text!r}"


def shared_memory(problem: Problem) -> None:
    """A written operand one element off an input of the same layout is an overlap, unless it is the very same view."""
    for name in problem.written:
        out = problem.slots[name]
        for other, slot in problem.slots.items():
            if other == name or slot.packed is not None or out.packed is not None:
                continue
            alike = slot.shape == out.shape and slot.strides == out.strides and slot.dtype == out.dtype
            if not alike or 0 in out.shape or max(out.shape, default=1) < 2 or min(map(abs, out.strides)) == 0:
                continue
            _overlapping(problem, name, other)


def _part(x: Any, index: tuple[slice, ...]) -> Any:
    """A slice of an array, or of the bytes behind a GpuBuffer."""
    return bp.GpuBuffer.view(x.array[index], x.element) if isinstance(x, bp.GpuBuffer) else x[index]


def _overlapping(problem: Problem, name: str, other: str) -> None:
    slot = problem.slots[other]
    axis = min((a for a, n in enumerate(slot.shape) if n > 1), key=lambda a: abs(slot.strides[a]))
    longer = [n + 1 if a == axis else n for a, n in enumerate(slot.shape)]
    low = sum(min(0, s * (n - 1)) for n, s in zip(longer, slot.strides))
    high = sum(max(0, s * (n - 1)) for n, s in zip(longer, slot.strides)) + slot.dtype.itemsize
    memory = np.zeros(high - low + 16, np.uint8)
    base = -memory.ctypes.data % 16
    whole = Slot(np.ndarray(longer, slot.dtype, memory.data, base - low, slot.strides), problem.backend)
    head = _part(whole.operand, tuple(slice(0, n) for n in slot.shape))
    tail = _part(whole.operand, tuple(slice(1, None) if a == axis else slice(None) for a in range(len(longer))))
    given = {**{n: s.operand for n, s in problem._given.items()}, name: tail, other: head}
    known = _parameters(problem.op.plan.descriptor.of)  # type: ignore[attr-defined]
    desc = problem.op.of(**{k: v for k, v in {**given, **problem.sample.options}.items() if k in known})
    plan = problem.op.plan.select(desc, device=problem.device)
    rest = {n: s.operand for n, s in problem.slots.items() if n not in given}
    feasible = plan.can_implement(**given, **rest)
    assert isinstance(feasible.error, bp.OverlapError), f"{name} one element after {other}: {feasible.error!r}"
    try:
        plan.run(**given, **rest)
    except bp.OverlapError as error:
        readable(error, problem.op.name, name)
    else:
        raise AssertionError(f"{name} one element after {other} is accepted")
    assert np.array_equal(whole.image(), whole.initial), "the refused call wrote something"


def is_packed(sample: Sample) -> bool:
    return any(isinstance(x, Packed) for x in sample.operands.values())
