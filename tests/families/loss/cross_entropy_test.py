"""Cross entropy against torch on the host, wide rows, labels out of range, and logits that are overwritten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan import get_op
from baracuda_py.samples import Sample

from ...gauntlet import Problem, served

rng = np.random.default_rng(5)


def operands(rows: int, classes: int, dtype: Any = np.float32) -> tuple[Any, Any]:
    return (3 * rng.standard_normal((rows, classes))).astype(dtype), rng.integers(0, classes, rows)


def drawn(classes: int) -> dict[str, Any]:
    """Random arguments of torch's."""
    options: dict[str, Any] = {"reduction": rng.choice(["mean", "sum", "none"]).item()}
    options |= {"label_smoothing": float(rng.random())} if rng.random() < 0.5 else {}
    options |= {"weight": rng.random(classes)} if rng.random() < 0.5 else {}
    return options | ({"ignore_index": int(rng.integers(0, classes))} if rng.random() < 0.5 else {})


@pytest.mark.parametrize("seed", range(6))
def test_cross_entropy_is_that_of_torch(seed: int) -> None:
    torch = pytest.importorskip("torch")
    rows, classes = int(rng.integers(1, 20)), int(rng.integers(1, 90))
    (x, labels), options = operands(rows, classes, np.float64), drawn(classes)
    logits = torch.tensor(x, requires_grad=True)
    given = {n: torch.tensor(v) if n == "weight" else v for n, v in options.items()}
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(labels), **given)
    got, lse = bp.cross_entropy(x, labels, **options, return_lse=True, device="ptx" if seed < 3 else "cpu")
    assert np.allclose(got, loss.detach().numpy(), rtol=1e-13, atol=1e-13, equal_nan=True)
    grad = np.asarray(rng.standard_normal(got.shape))
    loss.backward(torch.tensor(grad))
    got = bp.cross_entropy_backward(grad, x, labels, lse, **options, device="ptx" if seed < 3 else "cpu")
    assert np.allclose(got, logits.grad.numpy(), rtol=1e-12, atol=1e-13, equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_all_ignored_is_that_of_torch(reduction: str) -> None:
    torch = pytest.importorskip("torch")
    x, labels = operands(3, 7)
    labels[:] = -100
    logits = torch.tensor(x, requires_grad=True)
    wanted = torch.nn.functional.cross_entropy(logits, torch.tensor(labels), reduction=reduction)
    wanted.backward(torch.ones_like(wanted))
    got, lse = bp.cross_entropy(x, labels, reduction=reduction, return_lse=True, device="ptx")
    assert np.array_equal(got, wanted.detach().numpy(), equal_nan=True)
    got = bp.cross_entropy_backward(np.ones(got.shape, np.float32), x, labels, lse, reduction=reduction, device="ptx")
    assert np.array_equal(got, logits.grad.numpy()) and not got.any()


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_cross_entropy_is_differentiated_by_torch(backend: str) -> None:
    torch = pytest.importorskip("torch")
    x, labels = operands(5, 12)
    options: dict[str, Any] = {"label_smoothing": 0.2, "ignore_index": int(labels[1])}
    found = []
    for function in (bp.cross_entropy, torch.nn.functional.cross_entropy):
        logits = torch.tensor(x, requires_grad=True)
        with bp.device(backend):
            loss = function(logits, torch.tensor(labels), **options)
            loss.backward()
        found.append((loss.detach().numpy(), logits.grad.numpy()))
    assert np.allclose(found[0][0], found[1][0], rtol=1e-6) and np.allclose(found[0][1], found[1][1], atol=1e-7)


@pytest.mark.parametrize("op", ["cross_entropy", "cross_entropy_backward"])
@pytest.mark.parametrize("classes", [128_256, 151_936])
def test_cross_entropy_streams_long_rows(op: str, classes: int) -> None:
    x, labels = operands(1, classes, bp.BF16.dtype)
    lse = np.log(np.exp(x.astype(np.float64)).sum(axis=1)).astype(np.float32)
    more = {"grad": np.ones((), np.float32), "lse": lse} if op.endswith("backward") else {}
    problem = Problem(get_op(op), Sample("wide", {"logits": x, "labels": labels, **more}), "ptx")
    served(problem, [problem.plan])


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("label", [-1, 9, 2**40, -(2**63)])
def test_cross_entropy_label_out_of_range(label: int, backend: str) -> None:
    x, labels = operands(4, 9)
    labels[2] = label
    out = np.full((), 7, np.float32)
    with pytest.raises(bp.InvalidProblemError, match=rf"labels\[2\] = {label} is neither a class"):
        bp.cross_entropy(x, labels, out=out, device=backend)
    assert out == 7
    status = np.full((), 9, np.int32)
    got, lse, _ = bp.cross_entropy(x, labels, reduction="none", return_lse=True, status=status, device=backend)
    assert status == 1 and np.isnan(got).tolist() == [False, False, True, False]
    grad = np.ones(4, np.float32)
    with pytest.raises(bp.InvalidProblemError, match="is neither a class"):
        bp.cross_entropy_backward(grad, x, labels, lse, reduction="none", device=backend)
    got, _ = bp.cross_entropy_backward(grad, x, labels, lse, reduction="none", status=status, device=backend)
    assert np.isnan(got).any(axis=1).tolist() == [False, False, True, False]


def test_cross_entropy_backward_overwrites_logits() -> None:
    for classes in (33, 20_001):
        x, labels = operands(3, classes)
        lse, grad = np.log(np.exp(x).sum(axis=1)), np.ones((), np.float32)
        wanted = bp.cross_entropy_backward(grad, x, labels, lse, device="ptx")
        assert bp.cross_entropy_backward(grad, x, labels, lse, grad_logits=x, device="ptx") is x
        assert np.array_equal(x, wanted)


def test_cross_entropy_from_threads_has_the_same_bits() -> None:
    x, labels = operands(40, 50)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: bp.cross_entropy(x, labels, device="ptx").tobytes(), range(4)))
    assert len(set(found)) == 1
