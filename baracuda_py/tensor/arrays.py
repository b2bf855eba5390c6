"""Reading arrays of CuPy, PyTorch, JAX and NumPy, or anything with ``__dlpack__`` or ``__cuda_array_interface__``.

Nothing is copied or cast. Only BaracudaErrors are raised.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from ..runtime.gpu.driver import device_count, gpu
from ..runtime.gpu.streams import fence
from ..runtime.untraced import untraced
from ..types import DeviceMismatchError, ElementKind, OperandTypeError
from ..types.errors import shown
from . import dlpack, pytorch
from .axes import as_ints, c_strides
from .operand import HOST_ORDINAL, NO_MEMORY, Tensor, how_to_copy

__all__ = ["described_for", "how_to_wrap", "intake", "ordinal_of"]


_hosted: ContextVar[bool] = ContextVar("hosted", default=False)


@contextmanager
def described_for(host: bool) -> Iterator[None]:
    """A context in which operands are described for a plan that takes host memory, or device memory."""
    token = _hosted.set(host)
    try:
        yield
    finally:
        _hosted.reset(token)


def _framework(x: Any) -> str:
    name = str(type(x).__module__).partition(".")[0]
    return "jax" if name == "jaxlib" else name


@untraced
def intake(x: Any, *, what: str, stream: int | None = None, host: bool = False) -> Tensor:
    """Reads an array's address and layout. `what` names the operand in errors (``"write_slice: dest"``).

    With `stream`, that stream waits for work that another framework has queued on `x`; without it nothing is ordered (DLPack's
    stream -1), because only the layout is read. A shape with a dtype (a torch meta tensor, a jax.ShapeDtypeStruct) is accepted
    for its layout. `host` says that the plan uses host memory.
    """
    if isinstance(x, np.ndarray):
        return _from_numpy(x, what)
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(x, cupy.ndarray):
        return _from_cupy(x, what)
    if pytorch.is_tensor(x):
        return pytorch.read(x, what, stream)
    if _has(x, "__baracuda_tensor__", what):
        return _described(x, what)
    if _has(x, "__dlpack__", what) and _has(x, "__dlpack_device__", what):
        return _from_dlpack(x, what, stream, host)
    if _has(x, "__cuda_array_interface__", what):
        return _from_cuda_array_interface(x, what, stream)
    if _framework(x) == "jax" and type(x).__name__ == "ShapeDtypeStruct":
        return _from_shape(x, what)
    if _framework(x) == "jax" and "Tracer" in type(x).__name__:
        raise OperandTypeError(
            f"{what}: a {type(x).__name__} has no memory while JAX traces a function",
            "call it outside jax.jit and jax.grad, or through jax.pure_callback",
        )
    raise OperandTypeError(
        f"{what}: expected an array (CuPy, PyTorch, JAX, or any object with __dlpack__ or __cuda_array_interface__), "
        f"got {type(x).__name__}",
        how_to_wrap(x, host),
    )


def _has(x: Any, name: str, what: str) -> bool:
    """Whether a foreign object has that attribute; raises OperandTypeError if the look-up raises."""
    try:
        return hasattr(x, name)
    except Exception as error:
        raise OperandTypeError(
            f"{what}: {name} of {type(x).__name__} failed ({type(error).__name__}: {error})",
            "pass an array that follows the protocol",
        ) from None


def _described(x: Any, what: str) -> Tensor:
    try:
        tensor = x.__baracuda_tensor__()
    except Exception as error:
        tensor = error
    if not isinstance(tensor, Tensor):
        raise OperandTypeError(
            f"{what}: __baracuda_tensor__ of {type(x).__name__} gave {shown(tensor)}, and no Tensor", "pass a GpuBuffer"
        )
    return tensor


def ordinal_of(operands: Iterable[Any]) -> int | None:
    """The CUDA ordinal of the first operand in device memory, or None. Raises nothing: `intake` reports errors."""
    cupy = sys.modules.get("cupy")
    for x in operands:
        if cupy is not None and isinstance(x, cupy.ndarray):
            return int(x.data.device_id)
        if isinstance(x, np.ndarray):
            continue
        try:
            got = _device_of(x)
        except Exception:
            continue
        if got is not None:
            return got
    return None


def _device_of(x: Any) -> int | None:
    if hasattr(x, "__baracuda_tensor__"):
        ordinal = x.__baracuda_tensor__().ordinal
        return ordinal if ordinal >= 0 else None
    if pytorch.is_tensor(x):
        return x.device.index if x.is_cuda else None
    if hasattr(x, "__dlpack_device__"):
        device_type, device_id = x.__dlpack_device__()
        return int(device_id) if int(device_type) in dlpack.CUDA_DEVICES else None
    interface = getattr(x, "__cuda_array_interface__", None)
    return None if interface is None else _ordinal_at(int(interface["data"][0]), "")


def how_to_wrap(x: Any, host: bool = False) -> str:
    """The fix for an operand that is no array, on a host device if `host` or in such a context."""
    host = host or _hosted.get()
    if product := getattr(type(x), "multiplied_by", ""):  # a packed weight
        return f"{product} multiplies it"
    package = "numpy" if host else "cupy"
    if isinstance(x, (bool, int, float, complex, np.generic)):
        return (
            f"wrap it with {package}.asarray({shown(x)}, dtype), in the other operands' dtype or the one to compute in"
        )
    if fields := getattr(type(x), "_fields", ()):  # the named tuple of an op with several outputs
        return f"pass one of its arrays: {', '.join(f'.{name}' for name in fields)}"
    return f"wrap it with {package}.asarray(...)" + (
        "" if host else ', or numpy.asarray(...) for device="cpu" or "ptx"'
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


def _refuse_mask(what: str) -> None:
    raise OperandTypeError(
        f"{what}: the array has a mask, which no kernel looks at", "pass x.filled(...), or the data without the mask"
    )


# ---- NumPy and CuPy --------------------------------------------------------------------------------------------------


def _from_numpy(x: np.ndarray[Any, Any], what: str) -> Tensor:
    if isinstance(x, np.ma.MaskedArray):
        _refuse_mask(what)
    given = x
    if type(x) is not np.ndarray:  # the attributes of a subclass need not describe its memory
        x = np.ndarray.view(x, np.ndarray)
    if not x.dtype.isnative:
        raise OperandTypeError(
            f"{what}: dtype {x.dtype.str} has its bytes in the other order", '.astype(x.dtype.newbyteorder("="))'
        )
    element = _kind(x.dtype, what)
    strides = _element_strides(x.strides, x.itemsize, what)
    pointer = int(x.__array_interface__["data"][0]) if x.dtype.kind != "V" else x.ctypes.data
    return Tensor(pointer, x.shape, strides, element, HOST_ORDINAL, "numpy", not x.flags.writeable, 0, None, given, x)


_UNSIZED_MEMORY = ("DLPackMemory", "UnownedMemory")  # CuPy derives the sizes of these from the shape of a view


def allocation_bounds(memory: Any) -> tuple[int, int] | None:
    """The bytes of a CuPy pointer's allocation before and after it; None if CuPy did not allocate it."""
    whole = memory.mem
    if not whole.size or type(whole).__name__ in _UNSIZED_MEMORY:
        return None
    before = memory.ptr - whole.ptr
    return before, whole.size - before


