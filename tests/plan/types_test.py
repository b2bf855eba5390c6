"""The vocabulary: kinds, devices, guarantees and their arithmetic, errors."""

from __future__ import annotations

import dataclasses
import math
import pickle
import re
from fractions import Fraction
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import baracuda_py as bp
from baracuda_py.numerics.rounding import round_to
from baracuda_py.types import (
    ArchSku,
    BackendKind,
    Componentwise,
    DeviceSpec,
    ElementKind,
    Exact,
    MathPrecision,
    PlanPreference,
    PrecisionGuarantee,
    Term,
    Ulp,
    ulp_of,
)
from baracuda_py.types.units import bytes_text, rate_text, time_text

KINDS = list(ElementKind)
FLOATS = [k for k in KINDS if k.is_float]


def guarantee(bound: Any, kind: ElementKind = ElementKind.F32) -> PrecisionGuarantee:
    return PrecisionGuarantee(MathPrecision.F32, kind, True, True, True, False, bound)


# ---- element kinds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_kind_is_found_by_every_name(kind: ElementKind) -> None:
    assert ElementKind.of(kind) is kind
    assert ElementKind.of(kind.value) is ElementKind.of(kind.value.upper()) is kind
    assert getattr(bp, kind.name) is kind
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert repr(kind) == f"bp.{kind.name}"
    if not kind.packed:
        assert ElementKind.of(kind.dtype) is kind
        assert ElementKind.of(kind.dtype.name) is kind
        assert kind.dtype.itemsize * 8 == kind.bits
    else:
        assert kind.dtype == np.uint8


def test_names_of_frameworks() -> None:
    assert (
        ElementKind.of("torch.bfloat16") is ElementKind.of("bfloat16") is ElementKind.of(ml_dtypes.bfloat16) is bp.BF16
    )
    assert ElementKind.of(np.float32) is ElementKind.of(float and "float32") is bp.F32
    assert ElementKind.of("float8_e4m3fn") is bp.FP8_E4M3


@pytest.mark.parametrize(
    "like", ["float31", object(), None, [1], np.dtype("U3"), np.dtype("datetime64[s]"), np.longdouble]
)
def test_what_is_not_a_kind_is_refused_in_one_sentence(like: Any) -> None:
    if like is None:
        like = "none"
    with pytest.raises(bp.OperandTypeError, match="is not an element kind: give"):
        ElementKind.of(like)


@pytest.mark.parametrize("name", ["int4", "uint4"])
def test_one_nibble_a_byte_is_not_packed(name: str) -> None:
    with pytest.raises(bp.OperandTypeError, match=r"one element a byte.*GpuBuffer\.view"):
        ElementKind.of(getattr(ml_dtypes, name))


def test_bytes_of_a_row() -> None:
    assert [bp.S4.nbytes(n) for n in (0, 1, 2, 3)] == [0, 1, 1, 2]
    assert [bp.BIN.nbytes(n) for n in (1, 8, 9)] == [1, 1, 2]
    assert bp.COMPLEX128.nbytes(3) == 48


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_the_unit_roundoff_is_half_of_epsilon(kind: ElementKind) -> None:
    assert kind.unit_roundoff == float(ml_dtypes.finfo(kind.dtype).eps) / 2


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_an_ulp_is_the_gap_between_neighbours(kind: ElementKind) -> None:
    """Against every code of the narrow kinds, and a spread of the wide ones."""
    if kind.bits <= 16:
        codes = np.arange(1 << (kind.bits - 1), dtype=f"u{kind.bits // 8}").view(kind.dtype)
        with np.errstate(invalid="ignore"):  # signalling NaNs among them
            codes = codes.astype(np.float64)
    else:
        codes = np.array([0.0, 1e-45, 1e-40, 1e-38, 0.1, 1.0, 1.5, 2.0, 1e30]).astype(kind.dtype).astype(np.float64)
    codes = codes[np.isfinite(codes)]
    if kind.bits <= 16:
        assert np.array_equal(ulp_of(codes[:-1], kind), np.diff(codes))
    else:
        assert np.array_equal(ulp_of(codes, kind), np.spacing(codes.astype(kind.dtype)).astype(np.float64))


