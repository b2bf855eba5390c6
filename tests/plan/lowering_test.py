"""Scratch by name, scratch that a library is asked for, and plans inside plans: on kernels that are run, and step by step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import Candidate, Cost, Descriptor, Feasibility, Layout, Op, Operand, Plan
from baracuda_py.plan.about.digest import lowered_digest
from baracuda_py.plan.candidate import OK
from baracuda_py.plan.lowering import ALIGN, Sub, lowered
from baracuda_py.plan.selection import Selection, selected
from baracuda_py.runtime.launch import Executable
from baracuda_py.runtime.steps import (
    WORKSPACE,
    Call,
    Copy,
    DeferredScratch,
    Fill,
    Kernel,
    Launch,
    Ptr,
    Run,
    Scratch,
    Struct,
    TensorMap,
    workspace_size,
)
from baracuda_py.samples import Sample
from baracuda_py.tensor import intake
from baracuda_py.tensor.axes import c_strides
from baracuda_py.types import BackendKind, DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee

from .. import gauntlet
from ..gauntlet import Problem

F32 = ElementKind.F32
Array = np.ndarray[Any, Any]


# ---- a made-up family: x - y as x + (-y) -------------------------------------------------------------------------------


@dataclass(frozen=True)
class DifferenceDescriptor(Descriptor):
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        self._ints("shape")

    @classmethod
    def of(cls, x: Any, y: Any) -> DifferenceDescriptor:
        assert intake(x, what="x").shape == intake(y, what="y").shape
        return cls(intake(x, what="x").shape)

    @property
    def op(self) -> str:
        return "difference"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand("out", "out"), Operand("x"), Operand("y")

    def layout(self, name: str) -> Layout:
        return Layout(self.shape, c_strides(self.shape), F32, 4)

    def check(self) -> None: ...


class Parts:
    """A configuration: the plans of both parts."""

    def __init__(self, desc: DifferenceDescriptor, device: DeviceSpec) -> None:
        shape = desc.shape
        self.negative = selected(bp.UnaryPlan, bp.UnaryDescriptor("neg", shape, "f32", x_align=4), None, device)  # type: ignore[arg-type]
        both = bp.BinaryDescriptor("add", shape, shape, "f32", "f32", x1_align=4, out_align=4)  # type: ignore[arg-type]
        self.sum = selected(bp.BinaryPlan, both, None, device)

    def __str__(self) -> str:
        return " ".join(f"{name}={part.candidate.variant}[{part.config}]" for name, part in vars(self).items())


class InTwo(Candidate[DifferenceDescriptor]):
    """-y into scratch, then x + (-y)."""

    variant = "in_two"

    def supports(self, desc: DifferenceDescriptor, device: DeviceSpec) -> Feasibility:
        return OK

    def configs(self, desc: DifferenceDescriptor, device: DeviceSpec) -> tuple[Parts, ...]:
        return (Parts(desc, device),)

    def cost(self, desc: DifferenceDescriptor, device: DeviceSpec, config: Parts) -> Cost:
        return Cost(0, 0, config.negative.cost.seconds + config.sum.cost.seconds)

    def guarantee(self, desc: DifferenceDescriptor, device: DeviceSpec, config: Parts) -> PrecisionGuarantee:
        return config.sum.guarantee

    def lower(self, desc: DifferenceDescriptor, device: DeviceSpec, config: Parts) -> tuple[Any, ...]:
        negated = Scratch.named("negated", 4 * math.prod(desc.shape))
        return (
            Sub(config.negative, {"x": Ptr("y"), "out": negated}),
            Sub(config.sum, {"x1": Ptr("x"), "x2": negated, "out": Ptr("out")}),
        )


class DifferencePlan(Plan[DifferenceDescriptor]):
    """x - y, in two."""

    descriptor = DifferenceDescriptor
    category = OpCategory.BINARY_ELEMENTWISE
    candidates = (InTwo(),)

    @staticmethod
    def reference(desc: Any, **arrays: Array) -> Any:
        return np.asarray(arrays["x"], np.float64) - arrays["y"]


def sample(*shape: int) -> Sample:
    rng = np.random.default_rng(len(shape))
    return Sample(str(shape), {name: rng.standard_normal(shape).astype(np.float32) for name in "xy"})


def nothing(**_given: Any) -> None: ...


OP = Op("difference", DifferencePlan, nothing, lambda *_: iter(()))


@pytest.mark.parametrize("shape", [(7,), (33, 129), (0, 4)], ids=str)
def test_a_plan_in_parts_has_the_whole_life_of_a_plan(shape: tuple[int, ...]) -> None:
    problem = Problem(OP, sample(*shape), "ptx")
    plan = problem.plan
    assert len(plan.kernels) == len(plan.launch_config) == (2 if 0 not in shape else 0)
    assert plan.workspace_size == 4 * math.prod(shape) and plan.deterministic
    assert plan.sku.config.startswith("negative=") and str(plan.sku) in repr(plan) and plan.explain().rows[0].chosen
    assert plan == DifferencePlan.select(problem.desc, device="ptx")
    for run in (lambda: plan.run(**problem.operands), lambda: plan.bind(**problem.operands)()):
        problem.reset()
        run()
        problem.check_images(problem.images())
    for refusal in gauntlet.refusals(problem):
        problem.reset()
        gauntlet.refused(problem, refusal)


def test_what_parts_write_for_one_another_is_theirs_alone() -> None:
    """With the parts in the wrong order the sum reads scratch that nothing has written, and the emulator says so."""
    problem = Problem(OP, sample(33), "ptx")

    class Reversed(InTwo):
        def lower(self, *asked: Any) -> tuple[Any, ...]:
            return super().lower(*asked)[::-1]

    plan = problem.plan.selection
    wrong = Selection(DifferencePlan, plan.desc, plan.pref, plan.device, Reversed(), plan.config, "model")
    with pytest.raises(bp.UninitialisedFault, match="workspace"):
        DifferencePlan(wrong).run(**problem.operands)


# ---- step by step ------------------------------------------------------------------------------------------------------

KERNEL = Kernel("made/up.cu", "up")


def launch(*args: Any) -> Launch:
    return Launch(KERNEL, (1, 1, 1), (32, 1, 1), args)


def part(*steps: Any, names: tuple[str, ...], shifts: tuple[int, ...] | None = None, **values: Any) -> Any:
    """What `Sub` asks of a selection."""
    desc = SimpleNamespace(resolve=lambda _given: (shifts or (0,) * len(names), values))
    return SimpleNamespace(steps=steps, names=names, desc=desc)


def test_steps_that_place_their_own_scratch_stay_as_they_are() -> None:
    steps = launch(Ptr("x"), Scratch(64, 8)), Fill(Ptr("out"), 0, 4)
    assert lowered(steps) == steps
    assert lowered_digest((Fill(Scratch(8, 4), 0, 4),)) == "6d91be788470dbed254801490ea39ca0", (
        "no winner is void by this"
    )


def test_scratch_is_placed_by_name_behind_what_has_a_place() -> None:
    sums, map_ = Scratch.named("sums", 300), TensorMap(Scratch.named("tile", 512), "f32", (4,), (), (4,))
    steps = lowered(
        (launch(Scratch(0, 10), sums), Copy(Scratch.named("tile", 8), Ptr("x"), 8), launch(Struct((map_, sums))))
    )
    first, second = Scratch(ALIGN, 300), Scratch(3 * ALIGN, 512)
    assert steps[0] == launch(Scratch(0, 10), first)
    assert steps[1] == Copy(second, Ptr("x"), 8)
    assert steps[2] == launch(Struct((TensorMap(second, "f32", (4,), (), (4,)), first)))
    assert workspace_size(steps) == 3 * ALIGN + 512


def test_the_operands_of_a_part_are_found_on_those_of_the_whole() -> None:
    inner = part(
        launch(Ptr("a", 4), Ptr("c"), Ptr("out"), Run("alpha", "float32"), Scratch(16, 32)),
        names=("a", "c", "out"), shifts=(8, 0, 0), alpha=2.5,
    )  # fmt: skip
    (step,) = lowered((Sub(inner, {"a": Ptr("x", 100), "out": Scratch.named("tmp", 64)}),))
    assert step == launch(
        Ptr("x", 112), np.uint64(0), Scratch(0, 64), np.float32(2.5), Scratch(ALIGN + 16, 32)
    )  # fmt: skip
    assert isinstance(step, Launch) and type(step.args[3]) is np.float32


def test_parts_share_their_scratch_in_turn() -> None:
    one, two = part(launch(Scratch(0, 1000)), names=()), part(launch(Scratch(0, 70)), names=())
    steps = lowered((launch(Scratch(0, 5)), Sub(one, {}), Sub(two, {})))
    assert steps[1:] == (launch(Scratch(ALIGN, 1000)), launch(Scratch(ALIGN, 70)))
    assert workspace_size(steps) == ALIGN + 1000


def executed(steps: tuple[Any, ...], pointers: dict[str, int]) -> None:
    """What an executable does with calls, workspace at 10**6."""
    Executable(steps, tuple(pointers), "sm_90a", 0).run(list(pointers.values()), {}, 10**6, 7)


def test_library_gets_operands_by_its_own_names() -> None:
    passed: list[Any] = []
    function = lambda pointers, values, stream: passed.append((dict(pointers), values, stream))  # noqa: E731
    inner = part(Call("lib", function, scratch=Scratch(0, 50)), names=("a", "c", "out"), shifts=(8, 0, 0), beta=1.0)
    sub = Sub(inner, {"a": Ptr("x"), "out": Scratch.named("tmp", 64)})
    steps = lowered((sub,))
    assert workspace_size(steps) == ALIGN + 50
    executed(steps, {"x": 5000})
    assert passed == [({WORKSPACE: 10**6 + ALIGN, "a": 5008, "c": 0, "out": 10**6}, {"beta": 1.0}, 7)]


def test_library_scratch_is_lazy_and_comes_last() -> None:
    asked: list[int] = []
    passed: list[int] = []

    def size() -> int:
        asked.append(1)
        return 4096

    def function(pointers: dict[str, int], _values: Any, _stream: int) -> None:
        passed.append(pointers[WORKSPACE])

    call = Call("lib", function, scratch=size)
    steps = lowered((launch(Scratch.named("sums", 10)), call))
    assert not asked and isinstance(steps[1], Call) and steps[1].scratch == DeferredScratch(size, ALIGN)
    assert workspace_size(steps) == ALIGN + 4096 and asked
    inner = lowered((Fill(Scratch(0, 700), 0, 700), Sub(part(*lowered((call,)), names=()), {})))
    assert workspace_size(inner) == 3 * ALIGN + 4096
    executed(steps[1:], {"x": 0})
    executed(inner[1:], {"x": 0})
    assert passed == [10**6 + ALIGN, 10**6 + 3 * ALIGN]


def test_a_part_of_the_reference_back_end_is_the_oracle() -> None:
    plan = DifferencePlan.select(DifferenceDescriptor((3,)), device="cpu")
    assert plan.sku.backend is BackendKind.REFERENCE
    assert plan.run(x=np.float32([3, 4, 5]), y=np.float32([1, 1, 1])).tolist() == [2, 3, 4]