def _from_cupy(x: Any, what: str) -> Tensor:
    memory = x.data
    strides = _element_strides(x.strides, x.itemsize, what)
    element = _kind(x.dtype, what)
    return Tensor(
        memory.ptr, x.shape, strides, element, memory.device_id, "cupy", False, 0, allocation_bounds(memory), x, x
    )


# ---- DLPack ----------------------------------------------------------------------------------------------------------


def _from_dlpack(x: Any, what: str, stream: int | None, host: bool) -> Tensor:
    framework = _framework(x)
    device_type, device_id = _dlpack_device(x, what, framework)
    on_device = device_type in dlpack.CUDA_DEVICES
    if on_device and host:
        raise OperandTypeError(
            f"{what}: the {framework} array is on CUDA device {device_id} and the plan is for the host",
            f"copy it to the host, {how_to_copy(x, framework, what.rpartition(': ')[2])}",
        )
    if not on_device and device_type not in dlpack.HOST_DEVICES:
        raise DeviceMismatchError(
            f"{what}: the array is on DLPack device type {device_type}, and only CUDA devices (and the host, with "
            'device="cpu") are supported: copy it there first'
        )
    consumer = (-1 if stream is None else stream or 1) if on_device else None  # in DLPack 1 is the default stream
    capsule = _export(x, what, framework, consumer)
    got = dlpack.read(capsule, what)
    held = got.device_type in dlpack.CUDA_DEVICES, got.device_id if on_device else device_id
    if held != (on_device, device_id):
        raise DeviceMismatchError(
            f"{what}: __dlpack_device__ says ({device_type}, {device_id}), and the capsule is of "
            f"({got.device_type}, {got.device_id})",
            "pass an array whose __dlpack__ follows the protocol",
        )
    if got.element is None:
        raise OperandTypeError(f"{what}: {got.dtype} has no element kind here: cast it to a supported dtype")
    return Tensor(
        got.pointer,
        got.shape,
        got.strides,
        got.element,
        device_id if on_device else HOST_ORDINAL,
        framework,
        got.readonly or framework == "jax",
        0,
        None,
        x,
        (x, capsule),
    )


