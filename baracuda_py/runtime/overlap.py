"""Programmatic dependent launch through ctypes: CuPy's launch takes no attributes, and that of cuda.bindings takes thrice as
long, since it makes an object of every argument."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from ..types import DriverError
from .driver import bindings
from .steps import Launch

__all__ = ["can_overlap", "overlapped_launch"]

_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
_SINCE = 11080  # the version of the driver's API, as it counts them, that has cuLaunchKernelEx and this attribute


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose value is a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_uint32), ("pad", ctypes.c_uint32), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_uint64), ("attributes", ctypes.POINTER(_Attribute)), ("count", ctypes.c_uint32),
    )  # fmt: skip


@lru_cache(maxsize=64)
def can_overlap(arch: str) -> bool:
    """Whether an arch (``"sm_90a"``) has such launches; elsewhere a kernel is launched in the plain way.

    >>> can_overlap("sm_90a"), can_overlap("sm_89")
    (True, False)
    """
    return int(arch.removeprefix("sm_").rstrip("af")) >= 90


def overlapped_launch(function: int, step: Launch) -> Callable[[int, int, int], None]:
    """A call (stream, argument table, 0) that launches `step` so that it may begin while the kernel before it ends."""
    attribute = _Attribute(_SERIALIZATION, value=(1,))

    def configured() -> tuple[int, _Config]:
        config = _Config(step.grid, step.block, step.shared_bytes, attributes=ctypes.pointer(attribute), count=1)
        return ctypes.addressof(config), config

    idle = [configured()]  # the stream is the configuration's: a launch at a time takes one, each thread its own
    launch = _driver_launch()

    def fire(stream: int, table: int, extra: int) -> None:
        try:
            place, config = idle.pop()  # atomic, and half the time of a lock
        except IndexError:
            place, config = configured()
        config.stream = stream
        error = launch(place, function, table, extra)
        idle.append((place, config))
        if error:
            name = bindings().CUresult(error).name
            raise DriverError(f"launching {step.kernel}: {name}", error, name)

    return fire


@lru_cache(maxsize=1)
def _driver_launch() -> Callable[[int, int, int, int], int]:
    """cuLaunchKernelEx(configuration, function, argument table, 0), its stream 0 being the legacy one, as it is CuPy's."""
    d = bindings()
    flag = d.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_LEGACY_STREAM
    error, address, *_ = d.cuGetProcAddress(b"cuLaunchKernelEx", _SINCE, int(flag))
    if error or not address:
        raise DriverError(f"looking for cuLaunchKernelEx: {error.name}", int(error), error.name)
    prototype: Any = ctypes.CFUNCTYPE(ctypes.c_int, *(ctypes.c_void_p,) * 4)  # lets other threads run meanwhile
    return prototype(address)  # type: ignore[no-any-return]
