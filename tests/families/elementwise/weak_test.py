"""Python numbers beside arrays: NumPy's types (NEP 50), every value by one plan and one kernel, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.cache import plan_cache
from baracuda_py.types import ElementKind

from ...call.simulated import simulated
from ...gauntlet import readable

COVERS = ("add", "less", "where", "clamp")
NUMBERS = tuple(k for k in ElementKind if not k.packed and (k.is_integer or (k.is_float and k.bits >= 16)))
UFUNCS = {"add": np.add, "divide": np.true_divide, "maximum": np.maximum, "copysign": np.copysign, "less": np.less}


def wanted(op: str, x: np.ndarray[Any, Any], number: Any, *, first: bool) -> Any:
    """NumPy's own answer; of bf16, which NumPy takes for no float, f32's with the number rounded to bf16 first."""
    ufunc = UFUNCS[op]
    if x.dtype == bp.BF16.dtype:
        other = np.float32(x.dtype.type(number))
        x32 = x.astype(np.float32)
        result = ufunc(other, x32) if first else ufunc(x32, other)
        return result if result.dtype == bool else result.astype(x.dtype)
    return ufunc(number, x) if first else ufunc(x, number)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("op", UFUNCS)
def test_numbers_are_weak(op: str, device: str) -> None:
    kinds = NUMBERS if device == "cpu" else (bp.F16, bp.BF16, bp.F32, bp.F64, bp.I8, bp.U64)
    for kind in kinds:
        x = np.arange(1, 12).astype(kind.dtype)
        for number in (3, True, 2.7, 0.1, float("inf")):
            for first in (False, True):
                expected = wanted(op, x, number, first=first)
                got = getattr(bp, op)(*((number, x) if first else (x, number)), device=device)
                assert got.dtype == expected.dtype, f"{kind} with {number!r}: {got.dtype}, not {expected.dtype}"
                np.testing.assert_array_equal(got, expected, f"{kind} with {number!r}, first: {first}")


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_numbers_beside_masks_and_alone(device: str) -> None:
    """An int among bools is an i64; of numbers alone, their own types decide."""
    mask = np.array([True, False, True])
    for number in (0, 1, 2, -1, True, 0.5):
        np.testing.assert_array_equal(bp.less(mask, number, device=device), mask < number)
        expected = np.where(mask, mask, number)
        got = bp.where(mask, mask, number, device=device)
        assert got.dtype == expected.dtype and np.array_equal(got, expected)
    for pair in ((1, 2), (True, False), (True, 2), (1, 2.5), (2.5, True), (-(2**63), 0)):
        expected = np.where(mask, *pair)
        got = bp.where(mask, *pair, device=device)
        assert got.dtype == expected.dtype and np.array_equal(got, expected), pair


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_an_int_is_a_float_where_the_result_is(device: str) -> None:
    x = np.array([-128, 1, 127], np.int8)
    for op, ufunc in (("divide", np.true_divide), ("copysign", np.copysign)):
        for number in (300, -1000):
            got = getattr(bp, op)(x, number, device=device)
            expected = ufunc(x, got.dtype.type(number))
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_numbers_are_rounded_once_to_the_kind_of_the_array(device: str) -> None:
    rng = np.random.default_rng(0)
    for kind in (bp.F16, bp.BF16):
        zero = np.zeros(1, kind.dtype)
        for number in [
            *rng.standard_normal(12),
            1 + 2.0**-11,
            1 + 2.0**-11 + 2.0**-40,
            1 + 2.0**-8 + 2.0**-50,
            65519.9,
            1e-7,
        ]:
            nearest = bp.cast(np.array([number]), kind, device="cpu")
            assert bp.add(zero, float(number), device=device) == nearest


def test_value_of_a_number_makes_no_plan_and_no_kernel() -> None:
    x = np.ones(5, np.float32)
    bp.plan_cache.clear()
    for number in range(20):
        assert bp.add(x, number + 0.5, device="cpu")[0] == number + 1.5
        assert bp.clamp(x, number / 10, device="cpu")[0] == max(1, np.float32(number / 10))
    assert bp.plan_cache.info().plans == 2
    one, other = (bp.BinaryPlan.select(bp.BinaryDescriptor.of("add", x, n), device="h200") for n in (1.0, 2.0))
    assert one.selection.steps == other.selection.steps and one.desc.canonical() == other.desc.canonical()


def test_call_with_a_number_is_kept_with_the_value_as_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the way to a device: the second call of a type is a hit, whatever the number."""
    for gpus in simulated(monkeypatch, "h200"):
        x, out = (gpus.array(np.ones(64, np.float32)) for _ in range(2))
        small = gpus.array(np.ones(64, np.int8))
        plan_cache.clear()
        for number in (1.5, 2.5, -0.0):
            assert bp.add(x, number, out=out) is out
        bp.add(2.5, x, out=out)
        assert len(plan_cache.calls) == 2 and plan_cache.info().misses == 2
        bp.add(small, 100)
        with pytest.raises(bp.InvalidProblemError, match=r"300 is outside i8, which holds -128 to 127"):
            bp.add(small, 300)
        bp.less(small, 100), bp.less(small, 300), bp.less(small, 301)  # NumPy compares what is out of range
        with pytest.raises(bp.InvalidProblemError, match="outside"):
            bp.less(small, 10**30)
        with pytest.raises(bp.InvalidProblemError, match="beyond any float"):
            bp.add(x, 10**400)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_comparisons_are_exact(device: str) -> None:
    """Between u64 and signed integers, and with numbers that the array's type does not hold."""
    big = np.array([0, 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    signed = np.array([-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1], np.int64)
    for op in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
        ufunc = getattr(np, op)
        for a, b in ((big[:, None], signed[None, :]), (signed[:, None], big[None, :])):
            np.testing.assert_array_equal(getattr(bp, op)(a, b, device=device), ufunc(a, b))
        for x, number in (
            (np.arange(4, dtype=np.uint8), 300),
            (np.arange(4, dtype=np.uint8), -1),
            (big, -1),
            (signed, 2**63),
        ):
            np.testing.assert_array_equal(getattr(bp, op)(x, number, device=device), ufunc(x, number), f"{op} {number}")
            np.testing.assert_array_equal(getattr(bp, op)(number, x, device=device), ufunc(number, x), f"{number} {op}")


def test_what_is_refused() -> None:
    x = np.ones(4, np.int8)
    for call, words in (
        (
            lambda: bp.add(1, 2.5, device="cpu"),
            ("add", "x1 and x2 are numbers", "wrap it with numpy.asarray(1, dtype)"),
        ),
        (lambda: bp.add(x, 128, device="cpu"), ("add: x2=128 is outside i8", "wider type")),
        (lambda: bp.add(-(10**100), x, device="cpu"), ("outside i8",)),
        (lambda: bp.where(True, x, x, device="cpu"), ("where", "condition", "array of bool")),
        (lambda: bp.where(x, x, x, device="cpu"), ("where", "condition", "got i8", "not_equal")),
        (lambda: bp.clamp(2, 1, 3, device="cpu"), ("clamp", "array")),
        (lambda: bp.clamp(x, 200, device="cpu"), ("clamp: x2=200 is outside i8",)),
        (lambda: bp.add(x, 1j, device="cpu"), ("add: x2",)),
        (lambda: bp.add(x, None, device="cpu"), ("add: x2",)),
        (lambda: bp.exp(1.5, device="cpu"), ("exp",)),
        (lambda: bp.add(np.ones(2, np.complex64), 2, device="cpu"), ("add: complex64 is not supported",)),
        (lambda: bp.where(x > 0, np.ones(4, np.complex64), 2, device="cpu"), ("where: complex64", "pass arrays")),
    ):
        with pytest.raises(bp.BaracudaError) as caught:
            call()
        readable(caught.value, *words)


def test_number_of_a_plan_is_given_by_name() -> None:
    x = np.arange(4, dtype=np.float32)
    plan = bp.BinaryPlan.select(bp.BinaryDescriptor("add", (4,), None, "f32", "f32"), device="cpu")  # type: ignore[arg-type]
    np.testing.assert_array_equal(plan.run(x1=x, x2=2.5), x + np.float32(2.5))
    with pytest.raises(bp.InvalidProblemError, match="x2 is missing"):
        plan.run(x1=x)
    with pytest.raises(bp.OperandTypeError, match="x2 must be a number"):
        plan.run(x1=x, x2=x)
    assert not plan.can_implement(x1=x, x2="2")
    bound = plan.bind(x1=x, x2=1.0)
    np.testing.assert_array_equal(bound(), x + 1)
    assert plan.desc.to_dict().keys() == bp.BinaryDescriptor("add", (4,), (4,), "f32", "f32").to_dict().keys()  # type: ignore[arg-type]
    with_number = bp.BinaryPlan.select(bp.BinaryDescriptor.of("add", x, float("nan")), device="cpu")
    assert bp.Plan.from_json(with_number.to_json()) == with_number


# ---- where, clamp ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_where_moves_bits(device: str) -> None:
    """NaN payloads, signalling ones too, and kinds that no kernel computes with."""
    codes = np.arange(1 << 16, dtype=np.uint16)
    condition = codes % 3 == 0
    for kind in (bp.F16, bp.BF16):
        got = bp.where(condition, codes.view(kind.dtype), codes[::-1].copy().view(kind.dtype), device=device)
        assert np.array_equal(got.view(np.uint16), np.where(condition, codes, codes[::-1]))
    short = codes[:256].astype(np.uint8)
    for kind in (bp.FP8_E4M3, bp.FP8_E5M2, bp.I8):
        got = bp.where(condition[:256], short.view(kind.dtype), short[::-1].copy().view(kind.dtype), device=device)
        assert np.array_equal(got.view(np.uint8), np.where(condition[:256], short, short[::-1]))


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_clamp_matches_torch(device: str) -> None:
    torch = pytest.importorskip("torch")
    nan = float("nan")
    x = np.array([-3, -0.5, -0.0, 0, 0.5, 3, np.inf, -np.inf, nan], np.float32)
    for low, high in ((-1, 1), (0.25, 0.125), (None, 1.0), (-1, None), (nan, 1.0), (0, nan), (-np.inf, np.inf)):
        expected = torch.clamp(torch.from_numpy(x), low, high).numpy()
        np.testing.assert_array_equal(bp.clamp(x, low, high, device=device), expected, f"{low} {high}")
        np.testing.assert_array_equal(bp.clamp(x, min=low, max=high, device=device), expected)
    whole = np.arange(-5, 6, dtype=np.int32)
    np.testing.assert_array_equal(bp.clamp(whole, -2, 3, device=device), np.clip(whole, -2, 3))
    assert bp.clamp(whole, 0.5, device=device).dtype == np.float64  # as NumPy has it
    np.testing.assert_array_equal(bp.clamp(x, x, device=device), x)


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_clamp_without_a_bound_keeps_every_value(device: str) -> None:
    """What stands for it is the end of the wider type, not of x's own."""
    x = np.array([-3, 100], np.int8)
    assert bp.clamp(x, 300.0, device=device).tolist() == [300, 300]
    assert bp.clamp(x, max=-1e300, device=device).tolist() == [-1e300, -1e300]
    wide = np.array([1000, -1000], np.int32)
    assert bp.clamp(x, wide, device=device).tolist() == [1000, 100]
    assert bp.clamp(x, None, wide, device=device).tolist() == [-3, -1000]
    assert bp.clamp(x.view(np.uint8), wide, device=device).tolist() == [1000, 100]


# ---- cast ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cpu", "ptx"])
@pytest.mark.parametrize("to", [bp.FP8_E4M3, bp.FP8_E5M2, bp.F16, bp.BF16, bp.F32], ids=str)
def test_casts_of_every_short_float_match_ml_dtypes(to: ElementKind, device: str) -> None:
    for kind in (bp.F16, bp.BF16, bp.FP8_E4M3, bp.FP8_E5M2):
        codes = np.arange(1 << kind.bits, dtype=f"u{kind.bits // 8}").view(kind.dtype)
        got = bp.cast(codes, to, device=device)
        with np.errstate(all="ignore"):
            expected = codes.astype(np.float32).astype(to.dtype)
            same = got.astype(np.float32) == expected.astype(np.float32)
            nan = np.isnan(got.astype(np.float32)) & np.isnan(expected.astype(np.float32))
            signs = np.signbit(got.astype(np.float32)) == np.signbit(expected.astype(np.float32))
        assert (same & signs | nan).all(), f"{kind} to {to}"


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_casts_say_what_they_do_out_of_range(device: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 300.7, -300.7, 2.0**31, -1.5, 127.9])
    assert bp.cast(x, "i8", device=device).tolist() == [0, 127, -128, 127, -128, 127, -1, 127]
    assert bp.cast(x, "u8", device=device).tolist() == [0, 255, 0, 255, 0, 255, 0, 127]
    assert bp.cast(x[:3], "i64", device=device).tolist() == [0, 2**63 - 1, -(2**63)]
    assert bp.cast(x, "bool", device=device).all()
    assert bp.cast(np.array([300, -1]), np.uint8, device=device).tolist() == [44, 255]
    assert np.isnan(bp.cast(np.array([464.1, -1e9, np.inf]), "fp8_e4m3", device=device).astype(np.float32)).all()
    assert bp.cast(np.array([464.0, 448.0]), "fp8_e4m3", device=device).astype(np.float32).tolist() == [448, 448]
    with pytest.raises(bp.OperandTypeError, match="complex64 is not supported"):
        bp.cast(np.ones(2, np.complex64), "f32", device=device)
    with pytest.raises(bp.OperandTypeError, match="the result is f16 and out holds f32"):
        bp.cast(x, "f16", out=np.empty(8, np.float32), device=device)


@pytest.mark.parametrize("first", [np.bool_, np.int8, np.uint8, np.int32, np.int64, np.uint64])
def test_isclose_of_integers_is_that_of_numpy(first: Any) -> None:
    """They are compared as f64, the two kinds of 64 bits that have no common one too."""
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 2**40, 77) >> rng.integers(0, 40, 77)).astype(first)
    moved = x.astype(np.float64) + rng.integers(-1, 2, 77) * (rng.random(77) < 0.5)
    for second in (np.bool_, np.uint8, np.int64, np.float32):
        with np.errstate(invalid="ignore"):
            y = moved.astype(second)
        for rtol, atol in ((1e-3, 0.5), (0.0, 1.0)):
            with np.errstate(invalid="ignore"):
                wanted = np.isclose(x, y, rtol=rtol, atol=atol)
            assert np.array_equal(bp.isclose(x, y, rtol=rtol, atol=atol, device="ptx"), wanted), (second, rtol)
    for number in (3, 3.4, 2**70, True):
        assert np.array_equal(bp.isclose(x, number, atol=0.5, device="ptx"), np.isclose(x, number, atol=0.5)), number


