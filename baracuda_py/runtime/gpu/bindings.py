"""cuda.bindings: functions of the driver that CuPy lacks (tensor maps, launch attributes, graph updates), or all of them."""

from __future__ import annotations

import ctypes
import importlib
from functools import lru_cache
from typing import Any

from ...types import DriverError, UnsupportedError

__all__ = ["bindings", "bindings_or_none", "entry_point"]


@lru_cache(maxsize=1)
def bindings() -> Any:
    """The module cuda.bindings.driver; UnsupportedError where it cannot be imported."""
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise UnsupportedError(
            f"this needs cuda.bindings ({error})", "pip install cuda-bindings, or ask for another variant"
        ) from None


def bindings_or_none() -> Any:
    """The module cuda.bindings.driver, or None where it cannot be imported."""
    try:
        return bindings()
    except Exception:  # a damaged installation raises anything
        return None


def entry_point(name: str, version: int) -> Any:
    """A function of the driver, through ctypes: that of cuda.bindings makes an object of every argument. Its stream 0 is the
    legacy stream, as in CuPy. `version` is that of the CUDA release whose form of the function is meant.

    Without `argtypes`, ctypes converts no arguments.
    """
    d = bindings()
    flag = d.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_LEGACY_STREAM
    error, address, *_ = d.cuGetProcAddress(name.encode(), version, int(flag))
    if error or not address:
        raise DriverError(f"looking for {name}: {error.name}", int(error), error.name)
    return ctypes.CFUNCTYPE(ctypes.c_int)(address)
