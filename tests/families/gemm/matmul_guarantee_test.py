"""What matmul's guarantee catches, and what it lets pass."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.numerics.rounding import round_to
from baracuda_py.ops.gemm._problem.elements import NAMED
from baracuda_py.ops.products.guarantee import ROUNDED, TRUNCATED, guarantee_of
from baracuda_py.plan import get_op
from baracuda_py.plan.about import tune
from baracuda_py.samples import Sample
from baracuda_py.types import DeviceSpec, ElementKind, MathPrecision, PlanPreference

from ...gauntlet import Problem, samples_of
from .formulas import activated
from .independent import check_matmul

Array = np.ndarray[Any, Any]
FLOATS = (bp.F16, bp.BF16, bp.F32, bp.F64)


def tensor_core_guarantee(desc: Any) -> Any:
    """That of a tensor-core kernel which adds product after product, each sum truncated: the loosest of all."""
    desc = desc.canonical()
    return guarantee_of(desc, desc.precision, desc.a_shape[-1], each=TRUNCATED)


def checked(problem: Problem, got: Array) -> None:
    inputs = {n: s.host() for n, s in problem.slots.items() if n != "out"}
    tensor_core_guarantee(problem.desc).check(got, problem.wide["out"], inputs, measures=problem.plan.measured())


def measures_of(desc: Any) -> Any:
    """The measures of a problem's bounds, of its operands by name."""
    return {name: partial(measure, desc) for name, measure in bp.MatmulPlan.measures.items()}


def problem_of(k: int, kind: ElementKind, **options: Any) -> Problem:
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(s).astype(kind.dtype) for s in ((12, k), (k, 20)))
    return Problem(get_op("matmul"), Sample("", {"a": a, "b": b}, options), "cpu")


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@pytest.mark.parametrize("k", [1, 16, 129, 1023])
def test_a_product_left_out_breaks_the_bound(kind: ElementKind, k: int) -> None:
    to = "f64" if kind is bp.F64 else "f32"
    problem = problem_of(k, kind, out_dtype=to)
    a, b = (problem.slots[n].host().astype(np.float64) for n in "ab")
    got = problem.wide["out"].astype(ElementKind.of(to).dtype)
    checked(problem, got)
    worst = int(np.argmax(np.abs(a[3] * b[:, 7])))
    got[3, 7] -= a[3, worst] * b[worst, 7]
    with pytest.raises(AssertionError, match=r"1 of 240 elements break .* worst at \(3, 7\)"):
        checked(problem, got)


@pytest.mark.parametrize("wrong", ["transposed", "beta", "bias", "activation", "accumulated in 16 bits", "truncated"])
def test_a_wrong_epilogue_or_accumulator_breaks_the_bound(wrong: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((96, 96)).astype(bp.BF16.dtype) for _ in range(2))
    c, bias = rng.standard_normal((96, 96)).astype(bp.BF16.dtype), rng.standard_normal(96).astype(bp.BF16.dtype)
    sample = Sample("", {"a": a, "b": b, "c": c, "bias": bias}, {"beta": 0.5, "activation": "gelu"})
    problem = Problem(get_op("matmul"), sample, "cpu")
    gelu: Any = get_op("gelu").function
    x, y, z, row = (t.astype(np.float64) for t in (a, b, c, bias))
    right = gelu(x @ y + 0.5 * z + row, device="cpu")
    checked(problem, right.astype(bp.BF16.dtype))
    wide = {
        "transposed": gelu(x @ y.T + 0.5 * z + row, device="cpu"), "beta": gelu(x @ y + z + row, device="cpu"),
        "bias": gelu(x @ y + 0.5 * z + row[:, None], device="cpu"), "activation": x @ y + 0.5 * z + row,
        "accumulated in 16 bits": _gelu_of(_in_bf16(a, b) + 0.5 * z + row), "truncated": right * (1 - 2.0**-7),
    }[wrong]  # fmt: skip
    with pytest.raises(AssertionError, match="break"):
        checked(problem, np.asarray(wide).astype(bp.BF16.dtype))


def _gelu_of(x: Array) -> Array:
    return bp.gelu(x, device="cpu")  # type: ignore[no-any-return]


def _in_bf16(a: Array, b: Array) -> Array:
    total = np.zeros((len(a), b.shape[1]), a.dtype)
    for k in range(a.shape[1]):
        total = (total.astype(np.float32) + np.outer(a[:, k], b[k]).astype(np.float32)).astype(a.dtype)
    return total.astype(np.float64)


