"""The CTC loss against torch on the host and against all alignments of tiny problems; corners; what is out of range."""

from __future__ import annotations

from itertools import groupby, product
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

rng = np.random.default_rng(12)


def log_probs(*shape: int) -> Any:
    x = rng.standard_normal(shape)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_ctc_is_that_of_torch(reduction: str, backend: str) -> None:
    """Lengths from none to all, repeated labels, no alignment; behind log_softmax the gradients are one."""
    torch = pytest.importorskip("torch")
    x, targets = rng.standard_normal((12, 6, 4)), rng.choice([0, 1, 3], (6, 4))
    targets[1] = 3
    inputs, sizes = np.array([12, 7, 10, 3, 0, 9]), np.array([4, 3, 0, 4, 0, 1])
    for zero_infinity in (False, True):
        held = torch.tensor(x, requires_grad=True)
        given = [torch.tensor(one) for one in (targets, inputs, sizes)]
        options: dict[str, Any] = {"blank": 2, "reduction": reduction, "zero_infinity": zero_infinity}
        wanted = torch.nn.functional.ctc_loss(held.log_softmax(-1), *given, **options)
        logs = held.log_softmax(-1).detach().numpy()
        got = bp.ctc_loss(logs, targets, inputs, sizes, **options, device=backend)
        assert np.allclose(got, wanted.detach().numpy(), rtol=1e-13)
        grad = np.asarray(rng.standard_normal(got.shape))
        wanted.backward(torch.tensor(grad))
        slopes = bp.ctc_loss_backward(grad, logs, targets, inputs, sizes, **options, device=backend)
        behind = slopes - np.exp(logs) * slopes.sum(-1, keepdims=True)
        assert np.allclose(behind, held.grad.numpy(), rtol=1e-11, atol=1e-14, equal_nan=True)


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_ctc_is_the_sum_of_alignments(backend: str) -> None:
    """All paths of five steps over three classes."""
    logs = log_probs(5, 1, 3)
    for labels in ([], [1], [1, 2], [2, 2], [1, 1, 1], [1, 1, 1, 1]):
        total, taken = 0.0, np.zeros((5, 3))
        for path in product(range(3), repeat=5):
            if [y for y, _ in groupby(path) if y] == labels:
                chance = np.exp(sum(logs[t, 0, y] for t, y in enumerate(path)))
                total += chance
                taken[np.arange(5), path] += chance
        targets = np.array([labels], np.int64).reshape(1, -1)
        given = (logs, targets, np.array([5]), np.array([len(labels)]))
        with np.errstate(divide="ignore", invalid="ignore"):
            wanted, slopes = -np.log(total), -taken / total
        got = bp.ctc_loss(*given, reduction="sum", device=backend)
        assert np.allclose(got, wanted, rtol=1e-13), labels
        got = bp.ctc_loss_backward(np.ones(()), *given, reduction="sum", device=backend)
        assert np.allclose(got[:, 0], slopes, rtol=1e-11, atol=1e-15, equal_nan=True), labels


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_ctc_of_impossible_classes(backend: str) -> None:
    """A log-probability of -inf has no share, and no NaN; without any path left, the loss is inf."""
    logs = log_probs(4, 1, 3)
    logs[1, 0, 2] = logs[2, 0, 0] = -np.inf
    given = (np.array([[1, 2]]), np.array([4]), np.array([2]))
    slopes = bp.ctc_loss_backward(np.ones(()), logs, *given, reduction="sum", device=backend)
    assert slopes[1, 0, 2] == slopes[2, 0, 0] == 0 and np.allclose(slopes.sum(-1), -1, rtol=1e-12)
    logs[:, 0, 2] = -np.inf
    assert bp.ctc_loss(logs, *given, device=backend) == np.inf
    assert bp.ctc_loss(logs, *given, zero_infinity=True, device=backend) == 0
    logs[0, 0, 0] = np.nan
    assert np.isnan(bp.ctc_loss(log_probs(4, 1, 3) + logs[0, 0, 0], *given, zero_infinity=True, device=backend))


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
def test_ctc_longer_than_a_float_holds(backend: str) -> None:
    """A probability of e**-4000 has its logarithm, and posteriors that add up to 1 but for the steps' roundings of logarithms."""
    steps = 80
    logs = (log_probs(steps, 1, 5) - 50).astype(np.float32)
    given = (np.array([[1, 1, 2, 3, 4, 4, 1]]), np.array([steps]), np.array([7]))
    wanted = bp.ctc_loss(logs.astype(np.float64), *given, device="cpu")
    assert 7 * wanted > 4000 and np.allclose(bp.ctc_loss(logs, *given, device=backend), wanted, rtol=1e-5)
    slopes = bp.ctc_loss_backward(np.full((), 7, np.float32), logs, *given, device=backend)
    assert np.allclose(slopes.sum(-1), -1, rtol=0, atol=steps * np.spacing(np.float32(4000)))


