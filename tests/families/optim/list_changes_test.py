"""Lists that change between two steps, on simulated devices: what was read before is used only for what is as it was."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.call.operands import list_key
from baracuda_py.ops.optim import _lists, _tables

from ...call.simulated import Gpus
from ...call.torch_on_gpu import gpus, on, torch

__all__ = ["gpus"]

COVERS = ("adamw_update",)
SHAPES = ((7,), (3, 4), (2, 3, 4), (0, 5), ())
Lists = list[list[Any]]


@pytest.fixture(autouse=True)
def unseen(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither tables nor lists of other tests."""
    monkeypatch.setattr(_tables, "_tables", _tables.OrderedDict())
    monkeypatch.setattr(list_key, "_seen", list_key.OrderedDict())
    monkeypatch.setattr(list_key, "_misses", {})
    for module in (_lists, _tables):
        monkeypatch.setattr(module, "require_cupy", lambda _what: gpus)


def cupy_lists(gpus: Gpus) -> Lists:
    return [[gpus.array(np.ones(shape, "f4").reshape(-1)).reshape(shape) for shape in SHAPES] for _ in range(4)]


def torch_lists(_gpus: Gpus) -> Lists:
    return [[on(torch.ones(shape)) for shape in SHAPES] for _ in range(4)]


def scalar(gpus: Gpus, lists: Lists) -> Any:
    return on(torch.zeros(())) if isinstance(lists[0][0], torch.Tensor) else gpus.array(np.zeros(1, "f4")).reshape(())


def tables(gpus: Gpus) -> int:
    return sum(event.startswith("copy") for event in gpus.events)


MAKERS = (cupy_lists, torch_lists)


