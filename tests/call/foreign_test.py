"""Arrays of other frameworks: what is taken, what it becomes on the reference backend, and what is refused, by name."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.tensor import HOST_ORDINAL, NO_MEMORY, arrays, intake
from baracuda_py.types import ElementKind

from ..gauntlet import readable
from .producers import Exporter, Interface

PLAIN = [k for k in ElementKind if not k.packed]
NARROW = [bp.BF16, bp.FP8_E4M3, bp.FP8_E5M2]


class JaxArray(Exporter):
    """What JAX's arrays look like from here; JAX marks none of its capsules as read-only."""


JaxArray.__module__ = "jaxlib._jax"


def exported(values: Any, kind: ElementKind, cls: type[Exporter] = Exporter, **options: Any) -> Any:
    """`values` of a kind that NumPy itself has no DLPack name for."""
    x = np.asarray(values).astype(kind.dtype)
    return cls(x.view(f"u{x.itemsize}") if kind in NARROW else x, kind, **options)


# ---- the reference backend -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [Exporter, JaxArray])
@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_narrow_floats_of_any_framework(cls: type[Exporter], kind: ElementKind) -> None:
    x = exported([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]], kind, cls)
    plain = x.x.view(kind.dtype)
    if kind is bp.BF16:
        assert np.array_equal(bp.neg(x, device="cpu"), -plain)
        assert np.array_equal(bp.matmul(x, x.x.view(kind.dtype).T, device="cpu"), plain @ plain.T)
    assert np.array_equal(bp.contiguize(x, device="cpu").view(np.uint8), plain.view(np.uint8))
    dest = np.zeros((4, 3), kind.dtype)
    bp.write_slice(dest, x, [(1, 3), (0, 3)], device="cpu")
    assert np.array_equal(dest[1:3], plain)


@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_torch_tensors_of_narrow_floats(kind: ElementKind) -> None:
    torch = pytest.importorskip("torch")
    dtype = {"bf16": torch.bfloat16, "fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}[kind.value]
    x = torch.tensor([[1.0, -2.0, 3.0], [4.0, 0.5, -6.0]]).to(dtype)
    transposed = x.t()
    made = bp.contiguize(transposed, device="cpu")
    assert made.dtype is dtype and made.is_contiguous() and torch.equal(made.float(), transposed.float())
    dest = torch.zeros(4, 3).to(dtype)
    assert bp.write_slice(dest, x, [(1, 3), (0, 3)], device="cpu") is dest
    assert dest.float()[1:3].tolist() == x.float().tolist()
    if kind is bp.BF16:
        out = torch.zeros(3, 2, dtype=dtype)
        assert bp.neg(transposed, out=out, device="cpu") is out
        assert torch.equal(out, -transposed)
        product = torch.zeros(2, 2, dtype=dtype)
        bp.matmul(x, transposed, out=product, device="cpu")
        assert torch.equal(product, x @ transposed)
        plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", transposed, out), device="cpu")
        bound = plan.bind(x=transposed, out=out)
        x.mul_(2)
        bound()
        assert torch.equal(out, -transposed)


def test_gradients_of_torch_and_jax_products() -> None:
    torch = pytest.importorskip("torch")
    a, b, grad = (torch.randn(s).to(torch.bfloat16) for s in ((4, 5), (5, 6), (4, 6)))
    wide = [t.float().numpy() for t in (a, b, grad)]
    for wrap in (lambda t: t, lambda t: exported(t.float().numpy(), bp.BF16, JaxArray)):
        got = bp.matmul_backward(wrap(grad), wrap(a), wrap(b), out_dtype="f32", device="cpu")
        assert np.allclose(got.grad_a, wide[2] @ wide[1].T, atol=1e-4)
        assert np.allclose(got.grad_b, wide[0].T @ wide[2], atol=1e-4)


@pytest.mark.parametrize("kind", PLAIN, ids=str)
def test_a_legacy_capsule_of_the_host_is_written_through(kind: ElementKind) -> None:
    """It has no word for read-only, and its producers export nothing that is."""
    x = np.array([1, 0, 1, 1]).astype(kind.dtype)
    out = exported(np.zeros(4), kind, legacy=True)
    bp.contiguize(x, out=out, device="cpu")
    assert np.array_equal(out.x.view(kind.dtype), x)


@pytest.mark.parametrize("kind", [bp.F32, bp.BF16], ids=str)
def test_immutable_arrays_are_no_outputs(kind: ElementKind) -> None:
    out = exported(np.zeros(4), kind, JaxArray)
    with pytest.raises(bp.OperandTypeError, match=r"out is written and the jax array is read-only: .*immutable"):
        bp.neg(np.ones(4, kind.dtype), out=out, device="cpu")
    assert not out.x.any()


def test_an_output_of_torch_is_written_in_place() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.zeros(4, 6)
    out = whole[::2, ::3]
    assert bp.exp(torch.zeros(2, 2), out=out, device="cpu") is out
    assert whole.sum() == 4 and out.sum() == 4


# ---- capsules that are not what they should be -----------------------------------------------------------------------


def _set(**fields: Any) -> Callable[[Any], Any]:
    def change(tensor: Any) -> None:
        for name, value in fields.items():
            setattr(tensor, name, value)

    return change


def _strideless(tensor: Any) -> None:
    tensor.strides = type(tensor.strides)()


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_where_the_elements_begin_is_said_in_two_parts() -> None:
    t = intake(Exporter(X, change=_set(byte_offset=16)), what="x")
    assert t.pointer == X.ctypes.data + 16
    assert bp.neg(Exporter(X[:2], change=_set(byte_offset=16)), device="cpu").tolist() == (-X[1:]).tolist()


@pytest.mark.parametrize("shape", [(3, 4), (5, 0, 7), (0,), (2, 0), (1, 3, 1), ()])
def test_a_dense_array_may_have_no_strides(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    t = intake(Exporter(x, change=_strideless), what="x")
    assert t.shape == shape
    wanted, step = [], 1
    for extent in reversed(shape):
        wanted.append(step)
        step *= max(extent, 1)
    assert t.strides == tuple(reversed(wanted))


def test_pinned_memory_counts_as_host_memory() -> None:
    x = Exporter(X, change=lambda t: _set(type=3)(t.device), device=(3, 0))
    assert intake(x, what="x").ordinal == HOST_ORDINAL
    assert np.array_equal(bp.neg(x, device="cpu"), -X)


def test_can_implement_refuses_where_dlpack_device_raises() -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (3, 4), "f32"), device="cpu")  # type: ignore[arg-type]
    answer = plan.can_implement(x=Exporter(X, device=RuntimeError("deleted")))
    assert not answer
    assert "__dlpack_device__" in answer.reason


