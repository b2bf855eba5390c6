"""Outputs that differ in what they are worth: a made-up family whose `total` is a rounded sum and whose `twice` is exact."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.functional import call
from baracuda_py.plan import Candidate, Cost, Descriptor, Feasibility, Layout, Op, Operand, Plan
from baracuda_py.plan.about.tune import rivals
from baracuda_py.plan.about.verify import verify
from baracuda_py.plan.candidate import OK
from baracuda_py.samples import Sample
from baracuda_py.tensor import intake
from baracuda_py.tensor.axes import c_strides
from baracuda_py.types import (
    ByOutput,
    Componentwise,
    DeviceSpec,
    ElementKind,
    Exact,
    MathPrecision,
    OpCategory,
    PrecisionGuarantee,
    Term,
    Ulp,
)

from .. import gauntlet
from ..gauntlet import Problem

F32 = ElementKind.F32
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TotalsDescriptor(Descriptor):
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        self._ints("shape")

    @classmethod
    def of(cls, x: Any) -> TotalsDescriptor:
        return cls(intake(x, what="x").shape)

    @property
    def op(self) -> str:
        return "totals"

    @property
    def operands(self) -> tuple[Operand, ...]:
        return Operand("total", "out"), Operand("twice", "out"), Operand("x")

    def layout(self, name: str) -> Layout:
        shape = self.shape[:-1] if name == "total" else self.shape
        return Layout(shape, c_strides(shape), F32, 4)

    def check(self) -> None: ...


def magnitude(_desc: TotalsDescriptor, *, output: str, x: Array) -> Array:
    """What each output's error is measured by: the sum of |x|, or |2 x|."""
    wide = np.abs(np.asarray(x, np.float64))
    return np.asarray(wide.sum(-1) if output == "total" else 2 * wide)


def promised(per_addend: float, twice: bp.PrecisionGuarantee, n: int) -> PrecisionGuarantee:
    bound = Componentwise((Term(per_addend * n, F32, "magnitude"),), "made up")
    total = PrecisionGuarantee.fixed_order(MathPrecision.F32, F32, bound, batch_invariant=False)
    return PrecisionGuarantee.by_output(total=total, twice=twice)


class Summing(Candidate[TotalsDescriptor]):
    """Claims to serve, at a cost; is never launched."""

    def __init__(self, variant: str, seconds: float, per_addend: float, twice: PrecisionGuarantee) -> None:
        self.variant, self.seconds, self.per_addend, self.twice = variant, seconds, per_addend, twice  # type: ignore[misc]

    def supports(self, desc: TotalsDescriptor, device: DeviceSpec) -> Feasibility:
        return OK

    def cost(self, desc: TotalsDescriptor, device: DeviceSpec, config: Any) -> Cost:
        return Cost(0, 0, self.seconds)

    def guarantee(self, desc: TotalsDescriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return promised(self.per_addend, self.twice, desc.shape[-1])

    def lower(self, desc: TotalsDescriptor, device: DeviceSpec, config: Any) -> tuple[Any, ...]:
        return ()


EXACT = PrecisionGuarantee.exact(F32)
ROUNDED = PrecisionGuarantee.fixed_order(MathPrecision.F32, F32, Ulp(1.0))


class TotalsPlan(Plan[TotalsDescriptor]):
    """The sum of each row, and twice the array."""

    descriptor = TotalsDescriptor
    category = OpCategory.UNARY_ELEMENTWISE
    candidates = (
        Summing("chosen", 1e-6, 1.0, EXACT), Summing("tighter", 2e-6, 0.5, EXACT), Summing("looser sum", 3e-6, 2.0, EXACT),
        Summing("tighter sum, looser twice", 4e-6, 0.5, ROUNDED),
    )  # fmt: skip
    measures = {"magnitude": magnitude}

    @staticmethod
    def reference(desc: Any, **arrays: Array) -> Any:
        wide = np.asarray(arrays["x"], np.float64)
        return wide.sum(-1), (2 * np.asarray(arrays["x"])).astype(np.float32)

    @staticmethod
    def reference_guarantee(desc: Any) -> PrecisionGuarantee:
        return promised(1.0, EXACT, desc.shape[-1])


def totals(x: Any, /, *, total: Any = None, twice: Any = None, stream: Any = None, device: Any = None) -> Any:
    """The sum of each row, and twice the array."""
    operands = {"total": total, "twice": twice, "x": x}
    return call(TotalsPlan, operands, lambda: TotalsDescriptor.of(x), stream=stream, device=device)


def samples(_fixed: Any, seed: int = 0, **_full: bool) -> Iterator[Sample]:
    rng = np.random.default_rng(seed)
    for shape in ((1, 1), (5, 77), (3, 4, 129), (0, 4)):
        yield Sample(str(shape), {"x": rng.standard_normal(shape).astype(np.float32)})


OP = Op("totals", TotalsPlan, totals, samples)
DESC = TotalsDescriptor((5, 77))


def select(device: str = "h200") -> TotalsPlan:
    return TotalsPlan.select(DESC, device=device)


# ---- what it says ------------------------------------------------------------------------------------------------------


def test_the_combination_promises_what_all_outputs_do() -> None:
    guarantee = select().precision_guarantee
    assert not guarantee.batch_invariant and guarantee.deterministic and guarantee.math_precision is MathPrecision.F32
    assert guarantee.of("twice") == EXACT and guarantee.of("twice").batch_invariant
    assert isinstance(guarantee.of("total").bound, Componentwise) and isinstance(guarantee.bound, ByOutput)
    text = str(guarantee)
    assert "total: |error| <= 77 u(f32) magnitude" in text and "twice: exact" in text
    assert all(line in str(select()) for line in text.splitlines())
    assert hash(guarantee) == hash(select().precision_guarantee)


def test_an_output_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(bp.InvalidProblemError, match="there is no output 'out': ask of one of total, twice"):
        select().precision_guarantee.of("out")
    one = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (4,), "f32"), device="h200").precision_guarantee  # type: ignore[arg-type]
    assert one.of("out") == one
    with pytest.raises(bp.InvalidProblemError, match="there is no output 'total': ask of one of out"):
        one.of("total")