def with_infinities(activation: str) -> Problem:
    """Row 0 sums to inf, row 1 to -inf, row 2 to NaN; bias and residual hold more."""
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((6, 16)).astype(np.float32), np.abs(rng.standard_normal((16, 8))).astype(np.float32)
    bias, residual = rng.standard_normal(8).astype(np.float32), rng.standard_normal((6, 8)).astype(np.float32)
    a[0, 1], a[1, 2], a[2, 3], a[2, 4], bias[7] = np.inf, -np.inf, np.inf, -np.inf, -np.inf
    residual[4, 5], residual[5, 5], residual[0, 6], residual[3, 6] = np.inf, -np.inf, -np.inf, np.nan
    sample = Sample("", {"a": a, "b": b, "bias": bias, "residual": residual}, {"activation": activation})
    return Problem(get_op("matmul"), sample, "cpu")


@pytest.mark.parametrize("activation", list(bp.Activation), ids=str)
def test_infinities_make_no_hole_in_the_bound(activation: Any) -> None:
    """Wherever an operand of the element is infinite, any other number breaks it; what an activation makes of -inf too."""
    problem = with_infinities(str(activation))
    check_matmul(problem)
    right = problem.wide["out"].astype(np.float32)
    checked(problem, right)
    assert np.isinf(right[0, 0]) and np.isnan(right[0, 6]) and np.isnan(right[0, 7]) and np.isnan(right[2]).all()
    assert np.isinf(right[1, 0]) == (activation is bp.Activation.IDENTITY)
    for at in ((0, 0), (0, 6), (0, 7), (1, 0), (1, 7), (2, 0), (4, 5), (5, 5), (3, 6), (4, 7)):
        for wrong in (np.inf, -np.inf, np.nan, 0.0, 1.0, 3e38, -3e38):
            if np.array_equal(right[at], np.float32(wrong), equal_nan=True):
                continue
            got = right.copy()
            got[at] = wrong
            with pytest.raises(AssertionError, match="1 of 48 elements break"):
                checked(problem, got)


@pytest.mark.parametrize("activation", list(bp.Activation), ids=str)
def test_the_independent_check_sees_a_wrong_infinity(activation: Any) -> None:
    for at in ((0, 0), (0, 7), (1, 0), (2, 0), (4, 5), (3, 6), (4, 7)):
        for wrong in (np.inf, -np.inf, np.nan, 1.0):
            problem = with_infinities(str(activation))
            held = problem.wide["out"]
            if np.array_equal(held[at], wrong, equal_nan=True):
                continue
            held[at] = wrong
            with pytest.raises(AssertionError, match=r"oracle .* exact"):
                check_matmul(problem)


@pytest.mark.parametrize("order", ["forward", "backward", "shuffled", "pairs", "halves"])
def test_any_order_of_k_keeps_the_bound(order: str) -> None:
    """Sums in f32, however they are ordered or split, are within it: the bound does not know the order."""
    problem = problem_of(500, bp.F32)
    a, b = problem.slots["a"].host(), problem.slots["b"].host()
    index = np.arange(500)
    if order == "shuffled":
        index = np.random.default_rng(0).permutation(500)
    products = (a[:, :, None] * b[None])[:, index[:: -1 if order == "backward" else 1]]
    if order == "pairs":
        while products.shape[1] > 1:
            odd = products[:, products.shape[1] // 2 * 2 :]
            products = np.concatenate([products[:, :-1:2] + products[:, 1::2], odd], axis=1)
        total = products[:, 0]
    elif order == "halves":
        total = np.add.accumulate(products[:, :250], 1)[:, -1] + np.add.accumulate(products[:, 250:], 1)[:, -1]
    else:
        total = np.add.accumulate(products, axis=1)[:, -1]
    assert total.dtype == np.float32
    checked(problem, total)


def plans_of(kind: str, k: int, variant: str) -> list[tuple[Any, int]]:
    """Plans for a product of 64 x 64 by a variant, and into how many parts each splits K."""
    desc = bp.MatmulDescriptor((64, k), (k, 64), kind, kind)  # type: ignore[arg-type]
    plans = tune.admissible(bp.MatmulPlan, desc, PlanPreference(variant=variant), DeviceSpec.named("h200"))
    return [(plan, getattr(plan.selection.config, "split_k", 1)) for plan in plans]


def worst_of(guarantee: Any) -> float:
    """Units roundoff of f32 that a sum may be off, times the sum of its magnitudes."""
    (term,) = (t for t in guarantee.bound.terms if t.measure == "abs_matmul")
    assert term.unit is bp.F32
    return float(term.coefficient)


@pytest.mark.parametrize(("variant", "kind"), [("simt", "f32"), ("wgmma", "bf16")])
def test_guarantee_of_split_k_is_not_batch_invariant(variant: str, kind: str) -> None:
    """That follows from M and the batch; and each part is one more addition."""
    plans = plans_of(kind, 8192, variant)
    assert len({parts for _, parts in plans}) > 1
    for plan, parts in plans:
        assert plan.precision_guarantee.batch_invariant == (parts == 1), plan.sku
    desc = plans[0][0].desc.canonical()
    each = [worst_of(guarantee_of(desc, desc.precision, 1000, each=ROUNDED, splits=n)) for n in (1, 2, 8)]
    assert [x - each[0] for x in each] == [0, 1, 7]


@pytest.mark.parametrize("variant", ["tc", "tc_async", "wgmma"])
@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_tensor_cores_are_not_thought_to_round(variant: str, kind: str) -> None:
    """They cut what they align: twice a rounding for each of the products."""
    for plan, parts in plans_of(kind, 512, variant):
        assert worst_of(plan.precision_guarantee) >= 2 * 512 / parts, plan.sku


def test_tf32_is_worth_less_than_f32_and_says_so() -> None:
    strict, tensor = (problem_of(129, bp.F32, math=m) for m in ("f32", "tf32"))
    a, b = strict.slots["a"].host(), strict.slots["b"].host()
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64) for x in (a, b)]
    got = (cut[0] @ cut[1]).astype(np.float32)
    checked(tensor, got)
    with pytest.raises(AssertionError, match="break"):
        checked(strict, got)
    assert tensor.desc.precision is MathPrecision.TF32
    assert strict.desc.precision is MathPrecision.F32


