"""Tensors of an optimizer that change between two steps: what was checked before is used only for what is as it was."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import baracuda_py as bp

torch = pytest.importorskip("torch")
optim = pytest.importorskip("baracuda_py.interop.torch.optim")

COVERS = ("adamw_update",)
SHAPES = ((5,), (3, 4), ())


@pytest.fixture(autouse=True)
def on_host() -> Iterator[None]:
    with bp.device("cpu"):
        yield


def _made(cls: Any, **options: Any) -> tuple[list[Any], Any]:
    rng = torch.Generator().manual_seed(1)
    params = [torch.nn.Parameter(torch.randn(shape, generator=rng)) for shape in SHAPES]
    return params, cls(params, lr=0.1, **options)


def _stepped(params: list[Any], optimizer: Any, count: int = 1) -> None:
    for _ in range(count):
        for i, p in enumerate(params):
            p.grad = torch.full_like(p, 0.1 * (i + 1))
        optimizer.step()


def _both(change: Callable[[list[Any], Any], Any]) -> tuple[list[Any], list[Any]]:
    """Parameters after two steps, a change and two more, of ours and of torch's AdamW."""
    found = []
    for cls in (optim.AdamW, torch.optim.AdamW):
        params, optimizer = _made(cls)
        _stepped(params, optimizer, 2)
        change(params, optimizer)
        optimizer.step()
        _stepped(optimizer.param_groups[0]["params"], optimizer)
        found.append([p.detach() for p in params])
    return found[0], found[1]


def _state(p: Any, optimizer: Any, **of: Any) -> None:
    optimizer.state[p].update(of)


def _replaced(params: list[Any], optimizer: Any) -> None:
    p = params[1]
    optimizer.state[p] = {key: x.clone() for key, x in optimizer.state[p].items()} | {"exp_avg": torch.ones(3, 4)}


CHANGES: tuple[Callable[[list[Any], Any], Any], ...] = (
    lambda p, _: setattr(p[0], "grad", None),
    lambda p, _: setattr(p[0], "grad", 2 * p[0].grad),
    lambda p, _: setattr(p[1], "data", torch.ones(3, 4)),
    lambda p, o: _state(p[1], o, exp_avg=torch.ones(3, 4)),
    lambda p, o: _state(p[0], o, step=torch.tensor(20.0)),
    lambda p, o: o.state.pop(p[0]),
    _replaced,
    lambda _, o: o.param_groups[0].update(lr=0.5, weight_decay=0.3),
    lambda p, o: o.param_groups[0].update(params=p[1:]),
    lambda p, o: o.param_groups[0].update(params=[p[0], p[2], p[1]]),
    lambda _, o: o.load_state_dict(copy.deepcopy(o.state_dict())),
    lambda p, o: (o.add_param_group({"params": [torch.nn.Parameter(torch.ones(2))]}), setattr(p[2], "grad", None)),
)


@pytest.mark.parametrize("change", CHANGES)
def test_changes_between_steps_are_those_of_torch(change: Any) -> None:
    for a, b in zip(*_both(change)):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)


REFUSED: tuple[tuple[Callable[[list[Any], Any], Any], type[bp.BaracudaError], str], ...] = (
    (lambda p, _: setattr(p[1], "data", torch.ones(4, 3).T), bp.InvalidProblemError, r"params\[1\] of shape"),
    (lambda p, _: setattr(p[1], "grad", torch.ones(4, 3).T), bp.InvalidProblemError, r"the gradient of params\[1\] of shape"),
    (lambda p, _: setattr(p[1], "grad", torch.ones(3, 4).to_sparse()), bp.OperandTypeError, "is sparse_coo"),
    (lambda p, o: _state(p[1], o, exp_avg=torch.ones(12)), bp.InvalidProblemError, r"exp_avg has shape \(12,\)"),
    (lambda p, o: _state(p[1], o, exp_avg=7), bp.OperandTypeError, "exp_avg is int"),
    (lambda p, o: _state(p[0], o, step=torch.ones(2)), bp.InvalidProblemError, "step has shape"),
    (lambda p, o: o.state[p[1]]["exp_avg"].set_(torch.ones(2)), bp.InvalidProblemError, r"exp_avg has shape \(2,\)"),
    (lambda p, o: o.state[p[1]]["exp_avg"].set_(torch.ones(4, 3).T), bp.InvalidProblemError, "exp_avg has strides"),
    (lambda p, o: _state(p[1], o, exp_avg=torch.ones(3, 4).double()), bp.OperandTypeError, "exp_avg holds torch.float64"),
    (lambda p, o: _state(p[1], o, exp_avg=torch.ones(3, 4, dtype=torch.int32)), bp.OperandTypeError, "holds torch.int32"),
    (lambda _, o: o.param_groups[0].update(stochastic=True), bp.OperandTypeError, "stochastic=True"),
    (lambda _, o: o.param_groups[0].update(lr=-1.0), bp.InvalidProblemError, "lr=-1.0"),
    (lambda p, o: _state(p[1], o, exp_avg=torch.ones(3, 4, device="meta")), bp.DeviceMismatchError, "is on meta"),
)  # fmt: skip


@pytest.mark.parametrize(("change", "error", "says"), REFUSED)
def test_changes_between_steps_are_refused(change: Any, error: Any, says: str) -> None:
    params, mine = _made(optim.AdamW)
    _stepped(params, mine, 2)
    before = [p.detach().clone() for p in params]
    change(params, mine)
    for _ in range(2):
        with pytest.raises(error, match=says):
            mine.step()
    assert torch.equal(params[0], before[0]) and torch.equal(params[2], before[2])


def test_an_option_between_steps_asks_for_its_state() -> None:
    params, mine = _made(optim.AdamW)
    _stepped(params, mine, 2)
    mine.param_groups[0]["amsgrad"] = True
    _stepped(params, mine, 2)
    assert all("max_exp_avg_sq" in mine.state[p] for p in params)


@pytest.mark.parametrize("cls", ["AdamW", "SGD", "Adagrad8bit", "LAMB"])
def test_unchanged_tensors_are_not_checked_again(cls: str, monkeypatch: pytest.MonkeyPatch) -> None:
    params, mine = _made(getattr(optim, cls))
    _stepped(params, mine, 2)
    monkeypatch.setattr(mine, "_refuse", lambda _: pytest.fail("unchanged tensors are checked again"))
    _stepped(params, mine, 2)
    copied = copy.deepcopy(mine)
    assert "_checked_groups" not in vars(copied)


def test_gradients_of_the_last_step_are_not_kept() -> None:
    params, mine = _made(optim.AdamW)
    _stepped(params, mine, 2)
    grad = weakref.ref(params[1].grad)
    mine.zero_grad()
    gc.collect()
    assert grad() is None
