"""The devices of this machine: ordinals, their DeviceSpecs, and the meaning of `device=`."""

from __future__ import annotations

import contextlib
import operator
import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from ...types import DeviceMismatchError, DeviceSpec, UnsupportedError
from ...types.errors import shown
from ..scope import VARIABLE, default_device, process, replaced
from ..system.libraries import installed_libraries
from .driver import device_count, require_gpu

__all__ = ["Device", "check_arch", "current_ordinal", "device", "set_device", "spec_of"]


class Device:
    """A CUDA device by ordinal (KAIO's ``KaioDevice``). Equal to another of the same ordinal.

    >>> bp.Device(0).spec.sms          # doctest: +SKIP
    132
    """

    __slots__ = ("ordinal",)

    def __init__(self, ordinal: int = 0) -> None:
        if isinstance(ordinal, bool) or not hasattr(ordinal, "__index__"):
            raise UnsupportedError(f"Device({ordinal!r:.80}): an ordinal is an int", "bp.Device(0)")
        self.ordinal = ordinal.__index__()
        count = device_count()
        if not 0 <= self.ordinal < count:
            require_gpu(f"Device({self.ordinal})")
            raise UnsupportedError(f"Device({self.ordinal}): this machine has CUDA devices 0 to {count - 1}")

    @property
    def spec(self) -> DeviceSpec:
        return _present(self.ordinal)

    @property
    def name(self) -> str:
        return self.spec.name

    def synchronize(self) -> None:
        """Waits for all work on the device."""
        cupy = require_gpu("Device.synchronize")
        with cupy.cuda.Device(self.ordinal):
            cupy.cuda.runtime.deviceSynchronize()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.ordinal == self.ordinal

    def __hash__(self) -> int:
        return hash(("bp.Device", self.ordinal))

    def __repr__(self) -> str:
        return f"<bp.Device {self.ordinal}: {self.spec}>"


def device(which: Any) -> contextlib.AbstractContextManager[None]:
    """A context in which ``device=None`` means `which`: ``with bp.device("cpu"):``."""
    return replaced(device=which)


def set_device(which: Any) -> None:
    """Makes ``device=None`` mean `which` in the whole process, outside ``with bp.device(...)``; None for the current CUDA device.

    The environment variable BARACUDA_DEVICE has the same effect, until this is called.
    """
    if which is not None:
        spec_of(which)  # refuses an unknown device here, and not at the first call
    process.set(which)


def current_ordinal() -> int:
    return int(require_gpu("the current CUDA device").cuda.runtime.getDevice())


def spec_of(which: Any = None) -> DeviceSpec:
    """The DeviceSpec that `which` means: None or ``"cuda"`` (the current CUDA device), an ordinal or ``"cuda:1"``, a `Device`,
    `cupy.cuda.Device` or `torch.device`, an arch (``"sm_90a"``), a GPU with shipped figures (``"h200"``), either of them emulated
    on the host (``"ptx:sm_90a"``, ``"ptx"``), a DeviceSpec, or ``"cpu"``."""
    if which is None:
        which = default_device()
    try:
        return _spec_of(which)
    except UnsupportedError as error:
        if not process.is_environment(which):
            raise
        raise UnsupportedError(f"{VARIABLE}={which}: {error.reason}", error.fix) from None


def _spec_of(which: Any) -> DeviceSpec:
    if isinstance(which, DeviceSpec):
        return which
    if type(which).__module__ == "torch":  # str() of a torch.device is its name
        which = str(which)
    if isinstance(which, str) and which != "cuda":
        numbered = re.fullmatch(r"cuda:(\d{1,9})", which) if which.startswith("cuda:") else None
        return Device(int(numbered[1])).spec if numbered else DeviceSpec.named(which)
    if which is None or isinstance(which, str):
        require_gpu("device=None (the current CUDA device)")
        return _present(current_ordinal())
    ordinal = _ordinal_in(which)
    if ordinal is None:
        raise UnsupportedError(
            f"device={shown(which)} is not an ordinal, a bp.Device, an arch such as 'sm_90a', a GPU's name, 'ptx' or 'cpu'"
        )
    return Device(ordinal).spec


def _ordinal_in(which: Any) -> int | None:
    """The ordinal of an int or of a device object, else None. Arrays are not read: their `__index__` may synchronise, and
    foreign objects may raise anything."""
    try:
        ordinal = getattr(which, "ordinal", getattr(which, "id", which))
        refused = isinstance(ordinal, bool) or hasattr(type(ordinal), "__dlpack__")
        return None if refused else operator.index(ordinal)
    except Exception:
        return None


def check_arch(op: str, device: DeviceSpec, ordinal: int) -> None:
    """Raises DeviceMismatchError unless CUDA device `ordinal` is of the arch that a plan for `device` was selected for.

    Does nothing if no device is usable, since nothing can be launched then.
    """
    arch = _arch_of(ordinal) if device_count() else device.arch
    if arch != device.arch:
        raise DeviceMismatchError(
            f"{op}: the plan is for {device} and the operands are on CUDA device {ordinal}, which is {arch}",
            f"select with device={ordinal}, or pass arrays on an {device.arch} device",
        )


@lru_cache(maxsize=64)
def _arch_of(ordinal: int) -> str:
    """The arch that kernels are compiled for on CUDA device `ordinal`, by its compute capability."""
    runtime = require_gpu("a device's compute capability").cuda.runtime
    major, minor = (runtime.deviceGetAttribute(attribute, ordinal) for attribute in _CAPABILITY)
    try:
        return DeviceSpec.named(f"sm_{major}{minor}").arch
    except UnsupportedError:  # too old, or newer than this version
        return f"sm_{major}{minor}"


_CAPABILITY = 75, 76  # cudaDevAttrComputeCapabilityMajor and ...Minor


@lru_cache(maxsize=64)
def _present(ordinal: int) -> DeviceSpec:
    """The spec of a present GPU: the shipped figures if its name is known, else its arch's nominal ones, with the driver's
    number of SMs and sizes of memory, and the installed libraries."""
    runtime = require_gpu("a device's properties").cuda.runtime
    properties = runtime.getDeviceProperties(ordinal)
    name = properties["name"].decode() if isinstance(properties["name"], bytes) else str(properties["name"])
    try:
        figures = DeviceSpec.named(name)
    except UnsupportedError:
        figures = DeviceSpec.named(f"sm_{properties['major']}{properties['minor']}")
    return replace(
        figures,
        name=name,
        sms=int(properties["multiProcessorCount"]),
        shared_bytes=int(properties["sharedMemPerBlockOptin"]),
        l2_bytes=int(properties["l2CacheSize"]),
        libraries=installed_libraries(),
    )
