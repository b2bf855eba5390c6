"""Calls that JAX cannot have: typed errors with the fix, at the trace where they can be known there, and nothing written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

jax = pytest.importorskip("jax")
jnp = jax.numpy

from jax.errors import JaxRuntimeError  # noqa: E402

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)

REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "out": (lambda x: bp.softmax(x, out=x), bp.OperandTypeError, r"softmax: out was passed.*immutable.*leave out= out"),
    "stream": (lambda x: bp.softmax(x, stream=3), bp.UnsupportedError, r"softmax: JAX chooses the stream.*leave stream="),
    "shape": (lambda x: bp.matmul(x, x), bp.InvalidProblemError, r"matmul.*\(4, 6\)"),
    "dtype": (lambda x: bp.quantize_int8(x.astype(jnp.int32)), bp.OperandTypeError, r"quantize_int8: x"),
    "list": (lambda x: bp.add(x, [1.0]), bp.OperandTypeError, r"add: .* a builtins\.list .*jax\.numpy\.asarray"),
    "count": (lambda x: bp.nonzero(x), bp.UnsupportedError, r"nonzero: .*cannot wait for: pass trim=False"),
    "gpu": (lambda x: bp.softmax(x, device="sm_90a"), bp.DeviceMismatchError, r"softmax: .*for the CPU.*leave device= out"),
    "plan": (
        lambda x: bp.SoftmaxPlan.select(bp.SoftmaxDescriptor(shape=(4, 6), element="f32"), device="cpu").run(x=x),
        bp.OperandTypeError,
        r"while JAX traces a function",
    ),
    "derivative": (
        jax.grad(lambda x: bp.quantize_int8(x)[1].sum()),
        bp.OperandTypeError,
        r"quantize_int8: the derivative with respect to x .*jax\.lax\.stop_gradient\(x\)",
    ),
    "second derivative": (
        jax.grad(lambda x: (jax.grad(lambda x: (bp.softmax(x) ** 2).sum())(x) ** 2).sum()),
        bp.UnsupportedError,
        r"softmax: a gradient has no gradient of its own.*differentiate once",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_jax_refuses_with_the_fix(case: str) -> None:
    function, kind, says = REFUSED[case]
    with pytest.raises(kind, match=says):
        jax.jit(function)(X)


def test_jax_refuses_arrays_of_other_frameworks() -> None:
    torch = pytest.importorskip("torch")
    y = torch.ones(4, 6)
    with pytest.raises(bp.OperandTypeError, match=r"add: \w+ is a torch\.Tensor .*jax\.numpy\.from_dlpack"):
        jax.jit(lambda x: bp.add(x, y))(X)


def test_jax_lowering_for_cuda_names_the_device() -> None:
    with pytest.raises(bp.DeviceMismatchError, match=r"softmax: .*JAX compiles it for CUDA.*sm_90a"):
        jax.jit(lambda x: bp.softmax(x, device="cpu")).trace(X).lower(lowering_platforms=("cuda",))


def test_jax_symbolic_shapes_are_refused() -> None:
    (n,) = jax.export.symbolic_shape("n")
    with pytest.raises(bp.UnsupportedError, match="symbolic extent n"):
        jax.export.export(jax.jit(lambda x: bp.softmax(x)))(jax.ShapeDtypeStruct((n, 4), jnp.float32))


def test_jax_errors_of_values_come_from_the_computation() -> None:
    index = jnp.asarray([[9]], jnp.int32)
    with pytest.raises(JaxRuntimeError, match="InvalidProblemError: take_along_axis: indices"):
        jax.jit(lambda x, i: bp.take_along_axis(x, i, 1, mode="raise"))(X, index).block_until_ready()
    assert np.array_equal(jax.jit(lambda x: bp.relu(x))(X), np.maximum(X, 0)), "the next computation runs"


def test_jax_eager_arrays_stay_read_only() -> None:
    dest, source = jnp.zeros((4, 6)), jnp.ones((1, 6))
    with pytest.raises(bp.OperandTypeError, match="immutable"):
        bp.write_slice(dest, source, [(0, 1), (0, 6)], device="cpu")
    assert not np.asarray(dest).any()


def test_jax_whole_numbers_need_no_derivative() -> None:
    grad = jax.grad(lambda x: (x * bp.greater(x, 0)).sum())(X)
    assert np.array_equal(grad, (X > 0).astype(np.float32))


def test_jax_computations_run_from_two_threads() -> None:
    function = jax.jit(lambda x: bp.softmax(bp.add(x, x)))
    wanted = np.asarray(function(X))
    found: list[bool] = []

    def work() -> None:
        found.extend(np.array_equal(function(X), wanted) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert found == [True] * 40


def test_jax_empty_arrays_are_computed() -> None:
    made = jax.jit(lambda x: bp.softmax(x))(jnp.zeros((0, 6)))
    assert made.shape == (0, 6)
    with bp.device("sm_90a"):
        text = jax.jit(lambda x: bp.gelu(x)).trace(jnp.zeros((0, 6))).lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call" not in text


def test_jax_explain_names_each_way() -> None:
    from baracuda_py.interop.jax import explain

    def function(x: Any) -> Any:
        return bp.matmul(bp.softmax(x), x.T)

    assert [way.way for way in explain(function, X)] == ["handler", "handler"]
    on_gpu = explain(jax.jit(function), jax.ShapeDtypeStruct((4, 6), jnp.float32), device="sm_90a")
    assert [(way.op, way.way) for way in on_gpu] == [("softmax", "ptx"), ("matmul", "ptx")]
    assert str(on_gpu).splitlines()[0] == "softmax: ptx, because the kernel takes only addresses and constants"
