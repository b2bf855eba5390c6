"""XLA's FFI from Python, by ctypes: the call frame that a handler gets, read as buffers, attributes, device and stream.

The structures are those of XLA's C API (xla/ffi/api/c_api.h, which jaxlib ships). Version 0.1 has all that is read here, and
later versions only append fields.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...types import DriverError, ElementKind, UnsupportedError

__all__ = ["Buffer", "Frame", "handler"]

Pointer = ctypes.c_void_p
EXECUTE = 3  # the stage at which a handler computes
METADATA = 1  # the extension by which XLA asks a handler for its version
INVALID_ARGUMENT, UNIMPLEMENTED, INTERNAL = 3, 12, 13
STRING = 4  # the type of an attribute

KINDS = {
    1: ElementKind.BOOL, 2: ElementKind.I8, 3: ElementKind.I16, 4: ElementKind.I32, 5: ElementKind.I64, 6: ElementKind.U8,
    7: ElementKind.U16, 8: ElementKind.U32, 9: ElementKind.U64, 10: ElementKind.F16, 11: ElementKind.F32, 12: ElementKind.F64,
    15: ElementKind.COMPLEX64, 16: ElementKind.BF16, 18: ElementKind.COMPLEX128, 19: ElementKind.FP8_E5M2,
    20: ElementKind.FP8_E4M3,
}  # fmt: skip


class _Struct(ctypes.Structure):
    """A structure that begins with its size and a list of extensions, as most do."""

    @classmethod
    def sized(cls, **fields: Any) -> Any:
        return cls(struct_size=ctypes.sizeof(cls), **fields)


def _struct(name: str, *fields: tuple[str, Any]) -> Any:
    return type(name, (_Struct,), {"_fields_": [("struct_size", ctypes.c_size_t), ("extension", Pointer), *fields]})


_Version = _struct("_Version", ("major", ctypes.c_int), ("minor", ctypes.c_int))
_Buffer = _struct(
    "_Buffer",
    ("dtype", ctypes.c_int), ("data", Pointer), ("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64)),
)  # fmt: skip
_Values = _struct(
    "_Values", ("size", ctypes.c_int64), ("types", ctypes.POINTER(ctypes.c_int)), ("values", ctypes.POINTER(Pointer))
)
_Attributes = _struct(
    "_Attributes",
    ("size", ctypes.c_int64), ("types", ctypes.POINTER(ctypes.c_int)), ("names", ctypes.POINTER(Pointer)),
    ("values", ctypes.POINTER(Pointer)),
)  # fmt: skip
_Api = _struct(
    "_Api",
    ("version", _Version), ("internal", Pointer),
    *((name, Pointer) for name in (
        "error_create", "error_message", "error_destroy", "register", "stream_get", "type_register", "context_get",
        "state_set", "state_get", "allocate", "free", "schedule", "threads", "future_create", "future_available",
        "future_error", "run_id_get", "ordinal_get",
    )),
)  # fmt: skip
_Frame = _struct(
    "_Frame",
    ("api", ctypes.POINTER(_Api)), ("context", Pointer), ("stage", ctypes.c_int), ("arguments", _Values),
    ("results", _Values), ("attributes", _Attributes),
)  # fmt: skip
_ErrorArgs = _struct("_ErrorArgs", ("message", ctypes.c_char_p), ("code", ctypes.c_int))
_StreamArgs = _struct("_StreamArgs", ("context", Pointer), ("stream", Pointer))
_OrdinalArgs = _struct("_OrdinalArgs", ("context", Pointer), ("ordinal", ctypes.c_int32))


class _Extension(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", Pointer), ("metadata", Pointer)]


class _Metadata(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32)]


class _Span(ctypes.Structure):
    _fields_ = [("pointer", Pointer), ("length", ctypes.c_size_t)]

    def text(self) -> str:
        return ctypes.string_at(self.pointer, self.length).decode() if self.length else ""


class Buffer(NamedTuple):
    """An argument or a result: its address, shape and element kind."""

    pointer: int
    shape: tuple[int, ...]
    element: ElementKind

    def array(self, *, writable: bool) -> np.ndarray[Any, Any]:
        """A NumPy array over host memory, which must outlive it."""
        if 0 in self.shape:
            return np.empty(self.shape, self.element.dtype)
        nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.element.dtype.itemsize
        memory = (ctypes.c_char * nbytes).from_address(self.pointer)
        array: np.ndarray[Any, Any] = (
            np.frombuffer(memoryview(memory), np.uint8).view(self.element.dtype).reshape(self.shape)
        )
        array.flags.writeable = writable
        return array


class Frame:
    """The call frame of one execution."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._api = frame.api.contents
        self.arguments = _buffers(frame.arguments)
        self.results = _buffers(frame.results)
        self.attributes: Mapping[str, str] = dict(_strings(frame.attributes))

    @property
    def stream(self) -> int:
        """The CUDA stream that XLA runs the call on."""
        asked = _StreamArgs.sized(context=self._frame.context)
        self._ask(self._api.stream_get, asked, "its stream")
        return asked.stream or 0

    @property
    def ordinal(self) -> int:
        """The CUDA device."""
        asked = _OrdinalArgs.sized(context=self._frame.context)
        self._ask(self._api.ordinal_get, asked, "its device")
        return int(asked.ordinal)

    def _ask(self, function: int, asked: Any, what: str) -> None:
        """Calls a function of XLA that fills a structure."""
        if not function:
            raise UnsupportedError(f"XLA does not tell a custom call {what}", "update jaxlib")
        error = _FUNCTION(function)(ctypes.addressof(asked))
        if error:
            destroy = _struct("_Destroy", ("error", Pointer)).sized(error=error)
            _FUNCTION(self._api.error_destroy)(ctypes.addressof(destroy))
            raise DriverError(f"XLA does not tell a custom call {what}")