def _dlpack_device(x: Any, what: str, framework: str) -> tuple[int, int]:
    try:
        device_type, device_id = x.__dlpack_device__()
        return int(device_type), int(device_id)
    except Exception as error:
        raise OperandTypeError(
            f"{what}: __dlpack_device__ of the {framework} array failed ({type(error).__name__}: {error})",
            "pass an array that follows the DLPack protocol",
        ) from None


def _export(x: Any, what: str, framework: str, stream: int | None) -> Any:
    # JAX takes any number for a stream's handle; without one it does not synchronise streams.
    arguments = {} if stream is None or (stream == -1 and framework == "jax") else {"stream": stream}
    try:
        try:
            return x.__dlpack__(**arguments, max_version=(1, 1))
        except TypeError:
            return x.__dlpack__(**arguments)
    except Exception as error:
        fix = "pass x.detach()" if "grad" in str(error) else "pass an array whose __dlpack__ works"
        raise OperandTypeError(
            f"{what}: the {framework} array cannot be exchanged over DLPack ({error}): {fix}"
        ) from None


# ---- __cuda_array_interface__ ----------------------------------------------------------------------------------------


def _from_cuda_array_interface(x: Any, what: str, stream: int | None) -> Tensor:
    try:
        interface = x.__cuda_array_interface__
        dtype = np.dtype(interface["typestr"])
        shape = as_ints(interface["shape"])
        pointer, readonly = int(interface["data"][0]), bool(interface["data"][1])
        byte_strides = interface.get("strides")
        byte_strides = None if byte_strides is None else as_ints(byte_strides)
        producer, mask = interface.get("stream"), interface.get("mask")
        producer = None if producer is None else int(producer)
        malformed = any(n < 0 for n in shape) or len(shape) != len(shape if byte_strides is None else byte_strides)
    except Exception as error:
        raise OperandTypeError(
            f"{what}: malformed __cuda_array_interface__ ({type(error).__name__}: {error})",
            "pass an array that follows the protocol",
        ) from None
    element = _kind(dtype, what)
    if malformed or (not pointer and 0 not in shape):
        raise OperandTypeError(
            f"{what}: __cuda_array_interface__ has the shape {shape}, the strides {byte_strides} and the address {pointer}",
            "pass an array that follows the protocol",
        )
    if mask is not None:
        _refuse_mask(what)
    strides = c_strides(shape) if byte_strides is None else _element_strides(byte_strides, dtype.itemsize, what)
    ordinal = _ordinal_at(pointer, what)
    if producer is not None and stream is not None:
        fence(producer, stream)
    return Tensor(pointer, shape, strides, element, ordinal, _framework(x), readonly, 0, None, x, x)


def _ordinal_at(pointer: int, what: str) -> int:
    """The CUDA device that holds an address; 0 for a null address, or if no device is usable."""
    if not pointer or not device_count():
        return 0
    runtime = gpu().cuda.runtime
    try:
        ordinal = int(runtime.pointerGetAttributes(pointer).device)
    except runtime.CUDARuntimeError:
        ordinal = -1
    if ordinal < 0:
        raise OperandTypeError(
            f"{what}: the address in its __cuda_array_interface__ is not memory of a CUDA device",
            "pass an array whose memory has not been freed",
        )
    return ordinal


def _from_shape(x: Any, what: str) -> Tensor:
    """A jax.ShapeDtypeStruct: JAX's arrays are C-ordered."""
    shape = tuple(x.shape)
    return Tensor(0, shape, c_strides(shape), _kind(x.dtype, what), NO_MEMORY, "jax", True, 0, None, x, x)