@pytest.mark.parametrize("made", MAKERS)
def test_unchanged_lists_are_not_read_again(gpus: Gpus, monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    lists = made(gpus)
    step = scalar(gpus, lists)
    bp.adamw(*lists, step)
    launched = len(gpus.work)
    monkeypatch.setattr(list_key, "read", lambda *_: pytest.fail("an unchanged list is read again"))
    for _ in range(3):
        bp.adamw(*map(tuple, lists), step)
    assert tables(gpus) == 1 and len(gpus.work) == 1 + 4 * (launched - 1)


def test_torch_lists_without_guards_are_read_again(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_key, "torch_guards", lambda: None)
    lists = torch_lists(gpus)
    step = scalar(gpus, lists)
    for _ in range(2):
        bp.adamw(*lists, step)
    assert tables(gpus) == 1 and not list_key._seen
    lists[1][0].data = torch.ones(8)
    with pytest.raises(bp.InvalidProblemError, match=r"params\[0\] has shape \(7,\) and grads\[0\] \(8,\)"):
        bp.adamw(*lists, step)


@pytest.mark.parametrize("made", MAKERS)
@pytest.mark.parametrize("place", [i for i, shape in enumerate(SHAPES) if 0 not in shape])
@pytest.mark.parametrize("which", range(4))
def test_replaced_arrays_are_seen(gpus: Gpus, made: Any, which: int, place: int) -> None:
    """Whatever list they are in."""
    lists = made(gpus)
    step = scalar(gpus, lists)
    bp.adamw(*lists, step)
    lists[which][place] = made(gpus)[which][place]
    bp.adamw(*lists, step)
    assert tables(gpus) == 2
    rows = list(_tables._tables.values())[-1]
    x = lists[which][place]
    address = x.data_ptr() if isinstance(x, torch.Tensor) else x.data.ptr
    base = lists[which][rows.base]
    start = base.data_ptr() if isinstance(base, torch.Tensor) else base.data.ptr
    assert address - start in gpus.read(rows.rows)[:, 2 + which]


@pytest.mark.parametrize("made", MAKERS)
@pytest.mark.parametrize("none", [0, 2, 4])
def test_gradients_that_come_and_go_are_seen(gpus: Gpus, made: Any, none: int) -> None:
    lists = made(gpus)
    step = scalar(gpus, lists)
    lists[1][none], kept = None, lists[1][none]
    bp.adamw(*lists, step)
    lists[1][none] = kept
    bp.adamw(*lists, step)
    lists[1][none] = None
    bp.adamw(*lists, step)
    assert tables(gpus) == 2
    assert sorted(len(table.rows) for table in _tables._tables.values()) == [3, 4]


def _of_cupy(gpus: Gpus, x: Any, shape: tuple[int, ...], dtype: Any = "f4", strides: Any = None) -> Any:
    return gpus.over(x.data, shape, dtype, strides)


def _reshape(x: Any, shape: tuple[int, ...]) -> None:
    x.shape = shape


CUPY_CHANGES: tuple[tuple[Callable[[Gpus, Lists], Any], type[Exception], str], ...] = (
    (lambda _, x: _reshape(x[1][0], (7, 1)), bp.InvalidProblemError, r"params\[0\] has shape \(7,\) and grads\[0\] \(7, 1\)"),
    (lambda _, x: _reshape(x[2][1], (4, 3)), bp.InvalidProblemError, r"exp_avgs\[1\] \(4, 3\)"),
    (lambda _, x: _reshape(x[0][2], (2, 4, 3)), bp.InvalidProblemError, r"params\[2\] has shape \(2, 4, 3\)"),
    (lambda _, x: _reshape(x[3][3], (0, 6)), bp.InvalidProblemError, r"exp_avg_sqs\[3\] \(0, 6\)"),
    (lambda _, x: _reshape(x[1][4], (1,)), bp.InvalidProblemError, r"grads\[4\] \(1,\)"),
    (lambda g, x: x[1].__setitem__(1, _of_cupy(g, x[1][1], (3, 4), "i4")), bp.OperandTypeError, r"grads\[1\] holds i32"),
    (lambda g, x: x[0].__setitem__(1, _of_cupy(g, x[0][1], (3, 4), "f4", (4, 12))), bp.InvalidProblemError, "has strides"),
    (lambda g, x: x[2].__setitem__(0, _of_cupy(g, x[2][0], (5,))), bp.InvalidProblemError, r"exp_avgs\[0\] \(5,\)"),
    (lambda g, x: x[3].__setitem__(1, g.array(np.ones((3, 4), "f4"), 1)), bp.DeviceMismatchError, r"exp_avg_sqs\[1\] on CUDA"),
    (lambda _, x: x[1].__setitem__(1, x[0][1]), bp.OverlapError, r"params\[1\] and grads\[1\]|grads\[1\] and params\[1\]"),
    (lambda g, x: x[1].__setitem__(0, _of_cupy(g, x[0][1], (7,))), bp.OverlapError, r"grads\[0\]"),
    (lambda _, x: x[2].pop(), bp.InvalidProblemError, "params has 5 arrays and exp_avgs 4"),
)  # fmt: skip


@pytest.mark.parametrize(("change", "error", "says"), CUPY_CHANGES)
def test_changes_of_cupy_lists_are_seen(gpus: Gpus, change: Any, error: Any, says: str) -> None:
    lists = cupy_lists(gpus)
    step = scalar(gpus, lists)
    for _ in range(2):
        bp.adamw(*lists, step)
    change(gpus, lists)
    gpus.events.clear()
    for _ in range(2):
        with pytest.raises(error, match=says):
            bp.adamw(*lists, step)
    assert not gpus.work


def _data(x: Any, other: Any) -> None:
    x.data = other


TORCH_CHANGES: tuple[tuple[Callable[[Lists], Any], type[Exception], str], ...] = (
    (lambda x: _data(x[0][0], torch.ones(8)), bp.InvalidProblemError, r"params\[0\] has shape \(8,\)"),
    (lambda x: _data(x[1][1], x[1][1].view(4, 3)), bp.InvalidProblemError, r"grads\[1\] \(4, 3\)"),
    (lambda x: _data(x[3][2], x[3][2].view(2, 4, 3)), bp.InvalidProblemError, r"exp_avg_sqs\[2\] \(2, 4, 3\)"),
    (lambda x: _data(x[2][3], x[2][3].view(0, 6)), bp.InvalidProblemError, r"exp_avgs\[3\] \(0, 6\)"),
    (lambda x: x[1][1].t_(), bp.InvalidProblemError, r"grads\[1\] \(4, 3\)"),
    (lambda x: x[1][1].as_strided_((3, 4), (1, 3)), bp.InvalidProblemError, "has strides"),
    (lambda x: x[1][0].resize_(5), bp.InvalidProblemError, r"grads\[0\] \(5,\)"),
    (lambda x: x[1][0].set_(torch.ones(9)), bp.InvalidProblemError, r"grads\[0\] \(9,\)"),
    (lambda x: _data(x[1][1], x[1][1].view(torch.int32)), bp.OperandTypeError, r"grads\[1\] holds i32"),
    (lambda x: _data(x[2][1], x[2][1].double()), bp.OperandTypeError, r"exp_avgs\[1\] holds f64"),
    (lambda x: x[0][1].requires_grad_(), bp.OperandTypeError, r"params\[1\]: the torch tensor requires a gradient"),
    (lambda x: x[3][1].untyped_storage().resize_(0), bp.OperandTypeError, r"exp_avg_sqs\[1\]: .* has no memory"),
    (lambda x: _data(x[1][1], x[0][1]), bp.OverlapError, r"params\[1\] and grads\[1\]|grads\[1\] and params\[1\]"),
    (lambda x: x[1].__setitem__(1, x[0][1]), bp.OverlapError, r"params\[1\] and grads\[1\]|grads\[1\] and params\[1\]"),
    (lambda x: x[1].__setitem__(1, on(torch.ones(3, 4), "cuda:1")), bp.DeviceMismatchError, r"grads\[1\] on CUDA device 1"),
    (lambda x: x[1].__setitem__(1, on(torch._neg_view(x[1][1]))), bp.OperandTypeError, "lazy view"),
)  # fmt: skip


@pytest.mark.parametrize(("change", "error", "says"), TORCH_CHANGES)
def test_changes_of_torch_lists_are_seen(gpus: Gpus, change: Any, error: Any, says: str) -> None:
    lists = torch_lists(gpus)
    step = scalar(gpus, lists)
    for _ in range(2):
        bp.adamw(*lists, step)
    change(lists)
    gpus.events.clear()
    for _ in range(2):
        with pytest.raises(error, match=says):
            bp.adamw(*lists, step)
    assert not gpus.work


def test_parameters_are_found_again_under_no_grad(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["torch"], "is_grad_enabled", torch.is_grad_enabled, raising=False)
    lists = torch_lists(gpus)
    step = scalar(gpus, lists)
    for p in lists[0]:
        p.requires_grad_()
    for recorded in (False, True, False):
        with torch.set_grad_enabled(recorded):
            if recorded:
                with pytest.raises(bp.OperandTypeError, match="requires a gradient"):
                    bp.adamw(*lists, step)
            else:
                bp.adamw(*lists, step)
    assert tables(gpus) == 1


@pytest.mark.parametrize("made", MAKERS)
@pytest.mark.parametrize("which", [0, 2])
def test_a_step_within_an_array_is_refused_at_a_repeated_call(gpus: Gpus, made: Any, which: int) -> None:
    lists = made(gpus)
    bp.adamw(*lists, scalar(gpus, lists))
    gpus.events.clear()
    with pytest.raises(bp.OverlapError, match="step"):
        bp.adamw(*lists, lists[which][1][2, 3])
    assert not gpus.work


def test_arrays_that_died_are_no_longer_known(gpus: Gpus) -> None:
    """Others may be at their places in the host's memory."""
    lists = cupy_lists(gpus)
    step = scalar(gpus, lists)
    bp.adamw(*lists, step)
    seen = list(list_key._seen.values())
    assert all(held.holds(x) for held, x in zip(seen, lists))
    memory = [x.data for x in lists[1]]
    lists[1] = [gpus.over(m, x.shape, "f4") for m, x in zip(memory, lists[1])]
    gc.collect()
    assert not seen[1].holds(lists[1])
    bp.adamw(*lists, step)
    assert tables(gpus) == 1, "the same memory and layouts have the same table"


def test_lists_of_new_arrays_are_kept_ever_less_often(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = cupy_lists(gpus)
    step, kept = scalar(gpus, lists), list[int]()
    whole = list_key._CupyList.__init__

    def noted(self: Any, arrays: list[Any], key: Any) -> None:
        kept.append(len(arrays))
        whole(self, arrays, key)

    monkeypatch.setattr(list_key._CupyList, "__init__", noted)
    for _ in range(9):
        lists[1] = [gpus.over(x.data, x.shape, "f4") for x in lists[1]]
        bp.adamw(*lists, step)
    assert len(kept) < 4 + 9 and tables(gpus) == 1


def test_torch_lists_on_their_own_stream_wait_for_no_other(gpus: Gpus) -> None:
    """CuPy's current stream is another one, and of CuPy the call takes its own table alone."""
    lists = torch_lists(gpus)
    step = scalar(gpus, lists)
    bp.adamw(*lists, step)
    gpus.events.clear()
    bp.adamw(*lists, step)
    assert gpus.events == gpus.work == ["launch on 0:57"] * 2
