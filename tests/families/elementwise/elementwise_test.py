"""Elementwise functions: NumPy's type and broadcast rules, out= and in place, and dense accuracy against mpmath."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.ops.elementwise._row import ROWS
from baracuda_py.plan import all_ops, get_op
from baracuda_py.samples.sample import adversarial
from baracuda_py.types import ElementKind, Exact, MathPrecision, PrecisionGuarantee

from ...arena import Slot, host
from ...gauntlet import readable

OPS = all_ops()
UNARY = [n for n, op in OPS.items() if op.plan is bp.UnaryPlan and ROWS[n].result != "given"]
BINARY = [n for n, op in OPS.items() if op.plan is bp.BinaryPlan]
ARITHMETIC = [n for n in (*UNARY, *BINARY) if ROWS[n].result != "bool" and bp.F32 in ROWS[n].domain]  # of floats
COMPARISONS = [n for n in BINARY if ROWS[n].result == "bool"]
COVERS = ()
FLOATS = (bp.F16, bp.BF16, bp.F32, bp.F64)
INTEGERS = tuple(k for k in ElementKind if k.is_integer and not k.packed)
NUMPY = {"neg": np.negative, "abs": np.absolute, "pow": np.power}


def device_of(backend: str) -> Any:
    return "cpu" if backend == "cpu" else None


def numpy_of(op: str) -> Any:
    return NUMPY.get(op) or getattr(np, op, None)


# ---- promises --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["neg", "add"])
def test_integers_are_exact_and_the_same_everywhere(op: str) -> None:
    """Nothing more could be promised."""
    for kind in INTEGERS:
        x = np.ones(64, kind.dtype)
        desc = get_op(op).of(**dict.fromkeys(("x",) if op == "neg" else ("x1", "x2"), x))
        most = PrecisionGuarantee(MathPrecision.EXACT, kind, True, True, True, False, Exact())
        assert get_op(op).plan.select(desc, device="h200").precision_guarantee == most


@pytest.mark.parametrize("op", ARITHMETIC)
def test_16_bit_guarantee_is_that_of_f32_and_a_rounding(op: str) -> None:
    """A result is rounded to 16 bits after it is as far off as one of f32 may be."""
    bounds: dict[ElementKind, Any] = {}
    for kind in (bp.F16, bp.BF16, bp.F32):
        x = np.ones(64, kind.dtype)
        desc = get_op(op).of(**dict.fromkeys(("x",) if op in UNARY else ("x1", "x2"), x))
        bounds[kind] = get_op(op).plan.select(desc, device="h200").precision_guarantee.bound
    for kind in (bp.F16, bp.BF16):
        off = max(bounds[bp.F32].n - 0.5, 0) * 2.0 ** (kind.digits - 24)
        assert bounds[kind].n >= 0.5 + off


# ---- types -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", BINARY)
def test_result_kinds_of_two_arrays_match_numpy(op: str) -> None:
    unknown = np.true_divide if ROWS[op].result == "float" else np.add  # which a function has that NumPy lacks
    function, ufunc, domain = getattr(bp, op), numpy_of(op) or unknown, ROWS[op].domain
    for a in domain:
        for b in domain:
            x1, x2 = np.ones(3, a.dtype), np.ones(3, b.dtype)
            if bp.F32 not in domain and np.result_type(a.dtype, b.dtype).kind == "f":
                with pytest.raises(bp.OperandTypeError, match="no common integer type"):
                    function(x1, x2, device="cpu")
                continue
            got = function(x1, x2, device="cpu")
            assert got.dtype == ufunc(x1, x2).dtype, f"{a} and {b} give {got.dtype}"


@pytest.mark.parametrize("op", UNARY)
def test_result_kinds_of_one_array_match_numpy(op: str) -> None:
    row = ROWS[op]
    for kind in row.domain:
        x = np.ones(3, kind.dtype)
        wanted = {"same": kind.dtype, "bool": np.dtype(bool), "float": np.exp(x).dtype}[row.result]
        assert getattr(bp, op)(x, device="cpu").dtype == wanted


REFUSED = [
    (kind, op)
    for kind in (bp.BOOL, bp.FP8_E4M3, bp.FP8_E5M2, bp.COMPLEX64, bp.COMPLEX128)
    for op in (*UNARY, *BINARY)
    if kind not in ROWS[op].domain and not (op == "abs" and kind.is_complex)
]


@pytest.mark.parametrize(("kind", "op"), REFUSED, ids=[f"{kind}-{op}" for kind, op in REFUSED])
def test_kinds_that_are_not_taken_are_refused(backend: str, op: str, kind: ElementKind) -> None:
    x = Slot(np.ones(4, kind.dtype), backend)
    count = len(OPS[op].plan.descriptor.signature_operands) - 1
    with pytest.raises(bp.OperandTypeError) as caught:
        getattr(bp, op)(*[x.operand] * count, device=device_of(backend))
    parts = "bp.real" if any(taken.is_float for taken in ROWS[op].domain) else "an array of integers"
    readable(caught.value, op, str(kind), parts if kind.is_complex else "cast it to")


def test_an_output_of_another_type_is_refused(backend: str) -> None:
    x, out = Slot(np.ones(4, np.int32), backend), Slot(np.ones(4, np.float32), backend)
    with pytest.raises(bp.OperandTypeError, match="the result is f64 and out holds f32: pass an out of f64"):
        bp.exp(x.operand, out=out.operand, device=device_of(backend))
    assert np.array_equal(out.image(), out.initial)


# ---- shapes ----------------------------------------------------------------------------------------------------------


@st.composite
def pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Shapes that broadcast, of any layout: permuted, stepped, reversed, repeated."""
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=4)))

    def laid(seed: int) -> np.ndarray:
        mine = tuple(1 if draw(st.booleans()) and n else n for n in shape)[draw(st.integers(0, len(shape))) :]
        order = draw(st.permutations(range(len(mine))))
        steps = [draw(st.sampled_from([1, 1, 2, -1])) for _ in mine]
        whole = np.random.default_rng(seed).standard_normal([mine[a] * abs(steps[a]) for a in order]).astype(np.float32)
        return np.asarray(whole).transpose(np.argsort(order))[tuple(slice(None, None, t) for t in steps)]

    return laid(0), laid(1)


