"""torch on simulated GPUs: tensors of the host that say they are on a device, a current stream per device."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from baracuda_py.tensor import pytorch

from .simulated import Gpus, simulated

__all__ = ["OnGpu", "gpus", "on", "simulated_torch", "torch"]

torch = pytest.importorskip("torch")


class OnGpu(torch.Tensor):  # type: ignore[misc, name-defined, unused-ignore]
    """A tensor of the host that says it is on a CUDA device."""

    ordinal = 0
    is_cuda, is_cpu = True, False

    def get_device(self) -> int:
        return self.ordinal

    @property
    def device(self) -> Any:
        return torch.device("cuda", self.ordinal)


class Streams:
    """torch.cuda as far as it is asked for: a current stream a device."""

    def __init__(self, gpus: Gpus) -> None:
        self.current, self.gpus = [57, 157], gpus

    def current_device(self) -> int:
        return self.gpus.current

    def set_device(self, ordinal: int) -> None:
        self.gpus.current = ordinal

    def current_stream(self, ordinal: int) -> Any:
        return SimpleNamespace(cuda_stream=self.current[ordinal])

    def ExternalStream(self, handle: int, device: int) -> Any:  # torch's name
        return handle, device

    @contextmanager
    def stream(self, stream: tuple[int, int]) -> Iterator[None]:
        handle, device = stream
        before, self.current[device] = self.current[device], handle
        self.gpus.events.append(f"torch takes {handle}")
        yield
        self.current[device] = before


@contextmanager
def simulated_torch(monkeypatch: pytest.MonkeyPatch, simulated_gpus: Gpus) -> Iterator[None]:
    """A torch in `sys.modules` that has its tensors on the simulated devices."""
    stand_in: Any = ModuleType("torch")
    vars(stand_in).update({n: x for n, x in vars(torch).items() if isinstance(x, torch.dtype)})
    stand_in.Tensor, stand_in.strided, stand_in.compiler = OnGpu, torch.strided, torch.compiler
    stand_in.autograd = torch.autograd
    stand_in.nn, stand_in._dynamo = SimpleNamespace(Parameter=torch.nn.Parameter), sys.modules.get("torch._dynamo")
    stand_in.device, stand_in.dtype, stand_in.cuda = torch.device, torch.dtype, Streams(simulated_gpus)
    for name in ("empty", "empty_strided"):
        setattr(stand_in, name, lambda *a, name=name, device, dtype: on(getattr(torch, name)(*a, dtype=dtype), device))
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    pytorch.dtype_of.cache_clear()
    yield
    pytorch.dtype_of.cache_clear()


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpus]:
    """Two H200, with a torch that has its tensors on them."""
    for simulated_gpus in simulated(monkeypatch, "h200", "h200"):
        with simulated_torch(monkeypatch, simulated_gpus):
            yield simulated_gpus


def on(x: Any, device: Any = "cuda:0") -> Any:
    made = x.as_subclass(OnGpu)
    made.ordinal = torch.device(device).index or 0
    return made