def test_other_libraries_may_set_the_shared_python_api() -> None:
    """ctypes.pythonapi's functions are one object for a whole process."""
    shared = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_IsValid
    before = [(f.argtypes, f.restype) for f in shared]
    try:
        for function in shared:
            function.argtypes, function.restype = (ctypes.c_int,), ctypes.c_char
        assert intake(Exporter(X), what="x").pointer == X.ctypes.data
    finally:
        for function, (arguments, result) in zip(shared, before):
            function.argtypes, function.restype = arguments, result


# ---- __cuda_array_interface__ and masks ------------------------------------------------------------------------------


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """A driver that answers for an address: an ordinal, or an exception."""

    class CUDARuntimeError(Exception):
        pass

    def answers(answer: Any) -> None:
        def attributes(_pointer: int) -> Any:
            if answer is None:
                raise CUDARuntimeError("cudaErrorInvalidValue: invalid argument")
            return SimpleNamespace(device=answer)

        runtime = SimpleNamespace(pointerGetAttributes=attributes, CUDARuntimeError=CUDARuntimeError)
        fake = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
        monkeypatch.setattr(arrays, "gpu", lambda: fake)
        monkeypatch.setattr(arrays, "device_count", lambda: 2)

    return answers


def test_the_driver_says_whose_an_address_is(driver: Callable[[Any], None]) -> None:
    driver(1)
    assert intake(Interface(), what="op: x").ordinal == 1


@pytest.mark.parametrize("answer", [None, -2])
def test_a_stale_address_is_refused(driver: Callable[[Any], None], answer: Any) -> None:
    """An error of the runtime's, or memory that the driver does not know."""
    driver(answer)
    with pytest.raises(bp.OperandTypeError) as caught:
        intake(Interface(), what="op: x")
    readable(caught.value, "op: x", "not memory of a CUDA device", "has not been freed")


def test_a_device_interface_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "device_count", lambda: 0)
    for call in (
        lambda: bp.neg(Interface(), device="cpu"),
        lambda: bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", Interface()), device="cpu").run(x=Interface()),
    ):
        with pytest.raises(
            bp.OperandTypeError, match=r"neg: x is a tests array on CUDA device 0.*asnumpy\(cupy\.asarray\(x\)\)"
        ):
            call()


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def test_torch_layouts_are_read_as_they_lie() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    for view in (x, x.t(), x[1:, ::2], x[2], x[1, 2], x[:, :0], x.expand(2, 4, 6), torch.nn.Parameter(x, False)):
        got = intake(view, what="x")
        assert (got.pointer, got.shape, got.strides) == (view.data_ptr(), tuple(view.shape), view.stride())
        assert (got.element, got.ordinal, got.framework, got.readonly) == (bp.F32, HOST_ORDINAL, "torch", False)
        assert np.array_equal(got.array(), view.detach().numpy())
    for kind in PLAIN:
        name = kind.dtype.name
        assert intake(torch.zeros(2, dtype=getattr(torch, name)), what="x").element is kind


