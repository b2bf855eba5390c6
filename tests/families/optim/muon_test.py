"""Muon beside torch's, on the emulator and the reference; masters, rates in memory, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")

COVERS = ("muon_update",)
SHAPES = ((5, 7), (24, 9), (1, 3), (3, 1), (17, 17))
BACKENDS = pytest.mark.parametrize("device", ["cpu", "ptx"])


def _distance(p: Any, q: Any, start: Any) -> float:
    """How far two results are from each other, as a share of the way that they went."""
    return float((p - q.detach()).norm() / (q.detach() - start).norm())


@pytest.mark.parametrize(
    ("device", "steps", "most"), [("ptx", 2, 0.01), ("cpu", 10, 0.06)], ids=("emulated", "reference")
)
@pytest.mark.parametrize(
    "options",
    [{}, {"nesterov": False, "momentum": 0.3, "weight_decay": 0.0}, {"adjust_lr_fn": "match_rms_adamw", "eps": 1.0}],
    ids=lambda x: "-".join(x) or "default",
)
def test_muon_takes_torchs_steps(device: str, steps: int, most: float, options: dict[str, Any]) -> None:
    """By the same roundings on the emulator, and without those to bf16 on the reference."""
    generator = torch.Generator().manual_seed(3)
    start = [torch.randn(shape, generator=generator) for shape in SHAPES]
    params, buffers = [p.clone() for p in start], [torch.zeros(shape) for shape in SHAPES]
    wanted = [torch.nn.Parameter(p.clone()) for p in start]
    theirs = torch.optim.Muon(wanted, lr=0.02, **options)
    for _ in range(steps):
        for p, q, buffer in zip(params, wanted, buffers):
            q.grad = torch.randn(p.shape, generator=generator)
            bp.muon_update(p, q.grad.clone(), buffer, lr=0.02, **options, device=device)
        theirs.step()
    for p, q, buffer, old in zip(params, wanted, buffers, start):
        assert _distance(p, q, old) < most
        torch.testing.assert_close(buffer, theirs.state[q]["momentum_buffer"], rtol=1e-5, atol=1e-6)


@BACKENDS
def test_muon_orthogonalises(device: str) -> None:
    """All singular values of a step go to about 1, as its coefficients have it."""
    rng = np.random.default_rng(2)
    param, grad = np.zeros((12, 20), np.float32), rng.standard_normal((12, 20)).astype(np.float32)
    bp.muon_update(param, grad, np.zeros_like(grad), lr=1.0, ns_steps=7, device=device)
    values = np.linalg.svd(param, compute_uv=False)
    assert values.min() > 0.6 and values.max() < 1.25


@BACKENDS
def test_muon_parameters_are_their_masters_rounded(device: str) -> None:
    rng = np.random.default_rng(0)
    master, grad = rng.standard_normal((5, 7)).astype(np.float32), rng.standard_normal((5, 7)).astype(np.float16)
    param, alone, rate = np.zeros((5, 7), np.float16), master.copy(), np.asarray(0.5, np.float32)
    buffers = [np.zeros((5, 7), np.float32) for _ in range(2)]
    bp.muon_update(param, grad, buffers[0], master=master, learning_rate=rate, lr=7.0, device=device)
    bp.muon_update(alone, grad.astype(np.float32), buffers[1], lr=0.5, device=device)
    assert np.array_equal(master, alone)
    assert np.array_equal(param, master.astype(np.float16))


@BACKENDS
def test_muon_of_zeros_decays_alone(device: str) -> None:
    """The divisor is eps, not 0."""
    param, zeros = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
    bp.muon_update(param, zeros, zeros.copy(), lr=0.5, weight_decay=0.5, device=device)
    assert (param == 0.75).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lr": -1.0}, "lr=-1.0: give a number of 0 or more"),
        ({"eps": float("nan")}, "eps=nan"),
        ({"weight_decay": 1e39}, "that f32 holds"),
        ({"ns_steps": 100}, "ns_steps=100: give 0 to 99"),
        ({"ns_coefficients": (1.0, 2.0)}, "give three numbers"),
        ({"ns_coefficients": 1.0}, "is no tuple"),
        ({"adjust_lr_fn": "other"}, "adjust_lr_fn='other' is unknown"),
        ({"nesterov": 2}, "nesterov must be True or False"),
    ],
)
def test_muon_arguments_that_are_refused(options: dict[str, Any], says: str) -> None:
    param, buffer = np.ones((3, 2), np.float32), np.zeros((3, 2), np.float32)
    with pytest.raises(bp.BaracudaError, match=says):
        bp.muon_update(param, param.copy(), buffer, **options, device="cpu")
    assert (param == 1).all()
    assert (buffer == 0).all()


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), ()])
def test_muon_of_no_matrix_is_refused(shape: tuple[int, ...]) -> None:
    x = [np.ones(shape, np.float32) for _ in range(3)]
    with pytest.raises(bp.InvalidProblemError, match="pass a matrix; other parameters take adamw"):
        bp.muon_update(*x, device="cpu")
    assert all((a == 1).all() for a in x)
