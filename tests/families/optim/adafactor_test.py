"""Adafactor beside torch's, 200 steps; numbers that are not finite, masters, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.optim.adafactor import AdafactorUpdateDescriptor

torch = pytest.importorskip("torch")

COVERS = ("adafactor_update",)
SHAPES = ((37,), (5, 7), (), (2, 3, 5), (1, 9), (9, 1), (35, 20))
STEPS, EMULATED = 200, 1
NAN, INF = float("nan"), float("inf")
BACKENDS = pytest.mark.parametrize("device", ["cpu", "ptx"])


def _states(shape: tuple[int, ...], dtype: Any) -> dict[str, Any]:
    if len(shape) < 2:
        return {"variance": torch.zeros(shape, dtype=dtype)}
    return {
        "row_var": torch.zeros((*shape[:-1], 1), dtype=dtype),
        "col_var": torch.zeros((*shape[:-2], 1, shape[-1]), dtype=dtype),
    }


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lr": 0.5, "weight_decay": 0.1, "maximize": True},
        {"lr": 0.1, "beta2_decay": -0.5, "eps": (1e-4, 0.5), "d": 1.5},
    ],
    ids=lambda x: "-".join(x) or "default",
)
def test_adafactor_takes_torchs_200_steps(options: dict[str, Any]) -> None:
    """In f64 to its digits; of the emulated kernel the first steps."""
    generator = torch.Generator().manual_seed(3)
    params = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    wanted = [torch.nn.Parameter(p.clone()) for p in params]
    states = [_states(shape, torch.float64) | {"step": torch.zeros(())} for shape in SHAPES]
    theirs = torch.optim.Adafactor(wanted, **options)
    eps1, eps2 = options.get("eps", (None, 1e-3))
    ours = {name: x for name, x in options.items() if name != "eps"} | {"eps1": eps1, "eps2": eps2}
    for i in range(STEPS):
        for p, q, state in zip(params, wanted, states):
            q.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            bp.adafactor_update(p, q.grad.clone(), **state, **ours, device="ptx" if i < EMULATED else "cpu")
        theirs.step()
    for p, q, state in zip(params, wanted, states):
        torch.testing.assert_close(p, q.detach(), rtol=1e-11, atol=1e-12)
        for name, x in state.items():
            torch.testing.assert_close(x, theirs.state[q][name], rtol=1e-11, atol=1e-12)


@BACKENDS
def test_adafactor_of_bf16_is_near_torchs(device: str) -> None:
    """With a default eps1 of bf16's own, of which torch's states hold the digits."""
    generator = torch.Generator().manual_seed(1)
    p, grad = (torch.randn(9, 24, generator=generator).bfloat16() for _ in range(2))
    q = torch.nn.Parameter(p.clone())
    theirs, states = torch.optim.Adafactor([q], lr=0.25), _states((9, 24), torch.bfloat16)
    q.grad = grad.clone()
    theirs.step()
    bp.adafactor_update(p, grad, torch.zeros(()), lr=0.25, **states, device=device)
    torch.testing.assert_close(p, q.detach(), rtol=2**-6, atol=2**-8)
    for name, x in states.items():
        torch.testing.assert_close(x, theirs.state[q][name], rtol=2**-6, atol=0)


@BACKENDS
@pytest.mark.parametrize("bad", [NAN, INF])
def test_adafactor_of_bad_gradients_moves_as_torchs(device: str, bad: float) -> None:
    grad = np.arange(12, dtype=np.float32).reshape(3, 4)
    grad[1, 2] = bad
    for given in (grad, grad[1].copy()):
        param, q = np.ones_like(given), torch.nn.Parameter(torch.ones(given.shape))
        theirs, states = torch.optim.Adafactor([q], lr=0.5), _states(given.shape, torch.float32)
        q.grad = torch.tensor(given)
        theirs.step()
        held = {name: x.numpy() for name, x in states.items()}
        bp.adafactor_update(param, given, np.zeros((), np.float32), lr=0.5, **held, device=device)
        assert np.allclose(param, q.detach().numpy(), rtol=1e-5, equal_nan=True)


@BACKENDS
def test_adafactor_reads_the_master_and_its_epsilon(device: str) -> None:
    rng = np.random.default_rng(0)
    master, grad = rng.standard_normal((5, 7)).astype(np.float32), np.full((5, 7), 2.0**-12, np.float16)
    param, alone = master.astype(np.float16) * 0, master.copy()
    states = [{name: x.numpy() for name, x in _states((5, 7), torch.float32).items()} for _ in range(2)]
    step = np.zeros((), np.float32)
    bp.adafactor_update(param, grad, step, master=master, lr=0.1, **states[0], device=device)
    bp.adafactor_update(alone, grad.astype(np.float32), np.zeros((), np.float32), lr=0.1, **states[1], device=device)
    assert np.array_equal(master, alone)
    assert np.array_equal(param, master.astype(np.float16))


def test_adafactor_of_many_matrices_shares_out_tiles() -> None:
    """More tiles than CTAs: each CTA takes several, and rows of several matrices; every matrix as if alone."""
    rng = np.random.default_rng(5)
    grad = rng.standard_normal((4100, 1, 2)).astype(np.float32)
    states = {"row_var": np.zeros((4100, 1, 1), np.float32), "col_var": np.zeros((4100, 1, 2), np.float32)}
    param, step = np.zeros_like(grad), np.zeros((), np.float32)
    assert AdafactorUpdateDescriptor.of(param=param, grad=grad, step=step, **states).ctas == 4096
    bp.adafactor_update(param, grad, step, lr=0.5, eps1=0.0, **states, device="ptx")
    assert np.allclose(states["row_var"], (grad.astype(np.float64) ** 2).mean(-1, keepdims=True), rtol=1e-6)
    assert np.allclose(states["col_var"], grad.astype(np.float64) ** 2, rtol=1e-6)
    assert np.allclose(param, -1e-3 * 0.5 * np.sign(grad), rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lr": -1.0}, "lr=-1.0: give a number of 0 or more"),
        ({"beta2_decay": 0.5}, "beta2_decay=0.5: give a number of 0 or less"),
        ({"d": 0.5}, "d=0.5: give a number of 1 or more"),
        ({"eps1": -1.0}, "eps1=-1.0"),
        ({"eps2": NAN}, "eps2=nan"),
        ({"weight_decay": 1e39}, "that f32 holds"),
    ],
)
def test_adafactor_numbers_that_are_refused(options: dict[str, float], says: str) -> None:
    param, step = np.ones(3, np.float32), np.zeros((), np.float32)
    with pytest.raises(bp.InvalidProblemError, match=f"adafactor_update: .*{says}"):
        bp.adafactor_update(param, param.copy(), step, variance=np.zeros(3, np.float32), **options, device="cpu")
    assert (param == 1).all()
    assert step == 0


@pytest.mark.parametrize(
    ("shape", "states", "says"),
    [
        ((3,), {}, r"takes variance: pass variance"),
        ((3, 2), {"row_var": (3, 1)}, r"shape \(3, 2\) takes col_var: pass row_var and col_var"),
        ((3, 2), {"variance": (3, 2)}, r"takes row_var"),
        ((3, 2), {"row_var": (3, 1), "col_var": (1, 2), "variance": (3, 2)}, r"takes no variance"),
        ((3,), {"variance": (3,), "row_var": (1,)}, r"takes no row_var"),
        ((3, 2), {"row_var": (3, 1), "col_var": (2,)}, r"col_var"),
    ],
)
def test_adafactor_states_that_do_not_fit_are_refused(
    shape: tuple[int, ...], states: dict[str, tuple[int, ...]], says: str
) -> None:
    param, held = np.ones(shape, np.float32), {name: np.zeros(x, np.float32) for name, x in states.items()}
    with pytest.raises(bp.InvalidProblemError, match=says):
        bp.adafactor_update(param, param.copy(), np.zeros((), np.float32), **held, device="cpu")
    assert (param == 1).all()


@pytest.mark.parametrize("shape", [(4, 5), (20,)], ids=("matrix", "vector"))
@pytest.mark.parametrize(
    ("scale", "options"),
    [(1e19, {}), (2e19, {}), (5e20, {}), (1e25, {"eps1": 1e-30}), (1e-30, {"eps1": 1e-45}), (0.0, {"eps1": 1e-45})],
)
def test_adafactor_bound_at_the_ends_of_f32(shape: tuple[int, ...], scale: float, options: dict[str, float]) -> None:
    """Means of squares that f32 does not hold, and an eps1 that it does not: the states keep their bound, and the parameter has
    one wherever the guarantee does not except it."""
    grad = (np.arange(1, 21).reshape(shape) * scale).astype(np.float32)
    names = ("row_var", "col_var") if len(shape) > 1 else ("variance",)
    shapes = {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, *shape[-1:]), "variance": shape}
    states = {name: np.zeros(shapes[name], np.float32) for name in names}
    given = {"param": np.ones(shape, np.float32), "grad": grad, "step": np.array(3, np.float32), **states}
    desc = AdafactorUpdateDescriptor.of(**given, **options)
    bp.AdafactorUpdatePlan.select(desc, device="ptx").verify(**given)