def test_torch_tensors_that_hold_other_values_are_refused() -> None:
    torch = pytest.importorskip("torch")
    z = torch.tensor([1 + 2j, 3 - 4j])
    for x, fix in ((z.conj().imag, "resolve_neg()"), (z.conj(), "resolve_conj()")):
        with pytest.raises(bp.OperandTypeError) as caught:
            bp.contiguize(x, device="cpu")
        readable(caught.value, "contiguize: x", f"pass x.{fix}")
    assert bp.contiguize(z.conj().imag.resolve_neg(), device="cpu").tolist() == [-2, 4]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_torch_tensors_in_other_layouts_become_dense() -> None:
    torch = pytest.importorskip("torch")
    nested = torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)])
    for x, fix in (
        (torch.eye(2).to_sparse(), "to_dense"),
        (torch.eye(2).to_sparse_csr(), "to_dense"),
        (nested, "values"),
    ):
        with pytest.raises(bp.OperandTypeError) as caught:
            bp.relu(x, device="cpu")
        readable(caught.value, "relu: x", f"x.{fix}()")
        dense = getattr(x, fix)()
        assert torch.equal(bp.relu(dense, device="cpu"), dense)


@pytest.mark.parametrize("make", ["parameter", "leaf", "result"])
def test_tensors_that_require_a_gradient_are_recorded_or_refused(make: str) -> None:
    torch = pytest.importorskip("torch")
    leaf = torch.ones(3, 3, requires_grad=True)
    x = {"parameter": torch.nn.Parameter(torch.ones(3, 3)), "leaf": leaf, "result": leaf * 2}[make]
    with pytest.raises(bp.OperandTypeError) as caught:
        bp.quantize_int8(x, device="cpu")
    readable(caught.value, "quantize_int8: x requires a gradient", "pass x.detach()")
    assert bp.matmul(torch.ones(3, 3), x, device="cpu").requires_grad
    assert np.array_equal(bp.matmul(torch.ones(3, 3), x.detach(), device="cpu"), (torch.ones(3, 3) @ x).detach())


def test_torch_tensors_without_strided_memory_are_refused() -> None:
    torch = pytest.importorskip("torch")
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
        cases = [
            (torch.eye(3).to_sparse(), "sparse_coo: make it dense"),
            (nested, "nested: pass x.values()"),
            (freed, "has no memory"),
        ]
    for x, says in cases:
        with pytest.raises(bp.OperandTypeError) as caught:
            bp.contiguize(x, device="cpu")
        readable(caught.value, "contiguize: x", says)
    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(torch.func.vmap(lambda row: bp.contiguize(row, device="cpu"))(x), x)


def test_shapes_without_memory_describe_a_problem() -> None:
    torch = pytest.importorskip("torch")
    meta = torch.empty(64, 32, dtype=torch.bfloat16, device="meta")
    got = intake(meta.t(), what="x")
    assert (got.shape, got.strides, got.element, got.ordinal) == ((32, 64), (1, 32), bp.BF16, NO_MEMORY)
    real = torch.empty(64, 32, dtype=torch.bfloat16)
    assert real.data_ptr() % 16 == 0
    descs = [bp.MatmulDescriptor.of(x.t(), x) for x in (meta, real)]
    assert descs[0] == descs[1]
    assert bp.MatmulPlan.select(descs[0], device="h200") == bp.MatmulPlan.select(descs[1], device="h200")


def test_shapes_without_memory_do_not_run() -> None:
    torch = pytest.importorskip("torch")
    meta = torch.empty(3, 4, device="meta")
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("neg", meta), device="cpu")
    for call in (lambda: bp.neg(meta, device="cpu"), lambda: plan.run(x=meta), lambda: plan.run(x=X, out=meta)):
        with pytest.raises(bp.OperandTypeError, match="with a shape and no memory"):
            call()
    answer = plan.can_implement(x=meta)
    assert not answer and "no memory" in answer.reason
    with pytest.raises(bp.OperandTypeError, match="no memory"):
        bp.matmul_backward(torch.empty(3, 3, device="meta"), meta, meta.t(), device="cpu")