def test_a_check_must_say_of_which_output() -> None:
    zeros = np.zeros(5, np.float32)
    with pytest.raises(bp.InvalidProblemError, match=r"ask .of\(name\) of one: total, twice"):
        select().precision_guarantee.check(zeros, zeros)


def test_guarantee_of_other_outputs_is_an_internal_error() -> None:
    with pytest.raises(ValueError, match="of the outputs total, twice, where there are out"):
        select().precision_guarantee.for_outputs(("out",))


def test_saved_and_pickled_plans_promise_the_same() -> None:
    plan = select()
    for again in (
        pickle.loads(pickle.dumps(plan.precision_guarantee)),
        pickle.loads(pickle.dumps(plan.sku)).precision_guarantee,
    ):
        assert again == plan.precision_guarantee and again.of("twice") == EXACT
    assert plan.sku.precision_guarantee == plan.precision_guarantee
    other = TotalsPlan.select(DESC, bp.PlanPreference(variant="tighter"), device="h200")
    assert other.precision_guarantee != plan.precision_guarantee


def test_rivals_promise_no_less_of_any_output() -> None:
    assert [r.candidate.variant for r in rivals(select().selection, None)] == ["chosen", "tighter"]
    single = PrecisionGuarantee.fixed_order(MathPrecision.F32, F32, Exact())
    assert single.at_least(select().precision_guarantee) and not select().precision_guarantee.at_least(single)


# ---- what holds it to that ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", list(samples({})), ids=lambda sample: sample.label)
def test_gauntlet(sample: Sample) -> None:
    problem = Problem(OP, sample, "cpu")
    gauntlet.run(problem)
    problem.reset()
    for refusal in gauntlet.refusals(problem):
        with gauntlet.named(f"{refusal.operand}, {refusal.label}"):
            gauntlet.refused(problem, refusal)


def answers(x: Array, *, total: float = 0.0, twice: float = 0.0) -> tuple[Array, Array]:
    exact = TotalsPlan.reference(DESC, x=x)
    return (exact[0] + total).astype(np.float32), exact[1] + np.float32(twice)


def test_each_output_is_held_to_its_own_bound() -> None:
    """What the sum may err by, which is far more than a unit of `twice`, breaks `twice`; more breaks the sum."""
    x = np.random.default_rng(1).standard_normal(DESC.shape).astype(np.float32)
    allowed = float(77 * 2.0**-24 * np.abs(x).sum(-1).min())
    plan = select("cpu").selection
    verify(plan, {"x": x}, lambda _: answers(x, total=0.5 * allowed))
    with pytest.raises(AssertionError, match=r"twice: .* bytes differ from the exact result"):
        verify(plan, {"x": x}, lambda _: answers(x, twice=0.5 * allowed))
    with pytest.raises(AssertionError, match=r"total: 5 of 5 elements break .*magnitude"):
        verify(plan, {"x": x}, lambda _: answers(x, total=100 * allowed))


def test_the_gauntlet_finds_an_output_that_breaks_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second answer of the oracle, that of the run, is off by what only the sum may err by."""
    right, count = TotalsPlan.reference, [0]

    def off(desc: Any, **arrays: Array) -> Any:
        total, twice = right(desc, **arrays)
        count[0] += 1
        return total, twice if count[0] > 1 else np.nextafter(twice, np.float32(9))

    problem = Problem(OP, list(samples({}))[1], "cpu")
    monkeypatch.setattr(TotalsPlan, "reference", staticmethod(off))
    with pytest.raises(AssertionError, match="twice"):
        gauntlet.run(problem)


def test_measures_are_given_the_output() -> None:
    x, plan = np.ones(DESC.shape, np.float32), select()
    assert plan.measured(output="twice")["magnitude"](x=x).shape == (5, 77)
    assert plan.measured(output="total")["magnitude"](x=x).shape == plan.measured()["magnitude"](x=x).shape == (5,)


def test_preferences_ask_all_outputs() -> None:
    with pytest.raises(bp.UnsupportedError, match="a row's result depends on the batch"):
        TotalsPlan.select(DESC, bp.PlanPreference(batch_invariant=True), device="h200")
    invariant = PrecisionGuarantee.by_output(total=replace(EXACT), twice=EXACT)
    assert invariant.batch_invariant and invariant.math_precision is MathPrecision.EXACT
