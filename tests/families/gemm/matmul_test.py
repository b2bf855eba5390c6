"""matmul: what it computes, what it refuses and in which words, and plans as values."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.cache import plan_cache
from baracuda_py.ops.gemm._problem.elements import NAMED
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample
from baracuda_py.types import ElementKind

from ...arena import Slot, host
from ...gauntlet import Problem, readable
from .calls import Call, device_of, whole
from .independent import check_matmul

COVERS = ("matmul",)
Array = np.ndarray[Any, Any]
FLOATS = (bp.F16, bp.BF16, bp.F32, bp.F64)
VARIANTS = {c.variant for c in bp.MatmulPlan.candidates}


# ---- what it computes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_exact_sums_match_numpy(backend: str, kind: ElementKind) -> None:
    a, b, c = whole(17, 33, kind=kind), whole(33, 9, kind=kind), whole(17, 9, kind=kind)
    bias, residual = whole(9, kind=kind), whole(17, 9, kind=kind, seed=1)
    wide = a.astype(np.float64) @ b.astype(np.float64)
    call = Call(backend, a=a, b=b, c=c, bias=bias, residual=residual)
    got = host(call(alpha=0.5, beta=-2.0, activation="relu"))
    wanted = np.maximum(0.5 * wide - 2 * c.astype(np.float64) + bias.astype(np.float64), 0) + residual.astype(float)
    assert got.dtype == kind.dtype
    np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(kind.dtype).astype(np.float64))


@pytest.mark.parametrize("kind", [bp.F16, bp.BF16, bp.F32], ids=str)
@pytest.mark.parametrize("to", ["f16", "bf16", "f32"])
def test_out_dtype(backend: str, kind: ElementKind, to: str) -> None:
    a, b = whole(8, 16, kind=kind), whole(16, 24, kind=kind)
    got = host(Call(backend, a=a, b=b)(out_dtype=to))
    wanted = (a.astype(np.float32) @ b.astype(np.float32)).astype(ElementKind.of(to).dtype)
    assert got.dtype == wanted.dtype
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("op", NAMED)
def test_the_named_functions_take_their_type_and_return_f32(backend: str, op: str) -> None:
    kind = NAMED[op].element
    a, b = whole(15, 7, kind=kind), whole(7, 9, kind=kind)
    got = host(Call(backend, a=a, b=b)(op))
    assert got.dtype == np.float32
    assert np.array_equal(got, a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("shape", [(0, 5, 3), (4, 0, 3), (4, 5, 0), (0, 0, 0), (1, 1, 0)])
def test_empty_extents(backend: str, shape: tuple[int, int, int]) -> None:
    """K = 0 is a sum of nothing: zeros, or beta C and the rest of the epilogue."""
    m, n, k = shape
    a, b, c, bias = whole(m, k), whole(k, n), whole(m, n), whole(n)
    assert np.array_equal(host(Call(backend, a=a, b=b)()), np.zeros((m, n), np.float32))
    got = host(Call(backend, a=a, b=b, c=c, bias=bias)(beta=3.0, alpha=2.0))
    assert np.array_equal(got, 3 * c + bias)


def test_c_is_not_read_where_beta_is_zero(backend: str) -> None:
    a, b, c = whole(9, 20), whole(20, 12), np.full((9, 12), np.nan, np.float32)
    assert np.array_equal(host(Call(backend, a=a, b=b, c=c)(beta=0.0)), a @ b)
    assert np.isnan(host(Call(backend, a=a, b=b, c=c)(beta=1.0))).all()


def test_a_product_does_not_count_where_alpha_is_zero(backend: str) -> None:
    """As in BLAS, and as c where beta is 0: what is left is the rest of the epilogue, and no sign on its zeros."""
    a, b, c, bias = -whole(9, 20), whole(20, 12), whole(9, 12), whole(12)
    a[3, 4], b[5, 6] = np.nan, np.inf
    nothing = host(Call(backend, a=a, b=b)(alpha=0.0))
    assert np.array_equal(nothing, np.zeros((9, 12))) and not np.signbit(nothing).any()
    assert np.array_equal(host(Call(backend, a=a, b=b, c=c, bias=bias)(alpha=0.0, beta=2.0)), 2 * c + bias)
    problem = Problem(get_op("matmul"), Sample("", {"a": a, "b": b, "bias": bias}, {"alpha": 0.0}), "cpu")
    check_matmul(problem)


def test_not_a_number_and_infinity_go_where_ieee_sends_them(backend: str) -> None:
    """Row and column of the culprit, nothing else: what pads a tile is neither read nor multiplied by it."""
    a, b = np.abs(whole(70, 37)) + 1, np.abs(whole(37, 50)) + 1
    a[3, 5], a[20, 36], b[9, 11], b[30, 20] = np.nan, np.inf, -np.inf, 0
    a[41, 30] = np.inf  # is multiplied by the zero at b[30, 20]
    got = host(Call(backend, a=a, b=b)())
    wanted = np.full((70, 50), 0.0)
    wanted[20], wanted[41] = np.inf, np.inf
    wanted[:, 11] = -np.inf
    wanted[20, 11] = wanted[41, 11] = wanted[41, 20] = np.nan  # infinities of both signs, and inf times 0
    wanted[3] = np.nan
    finite = wanted == 0
    assert np.isfinite(got[finite]).all()
    np.testing.assert_array_equal(got[~finite], wanted[~finite])


@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
def test_what_lies_beside_a_view_is_not_read(backend: str, orders: str) -> None:
    """Operands are windows of NaN: an element too many in any direction shows."""

    def window(x: Array, order: str) -> Any:
        rows, cols = x.shape
        around = np.full((rows + 9, cols + 11), np.nan, x.dtype, order=order)  # type: ignore[call-overload]
        around[4 : 4 + rows, 3 : 3 + cols] = x
        return Slot(around, backend).operand[4 : 4 + rows, 3 : 3 + cols]

    for kind in FLOATS:
        a, b, bias = whole(33, 27, kind=kind), whole(27, 41, kind=kind), whole(1, 41, kind=kind)
        got = bp.matmul(window(a, orders[0]), window(b, orders[1]), bias=window(bias, "C"), device=device_of(backend))
        wanted = (a.astype(np.float64) @ b.astype(np.float64) + bias.astype(np.float64)).astype(kind.dtype)
        np.testing.assert_array_equal(host(got).astype(np.float64), wanted.astype(np.float64))


def test_out_is_written_where_it_lies(backend: str) -> None:
    """A column-major window of a larger array, its surroundings kept."""
    a, b = whole(12, 18), whole(18, 7)
    for out in (np.ones((12, 7), np.float32, order="F"), np.ones((9, 24), np.float32).T[::2, 1:8]):
        slots = Slot(a, backend), Slot(b, backend), Slot(out, backend, poison=True)
        given = [s.operand for s in slots]
        assert bp.matmul(given[0], given[1], out=given[2], device=device_of(backend)) is given[2]
        assert np.array_equal(slots[2].image(), slots[2].expected(a @ b))


# ---- what it refuses -------------------------------------------------------------------------------------------------


# Operands beside or in place of a[4, 5] and b[5, 6], options, the error, and what it says.
PROBLEM, TYPE, OVERLAP = bp.InvalidProblemError, bp.OperandTypeError, bp.OverlapError
Refusal = tuple[dict[str, Any], dict[str, Any], type[bp.BaracudaError], tuple[str, ...]]
INTEGERS = [k for k in ElementKind if (k.is_integer or k is bp.BOOL) and not k.packed]
ADDENDS = ("bias", "c", "residual")


def pair(a: tuple[int, ...], b: tuple[int, ...]) -> dict[str, Any]:
    return {"a": whole(*a), "b": whole(*b)}


BF16 = {"a": whole(4, 5, kind=bp.BF16), "b": whole(5, 6, kind=bp.BF16)}
REFUSED: dict[str, Refusal] = {
    **{
        f"K {a} {b}": (pair(a, b) | {"out": np.ones((4, 7), np.float32)}, {}, PROBLEM,
                       (str(a), str(b), "agree on K", "transpose one"))
        for a, b in (((4, 5), (6, 7)), ((5,), (4, 3)), ((4, 5), (4,)), ((2, 4, 5), (2, 4, 5)), ((3,), (4,)))
    },
    "batch axes": (pair((2, 4, 5), (3, 5, 6)), {}, PROBLEM, ("(2,)", "(3,)", "one of them 1")),
    "no axes": ({"a": np.float32(3), "b": whole(3)}, {}, PROBLEM, ("()", "(3,)", "rank 1 or more")),
    **{
        f"{kind} in {names}": ({n: np.ones(s, kind.dtype) for n, s in (("a", (4, 5)), ("b", (5, 6))) if n in names}, {}, TYPE,
                               (str(kind), f"{names[0]} holds", "cast it to a float type"))
        for kind in INTEGERS
        for names in ("ab", "b")
    },
    "complex64": ({"a": np.ones((4, 5), np.complex64)}, {}, TYPE, ("complex64", "pass bp.real(a) and bp.imag(a)")),
    "mixed": (BF16 | {"b": whole(5, 6, kind=bp.F16)}, {}, TYPE, ("a holds bf16", "b holds f16", "cast one of them")),
    **{
        f"{name} {shape}": ({name: whole(*shape)}, {}, PROBLEM,
                            (name, str(shape), "(4, 6)", f"pass {name} of shape {'(6,)' if name == 'bias' else '(4, 6)'}"))
        for name in ADDENDS
        for shape in ((5,), (4, 5), (2, 4, 6), (6, 4), (0,))
    },
    **{
        f"{name} of {kind}": ({name: np.ones((4, 6), kind.dtype)}, {}, TYPE, (f"{name} holds {kind}", "cast it to f32"))
        for name in ADDENDS
        for kind in (bp.I32, bp.F64)
    },
    **{
        f"out {shape}": ({"out": whole(*shape)}, {}, PROBLEM, ("out must have shape (4, 6)", f"got {shape}"))
        for shape in ((4, 7), (6, 4), (4, 6, 1), (24,), (1, 4, 6))
    },
    "out of i32": ({"out": np.ones((4, 6), np.int32)}, {}, TYPE, ("i32", "one of f32, f16, bf16")),
    "out of f32, operands of f64": (
        {"a": whole(4, 5, kind=bp.F64), "b": whole(5, 6, kind=bp.F64), "out": whole(4, 6)}, {}, TYPE, ("f64", "f32")),
    "out and out_dtype": (
        {"out": whole(4, 6)}, {"out_dtype": "bf16"}, TYPE, ("out holds f32", "out_dtype is bf16", "give one of them")),
    "out broadcast": ({"out": np.broadcast_to(np.ones(6, np.float32), (4, 6))}, {}, OVERLAP, ("out", "not broadcast")),
    **{
        f"activation {i}": ({}, {"activation": activation}, PROBLEM, ("activation", "gelu_tanh"))
        for i, activation in enumerate(("swish", "GeLU2", "", np.tanh, 3))
    },
    "tf32 of bf16": (BF16, {"math": "tf32"}, TYPE, ("bf16", "tf32", "math='bf16'")),
    "f16 of f32": ({}, {"math": "f16"}, TYPE, ("f32", "f16", "math='f32'")),
    "float19": ({}, {"math": "float19"}, PROBLEM, ("math", "'float19'", "tf32")),
    **{
        f"{name} {type(value).__name__}": ({}, {name: value}, TYPE, (name, type(value).__name__, f"{name}=float("))
        for name in ("alpha", "beta")
        for value in ("1", None, 1j, np.ones(1, np.float32))
    },
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_matmul_refusals(backend: str, name: str) -> None:
    operands, options, error, words = REFUSED[name]
    Call(backend, **pair((4, 5), (5, 6)) | operands).refused(error, *words, **options)


@pytest.mark.parametrize("op", NAMED)
def test_the_named_functions_send_the_other_type_to_its_function(backend: str, op: str) -> None:
    mine, other = NAMED[op].element, bp.BF16 if NAMED[op].element is bp.F16 else bp.F16
    call = Call(backend, a=whole(4, 5, kind=other), b=whole(5, 6, kind=other))
    call.refused(bp.OperandTypeError, str(mine), str(other), f"use {NAMED[op].other}", op=op)
    assert NAMED[NAMED[op].other].element is other
    assert NAMED[NAMED[op].other].variant == NAMED[op].variant
    Call(backend, a=whole(4, 5), b=whole(5, 6)).refused(bp.OperandTypeError, "f32", "or use matmul", op=op)
    mixed = Call(backend, a=whole(4, 5, kind=mine), b=whole(5, 6, kind=other))
    mixed.refused(bp.OperandTypeError, "b must hold", f"use {NAMED[op].other}", op=op)
    fit = Call(backend, a=whole(4, 5, kind=mine), b=whole(5, 6, kind=mine))
    fit.refused(bp.OperandTypeError, "f32", "bf16", "use matmul(", op=op, out_dtype="bf16")


@pytest.mark.parametrize("name", ["a", "b", "c", "bias", "residual"])
def test_an_output_that_shares_memory_with_an_input(backend: str, name: str) -> None:
    both = Slot(whole(12, 6), backend)
    upper = both.operand[:6]
    given = {n: Slot(whole(6, 6), backend).operand for n in ("a", "b", "c", "bias", "residual")} | {name: upper}
    addends = {n: given[n] for n in ("c", "bias", "residual")}
    in_place = name in ("c", "residual")
    for out in (both.operand[2:8], upper.T, *([] if in_place else [upper])):
        with pytest.raises(bp.OverlapError) as caught:
            bp.matmul(given["a"], given["b"], **addends, out=out, device=device_of(backend))
        readable(caught.value, "matmul", "out", name, f"pass a copy of {name}")
        assert np.array_equal(both.image(), both.initial)
    below = bp.matmul(given["a"], given["b"], **addends, out=both.operand[6:], device=device_of(backend))
    assert below.shape == (6, 6)


@pytest.mark.parametrize("names", [("c",), ("residual",), ("c", "residual")], ids="+".join)
@pytest.mark.parametrize("order", ["C", "F", "window"])
def test_out_may_be_c_or_residual_itself(backend: str, names: tuple[str, ...], order: str) -> None:
    """out = alpha a b + beta out, as in BLAS: by the function twice over, and by a plan and a bound plan."""
    a, b, held = whole(9, 20), whole(20, 12), whole(9, 12)
    x, y = Slot(a, backend), Slot(b, backend)
    around = np.full((13, 30), np.nan, np.float32)
    around[2:11, 3:27:2] = held
    view = around[2:11, 3:27:2] if order == "window" else np.array(held, order=order)  # type: ignore[call-overload]
    out = Slot(view, backend)
    given = {"a": x.operand, "b": y.operand, "out": out.operand} | dict.fromkeys(names, out.operand)
    values = {"alpha": 2.0} | ({"beta": 0.5} if "c" in names else {})
    scale = {("c",): 0.5, ("residual",): 1.0, ("c", "residual"): 1.5}[names]
    device = device_of(backend)

    def call() -> Any:
        rest = {n: given[n] for n in ("out", *names)}
        return bp.matmul(given["a"], given["b"], **rest, **values, device=device)

    once, twice = 2 * (a @ b) + scale * held, 2 * (a @ b) * (1 + scale) + scale**2 * held
    assert call() is out.operand
    assert np.array_equal(out.image(), out.expected(once))
    call()
    assert np.array_equal(out.image(), out.expected(twice))
    inputs = {n: given[n] for n in ("a", "b", "out", *names)}
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(**inputs), device=device)
    assert plan.can_implement(**given)
    for run in (lambda: plan.run(**given, **values), plan.bind(**given, **values)):
        out.reset()
        run()
        assert np.array_equal(out.image(), out.expected(once))


@pytest.mark.parametrize("beta", [0.5, -1, float("nan")])
def test_a_beta_without_a_c(backend: str, beta: float) -> None:
    call = Call(backend, a=whole(4, 5), b=whole(5, 6))
    call.refused(bp.InvalidProblemError, "beta", "there is no c", "pass c", beta=beta)
    for plain in (0.0, 1.0):
        assert np.array_equal(host(call(beta=plain)), call.slots["a"].host() @ call.slots["b"].host())
    given = {n: s.operand for n, s in call.slots.items()}
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(**given), device=device_of(backend))
    for refused in (plan.run, plan.bind):
        with pytest.raises(bp.InvalidProblemError, match="there is no c"):
            refused(**given, beta=beta)
    assert "there is no c" in str(plan.can_implement(**given, beta=beta).error)
    with pytest.raises(bp.InvalidProblemError, match="there is no c"):
        bp.MatmulPlan.select(bp.MatmulDescriptor.of(**given, beta=beta), device="sm_90a")


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_number_beyond_any_float(backend: str, name: str) -> None:
    call = Call(backend, a=whole(4, 5), b=whole(5, 6), c=whole(4, 6))
    call.refused(bp.InvalidProblemError, f"{name} is an integer of 1329 bits", **{name: 10**400})
    given = {n: s.operand for n, s in call.slots.items()}
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(**given), device=device_of(backend))
    assert f"{name} is an integer" in str(plan.can_implement(**given, **{name: -(10**400)}).error)
    with pytest.raises(bp.InvalidProblemError, match=name):
        bp.MatmulDescriptor.of(**given, **{name: 10**400})


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_number_beyond_f32(backend: str, name: str) -> None:
    """Kernels hold it as f32, in which it would be infinite, and times a zero not a number. Of f64 it is one like any other."""
    call = Call(backend, a=whole(4, 5), b=whole(5, 6), c=whole(4, 6))
    for value in (1e39, -3.4028236e38):
        call.refused(bp.InvalidProblemError, f"{name}=", "is beyond f32", "scale an operand", **{name: value})
    given = {n: s.operand for n, s in call.slots.items()}
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(**given), device=device_of(backend))
    assert "beyond f32" in str(plan.can_implement(**given, **{name: 1e300}).error)
    assert np.isfinite(host(call(**{name: 2.0**100}))).all()
    assert not np.isfinite(host(call(**{name: np.inf}))).all()
    wide = Call(backend, a=whole(4, 5).astype(float), b=whole(5, 6).astype(float), c=whole(4, 6).astype(float))
    assert np.isfinite(host(wide(**{name: 1e39}))).all()


def test_a_plan_takes_the_operands_it_was_described_with(backend: str) -> None:
    a, b, bias, out = (Slot(x, backend) for x in (whole(4, 5), whole(5, 6), whole(6), whole(4, 6)))
    given = {"a": a.operand, "b": b.operand, "out": out.operand}
    plain = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a.operand, b.operand), device=device_of(backend))
    for call in (plain.run, plain.bind):
        with pytest.raises(bp.InvalidProblemError) as caught:
            call(**given, bias=bias.operand)
        readable(caught.value, "matmul", "no operand 'bias'", "it takes out, a, b, alpha, beta")
    biased = bp.MatmulDescriptor.of(a.operand, b.operand, bias=bias.operand)
    with pytest.raises(bp.InvalidProblemError, match="operand 'bias' is missing"):
        bp.MatmulPlan.select(biased, device=device_of(backend)).run(**given)
    assert np.array_equal(out.image(), out.initial)


@pytest.mark.parametrize(
    ("variant", "device"), [("wgmma", "sm_80"), ("wgmma", "sm_120"), ("cublas", "sm_90a"), ("nonsense", "sm_90a")]
)
def test_a_variant_that_cannot_be_had(variant: str, device: str) -> None:
    """Each candidate with its reason, the fix with it; a library that is missing with its extra."""
    if variant not in VARIANTS and variant != "nonsense":
        pytest.skip(f"there is no variant {variant}")
    desc = bp.MatmulDescriptor((64, 64), (64, 64), "bf16", "bf16")
    with pytest.raises(bp.UnsupportedError) as caught:
        bp.MatmulPlan.select(desc, bp.PlanPreference(variant=variant), device=device)
    text = str(caught.value)
    assert variant in text
    assert {"wgmma": "sm_90a", "cublas": "[full", "nonsense": "choose among"}[variant] in text


def _backwards(*shape: int) -> Array:
    """Its four batch axes in the opposite order in memory."""
    return np.zeros((*shape[3::-1], *shape[4:]), np.float32).transpose(3, 2, 1, 0, 4, 5)


ALTERNATING = np.zeros((2, 1, 2, 1, 4, 5), np.float32)


@pytest.mark.parametrize(
    ("operands", "fix"),
    [
        ({"a": _backwards(2, 3, 2, 3, 4, 5)}, ["contiguize a"]),
        ({"b": _backwards(2, 3, 2, 3, 5, 6), "c": _backwards(2, 3, 2, 3, 4, 6)}, ["contiguize b", "contiguize c"]),
        ({"out": _backwards(2, 3, 2, 3, 4, 6)}, ["pass out in C order"]),
        ({"a": ALTERNATING}, ["pass contiguize(cupy.broadcast_to(a, (2, 3, 2, 3, 4, 5))) for a"]),
        ({"a": np.broadcast_to(ALTERNATING, (2, 3, 2, 3, 4, 5))}, ["contiguize a"]),
        ({"c": np.zeros((3, 1, 3, 4, 1), np.float32)}, ["pass contiguize(cupy.broadcast_to(c, (2, 3, 2, 3, 4, 6))) for c"]),
        ({"residual": np.zeros((3, 1, 3, 1, 6), np.float32), "a": ALTERNATING, "b": _backwards(2, 3, 2, 3, 5, 6)},
         ["(a, (2, 3, 2, 3, 4, 5))", "(residual, (2, 3, 2, 3, 4, 6))", "contiguize b"]),
    ],
    ids=lambda v: "+".join(v) if isinstance(v, dict) else "",
)  # fmt: skip
def test_batch_axes_that_do_not_merge(operands: dict[str, Array], fix: list[str]) -> None:
    """The fix names the operands that bar it and what helps, and it does help."""
    given = {"a": np.zeros((2, 3, 2, 3, 4, 5), np.float32), "b": np.zeros((2, 3, 2, 3, 5, 6), np.float32), **operands}
    with pytest.raises(bp.UnsupportedError) as caught:
        bp.MatmulPlan.select(bp.MatmulDescriptor.of(**given), device="sm_90a")
    assert all(words in str(caught.value) for words in ("batch axes that do not merge", *fix)), str(caught.value)
    for name, x in given.items():
        if f"contiguize {name}" in fix or name == "out":
            given[name] = np.ascontiguousarray(x)
        elif any(f"broadcast_to({name}," in words or f"({name}, (" in words for words in fix):
            given[name] = np.ascontiguousarray(np.broadcast_to(x, (2, 3, 2, 3, 4, 5 if name == "a" else 6)))
    bp.MatmulPlan.select(bp.MatmulDescriptor.of(**given), device="sm_90a")


@pytest.mark.parametrize("op", NAMED)
def test_the_named_functions_force_their_variant(op: str) -> None:
    variant = NAMED[op].variant
    if variant not in VARIANTS:
        pytest.skip(f"there is no variant {variant}")
    desc = get_op(op).describe(a_shape=(64, 72), b_shape=(72, 40), a_element=NAMED[op].element,
                               b_element=NAMED[op].element)  # fmt: skip
    for device in ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"):
        sku = bp.MatmulPlan.select(desc, device=device).sku
        assert sku.variant == variant
        assert sku.op == op
    with pytest.raises(bp.UnsupportedError, match=variant):
        bp.MatmulPlan.select(desc, bp.PlanPreference(variant="simt"), device="sm_80")


@pytest.mark.parametrize("name", ["matmul_tc", "matmul_tc_async"])
def test_a_product_too_long_for_32_bits_is_refused_in_words(name: str) -> None:
    long = bp.MatmulDescriptor(
        (1, 1 << 31), (1 << 31, 8), "f16", "f16", out_element="f32", b_strides=(1, 1 << 31), name=name
    )
    with pytest.raises(bp.BaracudaError, match=r"2\*\*31"):
        bp.MatmulPlan.select(long, device="h200")


# ---- plans as values --------------------------------------------------------------------------------------------------


def test_alpha_and_beta_are_run_time_values(backend: str) -> None:
    a, b, c = whole(8, 16), whole(16, 8), whole(8, 8)
    call = Call(backend, a=a, b=b, c=c)
    plan_cache.clear()
    for alpha, beta in ((1.0, 1.0), (2.0, 0.5), (-1, 0), (np.float32(0.5), np.int64(3))):
        got = host(call(alpha=alpha, beta=beta))
        assert np.array_equal(got, float(alpha) * (a @ b) + float(beta) * c)
    assert plan_cache.info().plans == 1
    call(activation="relu")
    assert plan_cache.info().plans == 2


def test_a_bound_plan_takes_new_values(backend: str) -> None:
    a, b, c, out = (Slot(x, backend) for x in (whole(8, 16), whole(16, 8), whole(8, 8), whole(8, 8)))
    desc = bp.MatmulDescriptor.of(a.operand, b.operand, c=c.operand, alpha=2.0)
    plan = bp.MatmulPlan.select(desc, device=device_of(backend))
    bound = plan.bind(a=a.operand, b=b.operand, c=c.operand, out=out.operand)
    product, addend = a.host() @ b.host(), c.host()
    for update, wanted in (
        ({}, 2 * product + addend), ({"alpha": 3.0}, 3 * product + addend), ({"beta": -1.0}, 3 * product - addend),
    ):  # fmt: skip
        bound.update(**update)
        bound()
        assert np.array_equal(out.view(out.image()), wanted)
    plan.run(a=a.operand, b=b.operand, c=c.operand, out=out.operand)
    assert np.array_equal(out.view(out.image()), 2 * product + addend), "the plan's own value is kept"


def test_canonical_descriptor_leaves_out_run_time_values() -> None:
    one = bp.MatmulDescriptor((4, 5), (5, 6), "f32", "f32", alpha=3.0, beta=0.0)
    other = bp.MatmulDescriptor([4, 5], np.array([5, 6]), np.dtype("float32"), "float32", activation="identity")  # type: ignore[arg-type]
    assert one != other
    assert one.canonical() == other.canonical()
    assert hash(one.canonical()) == hash(other.canonical())


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_a_plan_goes_through_json_and_pickle(device: str) -> None:
    desc = bp.MatmulDescriptor(
        (3, 40, 64), (64, 48), "bf16", "bf16", "f32", "gelu_tanh", alpha=0.5, beta=0.25, c_shape=(40, 48), bias_shape=(48,),
        residual_shape=(3, 40, 48), c_element="f32", bias_element="bf16", residual_element="bf16", b_strides=(1, 64), a_align=8,
    )  # fmt: skip
    if device != "cpu" and not VARIANTS:
        pytest.skip("there is no kernel yet")
    plan = bp.MatmulPlan.select(desc, bp.PlanPreference(batch_invariant=True), device=device)
    for again in (bp.MatmulPlan.from_json(plan.to_json()), pickle.loads(pickle.dumps(plan))):
        assert again == plan
        assert again.desc == desc
        assert again.sku == plan.sku
        assert again.precision_guarantee == plan.precision_guarantee
    assert str(plan.sku.layout) == "rcr"
    assert str(plan.sku.epilogue) == "bias_gelu_tanh"


@pytest.mark.parametrize("activation", list(bp.Activation), ids=str)
@pytest.mark.parametrize("bias", [None, (6,)])
def test_the_sku_names_layout_and_epilogue(activation: Any, bias: Any) -> None:
    desc = bp.MatmulDescriptor(
        (4, 5),
        (5, 6),
        "f16",
        "f16",
        activation=activation,
        bias_shape=bias,
        bias_element=None if bias is None else "f16",
    )
    sku = bp.MatmulPlan.select(desc, device="cpu").sku
    plain = activation is bp.Activation.IDENTITY
    wanted = {(True, True): "bias", (True, False): f"bias_{activation}"}.get((bias is not None, plain), str(activation))
    assert str(sku.epilogue) == wanted
    assert str(sku.layout) == "rrr"
