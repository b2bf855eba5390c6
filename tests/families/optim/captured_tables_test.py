"""Steps of lists in a captured graph, on simulated devices: the table of the arrays lives as long as the graph."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.optim import _lists
from baracuda_py.runtime.gpu import capture

from ...call.capture_test import rtx
from ...call.simulated import Gpus

__all__ = ["rtx"]  # a device of sm_89, without torch

COVERS = ("sgd_update",)


def test_table_of_a_captured_step_lives_as_long_as_its_graph(rtx: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lists, "_tables", _lists.OrderedDict())
    made = [rtx.array(np.array([(5, 0, 0, 0), (3, 5, 20, 12)], np.int64))]
    monkeypatch.setattr(_lists, "_table_of", lambda _tensors: _lists._Table(0, made[0]))
    params, grads = ([rtx.array(np.ones(n, np.float32)) for n in (5, 3)] for _ in range(2))
    step = rtx.array(np.zeros(1, np.float32)).reshape(())
    rtx.capturing = {7}
    with pytest.raises(bp.UnsupportedError, match="call sgd on these arrays once before the capture"):
        bp.sgd(params, grads, step)
    rtx.capturing = False
    bp.sgd(params, grads, step)
    rows = weakref.ref(made[0])
    rtx.capturing = {7}
    bp.sgd(params, grads, step)
    rtx.capturing = False
    made.clear()
    _lists._tables.clear()
    capture.release_pools()
    gc.collect()
    assert rows() is not None, "a graph that lives has lost its table"
    (number,) = capture._captures
    rtx.graphs.destroy(number)
    capture.release_pools()
    gc.collect()
    assert rows() is None
