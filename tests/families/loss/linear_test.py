"""Linear cross entropy against torch on the host; its chunks, their scratch and their order; what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, admissible, served

rng = np.random.default_rng(8)
Plan = bp.LinearCrossEntropyPlan


def operands(rows: int, inner: int, classes: int, dtype: Any = np.float32) -> tuple[Any, Any, Any]:
    hidden, weight = rng.standard_normal((rows, inner)), rng.standard_normal((classes, inner)) / 2
    return hidden.astype(dtype), weight.astype(dtype), rng.integers(0, classes, rows)


def described(rows: int, inner: int, classes: int, *, gradients: bool = True) -> Any:
    more: dict[str, Any] = {"grad_hidden_element": "bf16", "grad_weight_element": "f32"} if gradients else {}
    return bp.LinearCrossEntropyDescriptor((rows, inner), (classes, inner), "bf16", **more)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_linear_is_that_of_torch(reduction: str, backend: str) -> None:
    torch = pytest.importorskip("torch")
    hidden, weight, labels = operands(11, 7, 19, np.float64)
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": 0.2, "ignore_index": int(labels[0])}
    h, w = (torch.tensor(x, requires_grad=True) for x in (hidden, weight))
    loss = torch.nn.functional.cross_entropy(h @ w.T, torch.tensor(labels), **options)
    loss.sum().backward()
    got = bp.linear_cross_entropy(hidden, weight, labels, **options, return_gradients=True, device=backend)
    assert np.allclose(got.out, loss.detach().numpy(), rtol=1e-12, atol=1e-13)
    assert np.allclose(got.grad_hidden, h.grad.numpy(), rtol=1e-11, atol=1e-13)
    assert np.allclose(got.grad_weight, w.grad.numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_linear_is_differentiated_by_torch(backend: str) -> None:
    torch = pytest.importorskip("torch")
    hidden, weight, labels = operands(9, 8, 21)
    found = []
    for own in (True, False):
        h, w = (torch.tensor(x, requires_grad=True) for x in (hidden, weight))
        with bp.device(backend):
            if own:
                loss = bp.linear_cross_entropy(h, w, torch.tensor(labels), z_loss=1e-2)
            else:
                x = h @ w.T
                loss = torch.nn.functional.cross_entropy(x, torch.tensor(labels))
                loss = loss + 1e-2 * x.logsumexp(1).square().mean()
            (3 * loss).backward()
        found.append((h.grad.numpy(), w.grad.numpy()))
    for got, wanted in zip(*found):
        assert np.allclose(got, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["linear_cross_entropy", "linear_cross_entropy_backward"])
def test_linear_chunks_keep_the_bound(name: str) -> None:
    hidden, weight, labels = operands(40, 24, 21, bp.BF16.dtype)
    labels[17:33:3] = -100
    held: dict[str, Any] = {"hidden": hidden, "weight": weight, "labels": labels}
    options: dict[str, Any] = {"return_gradients": True, "return_lse": True}
    if name.endswith("backward"):
        lse = np.log(np.exp(hidden.astype(np.float64) @ weight.astype(np.float64).T).sum(axis=1)).astype(np.float32)
        held, options = {"grad": np.full((), 3, np.float32), **held, "lse": lse}, {}
    problem = Problem(get_op(name), Sample("chunks", held, options), "ptx")
    plans = admissible(problem)
    assert sorted({plan.selection.config.rows for plan in plans}) == [16, 32, 40]
    served(problem, plans)


def test_linear_chunks_take_each_row_once() -> None:
    hidden, weight, labels = operands(40, 24, 21, np.float64)
    options: dict[str, Any] = {"return_gradients": True, "reduction": "none"}
    whole = bp.linear_cross_entropy(hidden, weight, labels, **options, device="ptx")
    desc = bp.LinearCrossEntropyDescriptor.of(hidden, weight, labels, **options)
    configs = list(Plan.candidates[0].configs(desc.canonical(), Plan.select(desc, device="ptx").selection.device))
    assert [config.rows for config in configs] == [40, 32, 16]
    for each in configs:
        got = bp.linear_cross_entropy(
            hidden, weight, labels, **options, pref=bp.PlanPreference(config=str(each)), device="ptx"
        )
        for mine, all_of_it in zip(got, whole):
            assert np.allclose(mine, all_of_it, rtol=1e-13, atol=1e-13)


def test_linear_gradients_alone_and_into_views() -> None:
    hidden, weight, labels = operands(6, 8, 10)
    both = bp.linear_cross_entropy(hidden, weight, labels, return_gradients=True, device="ptx")
    storage = np.full((10, 16), 7, np.float32)
    one = bp.linear_cross_entropy(hidden, weight, labels, grad_weight=storage[:, ::2], device="ptx")
    assert one._fields == ("out", "grad_weight") and np.array_equal(storage[:, ::2], both.grad_weight)
    assert (storage[:, 1::2] == 7).all()


@pytest.mark.parametrize("rows", [1024, 8192])
def test_linear_scratch_is_a_part_of_the_outputs(rows: int) -> None:
    for gradients in (True, False):
        plan = Plan.select(described(rows, 4096, 128_256, gradients=gradients), device="sm_90a")
        outputs = gradients * (2 * rows * 4096 + 4 * 128_256 * 4096)
        assert 0 < plan.workspace_size <= max(0.2 * outputs, 256 << 20) + (1 << 20)


def test_linear_wrong_label() -> None:
    hidden, weight, labels = operands(5, 8, 9)
    labels[3] = 9
    out, grad = np.full((), 7, np.float32), np.full((9, 8), 7, np.float32)
    for backend in ("cpu", "ptx"):
        with pytest.raises(bp.InvalidProblemError, match=r"labels\[3\] = 9 is neither a class"):
            bp.linear_cross_entropy(hidden, weight, labels, out=out, grad_weight=grad, device=backend)
        assert out == 7 and (grad == 7).all()
        status = np.full((), 7, np.int32)
        got = bp.linear_cross_entropy(
            hidden, weight, labels, reduction="none", status=status, return_gradients=True, device=backend
        )
        assert got.status == 1 and np.isnan(got.out).tolist() == [False, False, False, True, False]
        assert np.isnan(got.grad_hidden).any(axis=1).tolist() == [False, False, False, True, False]


def test_linear_refuses_what_does_not_fit() -> None:
    hidden, weight, labels = operands(5, 8, 9)
    with pytest.raises(bp.InvalidProblemError, match=r"hidden must have shape \[N, H\] and weight \[V, H\]"):
        bp.linear_cross_entropy(hidden, weight.T, labels, device="cpu")
    with pytest.raises(bp.OperandTypeError, match="weight must hold f32"):
        bp.linear_cross_entropy(hidden, weight.astype(np.float64), labels, device="cpu")
    short = np.empty((9, 8), bp.BF16.dtype)
    with pytest.raises(bp.OperandTypeError, match="grad_weight must hold f32"):
        bp.linear_cross_entropy(hidden, weight, labels, grad_weight=short, device="cpu")


def test_linear_from_threads_has_the_same_bits() -> None:
    hidden, weight, labels = operands(20, 16, 33, bp.BF16.dtype)

    def called(_: int) -> tuple[bytes, ...]:
        found = bp.linear_cross_entropy(hidden, weight, labels, return_gradients=True, device="ptx")
        return tuple(np.asarray(x).tobytes() for x in found)

    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(called, range(4)))) == 1
