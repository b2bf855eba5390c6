"""Reading and relabelling DLPack capsules: the one place that uses ctypes.

Follows the DLPack 1.x C structures (https://dmlc.github.io/dlpack/latest/c_api.html). CuPy's own reader refuses fp8 and
drops the read-only flag, so the capsule is read here. It is never consumed: the capsule's owner keeps the memory alive.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from ..types import ElementKind, OperandTypeError, UnsupportedError
from .axes import c_strides

__all__ = ["CUDA_DEVICES", "HOST_DEVICES", "Imported", "read", "relabel"]

HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
CUDA_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_READ_ONLY = 1
_MAJOR = 1  # the version of the structures below; another major version may differ


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


# A separate library object: the functions of ctypes.pythonapi are shared, and other modules may set their argument types.
_python = ctypes.PyDLL(None, handle=ctypes.pythonapi._handle)
_pointer_of = _python.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
_is_valid = _python.PyCapsule_IsValid
_is_valid.argtypes = (ctypes.py_object, ctypes.c_char_p)

_KINDS = {k.dlpack: k for k in ElementKind if not k.packed} | {
    ElementKind.S4.dlpack: ElementKind.S4,
    ElementKind.U4.dlpack: ElementKind.U4,
}


@dataclass(frozen=True)
class Imported:
    """The contents of a capsule. `element` is None for a type without a kind in this library; `dtype` then names it."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: ElementKind | None
    dtype: str
    device_type: int
    device_id: int
    readonly: bool


def _fields(capsule: Any, what: str) -> tuple[_Tensor, int]:
    """The tensor in a capsule and its flags; raises OperandTypeError for a consumed capsule or an unknown version."""
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        if managed.major != _MAJOR:
            raise OperandTypeError(
                f"{what}: the DLPack capsule is of version {managed.major}.{managed.minor}, and only {_MAJOR}.x is known",
                "have it exported as DLPack 1.1",
            )
        return managed.tensor, managed.flags
    if _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_pointer_of(capsule, b"dltensor")), 0
    if _is_valid(capsule, b"used_dltensor") or _is_valid(capsule, b"used_dltensor_versioned"):
        raise OperandTypeError(
            f"{what}: __dlpack__ gave a capsule that was consumed before", "give a fresh capsule at every call"
        )
    raise OperandTypeError(
        f"{what}: __dlpack__ gave {type(capsule).__name__}, not a DLPack capsule",
        "pass an array whose __dlpack__ follows the protocol",
    )


def read(capsule: Any, what: str) -> Imported:
    """Reads a capsule without consuming it. `what` names the operand in errors; OperandTypeError for a malformed one."""
    tensor, flags = _fields(capsule, what)
    if tensor.ndim < 0 or (tensor.ndim and not tensor.shape):
        raise OperandTypeError(
            f"{what}: the DLPack capsule has rank {tensor.ndim} and no shape", "correct its producer"
        )
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if any(n < 0 for n in shape):
        raise OperandTypeError(f"{what}: the DLPack capsule has the shape {shape}", "correct its producer")
    if not tensor.data and 0 not in shape:
        raise OperandTypeError(
            f"{what}: the DLPack capsule has the shape {shape} and a null pointer", "pass an array that has memory"
        )
    strides = tuple(tensor.strides[i] for i in range(tensor.ndim)) if tensor.strides else c_strides(shape)
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


def relabel(capsule: Any, element: ElementKind, last: int | None = None) -> Any:
    """Changes the type of a fresh capsule of unsigned integers to `element`, which its exporter cannot express.

    The capsule of a packed kind then counts elements instead of bytes: `last` is the extent of its last axis.
    """
    tensor, _ = _fields(capsule, f"exporting {element}")
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = *element.dlpack, 1
    if last is not None:
        rank, per = tensor.ndim, element.per_byte
        if not tensor.strides and rank > 1 and last % per:
            raise UnsupportedError(
                f"exporting {element}: rows of {last} end inside a byte, and the capsule has no strides to say so",
                "export an even last extent",
            )
        tensor.shape[rank - 1] = last
        for axis in range(rank if tensor.strides else 0):
            tensor.strides[axis] = 1 if axis == rank - 1 else tensor.strides[axis] * per
    return capsule
