"""real, imag, conj, angle and abs of complex arrays beside NumPy's and torch's; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import baracuda_py as bp

COVERS = ("hypot", "atan2", "abs", "bitwise_xor", "cast", "contiguize")
Array: TypeAlias = "np.ndarray[Any, Any]"
DEVICES = ("cpu", "ptx")
KINDS = ("complex64", "complex128")
SPECIAL = (np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1e-40, -3e38)


def numbers(kind: str, shape: tuple[int, ...] = (4, 5, 6)) -> Array:
    """Random numbers, and each pair of special ones."""
    rng = np.random.default_rng(5)
    x = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL])[: x.size]
    flat = x.reshape(-1)
    flat.real[: len(pairs)], flat.imag[: len(pairs)] = pairs[:, 0], pairs[:, 1]
    return x


def layouts(kind: str) -> dict[str, Array]:
    """Arrays of every sort of layout; the last begins between two elements."""
    x = numbers(kind)
    half = numbers(kind).view(x.real.dtype).reshape(-1)[1:-1]
    return {
        "contiguous": x, "stepped backwards": x[:, ::-1, ::2], "transposed": x.transpose(2, 0, 1),
        "0-d": x[1, 2, 3:4].reshape(()), "empty": x[:0], "broadcast": np.broadcast_to(x[:1], (3, 5, 6)),
        "between two elements": half.view(kind),
    }  # fmt: skip


def negated(x: Array) -> Array:
    """The conjugate by its bits."""
    made = np.array(x, order="C")
    made.reshape(-1).view(np.uint8).reshape(-1, x.itemsize)[:, -1] ^= 0x80
    return made


def ulps(got: Array, wanted: Array) -> float:
    """The greatest error in units of the last place; NaN and infinities must be equal."""
    finite = np.isfinite(wanted)
    assert np.array_equal(got[~finite], wanted[~finite].astype(got.dtype), equal_nan=True)
    wide = wanted[finite]
    spacing = np.spacing(np.abs(wide).astype(got.dtype)).astype(wide.dtype)
    return float(np.max(np.abs(got[finite] - wide) / spacing, initial=0))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_complex_conj_changes_one_bit(kind: str, device: str) -> None:
    for label, x in layouts(kind).items():
        got = bp.conj(x, device=device)
        assert got.dtype == x.dtype and got.tobytes() == negated(x).tobytes(), label
        assert not np.shares_memory(got, x)
        out = np.zeros((*x.shape, 2), kind)[..., 1]  # stepped
        assert bp.conj(x, out=out, device=device) is out and out.tobytes() == negated(x).tobytes(), label
        if x.flags.writeable:
            wanted = negated(x)
            assert bp.conj(x, out=x, device=device) is x and x.tobytes() == wanted.tobytes(), label
    real = np.array([1.0, -0.0, -np.nan], np.float32)
    copied = bp.conj(real, device=device)
    assert copied.tobytes() == real.tobytes() and not np.shares_memory(copied, real)


def test_complex_conj_takes_the_axis_order() -> None:
    for kind in KINDS:
        x = numbers(kind).transpose(2, 0, 1)
        assert bp.conj(x, device="cpu").strides == x.strides


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_complex_abs_and_angle_within_their_bounds(kind: str, device: str) -> None:
    """Beside NumPy in a wider type, within the bounds of hypot and atan2."""
    wide = np.clongdouble if kind == "complex128" else np.complex128
    for label, x in layouts(kind).items():
        with np.errstate(all="ignore"):
            w = np.asarray(x).astype(wide)
            exact = {"abs": np.hypot(w.real, w.imag), "angle": np.arctan2(w.imag, w.real)}
            info = np.finfo(x.real.dtype)
            exact["abs"] = np.where(exact["abs"] > info.max * (1 + float(info.eps) / 4), np.inf, exact["abs"])
        for name, op in (("abs", bp.hypot), ("angle", bp.atan2)):
            got = getattr(bp, name)(x, device=device)
            bound: Any = op.plan(x.real, x.imag, device=device).precision_guarantee.bound
            assert got.dtype == x.real.dtype and got.shape == x.shape
            assert ulps(np.atleast_1d(got), np.atleast_1d(exact[name])) <= bound.n, (label, name)
            out = np.zeros_like(got)
            assert getattr(bp, name)(x, out=out, device=device) is out and np.array_equal(out, got, equal_nan=True)


@pytest.mark.parametrize("kind", KINDS)
def test_complex_parts_are_views(kind: str) -> None:
    for x in layouts(kind).values():
        for ours, theirs in ((bp.real(x), x.real), (bp.imag(x), x.imag)):
            assert ours.dtype == theirs.dtype and ours.strides == theirs.strides
            assert ours.flags.writeable == x.flags.writeable
            assert ours.tobytes() == theirs.tobytes() and (np.shares_memory(ours, x) or not x.size)
        if x.flags.writeable and x.size:
            bp.real(x)[...], bp.imag(x)[...] = 7, 9
            assert np.all(x == 7 + 9j)
    real = np.arange(3)
    assert bp.real(real) is real and bp.imag(real).dtype == real.dtype and not bp.imag(real).any()


def test_complex_angle_of_real_arrays_as_numpy() -> None:
    for x in (
        np.array([1.5, -2, 0.0, -0.0, np.nan, -np.inf]),
        np.array([3, -4, 0], np.int32),
        np.array([-1, 1], np.float32),
    ):
        got = bp.angle(x, device="cpu")
        assert np.allclose(got, np.angle(x), equal_nan=True) and got.dtype == np.angle(x).dtype


def test_complex_buffers() -> None:
    x = numbers("complex64")
    buffer = bp.GpuBuffer(x, "complex64", (5, 3), (6, -2), 5)
    assert isinstance(bp.real(buffer), bp.GpuBuffer) and bp.imag(buffer).element is bp.F32
    view = np.asarray(buffer.array)
    assert np.array_equal(bp.imag(buffer).array, view.imag, equal_nan=True)
    assert np.shares_memory(bp.imag(buffer).array, x)
    for device in DEVICES:
        assert np.array_equal(bp.abs(buffer, device=device), bp.abs(view, device=device), equal_nan=True)
        assert bp.conj(buffer, device=device).tobytes() == negated(view).tobytes()
    zeros = bp.imag(bp.GpuBuffer.view(np.ones(4, np.uint8), bp.FP8_E4M3))
    assert zeros.element is bp.FP8_E4M3 and not zeros.to_host().view(np.uint8).any()


def test_complex_calls_are_recorded() -> None:
    x, y = numbers("complex64"), numbers("complex128")
    others = np.roll(x, 1), np.roll(y, 2)
    with bp.device("cpu"), bp.record(x=x, y=y) as step:
        made = bp.conj(x), bp.abs(x), bp.angle(bp.conj(y)), bp.conj(y), bp.exp(bp.imag(x))
    step(x=others[0], y=others[1])
    assert made[0].tobytes() == negated(others[0]).tobytes() and made[3].tobytes() == negated(others[1]).tobytes()
    assert np.array_equal(made[1], bp.abs(others[0], device="cpu"), equal_nan=True)
    assert np.array_equal(made[2], bp.angle(negated(others[1]), device="cpu"), equal_nan=True)


def test_complex_abs_says_its_plan() -> None:
    x = numbers("complex64")
    assert bp.abs.plan(x, device="h200").sku == bp.hypot.plan(x.real, x.imag, device="h200").sku
    assert bp.abs.of(x.real).op == "abs"


def test_complex_functions_are_found() -> None:
    assert set(bp.find("complex")) >= {"real", "imag", "conj", "angle"}
    assert bp.find("conjugate") == bp.find("conj") == ["conj"]
    with pytest.raises(bp.UnsupportedError, match=r"calls ops, and no op: call bp\.conj"):
        bp.get_op("conj")


# ---- torch and JAX -----------------------------------------------------------------------------------------------------

TORCH = ("abs", "angle", "real", "imag", "conj")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", TORCH)
def test_complex_gradient_is_that_of_torch(name: str, device: str) -> None:
    """At 0, where torch takes 0, too."""
    torch = pytest.importorskip("torch")
    x = torch.tensor(np.linspace(-2, 2, 12).reshape(3, 4) + 1j * np.linspace(3, -4, 12).reshape(4, 3).T)
    x[0, 0], x[1, 1] = 0, complex(0.0, -0.0)
    found = []
    for function in (getattr(bp, name), getattr(torch, name)):
        leaf = x.clone().requires_grad_()
        with bp.device(device):
            made = function(leaf)
            weight = torch.linspace(-1, 2, 12, dtype=torch.float64).reshape(3, 4)
            made.backward((weight * (1 + 2j if made.is_complex() else 1)).to(made.dtype))
        found.append((made.detach().resolve_conj().resolve_neg(), leaf.grad))
    for ours, theirs in zip(*found):
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", TORCH)
def test_complex_gradient_matches_differences(name: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    x = (torch.randn(3, 4, dtype=torch.complex128) + 0.5).requires_grad_()
    with bp.device("cpu"):
        assert torch.autograd.gradcheck(getattr(bp, name), (x,))


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_complex_functions_inside_torch_transforms() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(4)
    x = torch.randn(3, 4, dtype=torch.complex64)
    with bp.device("cpu"):
        for name in ("abs", "angle", "conj"):
            ours, theirs = getattr(bp, name), getattr(torch, name)
            wanted = torch.func.vmap(theirs, in_dims=1)(x).resolve_conj()
            torch.testing.assert_close(torch.func.vmap(ours, in_dims=1)(x), wanted)
            with torch.autocast("cpu"):
                assert ours(x).dtype == theirs(x).dtype
        _, tangent = torch.func.jvp(bp.conj, (x,), (2 * x,))
        torch.testing.assert_close(tangent, (2 * x).conj().resolve_conj())


@pytest.mark.parametrize(("name", "fullgraph"), [("abs", True), ("angle", True), ("conj", False)])
def test_complex_functions_inside_torch_compile(name: str, fullgraph: bool) -> None:
    torch = pytest.importorskip("torch")
    function, theirs = getattr(bp, name), getattr(torch, name)
    x = torch.randn(3, 4, dtype=torch.complex64)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    with bp.device("cpu"):
        torch.compile(lambda z: function(z), backend="aot_eager", fullgraph=fullgraph)(leaves[0]).abs().sum().backward()
    theirs(leaves[1]).abs().sum().backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)


def test_complex_lazy_tensors_are_never_misread() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(numbers("complex64"))
    for function in (bp.abs, bp.angle, bp.conj):
        with pytest.raises(
            bp.OperandTypeError, match=rf"{function.__name__}: x.*lazily conjugated.*x.resolve_conj\(\)"
        ):
            function(x.conj(), device="cpu")
        with pytest.raises(bp.OperandTypeError, match=r"x.resolve_neg\(\)"):
            function(bp.imag(x.conj()), device="cpu")
    assert torch.equal(bp.imag(x.conj()).nan_to_num(), -x.imag.nan_to_num())
    with pytest.raises(bp.OperandTypeError, match=r"conj: out.*lazily conjugated"):
        bp.conj(x, out=torch.empty_like(x).conj(), device="cpu")


def test_complex_tensors() -> None:
    torch = pytest.importorskip("torch")
    for kind in KINDS:
        x = torch.tensor(numbers(kind)).permute(2, 0, 1)
        for device in DEVICES:
            made = bp.conj(x, device=device)
            assert isinstance(made, torch.Tensor) and made.stride() == x.stride()
            assert made.numpy().tobytes() == negated(x.numpy()).tobytes()
            assert bp.abs(x, device=device).dtype == bp.angle(x, device=device).dtype == x.real.dtype
    out = torch.zeros(2, dtype=torch.complex64)
    with pytest.raises(bp.UnsupportedError, match="conj: out was passed"):
        bp.conj(torch.zeros(2, dtype=torch.complex64, requires_grad=True), out=out, device="cpu")


def test_complex_arrays_of_jax() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(np.array([3 + 4j, -1 - 1j], np.complex64))
    with bp.device("cpu"):
        assert np.allclose(np.asarray(bp.abs(x)), [5, 2**0.5])
        assert np.allclose(np.asarray(bp.angle(x)), np.angle(np.asarray(x)))
        assert np.allclose(np.asarray(jax.jit(bp.abs)(x)), [5, 2**0.5])
    for function in (bp.real, bp.imag):
        with pytest.raises(bp.UnsupportedError, match=r"an array of JAX has no views: use jax\.numpy in place"):
            function(x)
    with pytest.raises(bp.UnsupportedError, match=r"use jax.numpy.conj"):
        bp.conj(x, device="cpu")


# ---- refusals ----------------------------------------------------------------------------------------------------------

Z, F = np.ones((2, 3), np.complex64), np.ones((2, 3), np.float32)
REFUSED: tuple[tuple[Callable[[], Any], type[bp.BaracudaError], str], ...] = (
    (lambda: bp.real([1j]), bp.OperandTypeError, "real: x: expected an array"),
    (lambda: bp.conj(1j), bp.OperandTypeError, "conj: x: expected an array"),
    (lambda: bp.angle(Z, out=np.ones((2, 3)), device="cpu"), bp.OperandTypeError, "angle: the result is f32 and out holds f64"),
    (lambda: bp.abs(Z, out=np.ones((3, 2), "f4"), device="cpu"), bp.InvalidProblemError, r"abs: out.*\(2, 3\)"),
    (lambda: bp.conj(Z, out=F, device="cpu"), bp.OperandTypeError, "conj: out must hold complex64, as x does, got f32"),
    (lambda: bp.conj(Z, out=Z[:1], device="cpu"), bp.InvalidProblemError, r"conj: out must have shape \(2, 3\), got \(1, 3\)"),
    (lambda: bp.conj(Z.astype("c16"), out=Z, device="cpu"), bp.OperandTypeError, "conj: out must hold complex128"),
    (lambda: bp.angle(np.ones(2, bool), device="cpu"), bp.OperandTypeError, "angle: bool is not supported"),
    (lambda: bp.exp(Z, device="cpu"), bp.OperandTypeError, r"exp: complex64.*bp.real\(x\) and bp.imag\(x\).*bp.abs"),
    (lambda: bp.sum(Z, device="cpu"), bp.OperandTypeError, r"sum: x: complex64.*bp.real\(x\)"),
    (lambda: bp.matmul(Z, Z.T, device="cpu"), bp.OperandTypeError, r"matmul: a holds complex64.*bp.real\(a\)"),
    (lambda: bp.cast(Z, "f32", device="cpu"), bp.OperandTypeError, r"cast: complex64.*bp.real\(x\)"),
    (lambda: bp.fuse(lambda x: x * 2)(Z, device="cpu"), bp.OperandTypeError, r"fuse: x1 holds complex64.*bp.real\(x1\)"),
    (lambda: bp.take_along_axis(F, Z, 0, device="cpu"), bp.OperandTypeError, "must hold i32 or i64, got complex64: pass a real"),
)  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_complex_functions_refuse(call: Callable[[], Any], error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        call()
    assert (Z == 1).all() and (F == 1).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_complex_conj_refuses_overlap_before_it_writes(kind: str, device: str) -> None:
    """By whole elements, and by half of one, where the real parts of out are the imaginary parts of x."""
    x = numbers(kind).reshape(-1)
    halves = x.view(x.real.dtype)
    before = x.tobytes()
    for a, b in ((x[:-1], x[1:]), (x[:-1], halves[1:-1].view(kind)), (halves[1:-1].view(kind), x[:-1])):
        with pytest.raises(bp.OverlapError, match="conj: out partly overlaps x"):
            bp.conj(a, out=b, device=device)
    shared = np.lib.stride_tricks.as_strided(np.zeros(1, kind), (3,), (0,))
    with pytest.raises(bp.BaracudaError, match="conj: "):
        bp.conj(x[:3], out=shared, device=device)
    assert x.tobytes() == before and not shared.any()


class Foreign:
    """An array that only DLPack reads."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, stream: Any = None, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


def test_complex_arrays_that_only_dlpack_reads() -> None:
    x = Foreign(numbers("complex64"))
    for call in (bp.real, bp.imag, bp.angle, bp.conj):
        with pytest.raises(
            bp.OperandTypeError, match=r"x: a Foreign cannot be viewed here: pass cupy\.from_dlpack\(x\)"
        ):
            call(x)
    with pytest.raises(bp.OperandTypeError, match="conj: out: a Foreign cannot be viewed here"):
        bp.conj(numbers("complex64"), out=x, device="cpu")
    real = np.array([1.0, -0.0, -np.nan])
    assert bp.conj(Foreign(real), device="cpu").tobytes() == real.tobytes()


def test_complex_functions_inside_a_fused_one() -> None:
    x = np.array([-1.5, 2.0, -0.0], np.float32)
    fused = bp.fuse(lambda x: bp.abs(bp.conj(bp.real(x))) + 1)
    assert np.array_equal(fused(x, device="cpu"), np.abs(x) + 1)
    with pytest.raises(bp.UnsupportedError, match="imag: x is real in a fused function"):
        bp.fuse(bp.imag)(x, device="cpu")
