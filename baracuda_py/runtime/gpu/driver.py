"""The only access to a GPU: CuPy's module, or what stands for it where CuPy is not installed. Both are imported inside functions,
and their exceptions become this library's."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from ...types import DriverError, UnsupportedError
from ..system.toolchain import install_hint, install_hints
from .bindings import bindings_or_none
from .protocol import Gpu
from .with_torch import TorchGpu

__all__ = [
    "cupy",
    "cupy_or_none",
    "device_count",
    "driver_error",
    "gpu",
    "gpu_or_none",
    "require_cupy",
    "require_gpu",
]

_RUN_FIX = 'pass device="cpu" to run on NumPy arrays, or device="ptx" to run the real kernels on them, emulated'
_NO_GPU_FIX = _RUN_FIX.replace(", or", ",") + ', or device="sm_90a" to select, explain and compile only'


@lru_cache(maxsize=1)
def cupy_or_none() -> Any:
    """The cupy module, or None where it cannot be imported."""
    try:
        import cupy as module
    except Exception:
        return None
    return module


def cupy() -> Any:
    """The cupy module; UnsupportedError with the fix where it cannot be imported."""
    module = cupy_or_none()
    if module is None:
        raise UnsupportedError(
            f"arrays of a GPU that are not PyTorch's need CuPy, which cannot be imported here: {install_hint()}; or {_NO_GPU_FIX}"
        )
    return module


@lru_cache(maxsize=1)
def gpu_or_none() -> Gpu | None:
    """CuPy's module, or what stands for it over cuda.bindings; None where neither can be imported."""
    module: Gpu | None = cupy_or_none()
    return TorchGpu() if module is None and bindings_or_none() is not None else module


def gpu() -> Gpu:
    """What reaches a GPU; UnsupportedError with both ways to install it."""
    found = gpu_or_none()
    if found is None:
        raise UnsupportedError(
            "running on a GPU needs CuPy, or cuda-bindings beside PyTorch, and neither can be imported here: "
            f"{install_hints()}; or {_NO_GPU_FIX}"
        )
    return found


@lru_cache(maxsize=1)
def device_count() -> int:
    """CUDA devices that can be used; 0 without a driver, or without CuPy and cuda-bindings."""
    found = gpu_or_none()
    if found is None:
        return 0
    try:
        return int(found.cuda.runtime.getDeviceCount())
    except Exception:
        return 0


def require_gpu(what: str, *, for_a_run: bool = False) -> Gpu:
    """CuPy's module or what stands for it, if there is a CUDA device; otherwise raises an UnsupportedError, in which `what` names
    the need. The fix of a run does not name devices that only select, explain and compile."""
    found = gpu()
    if not device_count():
        fix = _RUN_FIX if for_a_run else _NO_GPU_FIX
        raise UnsupportedError(f"{what} needs a CUDA device and none is usable here: {fix}")
    return found


def require_cupy(what: str) -> Any:
    """`require_gpu` for what makes CuPy arrays: the cupy module. `what` names the need."""
    require_gpu(what)
    module = cupy_or_none()
    if module is None:
        raise UnsupportedError(f"{what}: it makes CuPy arrays, and CuPy cannot be imported here: {install_hint()}")
    return module


def driver_error(error: Exception, doing: str) -> DriverError:
    """The exception of a driver or runtime function as a DriverError."""
    name = re.match(r"\w+", str(error))
    return DriverError(
        f"{doing}: the CUDA driver answered {error}", int(getattr(error, "status", -1)), name[0] if name else ""
    )
