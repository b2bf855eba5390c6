"""JAX arrays on the device: operands of any kind, and results in JAX's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.runtime.gpu.streams import made_current

pytestmark = pytest.mark.gpu
COVERS = ("add", "square", "matmul", "contiguize")


@pytest.fixture(scope="module")
def jax() -> Any:
    """JAX, which leaves memory to the other libraries."""
    import os

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    module = pytest.importorskip("jax")
    if module.default_backend() != "gpu":
        pytest.skip("this JAX has no CUDA")
    return module


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32"])
def test_results_are_jax_arrays(jax: Any, dtype: str) -> None:
    x = jax.numpy.arange(1, 1 + 7 * 33).reshape(7, 33).astype(dtype)
    for _ in range(3):  # the long path, then the short one
        got = bp.square(x)
        assert isinstance(got, jax.Array) and got.dtype == x.dtype and got.shape == x.shape
        assert np.array_equal(np.asarray(got), np.asarray(x * x))
        assert np.array_equal(np.asarray(bp.add(got, x)), np.asarray(x * x + x))


def test_a_product_of_jax_arrays(jax: Any) -> None:
    a, b = (jax.random.normal(jax.random.key(i), s) for i, s in enumerate(((33, 65), (65, 17))))
    want = np.asarray(a, np.float64) @ np.asarray(b, np.float64)
    for _ in range(2):
        assert np.allclose(np.asarray(bp.matmul(a, b)), want, atol=1e-4)


def test_a_result_of_jax_can_be_worked_on_at_once(jax: Any) -> None:
    """JAX runs on streams of its own: what it takes over must have been written, however late the call's stream is."""
    import cupy

    n = 1 << 22
    x = jax.numpy.ones(n)
    bp.square(x)
    kernel = cupy.RawKernel(
        'extern "C" __global__ void spin(long long c) { for (long long t = clock64(); clock64() - t < c;); }', "spin"
    )
    kernel((1,), (1,), (np.int64(1),))
    cupy.cuda.runtime.deviceSynchronize()
    side = cupy.cuda.Stream(non_blocking=True)
    with side:
        kernel((1,), (1,), (np.int64(100_000_000),))
        got = bp.add(x, x)
    total = jax.numpy.sum(got + 1)
    assert float(total) == 3 * n
    with made_current(side.ptr):
        assert float(jax.numpy.sum(bp.contiguize(got[::-1]))) == 2 * n


def test_what_jax_took_over_outlives_the_call(jax: Any) -> None:
    x = jax.numpy.ones(1 << 16)
    kept = [bp.add(x, x) for _ in range(8)]
    for _ in range(64):
        bp.square(x)
    assert all(bool((k == 2).all()) for k in kept)
