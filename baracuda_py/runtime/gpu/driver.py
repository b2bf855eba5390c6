"""The only access to CuPy: it is imported inside functions, and its exceptions become this library's."""

from __future__ import annotations

import importlib
import re
from functools import lru_cache
from typing import Any

from ...types import DriverError, UnsupportedError
from ..system.toolchain import install_hint

__all__ = ["bindings", "cupy", "cupy_or_none", "device_count", "driver_error", "require_gpu"]

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
            f"running on a GPU needs CuPy, which cannot be imported here: {install_hint()}; or {_NO_GPU_FIX}"
        )
    return module


@lru_cache(maxsize=1)
def device_count() -> int:
    """CUDA devices that can be used; 0 without a driver or CuPy."""
    module = cupy_or_none()
    if module is None:
        return 0
    try:
        return int(module.cuda.runtime.getDeviceCount())
    except Exception:
        return 0


def require_gpu(what: str, *, for_a_run: bool = False) -> Any:
    """The cupy module, if there is a CUDA device; otherwise raises an UnsupportedError, in which `what` names the need. The fix
    of a run does not name devices that only select, explain and compile."""
    module = cupy()
    if not device_count():
        fix = _RUN_FIX if for_a_run else _NO_GPU_FIX
        raise UnsupportedError(f"{what} needs a CUDA device and none is usable here: {fix}")
    return module


@lru_cache(maxsize=1)
def bindings() -> Any:
    """cuda.bindings.driver, for functions that CuPy lacks: tensor maps, launch attributes, graph updates."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise UnsupportedError(
            f"this needs cuda.bindings ({error})", "pip install cuda-bindings, or ask for another variant"
        ) from None


def driver_error(error: Exception, doing: str) -> DriverError:
    """CuPy's driver or runtime exception as a DriverError."""
    name = re.match(r"\w+", str(error))
    return DriverError(
        f"{doing}: the CUDA driver answered {error}", int(getattr(error, "status", -1)), name[0] if name else ""
    )
