"""Programmatic dependent launch through cuda.bindings: CuPy's launch takes no attributes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from ..types import DriverError
from .driver import bindings
from .locks import new_lock
from .steps import Launch

__all__ = ["can_overlap", "overlapped_launch"]


@lru_cache(maxsize=64)
def can_overlap(arch: str) -> bool:
    """Whether an arch (``"sm_90a"``) has such launches; elsewhere a kernel is launched in the plain way.

    >>> can_overlap("sm_90a"), can_overlap("sm_89")
    (True, False)
    """
    return int(arch.removeprefix("sm_").rstrip("af")) >= 90


def overlapped_launch(function: int, step: Launch) -> Callable[[int, int, int], None]:
    """A call (stream, argument table, 0) that launches `step` so that it may begin while the kernel before it ends."""
    d = bindings()
    attribute = d.CUlaunchAttribute()
    attribute.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config = d.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = step.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = step.block
    config.sharedMemBytes = step.shared_bytes
    config.attrs, config.numAttrs = [attribute], 1
    launch, lock = d.cuLaunchKernelEx, new_lock()

    def fire(stream: int, table: int, _extra: int) -> None:
        with lock:  # the stream is the configuration's
            config.hStream = stream
            error = launch(config, function, table, 0)[0]
        if error:
            raise DriverError(f"launching {step.kernel}: {error.name}", int(error), error.name)

    return fire