def check_pair(backend: str, x1: np.ndarray, x2: np.ndarray) -> None:
    a, b = Slot(x1, backend), Slot(x2, backend)
    wanted = np.add(x1, x2)
    got = bp.add(a.operand, b.operand, device=device_of(backend))
    assert got.shape == wanted.shape
    assert np.array_equal(host(got), wanted)
    out = Slot(np.empty(wanted.shape, np.float32), backend, poison=True)
    assert bp.add(a.operand, b.operand, out=out.operand, device=device_of(backend)) is out.operand
    assert np.array_equal(out.image(), out.expected(wanted))
    assert np.array_equal(a.image(), a.initial)
    assert np.array_equal(b.image(), b.initial)


@given(pairs())
@settings(max_examples=150, deadline=None)
def test_random_broadcasts_match_numpy(case: tuple[np.ndarray, np.ndarray]) -> None:
    check_pair("cpu", *case)


@pytest.mark.gpu
@given(pairs())
@settings(max_examples=60, deadline=None)
def test_random_broadcasts_match_numpy_on_the_device(case: tuple[np.ndarray, np.ndarray]) -> None:
    check_pair("cuda", *case)


def test_shapes_that_do_not_broadcast_are_refused(backend: str) -> None:
    x1, x2 = Slot(np.ones((3, 4), np.float32), backend), Slot(np.ones((3, 5), np.float32), backend)
    out = Slot(np.ones((3, 4), np.float32), backend)
    with pytest.raises(
        bp.InvalidProblemError, match=r"add: x1 of shape \(3, 4\) and x2 of shape \(3, 5\) do not broadcast"
    ):
        bp.add(x1.operand, x2.operand, out=out.operand, device=device_of(backend))
    with pytest.raises(bp.InvalidProblemError, match="out must have shape"):
        bp.exp(x2.operand, out=out.operand, device=device_of(backend))
    assert np.array_equal(out.image(), out.initial)


def test_a_fresh_output_keeps_the_order_of_the_first_full_input(backend: str) -> None:
    x = Slot(np.asfortranarray(np.ones((4, 6), np.float32)), backend)
    row = Slot(np.ones(6, np.float32), backend)
    assert bp.exp(x.operand, device=device_of(backend)).flags.f_contiguous
    assert bp.add(row.operand, x.operand, device=device_of(backend)).flags.f_contiguous
    permuted = Slot(np.ones((2, 3, 4), np.float32).transpose(1, 2, 0), backend)
    assert bp.neg(permuted.operand, device=device_of(backend)).strides == permuted.operand.strides
    backwards = Slot(np.ones((3, 4), np.float32)[::-1], backend)
    assert bp.neg(backwards.operand, device=device_of(backend)).strides == (16, 4)


# ---- in place, overlap -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["add", "exp"])
def test_in_place(backend: str, op: str) -> None:
    data = np.random.default_rng(0).standard_normal((7, 33)).astype(np.float32)
    for view in (data, data.T, np.repeat(data, 2, axis=1)[:, ::2]):
        x = Slot(view, backend)
        others = [Slot(np.ascontiguousarray(view), backend).operand] if op == "add" else []
        wanted = view + view if op == "add" else np.exp(view.astype(np.float64))
        assert getattr(bp, op)(x.operand, *others, out=x.operand, device=device_of(backend)) is x.operand
        np.testing.assert_allclose(x.view(x.image()), wanted, rtol=3e-7)
        mask = ~x.touched()
        assert np.array_equal(x.image()[mask], x.initial[mask])


