"""Reading and relabelling DLPack capsules: the one place that uses ctypes.

Follows the DLPack 1.x C structures (https://dmlc.github.io/dlpack/latest/c_api.html). CuPy's own reader refuses fp8 and
drops the read-only flag, so the capsule is read here. It is never consumed: whoever keeps it alive keeps the memory.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from ..types import ElementKind

__all__ = ["CUDA_DEVICES", "HOST", "Imported", "read", "relabel"]

HOST = 1
CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_READ_ONLY = 1


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)

_KINDS = {k.dlpack: k for k in ElementKind if not k.packed} | {
    ElementKind.S4.dlpack: ElementKind.S4,
    ElementKind.U4.dlpack: ElementKind.U4,
}


@dataclass(frozen=True)
class Imported:
    """What a capsule says. `element` is None for a type this library has no kind for; `dtype` then names it."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: ElementKind | None
    dtype: str
    device_type: int
    device_id: int
    readonly: bool


def _fields(capsule: Any) -> tuple[_Tensor, int]:
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        return managed.tensor, managed.flags
    return _Tensor.from_address(_pointer_of(capsule, b"dltensor")), 0


def read(capsule: Any) -> Imported:
    """Reads a capsule without consuming it."""
    tensor, flags = _fields(capsule)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if tensor.strides:
        strides = tuple(tensor.strides[i] for i in range(tensor.ndim))
    else:
        steps = [1]
        for extent in reversed(shape[1:]):
            steps.append(steps[-1] * max(extent, 1))
        strides = tuple(reversed(steps[: len(shape)]))
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    return Imported(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        shape=shape,
        strides=strides,
        element=_KINDS.get((code, bits)) if lanes == 1 else None,
        dtype=f"DLPack type code {code}, {bits} bits, {lanes} lanes",
        device_type=tensor.device.type,
        device_id=tensor.device.id,
        readonly=bool(flags & _READ_ONLY),
    )


def relabel(capsule: Any, element: ElementKind, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """Makes a capsule of bytes say `element`, with that kind's shape and strides; for kinds CuPy cannot export."""
    tensor, _ = _fields(capsule)
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = *element.dlpack, 1
    for axis in range(tensor.ndim):
        tensor.shape[axis] = shape[axis]
        if tensor.strides:
            tensor.strides[axis] = strides[axis]
    return capsule
