"""Calls while torch captures a graph, on simulated devices: they take torch's memory, and none runs beside the capture."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.runtime import launch
from baracuda_py.runtime.gpu import capture

from .capture_test import F32, SPLIT, given_by_pool, split_operands
from .simulated import Gpus
from .torch_on_gpu import OnGpu, gpus, on, torch

__all__ = ["gpus"]  # two H200, with a torch that has its tensors on them


def test_torch_capture_allocates_from_torch(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs and scratch, at the first call and on the short path; a CuPy array that is captured on torch's stream too."""
    taken: list[tuple[int, int]] = []
    stand_in: Any = sys.modules["torch"]

    def empty(nbytes: int, *, dtype: Any, device: Any) -> Any:
        assert dtype is torch.uint8
        taken.append((nbytes, stand_in.cuda.current[0]))
        return on(torch.empty(nbytes, dtype=dtype), device)

    monkeypatch.setattr(stand_in, "empty", empty)
    monkeypatch.setattr(launch, "supports_pdl", lambda _arch: False)  # by a driver's function that is not simulated
    a, b = on(torch.ones(1, 16384)), on(torch.ones(16384, 64))
    scratch = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b), SPLIT, device=0).workspace_size
    gpus.capturing = {57}
    for _ in range(2):
        assert type(bp.matmul(a, b, pref=SPLIT)) is OnGpu
    assert taken == [(scratch, 57)] * 2
    taken.clear()
    a, b = split_operands(gpus)
    for _ in range(2):
        assert type(bp.matmul(a, b, pref=SPLIT, stream=57)) is gpus.real.ndarray
    assert taken == [(256, 57), (scratch, 57)] * 2
    assert not given_by_pool(gpus) and not capture._captures


@pytest.mark.parametrize("called_before", [True, False])
def test_call_beside_a_capture_of_the_other_framework_is_refused(gpus: Gpus, called_before: bool) -> None:
    t, x = on(torch.ones(64)), gpus.array(np.ones(64, F32))
    if called_before:
        bp.neg(t), bp.neg(x)
    done = len(gpus.work)
    gpus.capturing = {57}
    with pytest.raises(bp.UnsupportedError, match=r"torch's current stream is being captured.*stream=torch"):
        bp.neg(x)
    gpus.capturing = {7}
    with pytest.raises(bp.UnsupportedError, match=r"CuPy's current stream is being captured.*torch\.cuda\.graph"):
        bp.neg(t)
    assert len(gpus.work) == done
    bp.neg(x), bp.neg(x, stream=99), bp.neg(t, stream=57)
    assert len(gpus.work) == done + 3