# Ties between an even and an odd neighbour, below and above: no random double is one.
@example(1 + 2.0**-8, bp.BF16)
@example(1 + 3 * 2.0**-8, bp.BF16)
@example(1 + 2.0**-11, bp.F16)
@example(1 + 3 * 2.0**-11, bp.F16)
@example(1 + 2.0**-24, bp.F32)
@example(1 + 3 * 2.0**-24, bp.F32)
@example(2.0**-25, bp.F16)  # half the least subnormal number
@given(st.floats(allow_nan=False, allow_infinity=False, width=64), st.sampled_from([bp.BF16, bp.F16, bp.F32]))
def test_rounding_is_to_nearest_even_in_one_step(x: float, kind: ElementKind) -> None:
    got = float(round_to(np.float64(x), kind))
    largest = float(ml_dtypes.finfo(kind.dtype).max)
    if abs(x) > largest:
        half = Fraction(largest) + Fraction(float(ulp_of(np.float64(largest), kind))) / 2
        assert got == (math.copysign(math.inf, x) if Fraction(abs(x)) >= half else math.copysign(largest, x))
        return
    unit = Fraction(float(ulp_of(np.float64(x), kind)))
    error = abs(Fraction(got) - Fraction(x))
    assert error <= unit / 2
    if error == unit / 2:
        assert (Fraction(got) / unit) % 2 == 0


@pytest.mark.parametrize("kind", [bp.BF16, bp.F16, bp.FP8_E4M3, bp.FP8_E5M2], ids=str)
def test_rounding_takes_near_ties_to_their_own_side(kind: ElementKind) -> None:
    """Just beside the middle of two neighbours, by less than float32 holds."""
    one = 2.0 ** (1 - kind.digits)
    for below in (0, 1, 2, 3):
        low, high = 1 + below * one, 1 + (below + 1) * one
        middle = 1 + (below + 0.5) * one
        for near, wanted in (
            (middle - 2.0**-40, low),
            (middle + 2.0**-40, high),
            (middle, low if below % 2 == 0 else high),
        ):
            assert float(round_to(np.float64(near), kind)) == wanted
            assert float(round_to(np.float64(-near), kind)) == -wanted


# ---- guarantees ------------------------------------------------------------------------------------------------------


def test_exact_means_every_bit() -> None:
    check = guarantee(Exact()).check
    check(np.float32([np.nan, 0.0]), np.float32([np.nan, 0.0]))
    with pytest.raises(AssertionError, match="1 of 8 bytes"):
        check(np.float32([1.0, -0.0]), np.float32([1.0, 0.0]))
    with pytest.raises(AssertionError, match="dtype"):
        check(np.float32([1.0]), np.float64([1.0]))
    payload = np.array([0x7FC00001], np.uint32).view(np.float32)
    with pytest.raises(AssertionError, match="bytes differ"):
        check(payload, np.float32([np.nan]))


@pytest.mark.parametrize("kind", [bp.BF16, bp.F16, bp.F32, bp.F64], ids=str)
def test_a_bound_in_ulps_is_tight(kind: ElementKind) -> None:
    wide = np.array([1.0, 1.75, -3.0, 1000.0])
    one = wide + ulp_of(wide, kind)
    guarantee(Ulp(1.0)).check(one.astype(kind.dtype), wide, output=kind)
    with pytest.raises(AssertionError, match=r"4 of 4 elements break '<= 0\.9 ulp'"):
        guarantee(Ulp(0.9)).check(one.astype(kind.dtype), wide, output=kind)


def test_corners_match_only_themselves() -> None:
    check = guarantee(Ulp(2.0)).check
    inf, nan = np.inf, np.nan
    check(np.float32([inf, -inf, nan, 0.0]), np.array([inf, -inf, nan, -0.0]))
    check(np.float32([inf]), np.array([3.4028236e38]))  # overflows within the bound
    for got, wide in ((inf, nan), (nan, 1.0), (1.0, nan), (inf, 1.0), (-inf, inf), (-inf, 3.4028236e38), (3e38, inf)):
        with pytest.raises(AssertionError, match="1 of 1 elements break"):
            check(np.float32([got]), np.array([wide]))


