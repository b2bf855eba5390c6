"""Builds the cache key of a call from the layouts of its operands. Layouts are read from each array's own attributes, without a
descriptor and without checks.

CuPy arrays, torch tensors on a CUDA device and GpuBuffers over CuPy memory are read here; calls with any other operand take the
long path. The key covers everything that a recipe depends on and everything for which an array could be refused. So an array
with a known key needs only the checks of `Recipe.refuses`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...tensor import GpuBuffer, Tensor
from ...tensor.pytorch import is_grad_enabled

__all__ = [
    "NO_TORCH",
    "array_type",
    "byte_strides",
    "detect_frameworks",
    "is_cupy_array",
    "is_intercepted",
    "is_read",
    "is_tensor_type",
    "read",
]

NO_TORCH = -1


class _Frameworks:
    """The array types that are read here, of the frameworks that the program has imported."""

    def __init__(self) -> None:
        self.cupy: Any = None  # cupy.ndarray
        self.torch: tuple[Any, ...] = ()  # torch.Tensor and torch.nn.Parameter
        self.tracing: Callable[[], bool] = lambda: False  # whether TorchDynamo is tracing this call
        self.autocast: Callable[[], bool] = lambda: False  # whether torch.autocast is on
        self.forward: Any = _NoForward  # torch.autograd.forward_ad


class _NoForward:
    """Stands for torch.autograd.forward_ad before torch is imported, and where it does not say its level."""

    _current_level = -1


_known = _Frameworks()


def array_type() -> type | None:
    """cupy.ndarray where CuPy has been imported (only then can there be such arrays)."""
    return getattr(sys.modules.get("cupy"), "ndarray", None)


def detect_frameworks() -> None:
    """Updates the array types by the frameworks that the program has imported so far."""
    _known.cupy = array_type()
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "compiler"):  # not while torch is being imported
        _known.torch = torch.Tensor, torch.nn.Parameter
        _known.tracing = torch.compiler.is_dynamo_compiling
        _known.autocast = getattr(torch, "is_autocast_enabled", _known.autocast)
        if hasattr(forward := torch.autograd.forward_ad, "_current_level"):
            _known.forward = forward


def is_cupy_array(x: Any) -> bool:
    """Whether work on `x` is queued on CuPy's current stream."""
    return type(x) is array_type() or (type(x) is GpuBuffer and x.__baracuda_tensor__().framework == "cupy")


def is_read(x: Any) -> bool:
    """Whether `read` reads arrays of that type."""
    kind = type(x)
    return kind is _known.cupy or kind in _known.torch or kind is GpuBuffer


def is_tensor_type(kind: type) -> bool:
    """Whether `read` reads arrays of that type as torch tensors."""
    return kind in _known.torch


def is_intercepted() -> bool:
    """Whether TorchDynamo, torch.autocast or forward-mode differentiation comes before a call with torch tensors."""
    return bool(_known.tracing() or _known.autocast() or _known.forward._current_level >= 0)


def read(operands: Iterable[Any], shifts: Sequence[int] | None, key: list[Any], pointers: list[int]) -> int | None:
    """Appends each operand's layout to `key`, and the address of its first touched element (displaced by `shifts` bytes) to
    `pointers`.

    Reading the shape or the strides of a CuPy array takes as long as reading everything else. So strides are read only where
    the array is not in C order; in C order, only the strides of axes of extent 1 or 0 stay unknown. Returns the CUDA ordinal of
    the torch tensors, NO_TORCH if there are none, or None if an operand requires the long path.
    """
    cupy, torch, ordinal = _known.cupy, _known.torch, NO_TORCH
    for x in operands:
        kind = type(x)
        if kind is cupy:
            memory = x.data
            address = memory.ptr
            if shifts is not None:
                address += shifts[len(pointers)]
            key.append((x.shape, x._c_contiguous or x.strides, x.dtype, address & 15, memory.device_id))
        elif x is None:
            address = 0
            key.append(None)
        elif kind in torch:
            if ordinal == NO_TORCH and (_known.tracing() or _known.autocast() or _known.forward._current_level >= 0):
                return None
            if not x.is_cuda or x.is_neg():
                return None  # the long path reports why
            if x.requires_grad and is_grad_enabled():
                return None
            dtype = x.dtype
            if dtype.is_complex and x.is_conj():
                return None
            try:
                address, ordinal = x.data_ptr(), x.get_device()
                if not address and x.numel():  # its storage was freed, as FSDP does
                    return None
                if shifts is not None:
                    address += shifts[len(pointers)]
                key.append((x.shape, x.stride(), dtype, address & 15, ordinal))
            except RuntimeError:  # sparse and nested tensors have no strides, torch.func's wrappers no address
                return None
        elif kind is GpuBuffer or kind is Tensor:  # a Tensor was imported by foreign.py
            tensor = x if kind is Tensor else x.__baracuda_tensor__()
            if tensor.element.packed or tensor.on_host or (kind is GpuBuffer and tensor.framework != "cupy"):
                return None
            address = tensor.pointer
            if shifts is not None:
                address += shifts[len(pointers)]
            key.append((tensor.shape, tensor.strides, tensor.element, address & 15, tensor.ordinal, tensor.readonly))
        else:
            return None
        pointers.append(address)
    return ordinal


def byte_strides(x: Any) -> tuple[int, ...]:
    """The strides in bytes of an array that `read` reads; () for other arrays, whose calls are never kept."""
    kind = type(x)
    if kind is not _known.cupy and kind not in _known.torch:
        detect_frameworks()
    if kind is _known.cupy:
        return x.strides  # type: ignore[no-any-return]
    if kind in _known.torch:
        return tuple(stride * x.element_size() for stride in x.stride())
    if kind is GpuBuffer and not x.element.packed:
        return tuple(stride * x.element.bits // 8 for stride in x.strides)
    return ()
