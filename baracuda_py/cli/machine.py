"""The machine that the demo runs on: a GPU through CuPy, or the host through NumPy."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

__all__ = ["POISON", "SEED", "Machine", "check"]

POISON = 0xA5  # the byte that outputs are filled with beforehand
SEED = 20240229
ROUNDS = 9


def check(holds: bool, what: str) -> None:
    """Raises AssertionError if a check of the demo fails, also under ``python -O``."""
    if not holds:
        raise AssertionError(what)


class Machine(NamedTuple):
    """The machine: an ordinal and CuPy, or None and NumPy."""

    ordinal: int | None
    xp: Any
    spec: Any
    why: str  # the reason for not using a GPU

    @staticmethod
    def of(text: str | None) -> Machine:
        import numpy

        from ..runtime.gpu.device import current_ordinal, spec_of
        from ..runtime.gpu.driver import cupy_or_none, device_count, require_cupy
        from ..runtime.system.toolchain import install_hint
        from ..types import UnsupportedError
        from .terminal import device_of

        which = device_of(text)
        if isinstance(which, str) and which.lower() != "cpu":
            raise UnsupportedError(
                f"demo: it runs on a device that is here, and {text!r} is not an ordinal or cpu",
                "explain and run take any device",
            )
        if isinstance(which, int) or (which is None and cupy_or_none() is not None and device_count()):
            cupy = require_cupy(f"demo --device {which}")
            ordinal = current_ordinal() if which is None else which
            return Machine(ordinal, cupy, spec_of(ordinal), "")
        if cupy_or_none() is None:
            why = f"CuPy cannot be imported. To run on a GPU: {install_hint()}"
        elif not device_count():
            why = "CuPy is here and finds no CUDA device. To run on a GPU: a machine with an NVIDIA GPU and driver"
        else:
            why = "as asked with --device cpu; without it the demo runs on the GPU"
        return Machine(None, numpy, spec_of("cpu"), why)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        with contextlib.nullcontext() if self.ordinal is None else self.xp.cuda.Device(self.ordinal):
            yield

    def synchronize(self) -> None:
        if self.ordinal is not None:
            self.xp.cuda.get_current_stream().synchronize()

    def host(self, x: Any) -> Any:
        return x if self.ordinal is None else x.get()

    def poisoned(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array that is filled with the byte POISON."""
        return self.xp.full(math.prod(shape) * dtype.itemsize, POISON, "uint8").view(dtype).reshape(shape)

    def seconds(self, call: Callable[[], Any]) -> float:
        """The median time of a call, between events on a GPU, by the host's clock otherwise."""
        call()
        times = []
        for _ in range(ROUNDS if self.ordinal is not None else 3):
            if self.ordinal is None:
                began = time.perf_counter()
                call()
                times.append(time.perf_counter() - began)
                continue
            start, stop = self.xp.cuda.Event(), self.xp.cuda.Event()
            start.record()
            call()
            stop.record()
            stop.synchronize()
            times.append(float(self.xp.cuda.get_elapsed_time(start, stop)) * 1e-3)
        return median(times)