def test_squares_and_sums_of_one_array_with_itself(backend: str) -> None:
    x = Slot(np.arange(10, dtype=np.float32), backend)
    bp.add(x.operand, x.operand, out=x.operand, device=device_of(backend))
    assert np.array_equal(x.view(x.image()), np.arange(10) * 2)


def test_an_output_that_partly_overlaps_is_refused(backend: str) -> None:
    x = Slot(np.arange(12, dtype=np.float32), backend)
    y = x.operand
    with pytest.raises(bp.OverlapError, match="pass a copy of x"):
        bp.exp(y[:-1], out=y[1:], device=device_of(backend))
    with pytest.raises(bp.OverlapError):
        bp.exp(y[::-1], out=y, device=device_of(backend))
    with pytest.raises(bp.OverlapError):
        bp.add(y[:1], y, out=y, device=device_of(backend))  # the first element is read after it is written
    assert np.array_equal(x.image(), x.initial)
    bp.exp(y[0:6], out=y[6:], device=device_of(backend))
    bp.exp(y[0::2], out=y[1::2], device=device_of(backend))


# ---- values ----------------------------------------------------------------------------------------------------------

MPMATH = {n: compile(ROWS[n].check, n, "eval") for n in UNARY if "mpmath" in ROWS[n].check}


def exactly(op: str, value: float) -> Any:
    """A row's check of one number, with its params' defaults; None if it is not a real number."""
    try:
        found = eval(MPMATH[op], {"mpmath": mpmath, "x": mpmath.mpf(value), **ROWS[op].params})
    except (ArithmeticError, ValueError):
        return None
    return None if isinstance(found, mpmath.mpc) else found


@pytest.mark.parametrize("op", MPMATH)
@pytest.mark.parametrize("kind", [bp.F32, bp.F64], ids=str)
def test_values_against_mpmath(backend: str, op: str, kind: ElementKind) -> None:
    """Forty digits, on points dense around zero and in both tails: within what the plan guarantees."""
    rng = np.random.default_rng(1)
    x = np.concatenate(
        [
            rng.uniform(-20, 20, 120),
            rng.uniform(-1, 1, 60),
            10.0 ** rng.uniform(-12, 1.5, 60),
            -(10.0 ** rng.uniform(-12, 1.5, 60)),
        ]
    )
    x = x.astype(kind.dtype)
    slot = Slot(x, backend)
    plan = bp.UnaryPlan.select(get_op(op).of(x=slot.operand), device=device_of(backend))
    got = host(plan.run(x=slot.operand)).astype(np.float64)
    bound: Any = plan.precision_guarantee.bound
    digits = kind.digits
    with mpmath.workdps(40):
        for value, result in zip(x.tolist(), got.tolist()):
            exact = exactly(op, value)
            if exact is None:
                assert np.isnan(result), f"{op}({value!r}) is {result}, and not a real number"
                continue
            exponent = max(
                int(mpmath.floor(mpmath.log(abs(exact), 2))) + 1 if exact else -5000, -125 if digits == 24 else -1021
            )
            unit = mpmath.ldexp(1, exponent - digits)
            off = abs(mpmath.mpf(result) - exact) / unit
            assert off <= bound.n + bound.absolute / unit + mpmath.mpf(10) ** -9, (
                f"{op}({value!r}) is {float(off):.3g} ulp off, {bound} promised"
            )


@pytest.mark.parametrize("op", [op for op in UNARY if bp.F32 in ROWS[op].domain])
def test_special_values_match_numpy(backend: str, op: str) -> None:
    """Zeros with their signs, infinities, NaN; the reference for names that NumPy lacks is a limit, written out."""
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        wanted = np.array(ROWS[op].limits, np.float32) if ROWS[op].limits else numpy_of(op)(x)
    got = host(getattr(bp, op)(Slot(x, backend).operand, device=device_of(backend)))
    np.testing.assert_array_equal(got, wanted)
    signed = ~np.isnan(wanted) & (wanted == 0) & (op not in ("relu", "relu6"))
    assert np.array_equal(np.signbit(got[signed]), np.signbit(wanted[signed]))


PAIRS = ["add", "subtract", "multiply", "maximum", "minimum", "divide", *COMPARISONS]
TAKEN = [
    pytest.param(op, kind, id=f"{kind}-{op}")
    for kind in (bp.F32, bp.F64, bp.I32, bp.U8, bp.I8, bp.U64, bp.I64)
    for op in PAIRS
    if kind in ROWS[op].domain
]


