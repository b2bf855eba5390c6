"""torch tensors where CuPy cannot be imported: ops, streams, threads and graphs on a GPU, and the ops emulated on the host.

``python -m pytest -q -m gpu tests/runtime/without_cupy_device_test.py``
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

from ..places import ROOT

pytest.importorskip("torch")

from .torch_alone import CALLS, OPS

COVERS = ("rms_norm", "matmul", "softmax", "gelu", "add", "sum", "attention", "rope", "topk", "nonzero", "cumsum")


def answers(where: str) -> dict[str, str]:
    """What was wrong with each case, of a process that cannot import CuPy."""
    command = [sys.executable, "-m", "tests.runtime.torch_alone", where]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return dict(json.loads(line) for line in ran.stdout.splitlines() if line.startswith("["))


@pytest.fixture
def bindings() -> None:
    """Skips where cuda.bindings, its NVRTC or a torch for CUDA is not installed."""
    import torch

    for module in ("cuda.bindings.driver", "cuda.bindings.nvrtc"):
        try:
            importlib.import_module(module)
        except ImportError as error:
            pytest.skip(f"{module} cannot be imported ({error}): pip install cuda-bindings")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")


@pytest.mark.gpu
@pytest.mark.usefixtures("bindings")
def test_torch_alone_runs_on_a_gpu() -> None:
    assert answers("cuda") == dict.fromkeys((*OPS, *CALLS), "")


def test_torch_alone_runs_emulated() -> None:
    assert answers("ptx") == dict.fromkeys(OPS, "")
