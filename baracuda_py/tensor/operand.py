"""Taking arrays in: CuPy, PyTorch, JAX, NumPy, or anything with ``__dlpack__`` or ``__cuda_array_interface__``.

A :class:`Tensor` is an address with a shape, strides in elements, a kind and a device. Nothing is copied or cast.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..runtime.driver import cupy_or_none
from ..runtime.streams import fence
from ..types import DeviceMismatchError, ElementKind, OperandTypeError
from . import dlpack
from .axes import alignment_of, c_strides, span

__all__ = ["HOST_ORDINAL", "Tensor", "intake"]

HOST_ORDINAL = -1


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand. `pointer` is the first element's address; `ordinal` is -1 on the host."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: ElementKind
    ordinal: int
    framework: str
    readonly: bool = False
    phase: int = 0  # elements by which a packed view starts inside its first byte
    room: tuple[int, int] | None = None  # bytes before and after `pointer` inside the allocation, where known
    source: Any = field(default=None, compare=False)  # the object passed in
    keep: Any = field(default=None, compare=False)  # what keeps the memory alive

    @property
    def align(self) -> int:
        return alignment_of(self.pointer)

    @property
    def on_host(self) -> bool:
        return self.ordinal == HOST_ORDINAL

    def interval(self) -> tuple[int, int]:
        """The addresses [low, high) that the view touches."""
        low, high = span(self.shape, self.strides, self.element, self.phase)
        return self.pointer + low, self.pointer + high

    def host_array(self) -> np.ndarray[Any, Any]:
        """The NumPy array behind a host operand (bytes for packed kinds)."""
        array = getattr(self.source, "array", self.source)
        return array if isinstance(array, np.ndarray) else np.from_dlpack(array)


def _framework(x: Any) -> str:
    name = type(x).__module__.partition(".")[0]
    return "jax" if name == "jaxlib" else name


def intake(x: Any, *, what: str, stream: int | None = None, host: bool = False) -> Tensor:
    """Reads an array's address and layout. `what` names the operand in errors (``"write_slice: dest"``).

    With `stream`, work that another framework has queued on `x` is ordered before it; without, nothing is ordered (DLPack's
    stream -1), since only the layout is wanted.
    """
    described = getattr(x, "__baracuda_tensor__", None)
    if described is not None:
        return described()  # type: ignore[no-any-return]
    if isinstance(x, np.ndarray):
        return _from_numpy(x, what)
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(x, cupy.ndarray):
        return _from_cupy(x, what)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _from_dlpack(x, what, stream, host)
    if hasattr(x, "__cuda_array_interface__"):
        return _from_cuda_array_interface(x, what, stream)
    raise OperandTypeError(
        f"{what}: expected an array (CuPy, PyTorch, JAX, or any object with __dlpack__ or __cuda_array_interface__), "
        f"got {type(x).__name__}",
        "wrap it with cupy.asarray(...)",
    )


def _element_strides(byte_strides: tuple[int, ...], itemsize: int, what: str) -> tuple[int, ...]:
    if any(s % itemsize for s in byte_strides):
        raise OperandTypeError(
            f"{what}: strides {byte_strides} bytes are not whole elements of {itemsize} bytes: copy it into a fresh array"
        )
    return tuple(s // itemsize for s in byte_strides)


def _kind(dtype: Any, what: str) -> ElementKind:
    try:
        return ElementKind.of(dtype)
    except OperandTypeError as error:
        raise OperandTypeError(f"{what}: dtype {error}") from None


def _from_numpy(x: np.ndarray[Any, Any], what: str) -> Tensor:
    element = _kind(x.dtype, what)
    strides = _element_strides(x.strides, x.itemsize, what)
    pointer = int(x.__array_interface__["data"][0]) if x.dtype.kind != "V" else x.ctypes.data
    return Tensor(pointer, x.shape, strides, element, HOST_ORDINAL, "numpy", not x.flags.writeable, 0, None, x, x)


_GUESSED = ("DLPackMemory", "UnownedMemory")  # CuPy derives their sizes from the shape of some view


def _room(memory: Any) -> tuple[int, int] | None:
    """The bytes before and after a CuPy pointer in its allocation, None where CuPy did not make that itself."""
    whole = memory.mem
    if not whole.size or type(whole).__name__ in _GUESSED:
        return None
    before = memory.ptr - whole.ptr
    return before, whole.size - before


def _from_cupy(x: Any, what: str) -> Tensor:
    element = _kind(x.dtype, what)
    memory = x.data
    return Tensor(
        memory.ptr,
        x.shape,
        _element_strides(x.strides, x.itemsize, what),
        element,
        memory.device_id,
        "cupy",
        False,
        0,
        _room(memory),
        x,
        x,
    )


def _from_dlpack(x: Any, what: str, stream: int | None, host: bool) -> Tensor:
    device_type, device_id = (int(v) for v in x.__dlpack_device__())
    framework = _framework(x)
    if device_type in dlpack.CUDA_DEVICES and host:
        raise OperandTypeError(
            f"{what}: the {framework} array is on CUDA device {device_id} and the plan is for the host",
            "pass NumPy arrays",
        )
    if device_type in dlpack.CUDA_DEVICES:
        consumer = -1 if stream is None else stream or 1  # 1 is DLPack's name for the legacy default stream
        capsule = _export(x, what, framework, consumer)
        ordinal = device_id
    elif device_type == dlpack.HOST:
        capsule = _export(x, what, framework, None)
        ordinal = HOST_ORDINAL
    else:
        raise DeviceMismatchError(
            f"{what}: the array is on DLPack device type {device_type}, and only CUDA devices (and the host, with "
            'device="cpu") are supported: copy it there first'
        )
    got = dlpack.read(capsule)
    element, strides, shape = got.element, got.strides, got.shape
    if framework == "torch":  # fp8 travels as bytes, so torch's own dtype has the last word
        element = _kind(str(x.dtype), what)
    if element is None:
        raise OperandTypeError(f"{what}: {got.dtype} has no element kind here: cast it to a supported dtype")
    immutable = got.readonly or framework == "jax"
    return Tensor(got.pointer, shape, strides, element, ordinal, framework, immutable, 0, None, x, (x, capsule))


def _export(x: Any, what: str, framework: str, stream: int | None) -> Any:
    if framework == "torch" and "float8" in str(x.dtype):
        x = x.view(sys.modules["torch"].uint8)
    # JAX takes any number for a stream's handle; without one it orders nothing.
    arguments = {} if stream is None or (stream == -1 and framework == "jax") else {"stream": stream}
    try:
        try:
            return x.__dlpack__(**arguments, max_version=(1, 1))
        except TypeError:
            return x.__dlpack__(**arguments)
    except Exception as error:
        mend = "pass x.detach()" if "grad" in str(error) else "pass a CUDA array whose __dlpack__ works"
        raise OperandTypeError(
            f"{what}: the {framework} array cannot be exchanged over DLPack ({error}): {mend}"
        ) from None


def _from_cuda_array_interface(x: Any, what: str, stream: int | None) -> Tensor:
    interface = x.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    element = _kind(dtype, what)
    pointer, readonly = interface["data"]
    shape = tuple(interface["shape"])
    byte_strides = interface.get("strides")
    strides = c_strides(shape) if byte_strides is None else _element_strides(tuple(byte_strides), dtype.itemsize, what)
    producer = interface.get("stream")
    if producer is not None and stream is not None:
        fence(int(producer), stream)
    return Tensor(
        int(pointer), shape, strides, element, _ordinal_of(int(pointer)), _framework(x), bool(readonly), 0, None, x, x
    )


def _ordinal_of(pointer: int) -> int:
    cupy = cupy_or_none()
    if cupy is None or not pointer:
        return 0
    return int(cupy.cuda.runtime.pointerGetAttributes(pointer).device)