@pytest.mark.parametrize("name", ["multiply", "divide", "pow", "hypot", "atan2", "subtract"])
def test_gradient_beside_a_number_is_that_of_the_array(name: str) -> None:
    """Whether the number is the first or the second: a gradient op that has one result returns that of the array."""
    torch = pytest.importorskip("torch")
    function = getattr(bp, name)
    with bp.device("cpu"):
        for call in (lambda x: function(2.0, x), lambda x: function(x, 2.0)):
            x = torch.tensor([1.0, 2.5, 3.0], dtype=torch.float64, requires_grad=True)
            assert torch.autograd.gradcheck(call, (x,))
            made = torch.compile(call, backend="aot_eager", fullgraph=True)(x)
            (compiled,) = torch.autograd.grad(made.sum(), x)
            (eager,) = torch.autograd.grad(call(x).sum(), x)
            torch.testing.assert_close(compiled, eager)


def test_gradient_beside_a_number_in_jax() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(np.array([1.0, 2.5, 3.0], np.float32))
    with bp.device("cpu"):
        for call, wanted in (
            (lambda x: bp.multiply(2.0, x), [2.0, 2.0, 2.0]),
            (lambda x: bp.multiply(x, 3.0), [3.0, 3.0, 3.0]),
            (lambda x: bp.where(x > 2, 1.0, x), [1.0, 0.0, 0.0]),
        ):
            assert np.allclose(np.asarray(jax.grad(lambda x: call(x).sum())(x)), wanted)  # noqa: B023