def test_a_bound_that_is_not_finite_admits_nothing() -> None:
    """Not a finite number for an infinity, and where the exact result is finite, that alone."""
    bound = Componentwise((Term(1.0, bp.F32, "size"), Term(1.0, bp.F32, "abs_result")), "none")
    for size in (np.inf, np.nan, 0.0):
        check = partial(guarantee(bound).check, operands={}, measures={"size": lambda size=size: np.array([size])})
        for right in (np.inf, -np.inf, np.nan, 2.0):
            check(np.float32([right]), np.array([right]))
            for wrong in {np.inf, -np.inf, 1.0, 2.001, 3e38, -0.0} - {right}:
                with pytest.raises(AssertionError, match="1 of 1 elements break"):
                    check(np.float32([wrong]), np.array([right]))


def test_the_worst_element_is_named() -> None:
    got = np.ones((3, 4), np.float32)
    got[1, 2] = 1.5
    got[0, 0] = 1.0001
    with pytest.raises(AssertionError, match=r"2 of 12.*\(1, 2\).*1\.5"):
        guarantee(Ulp(1.0)).check(got, np.ones((3, 4)))


def test_a_componentwise_bound_measures_the_operands() -> None:
    bound = Componentwise((Term(3.0, bp.F32, "abs_sum"), Term(1.0, bp.BF16, "abs_result")), "Higham 3.1")
    x = np.array([1.0, -1.0, 2.0**-20])
    measures = {"abs_sum": lambda x: np.abs(x).sum()}
    wide = np.asarray(x.sum())
    allowed = 3 * 2.0**-24 * (2 + 2.0**-20) + 2.0**-8 * 2.0**-20
    promise = guarantee(bound)
    promise.check(np.asarray(wide + 0.99 * allowed, np.float32), wide, {"x": x}, measures=measures)
    with pytest.raises(AssertionError, match="break"):
        promise.check(np.asarray(wide + 1.02 * allowed, np.float32), wide, {"x": x}, measures=measures)
    assert "abs_sum" in str(promise) and pickle.loads(pickle.dumps(promise)) == promise and hash(promise)


def test_what_is_rounded_is_the_computed_result() -> None:
    """An error that is larger than the exact result is rounded to the result's type with it."""
    bound = Componentwise((Term(2.0**24, bp.F32, "cost"), Term(1.0, bp.BF16, "abs_result")), "Higham 2.2")
    cost, wide = 1.005, np.zeros(1)
    check = partial(guarantee(bound).check, operands={}, measures={"cost": lambda: np.array([cost])})
    computed = np.array([wide[0] + cost]).astype(bp.BF16.dtype)
    assert float(computed[0]) > cost
    check(computed, wide)
    with pytest.raises(AssertionError, match="break"):
        check(np.array([1.016]).astype(bp.BF16.dtype), wide)


def test_a_wrong_shape_is_not_compared() -> None:
    with pytest.raises(AssertionError, match="shape"):
        guarantee(Ulp(1.0)).check(np.ones(3, np.float32), np.ones((3, 1)))