@pytest.mark.parametrize("backend", ["cpu", "ptx"])
@pytest.mark.parametrize("what", ["input_lengths", "target_lengths", "targets"])
def test_ctc_out_of_range(what: str, backend: str) -> None:
    given = {
        "targets": rng.integers(1, 4, (3, 2)),
        "input_lengths": np.full(3, 5),
        "target_lengths": np.array([2, 1, 2]),
    }
    logs, out, grad = log_probs(5, 3, 4).astype(np.float32), np.full(3, 7, np.float32), np.ones(3, np.float32)
    given["targets"][1, 1] = 9  # past the end of its labels
    slopes, status = np.full((5, 3, 8), 3, np.float32), np.full((), 9, np.int32)
    good = bp.ctc_loss(logs, **given, reduction="none", device=backend)
    for wrong in (-1, 6 if what == "input_lengths" else 3 if what == "target_lengths" else 4, 2**40):
        given[what].reshape(3, -1)[2, 0] = wrong
        place = "2, 0" if what == "targets" else "2"
        with pytest.raises(bp.InvalidProblemError, match=rf"{what}\[{place}\] = {wrong} is no"):
            bp.ctc_loss(logs, **given, reduction="none", out=out, device=backend)
        assert (out == 7).all()
        got, found = bp.ctc_loss(logs, **given, reduction="none", return_status=True, device=backend)
        assert found == 1 and np.array_equal(got, [*good[:2], np.nan], equal_nan=True)
        bp.ctc_loss_backward(
            grad, logs, **given, reduction="none", grad_log_probs=slopes[..., :4], status=status, device=backend
        )
        assert status == 1 and (slopes[..., 4:] == 3).all()
        assert np.isnan(slopes[:, 2, :4]).all() and not np.isnan(slopes[:, :2]).any()


def test_ctc_refuses_other_shapes() -> None:
    logs, targets, lengths = log_probs(5, 2, 4), np.ones((2, 3), np.int64), np.array([5, 5])
    with pytest.raises(bp.InvalidProblemError, match=r"log_probs must have shape \[T, N, C\]"):
        bp.ctc_loss(logs[:, 0], targets, lengths, lengths, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match=r"targets must have shape \[N, S\], N = 2"):
        bp.ctc_loss(logs, targets[:1], lengths, lengths, device="cpu")
    for blank in (-1, 4):
        with pytest.raises(bp.InvalidProblemError, match=f"blank={blank} is no class: give 0 to 3"):
            bp.ctc_loss(logs, targets, lengths, lengths, blank=blank, device="cpu")
    with pytest.raises(bp.InvalidProblemError, match="zero_infinity must be True or False"):
        bp.ctc_loss(logs, targets, lengths, lengths, zero_infinity="yes", device="cpu")
    with pytest.raises(bp.BaracudaError, match="target_lengths"):
        bp.ctc_loss(logs, targets, lengths, lengths.astype(np.int32), device="cpu")
