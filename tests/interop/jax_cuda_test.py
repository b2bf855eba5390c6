"""Traced calls on a GPU: XLA's own kernel call, the handler on XLA's stream, gradients, donation, and what a call costs.

python -m pytest -q -m gpu tests/interop/jax_cuda_test.py -s
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.registry import all_ops

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def jax() -> Any:
    """JAX, set to leave memory to the other libraries."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("this JAX has no CUDA")
    return module


def array(*shape: int, dtype: str = "float32") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


RUN: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "elementwise": (lambda x: bp.gelu(x), (array(3, 37),), "ptx"),
    "rows": (lambda x: bp.softmax(x), (array(64, 4096),), "ptx"),
    "scratch": (lambda x: bp.sum(x, axis=0), (array(5000, 33),), "ptx"),
    "two results": (lambda x, w: tuple(bp.rms_norm(x, w, stats=True)), (array(64, 4096), array(4096)), "ptx"),
    "constants": (lambda x: bp.rope(x, base=100.0), (array(1, 2, 3, 8),), "ptx"),
    "copy": (lambda d, s: bp.write_slice(d, s, [(1, 2), (0, 33)]), (array(4, 33), array(1, 33)), "ptx"),
    "copy of rows": (lambda d, s: bp.write_slice(d, s, [(0, 4), (3, 9)]), (array(4, 33), array(4, 6)), "ptx"),
    "indexed struct": (lambda o, s: tuple(bp.merge_attention(o, s)), (array(2, 1, 2, 3, 16), array(2, 1, 2, 3)), "ptx"),
    "large shared memory": (
        lambda q: bp.attention(q, q, q, causal=True), (array(1, 4, 113, 128, dtype="float16"),), "ptx",
    ),
    "tensor maps": (lambda a, b: bp.matmul(a, b), tuple(array(1024, 1024, dtype="float16") for _ in "ab"), "handler"),
}  # fmt: skip


@pytest.mark.parametrize("case", RUN)
def test_jax_cuda_gives_the_answer(jax: Any, case: str) -> None:
    from baracuda_py.interop.jax import explain

    function, arrays, way = RUN[case]
    own = [jax.numpy.asarray(x) for x in arrays]
    found = explain(function, *own, device=0)
    print(case, *found)
    if found[0].way != way and way == "handler":
        pytest.skip("this GPU has no kernels that take tensor maps")
    assert found[0].way == way
    call = jax.jit(lambda *own: function(*own))
    wanted = _on_the_host(function, arrays)
    for _ in range(3):  # XLA may record a command buffer after the first
        made = call(*own)
        for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
            half = got.dtype == np.float16
            np.testing.assert_allclose(got, want, rtol=2e-2 if half else 1e-4, atol=2e-1 if half else 1e-4)


def _on_the_host(function: Callable[..., Any], arrays: Any) -> tuple[Any, ...]:
    with bp.device("cpu"):
        made = function(*(x.copy() for x in arrays))
    return made if isinstance(made, tuple) else (made,)


def test_jax_cuda_chains_calls_with_jax(jax: Any) -> None:
    x, w = jax.numpy.asarray(array(256, 512)), jax.numpy.asarray(array(512, 256))
    call = jax.jit(lambda x, w: bp.softmax(bp.matmul(x * 2, w)) + 1)
    want = jax.nn.softmax(jax.numpy.matmul(x * 2, w, precision="highest"), -1) + 1
    for _ in range(5):
        np.testing.assert_allclose(call(x, w), want, rtol=1e-3, atol=1e-4)


def test_jax_cuda_gradients(jax: Any) -> None:
    x, w = jax.numpy.asarray(array(64, 128)), jax.numpy.asarray(array(128, 64))
    got = jax.jit(jax.grad(lambda x, w: (bp.matmul(x, w, activation="gelu") ** 2).mean(), (0, 1)))(x, w)

    def theirs(x: Any, w: Any) -> Any:
        return (jax.nn.gelu(jax.numpy.matmul(x, w, precision="highest"), approximate=False) ** 2).mean()

    for a, b in zip(got, jax.grad(theirs, (0, 1))(x, w)):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_jax_cuda_donation_writes_in_place(jax: Any) -> None:
    dest, source = jax.numpy.zeros((64, 128)), jax.numpy.ones((1, 128))
    place = dest.unsafe_buffer_pointer()
    made = jax.jit(lambda d, s: bp.write_slice(d, s, [(5, 6), (0, 128)]), donate_argnums=0)(dest, source)
    assert made.unsafe_buffer_pointer() == place
    assert float(made.sum()) == 128


def test_jax_cuda_compiles_a_kernel_of_every_family(jax: Any) -> None:
    from baracuda_py.interop.jax import explain

    from .arrays import calls_of
    from .jax_ops_test import as_jitted

    seen: set[Any] = set()
    with jax.enable_x64(True):
        for name, op in all_ops().items():
            if op.plan in seen:
                continue
            for given, wanted in calls_of(name, 1):
                seen.add(op.plan)
                call, arrays = as_jitted(name, given)
                made = jax.jit(call)(*map(jax.numpy.asarray, arrays))
                for got, want in zip(made, wanted, strict=True):
                    assert got.shape == want.shape, name
                    if got.dtype in ("float32", "float64"):
                        most = float(np.abs(want[np.isfinite(want)]).max(initial=0))
                        np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2 * most, err_msg=name)
                    got.block_until_ready()  # a kernel that XLA cannot load is an error of the result
                print(*explain(call, *arrays, device=0))


def test_jax_cuda_call_costs(jax: Any) -> None:
    x = jax.numpy.asarray(array(64, 1024))
    for name, function in {"ours": lambda x: bp.softmax(x), "jax": lambda x: jax.nn.softmax(x, -1)}.items():
        call = jax.jit(function)
        call(x).block_until_ready()
        times = []
        for _ in range(5):
            began = time.perf_counter()
            for _ in range(200):
                made = call(x)
            made.block_until_ready()
            times.append((time.perf_counter() - began) / 200 * 1e6)
        print(f"softmax, {name}: {min(times):.1f} us per call")