# ---- devices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tier", "arch"),
    [
        ("sm_80", "sm80", "sm_80"),
        ("sm_86", "sm80", "sm_86"),
        ("sm_87", "sm80", "sm_87"),
        ("sm_89", "sm89", "sm_89"),
        ("sm_90", "sm90a", "sm_90a"),
        ("sm_90a", "sm90a", "sm_90a"),
        ("SM90A", "sm90a", "sm_90a"),
        ("compute_90", "sm90a", "sm_90a"),
        ("sm_100", "sm100a", "sm_100a"),
        ("sm_103", "sm100a", "sm_103a"),
        ("sm_120", "sm120", "sm_120"),
        ("h200", "sm90a", "sm_90a"),
        ("NVIDIA H200", "sm90a", "sm_90a"),
        ("cpu", "host", "host"),
        ("ptx", "sm90a", "sm_90a"),
        ("PTX:sm_80", "sm80", "sm_80"),
        ("ptx:NVIDIA H200", "sm90a", "sm_90a"),
        ("ptx:sm_103", "sm100a", "sm_103a"),
    ],
)
def test_a_device_by_name(name: str, tier: str, arch: str) -> None:
    spec = DeviceSpec.named(name)
    assert (spec.tier, spec.arch) == (ArchSku(tier), arch)
    assert hash(spec) == hash(pickle.loads(pickle.dumps(spec)))
    assert spec.bandwidth > 0 and str(spec)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("sm_75", "8.0 and later"),
        ("Tesla T4", "8.0 and later"),
        ("RTX 2080 Ti", "8.0 and later"),
        ("sm_999", "did you mean sm_90"),
        ("h20o", "did you mean h200"),
        ("sm_90b", "did you mean sm_90"),
        ("gtx", 'such as "sm_89"'),
        ("", 'such as "sm_89"'),
        ("NVIDIA A800-SXM4-80GB", "name an arch"),
        ("a10g", 'device="sm_86"'),
        ("rtx4080", 'device="sm_89"'),
        ("NVIDIA GeForce RTX 4060 Ti", 'device="sm_89"'),
        ("NVIDIA RTX 6000 Ada Generation", 'device="sm_89"'),
        ("GH200 480GB", 'device="sm_90a"'),
        ("gb200", 'device="sm_100a"'),
        ("t4", "8.0 and later"),
        ("rtx 5080", 'device="sm_120"'),
        ("ptx:sm_75", "8.0 and later"),
        ("ptx:h20o", "did you mean ptx:h200"),
        ("ptx:rtx4070", 'device="ptx:sm_89"'),
        ("ptx:", 'such as "ptx:sm_89"'),
        ("ptx:cpu", 'such as "ptx:sm_89"'),
        ("ptx:cuda:0", 'such as "ptx:sm_89"'),
        ("ptx:ptx", 'such as "ptx:sm_89"'),
        ("emulator", '"ptx" or "cpu"'),
    ],
)
def test_an_unknown_name_gets_short_advice_that_can_be_followed(name: str, advice: str) -> None:
    with pytest.raises(bp.UnsupportedError, match=r"device .* is not known: ") as caught:
        DeviceSpec.named(name)
    assert advice in str(caught.value) and len(str(caught.value)) < 130
    for named in re.findall(r'device="(.*?)"', str(caught.value)):
        assert DeviceSpec.named(named)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("sms", v) for v in (0, -1, 1.5, True, "132", None, 1 << 20)],
        *[("bandwidth", v) for v in (0.0, -1.0, math.nan, math.inf, "fast", 1 << 2000, True)],
        *[("overhead", v) for v in (-1e-6, math.nan, None)],
        *[("shared_bytes", v) for v in (-1, 1 << 40, 2.0)],
        *[("l2_bytes", v) for v in (-1, "60 MB")],
        *[("name", v) for v in ("", "x" * 200, "a\nb", 7, "ptx:sm_90a")],
        *[
            ("rates", v)
            for v in ((), (("f32", 1e12),), [("f32", 1e12)], (("f32", 0.0), ("issue", 1e12)), (("f32",),), 3)
        ],
        *[("tier", v) for v in (ArchSku.SM80, ArchSku.HOST, "sm90a", None)],
        *[("arch", v) for v in ("sm_90", "sm_75", "host", "", None, [])],
        *[("libraries", v) for v in (["cublas"], frozenset({1}), None)],
        *[("emulated", v) for v in (True, 1, None, "ptx")],
    ],
)
def test_figures_that_no_device_has_are_refused(field: str, value: Any) -> None:
    with pytest.raises((bp.InvalidProblemError, bp.UnsupportedError), match=r"DeviceSpec: \w+=.*: .") as caught:
        dataclasses.replace(DeviceSpec.named("h200"), **{field: value})
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_121", "h200"])
def test_emulated_device_has_the_figures_of_the_gpu(name: str) -> None:
    real, spec = DeviceSpec.named(name), DeviceSpec.named(f"ptx:{name}")
    assert spec.emulated and spec.host_memory and not spec.is_host and spec != real and spec.chip == real == real.chip
    assert DeviceSpec.named(spec.name) == spec == real.with_libraries(frozenset({"cublas"})).as_emulated()
    differing = {f.name for f in dataclasses.fields(spec) if getattr(spec, f.name) != getattr(real, f.name)}
    assert differing == {"name", "emulated"}
    assert str(spec) == (f"ptx:{real} (emulated)" if real.name == real.arch else "ptx:NVIDIA H200 (sm_90a, emulated)")