_FUNCTION = ctypes.CFUNCTYPE(Pointer, Pointer)


def _buffers(values: Any) -> list[Buffer]:
    found = []
    for i in range(values.size):
        held = ctypes.cast(values.values[i], ctypes.POINTER(_Buffer)).contents
        kind = KINDS.get(held.dtype)
        if kind is None:
            raise UnsupportedError(f"XLA's element type {held.dtype} has no kind here", "cast it to a supported dtype")
        found.append(Buffer(held.data or 0, tuple(held.dims[: held.rank]), kind))
    return found


def _strings(attributes: Any) -> Any:
    for i in range(attributes.size):
        if attributes.types[i] == STRING:
            name, value = (
                ctypes.cast(x[i], ctypes.POINTER(_Span)).contents for x in (attributes.names, attributes.values)
            )
            yield name.text(), value.text()


def handler(run: Callable[[Frame], None], code_of: Callable[[Exception], int]) -> Any:
    """A C function for XLA that runs `run` on each call's frame. An exception of it is an error of the computation, with the code
    that `code_of` gives. The caller keeps the function alive."""

    def called(address: int) -> int | None:
        frame = ctypes.cast(address, ctypes.POINTER(_Frame)).contents
        if _answered_metadata(frame):
            return None
        try:
            if frame.stage == EXECUTE:
                run(Frame(frame))
        except Exception as error:
            return _error(frame.api.contents, f"{type(error).__name__}: {error}", code_of(error))
        return None

    return _FUNCTION(called)


def _answered_metadata(frame: Any) -> bool:
    """Answers XLA's question for the version of the API, which it asks once by an extension of an empty frame."""
    place = frame.extension
    while place:
        extension = ctypes.cast(place, ctypes.POINTER(_Extension)).contents
        if extension.type == METADATA:
            metadata = ctypes.cast(extension.metadata, ctypes.POINTER(_Metadata)).contents
            known = frame.api.contents.version if frame.api else None
            metadata.version.major, metadata.version.minor = (known.major, known.minor) if known else (0, 1)
            metadata.traits = 0
            return True
        place = extension.next
    return False


def _error(api: Any, message: str, code: int) -> int | None:
    asked = _ErrorArgs.sized(message=message.encode(), code=code)
    return _FUNCTION(api.error_create)(ctypes.addressof(asked))  # type: ignore[no-any-return]
