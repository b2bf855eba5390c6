"""Gradients and statistics of rows of fused functions on a GPU: every way to share out a row, layouts, torch, captures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

from .fused_gradient_test import gate
from .fused_rows_test import layer_norm, moments, softmax, wide_norm, wide_softmax

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(5, 3), (1031, 130), (64, 4096), (3, 8193), (16, 40000), (1, 300000)])
def test_rows_device_results(dtype: str, shape: tuple[int, int]) -> None:
    """Rows that stay in registers and rows that are read again, with vectors and without."""
    import cupy

    x, w = (
        cupy.asarray(RNG.standard_normal(shape).astype(dtype)),
        cupy.asarray(RNG.standard_normal(shape[1]).astype(dtype)),
    )
    for fused, args in ((layer_norm, (x, w, w, 0.1)), (softmax, (x, 1.5)), (moments, (x, x * 2))):
        given = {f"x{i + 1}": a for i, a in enumerate(args)}
        assert all(one.share <= 1 for one in fused.plan(*args).verify(**given).outputs)
    wide = x.get().astype(np.float64)
    digits = 64 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(softmax(x, 1.5).get(), wide_softmax(wide, 1.5), rtol=digits, atol=digits)
    np.testing.assert_allclose(
        layer_norm(x, w, w, 0.1).get(),
        wide_norm(wide, w.get().astype(float), w.get().astype(float), 0.1),
        rtol=digits,
        atol=digits,
    )
    first = softmax(x, 1.5)
    assert (first == softmax(x, 1.5)).all() and (softmax(x[:1], 1.5) == first[:1]).all()


def test_gradient_device_kernels_hold_their_bound() -> None:
    import cupy

    x, y, b = (cupy.asarray(RNG.standard_normal(shape), "float32") for shape in ((33, 130), (33, 1), (130,)))
    for fused, args in ((gate, (x, y, b, 0.5)), (layer_norm, (x, b, b, 0.1)), (softmax, (x, y))):
        for part in fused.gradient(*args):
            held = {f"x{i + 1}": a for i, a in enumerate(args)} | {"grad": cupy.ones_like(x)}
            given = {f"x{i + 1}": held[name] for i, name in enumerate(part.inputs)}
            assert all(one.share <= 1 for one in part.plan.verify(**given).outputs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradient_device_in_torch(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    x, y = (torch.randn(64, 1000, device="cuda", dtype=kind, requires_grad=True) for _ in "xy")
    b = torch.randn(1000, device="cuda", dtype=kind, requires_grad=True)

    def reference(x: Any, y: Any, b: Any) -> Any:
        return torch.nn.functional.gelu(x + b) * torch.nn.functional.silu(y) * 0.5

    wide = [t.detach().double().requires_grad_() for t in (x, y, b)]
    grad = torch.randn_like(x)
    want = torch.autograd.grad(reference(*wide), wide, grad.double())
    for _ in range(2):
        got = torch.autograd.grad(gate(x, y, b, 0.5), (x, y, b), grad)
        for one, other in zip(got, want):
            torch.testing.assert_close(one.double(), other, rtol=2e-2, atol=2e-1 if dtype == "bfloat16" else 1e-3)
    found, graph = gate.backward(grad, x.detach(), y.detach(), b.detach(), 0.5), torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        captured = gate.backward(grad, x.detach(), y.detach(), b.detach(), 0.5)
    graph.replay()
    assert all(torch.equal(one, other) for one, other in zip(found[:3], captured[:3]))


def test_rows_device_gradient_in_place_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(128, 2048, device="cuda", requires_grad=True)
    w, b = (torch.randn(2048, device="cuda", requires_grad=True) for _ in "wb")
    got = torch.autograd.grad(layer_norm(x, w, b, 1e-5).sum(), (x, w, b))
    want = torch.autograd.grad(torch.nn.functional.layer_norm(x, (2048,), w, b, 1e-5).sum(), (x, w, b))
    for one, other in zip(got, want):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)
    with pytest.raises(bp.UnsupportedError, match="no gradient of its own"):
        torch.autograd.grad(layer_norm(x, w, b, 1e-5).sum(), x, create_graph=True)