# ---- the activations' own errors --------------------------------------------------------------------------------------


def cancelling(activation: str, kind: ElementKind, out: ElementKind, k: int, emulated: Any) -> tuple[Any, Array, Any]:
    """A problem whose residual is minus the nearest result, so that only errors are left, its result by the kernels' formulas
    (the sum exact to f32's, f64's last place), and the arrays."""
    rng = np.random.default_rng(k)
    a, b = (rng.standard_normal(s).astype(kind.dtype) for s in ((256, k), (k, 264)))
    bare = bp.MatmulDescriptor((256, k), (k, 264), kind, kind, activation=activation, out_element=out)
    near = round_to(bp.MatmulPlan.reference(bare, a=a, b=b), out)
    desc = replace(bare, residual_shape=near.shape, residual_element=out)
    acc = np.float64 if kind is bp.F64 else np.float32
    total = (a.astype(np.longdouble) @ b.astype(np.longdouble)).astype(acc)
    got = (emulated(activation, total, out.digits) - near.astype(acc)).astype(acc)
    return desc, round_to(got.astype(np.float64), out), {"a": a, "b": b, "residual": -near}


CASES = [(kind, out) for kind in FLOATS for out in ((bp.F64,) if kind is bp.F64 else FLOATS[:3])]


@pytest.mark.parametrize(("kind", "out"), CASES, ids=str)
@pytest.mark.parametrize("activation", list(bp.Activation), ids=str)
@pytest.mark.parametrize("k", [1, 8])
def test_a_result_that_cancels_keeps_the_bound(kind: ElementKind, out: ElementKind, activation: Any, k: int) -> None:
    """The tightest bound there is, that of products summed by fused multiply-adds."""
    desc, got, arrays = cancelling(str(activation), kind, out, k, activated)
    guarantee = guarantee_of(desc.canonical(), desc.canonical().precision, k, each=ROUNDED)
    wide, measures = bp.MatmulPlan.reference(desc, **arrays), measures_of(desc)
    guarantee.check(got, wide, arrays, measures=measures)
    if activation is bp.Activation.GELU and out.bits == 16 and k == 1:  # the bound without its own error does not hold
        terms = tuple(term for term in guarantee.bound.terms if term.measure != "gelu_tail")
        with pytest.raises(AssertionError, match="break"):
            replace(guarantee, bound=replace(guarantee.bound, terms=terms)).check(got, wide, arrays, measures=measures)
    assert (activation is bp.Activation.GELU and out.bits == 16) == ("gelu_tail" in str(guarantee.bound))


@pytest.mark.parametrize("name", ["matmul", *NAMED])
def test_cancellation_is_in_every_bounded_run(name: str) -> None:
    """Of a GELU too, whose own error nothing else shows."""
    assert "cancelling gelu" in samples_of(get_op(name))[-1].label