COMPILED = """
import numpy as np, torch, baracuda_py as bp
from baracuda_py.tensor import NO_MEMORY, intake

t = torch.arange(16.0).reshape(4, 4) / 16
cpu = {"device": "cpu"}
plan = bp.UnaryPlan.select(bp.UnaryDescriptor.of("exp", t), **cpu)

def appended(x):
    dest = torch.zeros(5, 4)
    bp.write_slice(dest, x * 2, [(1, 5), (0, 4)], **cpu)
    return dest + len(bp.UnaryDescriptor.of("exp", x).shape)

calls = {
    "gelu": lambda x: torch.as_tensor(bp.gelu(x * 2, **cpu)) + 1,
    "run": lambda x: torch.as_tensor(plan.run(x=x + 1)) + 1,
    "write_slice": appended,
}
for name, function in calls.items():
    compiled = torch.compile(function, backend="eager")
    for _ in range(2):
        assert torch.equal(compiled(t), function(t)), name
    print(name)
torch._dynamo.reset()
assert torch.equal(torch.compile(calls["gelu"], backend="eager", fullgraph=True)(t), calls["gelu"](t))
try:
    torch._dynamo.reset()
    torch.compile(calls["run"], backend="eager", fullgraph=True)(t)
except torch._dynamo.exc.Unsupported:
    print("run-refused")
with torch._subclasses.fake_tensor.FakeTensorMode():
    fake = torch.empty(64, 32, dtype=torch.bfloat16).t()
got = intake(fake, what="x")
assert (got.shape, got.strides, got.element, got.ordinal) == ((32, 64), (1, 32), bp.BF16, NO_MEMORY)
print("fake")
"""


def test_compiled_functions_trace_calls_and_break_at_plans() -> None:
    pytest.importorskip("torch")
    ran = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:torch._dynamo", "-c", textwrap.dedent(COMPILED)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ModuleNotFoundError" in ran.stderr:
        pytest.skip(f"torch.compile cannot be loaded here: {ran.stderr.splitlines()[-1]}")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["gelu", "run", "write_slice", "run-refused", "fake"]


# ---- JAX's objects that are no arrays, scalars, and other hints ------------------------------------------------------


class ShapeDtypeStruct:
    shape, dtype = (32, 64), np.dtype(ml_dtypes.bfloat16)


class DynamicJaxprTracer:
    shape, dtype = (32, 64), np.dtype(np.float32)


ShapeDtypeStruct.__module__, DynamicJaxprTracer.__module__ = "jax._src.core", "jax._src.interpreters.partial_eval"


def test_a_jax_shape_describes_a_problem_and_a_tracer_is_refused() -> None:
    got = intake(ShapeDtypeStruct(), what="x")
    assert (got.shape, got.strides, got.element, got.ordinal) == ((32, 64), (64, 1), bp.BF16, NO_MEMORY)
    assert bp.UnaryPlan.select(bp.UnaryDescriptor.of("exp", ShapeDtypeStruct()), device="h200").desc.shape == (32, 64)
    with pytest.raises(bp.OperandTypeError, match="ShapeDtypeStruct with a shape and no memory"):
        bp.exp(ShapeDtypeStruct(), device="cpu")
    with pytest.raises(bp.OperandTypeError) as caught:
        bp.exp(DynamicJaxprTracer(), device="cpu")
    readable(caught.value, "exp: x", "while JAX traces a function", "jax.pure_callback")
    assert "cupy" not in str(caught.value)


@pytest.mark.parametrize("x", [1j, np.float32(2)])
def test_number_that_is_not_weak_is_refused_with_its_type(x: Any) -> None:
    with pytest.raises(bp.OperandTypeError) as caught:
        bp.multiply(np.ones(3, np.float32), x, device="cpu")
    readable(caught.value, "multiply: x2", type(x).__name__, f"numpy.asarray({x!r}, dtype)")


def test_intake_hint_names_the_package_of_the_plan() -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (3,), "f32"), device="cpu")  # type: ignore[arg-type]
    with pytest.raises(bp.OperandTypeError, match=r"got list: wrap it with numpy\.asarray") as caught:
        plan.run(x=[1.0, 2.0, 3.0])
    assert "cupy.asarray" not in str(caught.value)
    with pytest.raises(bp.OperandTypeError, match=r"cupy\.asarray\(\.\.\.\), or numpy\.asarray\(\.\.\.\) for device="):
        bp.UnaryDescriptor.of("exp", [1.0])


@pytest.mark.parametrize("framework", ["torch", "numpy", "jax"])
def test_how_to_move_a_host_array_is_said_in_its_own_words(framework: str) -> None:
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (3, 4), "f32"), device="h200")  # type: ignore[arg-type]
    x: Any = {"numpy": X, "jax": JaxArray(X)}.get(framework)
    if framework == "torch":
        x = pytest.importorskip("torch").ones(3, 4)
    answer = plan.can_implement(x=x)
    words = {"torch": ".cuda() or", "numpy": "move it with cupy.asarray(...)", "jax": "jax.device_put(...) or"}
    assert not answer
    assert words[framework] in answer.fix and 'device="cpu"' in answer.fix