def test_what_cannot_be_emulated_is_refused() -> None:
    spec, host = DeviceSpec.named("ptx"), DeviceSpec.named("cpu")
    assert spec == DeviceSpec.named("ptx:sm_90a") and host.host_memory and not DeviceSpec.named("sm_90a").host_memory
    for make in (
        lambda: spec.with_libraries(frozenset({"cublas"})),
        lambda: dataclasses.replace(spec, name="sm_90a"),
        host.as_emulated,
    ):
        with pytest.raises(bp.InvalidProblemError, match=r"DeviceSpec: \w+=.*: ."):
            make()


# ---- preferences and errors ------------------------------------------------------------------------------------------


def test_preferences_take_names() -> None:
    pref = PlanPreference(backend="memcpy", math="F32")  # type: ignore[arg-type]
    assert pref.backend is BackendKind.MEMCPY and pref.math is MathPrecision.F32
    with pytest.raises(bp.UnsupportedError, match="is not one of bespoke, memcpy"):
        PlanPreference(backend="cuda")  # type: ignore[arg-type]


def test_preferences_are_checked_when_they_are_made() -> None:
    for field, value in (
        ("backend", 3), ("math", ["f32"]), ("variant", 7), ("variant", ["tc"]), ("deterministic", 1), ("bit_stable", "yes"),
        ("batch_invariant", None), ("exact_weights", "yes"), ("max_workspace_bytes", "1MB"), ("max_workspace_bytes", -1),
        ("max_workspace_bytes", 1.5), ("max_workspace_bytes", True),
    ):  # fmt: skip
        with pytest.raises(bp.InvalidProblemError, match=rf"PlanPreference: {field}=.*: give"):
            PlanPreference(**{field: value})
    pref = PlanPreference(deterministic=np.bool_(False), max_workspace_bytes=np.int64(4096))  # type: ignore[arg-type]
    assert pref == PlanPreference(deterministic=False, max_workspace_bytes=4096)
    assert repr(pref) == repr(PlanPreference(deterministic=False, max_workspace_bytes=4096))


# ---- figures with units ----------------------------------------------------------------------------------------------


def test_figures_are_written_with_the_unit_that_reads_best() -> None:
    assert [time_text(s) for s in (0.0, 7.2e-9, 2e-6, 18.26e-6, 999.4e-6, 999.6e-6, 18.2586e-3, 2.0)] == [
        "0 ns", "7.20 ns", "2.00 µs", "18.3 µs", "999 µs", "1.00 ms", "18.3 ms", "2.00 s",
    ]  # fmt: skip
    assert [bytes_text(n) for n in (0, 72, 1023, 1024, 232448, 64 << 20, 3 << 30, 1 << 62)] == [
        "0 B", "72 B", "1023 B", "1 KiB", "227 KiB", "64 MiB", "3 GiB", "4.194e+06 TiB",
    ]  # fmt: skip
    assert [rate_text(n) for n in (72e3, 9e8, 4.1e12)] == ["0.072 MB/s", "900 MB/s", "4.10 TB/s"]


@given(st.floats(1e-15, 1e4))
def test_a_time_keeps_two_digits_and_its_unit(seconds: float) -> None:
    number, unit = time_text(seconds).split()
    scale = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
    assert float(number) * scale == pytest.approx(seconds, rel=0.05)


# ---- what is promised ------------------------------------------------------------------------------------------------


