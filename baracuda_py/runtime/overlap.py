"""Programmatic dependent launch (PDL) through ctypes. CuPy's launch takes no attributes, and that of cuda.bindings makes an
object of every argument, which costs half a microsecond of host time per launch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..types import DriverError
from .gpu.bindings import bindings, entry_point
from .gpu.driver import require_gpu
from .steps import Launch

__all__ = ["pdl_launch", "supports_pdl"]


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose value is a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_uint32), ("pad", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_uint64), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint32),
    )  # fmt: skip


_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_INVALID_CONTEXT = 201
_STREAM = _Config.stream.offset // 8
_MIN_DRIVER_VERSION = 11080  # CUDA 11.8, the first with cuLaunchKernelEx and this attribute


@lru_cache(maxsize=64)
def supports_pdl(arch: str) -> bool:
    """Whether an arch (``"sm_90a"``) supports programmatic dependent launch. On other archs a kernel is launched normally.

    >>> can_overlap("sm_90a"), can_overlap("sm_89")
    (True, False)
    """
    return int(arch.removeprefix("sm_").rstrip("af")) >= 90


def pdl_launch(function: int, step: Launch, table: int) -> Callable[[int], None]:
    """A function (stream) that launches `step` as a programmatic dependent launch: it may begin before the previous kernel has
    ended. Two threads must not call it at the same time, because the stream is a field of its configuration."""
    attribute = _Attribute(_SERIALIZATION, value=(1,))
    memory = bytearray(ctypes.sizeof(_Config))
    config = _Config.from_buffer(memory)
    config.grid, config.block, config.shared_bytes = step.grid, step.block, step.shared_bytes
    config.attributes, config.count = ctypes.pointer(attribute), 1
    words = memoryview(memory).cast("Q")  # in half the time of setting the field
    launch, doing = _driver_launch(), f"launching {step.kernel}"
    # The arguments as ctypes objects, which ctypes would otherwise make of numbers at each call
    place, of, args, extra = map(ctypes.c_void_p.from_param, (ctypes.addressof(config), function, table, 0))

    def launch_on_stream(stream: int, _keep: _Config = config) -> None:
        words[_STREAM] = stream
        error = launch(place, of, args, extra)
        if error == _INVALID_CONTEXT:  # this thread has used no CUDA context yet
            runtime = require_gpu("a launch").cuda.runtime
            runtime.setDevice(runtime.getDevice())
            error = launch(place, of, args, extra)
        if error:
            name = bindings().CUresult(error).name
            raise DriverError(f"{doing}: {name}", error, name)

    return launch_on_stream


@lru_cache(maxsize=1)
def _driver_launch() -> Callable[[Any, Any, Any, Any], int]:
    """cuLaunchKernelEx(configuration, function, argument table, 0)."""
    return entry_point("cuLaunchKernelEx", _MIN_DRIVER_VERSION)  # type: ignore[no-any-return]
