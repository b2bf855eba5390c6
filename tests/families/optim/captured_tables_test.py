"""Tables of lists on simulated devices: copied in the order of the call, kept for further calls, and as long as a graph."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.optim import _lists, _tables
from baracuda_py.runtime.gpu import capture

from ...call.capture_test import given_by_pool, rtx
from ...call.simulated import Gpus

__all__ = ["rtx"]  # a device of sm_89, without torch

COVERS = ("sgd_update",)


@pytest.fixture
def lists(rtx: Gpus, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any], Any]:
    """Parameters, their gradients and a step on a device without tables."""
    monkeypatch.setattr(_tables, "_tables", _tables.OrderedDict())
    for module in (_lists, _tables):
        monkeypatch.setattr(module, "require_cupy", lambda _what: rtx)
    params, grads = ([rtx.array(np.ones(n, np.float32)) for n in (5, 3)] for _ in range(2))
    return params, grads, rtx.array(np.zeros(1, np.float32)).reshape(())


def copies(gpus: Gpus) -> list[str]:
    return [event for event in gpus.events if event.startswith("copy")]


def gone(table: Any) -> bool:
    capture.release_pools()
    gc.collect()
    return table() is None


def test_table_is_copied_once_on_the_stream_of_the_call(rtx: Gpus, lists: Any) -> None:
    for _ in range(2):
        bp.sgd(*lists)
    assert rtx.work[0].startswith("copy on 0:7") and copies(rtx) == ["copy on 0:7"]
    (table,) = _tables._tables.values()
    rows = rtx.read(table.rows)
    assert rows[:, :2].tolist() == [[5, 0], [3, 5]]
    assert [lists[0][0].data.ptr + row[2] for row in rows] == [x.data.ptr for x in lists[0]]
    assert [lists[1][0].data.ptr + row[3] for row in rows] == [x.data.ptr for x in lists[1]]


def test_other_streams_wait_for_the_copy_until_it_is_over(rtx: Gpus, lists: Any) -> None:
    bp.sgd(*lists)
    bp.sgd(*lists, stream=9)
    assert "9 waits" in rtx.events and "7 waits" not in rtx.events
    (table,) = _tables._tables.values()
    table._copied.synchronize()
    assert table.settle() and table._host is None
    rtx.events.clear()
    bp.sgd(*lists, stream=9)
    assert "9 waits" not in rtx.events


@pytest.mark.parametrize("elsewhere", [False, True])
def test_dropped_tables_wait_for_other_streams_alone(
    lists: Any, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    monkeypatch.setattr(_tables, "KEPT", 1)
    bp.sgd(*lists)
    (table,) = _tables._tables.values()
    if elsewhere:
        bp.sgd(*lists, stream=9)
    waited = list[int]()
    monkeypatch.setattr(_tables.Table, "_device_waits", lambda self: waited.append(id(self)))
    bp.sgd(lists[0][::-1], lists[1][::-1], lists[2])
    assert table not in _tables._tables.values()
    assert waited == [id(table)] * elsewhere


def test_table_of_a_captured_step_lives_as_long_as_its_graph(rtx: Gpus, lists: Any) -> None:
    bp.sgd(*lists)
    (table,) = (weakref.ref(x) for x in _tables._tables.values())
    rtx.capturing = {7}
    bp.sgd(*lists)
    rtx.capturing = False
    assert copies(rtx) == ["copy on 0:7"], "the graph copies it again"
    _tables._tables.clear()
    assert not gone(table), "a graph that lives has lost its table"
    (number,) = capture._captures
    rtx.graphs.destroy(number)
    assert gone(table)


def test_a_captured_first_call_copies_its_table_at_each_replay(rtx: Gpus, lists: Any) -> None:
    """From host memory that lives as long as the graph, into memory of its pool; no other call finds the table."""
    made = list[Any]()
    whole = _tables.Table.__init__

    def noted(self: Any, *given: Any) -> None:
        whole(self, *given)
        made.append(weakref.ref(self))

    rtx.capturing = {7}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tables.Table, "__init__", noted)
        bp.sgd(*lists)
    rtx.capturing = False
    (table,) = made
    assert len(copies(rtx)) == 1 and given_by_pool(rtx) and not _tables._tables
    assert not gone(table), "a graph that lives has lost its table"
    bp.sgd(*lists)
    assert len(copies(rtx)) == 2
    (number,) = capture._captures
    rtx.graphs.destroy(number)
    assert gone(table)