def terms(*terms: tuple[float, ElementKind, str]) -> Componentwise:
    return Componentwise(tuple(Term(*t) for t in terms), "")


def test_guarantees_are_compared_term_by_term() -> None:
    loose = terms((8195.0, bp.F32, "abs_matmul"), (1.0, bp.BF16, "abs_result"))
    for bound, kept in (
        (loose, True),
        (terms((8194.0, bp.F32, "abs_matmul"), (1.0, bp.BF16, "abs_result")), True),
        (terms((1.0, bp.BF16, "abs_result"), (8195.0, bp.F32, "abs_matmul")), True),
        (terms((8195.0, bp.F32, "abs_matmul")), True),
        (terms((8196.0, bp.F32, "abs_matmul")), False),
        (terms((1.0, bp.F32, "abs_matmul"), (2.0, bp.BF16, "abs_result")), False),
        (terms((1.0, bp.F32, "abs_matmul"), (1.0, bp.F16, "abs_result")), False),
        (terms((1.0, bp.F32, "abs_epilogue")), False),
        (terms((8000.0, bp.F32, "abs_matmul"), (196.0, bp.F32, "abs_matmul")), False),
        (Exact(), True),
        (Ulp(0.5), False),
    ):
        assert guarantee(bound).at_least(guarantee(loose)) is kept, bound
    limited = dataclasses.replace(loose, outside="beyond_tf32")
    assert not guarantee(limited).at_least(guarantee(loose)) and guarantee(loose).at_least(guarantee(limited))
    assert guarantee(limited).at_least(guarantee(limited))
    assert guarantee(Ulp(1.0)).at_least(guarantee(Ulp(1.0))) and guarantee(Exact()).at_least(guarantee(Ulp(0.5)))
    assert not guarantee(Ulp(1.0)).at_least(guarantee(Ulp(0.9)))
    assert not guarantee(Ulp(1.0, 1e-30)).at_least(guarantee(Ulp(1.0)))
    for other in (Ulp(0.0), loose):
        assert not guarantee(other).at_least(guarantee(Exact()))


@pytest.mark.parametrize(
    "flag", ["deterministic", "bit_stable_on_same_hardware", "batch_invariant", "exact_weights", "flushes_subnormals"]
)
def test_no_promise_is_given_up_for_another(flag: str) -> None:
    """One flag that is worse is enough, however good the bound."""
    held, worse = guarantee(Ulp(1.0)), dataclasses.replace(guarantee(Exact()), **{flag: flag == "flushes_subnormals"})
    assert not worse.at_least(held)
    assert held.at_least(dataclasses.replace(worse, bound=Ulp(1.0)))


ERRORS: list[tuple[bp.BaracudaError, type[Exception]]] = [
    (bp.InvalidProblemError("op: wrong", "fix"), ValueError),
    (bp.OperandTypeError("op: wrong", "fix"), TypeError),
    (bp.MisalignedOperandError("op: wrong", "fix"), ValueError),
    (bp.DeviceMismatchError("op: wrong", "fix"), ValueError),
    (bp.OverlapError("op: wrong", "fix"), ValueError),
    (bp.BufferTooSmallError("op: wrong", 8, 4, "fix"), ValueError),
    (bp.WorkspaceTooSmallError("op: wrong", 8, 4, "fix"), ValueError),
    (bp.UnsupportedError("op: wrong", "fix"), NotImplementedError),
    (bp.CompileError("op: wrong", "the log", "fix"), RuntimeError),
    (bp.DriverError("op: wrong", 700, "cudaErrorIllegalAddress", "fix"), RuntimeError),
]


@pytest.mark.parametrize(("error", "builtin"), ERRORS, ids=lambda x: getattr(x, "__name__", type(x).__name__))
def test_errors_subclass_builtin_errors_and_pickle(error: bp.BaracudaError, builtin: type[Exception]) -> None:
    assert isinstance(error, builtin) and isinstance(error, bp.BaracudaError)
    assert str(error) == "op: wrong: fix"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error) and again.__dict__ == error.__dict__
