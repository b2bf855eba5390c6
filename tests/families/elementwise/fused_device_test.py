"""Fused functions on a GPU: random arrays of every layout against float64, torch tensors, captures, repeated calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(0)


@bp.fuse
def gate(x: Any, y: Any, scale: Any) -> Any:
    z = bp.silu(x) * y * scale
    return bp.where(bp.abs(z) < 4, z, 4 * bp.tanh(z))


def exact(x: Any, y: Any, scale: float) -> Any:
    x, y = x.astype(np.float64), y.astype(np.float64)
    z = x / (1 + np.exp(-x)) * y * scale
    return np.where(np.abs(z) < 4, z, 4 * np.tanh(z))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("layout", ["rows", "broadcast", "transposed", "stepped", "large"])
def test_fused_device_results(dtype: str, layout: str) -> None:
    import cupy

    shape = (1031, 2049) if layout == "large" else (33, 130)
    x, y = (RNG.standard_normal(shape).astype(dtype) for _ in "xy")
    if layout == "broadcast":
        y = y[:1]
    elif layout == "transposed":
        y = np.asfortranarray(y)
    elif layout == "stepped":
        x, y = x[::2, ::-1], y[1::2, :]
        x = x[: len(y)]
    a, b = cupy.asarray(x), cupy.asarray(y)
    for scale in (0.5, 2.0, 0.5):  # another number is no new kernel
        plan = gate.plan(a, b, scale)
        got = gate(a, b, scale)
        assert got.dtype == dtype
        want = exact(x, y, scale)
        digits = np.finfo(dtype).eps
        near = np.abs(np.abs(want) - 4) < 64 * digits  # either branch, by a rounding
        np.testing.assert_allclose(got.get()[~near], want[~near], rtol=16 * digits, atol=16 * digits)
        assert plan.verify(x1=a, x2=b).outputs[0].share <= 1


def test_fused_device_tensors_and_captures() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.randn(64, 1000, device="cuda"), torch.randn(1000, device="cuda")
    want = gate(x, y, 0.5)
    z = torch.nn.functional.silu(x) * y * 0.5
    torch.testing.assert_close(want, torch.where(z.abs() < 4, z, 4 * z.tanh()), rtol=1e-5, atol=1e-4)
    out, graph = torch.empty_like(x), torch.cuda.CUDAGraph()
    gate(x, y, 0.5, out=out)
    with torch.cuda.graph(graph):
        gate(x, y, 0.5, out=out)
    for _ in range(2):
        x.normal_()
        graph.replay()
        assert torch.equal(out, gate(x, y, 0.5))


def test_fused_device_gives_several_results() -> None:
    import cupy

    both = bp.fuse(lambda x: (bp.exp(x), bp.maximum(x, 0) * 2))
    x = cupy.asarray(RNG.standard_normal((7, 333)), "float32")
    for _ in range(2):
        first, second = both(x)
        assert np.allclose(first.get(), np.exp(x.get()), rtol=1e-5)
        assert (second.get() == np.maximum(x.get(), 0) * 2).all()