@pytest.mark.parametrize(("op", "kind"), TAKEN)
def test_pairs_of_special_values_match_numpy_bits(backend: str, op: str, kind: ElementKind) -> None:
    corners = adversarial(kind)
    a, b = Slot(corners[:, None], backend), Slot(corners[None, :], backend)
    with np.errstate(all="ignore"):
        wanted = numpy_of(op)(corners[:, None], corners[None, :])
    got = host(getattr(bp, op)(a.operand, b.operand, device=device_of(backend)))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", [bp.BF16, bp.F16], ids=str)
def test_subnormals_are_not_flushed(backend: str, kind: ElementKind) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16).view(kind.dtype)
    got = host(
        bp.multiply(
            Slot(codes, backend).operand, Slot(np.ones(1, kind.dtype), backend).operand, device=device_of(backend)
        )
    )
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(codes.astype(np.float32))
    assert np.array_equal(got.view(np.uint16)[finite], codes.view(np.uint16)[finite])


@given(st.floats(width=32), st.floats(width=32))
@settings(max_examples=200, deadline=None)
def test_maximum_and_minimum_carry_nan(a: float, b: float) -> None:
    x1, x2 = np.float32([a]), np.float32([b])
    np.testing.assert_array_equal(bp.maximum(x1, x2, device="cpu"), np.maximum(x1, x2))
    np.testing.assert_array_equal(bp.minimum(x1, x2, device="cpu"), np.minimum(x1, x2))


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8])
def test_negative_powers_of_ones_and_their_neighbours(kind: type) -> None:
    """-1 has the sign that the exponent's parity gives it, 1 stays, and all else truncates to 0."""
    base, exponent = np.meshgrid(np.arange(-3, 4), np.arange(-5, 6))
    if kind is np.uint8:
        base, exponent = np.abs(base), np.abs(exponent)
    got = bp.pow(base.astype(kind), exponent.astype(kind), device="cpu")
    for x, y, found in zip(base.ravel(), exponent.ravel(), got.ravel()):
        if y >= 0:
            wanted = int(np.array(int(x) ** int(y)).astype(kind))
        else:
            wanted = {1: 1, -1: -1 if y % 2 else 1}.get(int(x), 0)
        assert found == wanted, f"{x} to the {y}"


@given(st.integers(-128, 127), st.integers(-128, 127))
@settings(max_examples=200, deadline=None)
def test_integer_powers_wrap_and_truncate(a: int, b: int) -> None:
    got = int(bp.pow(np.array([a], np.int8), np.array([b], np.int8), device="cpu")[0])
    if b >= 0:
        wanted = (a**b + 128) % 256 - 128
    else:
        wanted = 0 if abs(a) != 1 else a**-b
    assert got == wanted


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_floor_divide_long_quotients_are_within_bound(kind: type) -> None:
    """Quotients of as many digits as the type has, whose halves are rounded down."""
    rng, digits = np.random.default_rng(0), np.finfo(kind).nmant
    x2 = (rng.uniform(1, 2, 4096) * rng.choice([-1, 1], 4096)).astype(kind)
    x1 = (x2 * rng.uniform(2.0 ** (digits - 2), 2.0 ** (digits + 2), 4096) * rng.choice([-1, 1], 4096)).astype(kind)
    got = bp.floor_divide(x1, x2, device="ptx")
    wanted = [math.floor(Fraction(a) / Fraction(b)) for a, b in zip(x1.tolist(), x2.tolist())]
    errors = [abs(Fraction(y) - z) / Fraction(float(np.spacing(kind(abs(z))))) for y, z in zip(got.tolist(), wanted)]
    assert 1.5 < max(errors) <= ROWS["floor_divide"].ulps.f32 == ROWS["floor_divide"].ulps.f64


@pytest.mark.parametrize("digits", [22, 24, 30, 40, 59])
def test_pow_of_large_exponents_keeps_its_sign(digits: int) -> None:
    """The product of exponent and logarithm has lost its fraction, and the correction of its rounding is no small number."""
    rng = np.random.default_rng(digits)
    x1 = (2.0 ** rng.uniform(-125, 127, 2048)).astype(np.float32)
    x2 = (2.0 ** rng.uniform(digits - 1, digits, 2048) // 2 * 2).astype(np.float32)
    for base in (x1, -x1):
        for power in (x2, -x2):
            got = bp.pow(base, power, device="ptx")
            wanted = np.where((x1 > 1) == (power > 0), np.inf, 0)
            assert (np.isclose(x1, 1, rtol=1e-3) | (got == wanted)).all()
