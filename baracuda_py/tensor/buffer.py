"""GpuBuffer: typed memory over a CuPy array, zero-copy, with the element kinds that CuPy and NumPy have no dtype for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..runtime.device import Device, current_ordinal
from ..runtime.driver import require_gpu
from ..types import BufferTooSmallError, ElementKind, InvalidProblemError, OperandTypeError
from ..types.elements import ElementLike
from . import dlpack
from .axes import c_strides, span
from .operand import Tensor, intake

__all__ = ["GpuBuffer"]


class GpuBuffer:
    """An array of one :class:`ElementKind` (KAIO's ``GpuBuffer``).

    It wraps a CuPy array without copying (a NumPy one too, for ``device="cpu"``) and says how its bytes are to be read.
    ``shape`` and ``strides`` count elements, packed kinds included. Exports ``__dlpack__`` and
    ``__cuda_array_interface__``.

    >>> b = bp.GpuBuffer.view(x_u8, bp.S4)      # doctest: +SKIP
    """

    __slots__ = ("_tensor", "array", "element", "offset", "shape", "strides")

    def __init__(
        self, array: Any, element: ElementKind, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
    ) -> None:
        base = intake(array, what="GpuBuffer")
        self.array = array
        self.element = element
        self.shape = shape
        self.strides = strides
        self.offset = offset
        pointer, phase = base.pointer + offset * element.bits // 8, offset % element.per_byte
        self._tensor = Tensor(
            pointer, shape, strides, element, base.ordinal, base.framework, base.readonly, phase, None, self, array
        )

    # -- making one ------------------------------------------------------------------------------------------------

    @classmethod
    def zeros(cls, shape: int | tuple[int, ...], element: ElementLike, device: Device | int | None = None) -> GpuBuffer:
        """Device memory of `shape` elements, all bits zero."""
        cupy = require_gpu("GpuBuffer.zeros")
        kind = ElementKind.of(element)
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        ordinal = current_ordinal() if device is None else getattr(device, "ordinal", device)
        with cupy.cuda.Device(ordinal):
            bare = cupy.zeros(_storage_shape(extents, kind), dtype=_storage_dtype(kind))
        return cls(bare, kind, extents, c_strides(extents, kind))

    @classmethod
    def alloc_from(cls, host: Any, element: ElementLike | None = None, device: Device | int | None = None) -> GpuBuffer:
        """Device memory holding a copy of a host array; packed kinds take their packed bytes (uint8)."""
        cupy = require_gpu("GpuBuffer.alloc_from")
        array = np.asarray(host)
        ordinal = current_ordinal() if device is None else getattr(device, "ordinal", device)
        with cupy.cuda.Device(ordinal):
            kind = ElementKind.of(element if element is not None else array.dtype)
            bare = array if kind.packed else array.view(_storage_dtype(kind))
            return cls.view(cupy.asarray(bare), kind)

    @classmethod
    def view(cls, array: Any, element: ElementLike, shape: tuple[int, ...] | None = None) -> GpuBuffer:
        """The same bytes read as `element`: u8 as s8, bytes as fp8, packed nibbles as S4. No copy.

        A kind of the same width keeps shape and strides. A packed kind takes contiguous rows of uint8 (or int8); its
        last extent is twice the bytes unless `shape` says an odd one.
        """
        kind = ElementKind.of(element)
        base = intake(array, what=f"GpuBuffer.view(…, {kind!r})")
        array = getattr(array, "array", array)
        if kind.packed and base.element is not kind:
            return cls._packed_view(array, base, kind, shape)
        if kind.bits != base.element.bits:
            raise OperandTypeError(
                f"GpuBuffer.view: {base.element} has {base.element.bits} bits an element and {kind} has {kind.bits}: "
                "view the array as a dtype of that width first"
            )
        if shape is not None and tuple(shape) != base.shape:
            raise InvalidProblemError(
                f"GpuBuffer.view: shape {tuple(shape)} is not the array's {base.shape}: reshape the array"
            )
        typed = array
        if base.framework in ("cupy", "numpy"):
            typed = array.view(_storage_dtype(kind) if base.framework == "cupy" else kind.dtype)
        return cls(typed, kind, base.shape, base.strides)

    @classmethod
    def _packed_view(cls, array: Any, base: Tensor, kind: ElementKind, shape: tuple[int, ...] | None) -> GpuBuffer:
        if base.element.bits != 8 or not base.shape:
            raise OperandTypeError(
                f"GpuBuffer.view: {kind} is packed in bytes, and the array holds {base.element} of rank {len(base.shape)}: "
                "give a uint8 array of rank 1 or more"
            )
        if base.shape[-1] > 1 and base.strides[-1] != 1 and 0 not in base.shape:
            raise InvalidProblemError(
                f"GpuBuffer.view: packed rows must be contiguous, and the last stride is {base.strides[-1]} bytes: copy the array"
            )
        per = kind.per_byte
        extents = (*base.shape[:-1], base.shape[-1] * per) if shape is None else tuple(shape)
        if extents[:-1] != base.shape[:-1]:
            raise InvalidProblemError(
                f"GpuBuffer.view: shape {extents} does not have the rows of the array's {base.shape}"
            )
        row = -(-extents[-1] // per)
        if row > base.shape[-1]:
            raise BufferTooSmallError(
                f"GpuBuffer.view: rows of {extents[-1]} {kind} take {row} bytes and the array has {base.shape[-1]}: "
                "pack more bytes a row",
                row,
                base.shape[-1],
            )
        return cls(array, kind, extents, (*(s * per for s in base.strides[:-1]), 1))

    def strided(self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> GpuBuffer:
        """Another view of the same memory: `strides` and `offset` count elements, any sign and zero included."""
        if self.array.size and not self.array.flags.c_contiguous:
            raise InvalidProblemError(
                "GpuBuffer.strided: the array is not C-contiguous", "start from the whole allocation"
            )
        low, high = span(tuple(shape), tuple(strides), self.element, offset)
        if low < 0 or high > self.nbytes:
            raise BufferTooSmallError(
                f"GpuBuffer.strided: the view reaches bytes {low} to {high} of {self.nbytes}",
                high - low,
                self.nbytes,
                "stay inside the buffer",
            )
        bare = self.array.reshape(-1).view(np.uint8)[low:high]
        start = offset - low * 8 // self.element.bits
        held = bare if self.element.packed else bare.view(self.array.dtype)
        return GpuBuffer(held, self.element, tuple(shape), tuple(strides), start)

    # -- reading it ------------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return int(self.array.nbytes)

    @property
    def device(self) -> Device | str:
        return "cpu" if self._tensor.on_host else Device(self._tensor.ordinal)

    @property
    def plain(self) -> bool:
        """Whether `array` itself is the view: False for another view of its bytes, which `strided` makes."""
        base = intake(self.array, what="GpuBuffer")
        if self.offset or len(self.shape) != len(base.shape):
            return False
        if not self.element.packed:
            return (self.shape, self.strides) == (base.shape, base.strides)
        rows = tuple(s * self.element.per_byte for s in base.strides[:-1])
        return self.shape[:-1] == base.shape[:-1] and self.strides == (*rows, 1)

    def to_host(self) -> np.ndarray[Any, Any]:
        """A NumPy copy (packed kinds: their rows of bytes). Waits for the current stream."""
        array = np.array(self.array) if isinstance(self.array, np.ndarray) else self.array.get()
        array = array if self.element.packed else array.view(self.element.dtype)
        if self.plain:
            return array
        if not self.element.packed:
            return array.reshape(-1)[self._places()]  # type: ignore[no-any-return]
        bits, per, places = self.element.bits, self.element.per_byte, self._places()
        values = array.reshape(-1).view(np.uint8)[places // per] >> (places % per * bits).astype(np.uint8) & (
            (1 << bits) - 1
        )
        rows = np.zeros(_storage_shape(self.shape, self.element), np.uint8)
        for k in range(per):
            part = values[..., k::per]
            rows[..., : part.shape[-1]] |= (part << (k * bits)).astype(np.uint8)
        return rows

    def put_rows(self, rows: np.ndarray[Any, Any]) -> None:
        """Writes what `to_host` gave back into a view of a NumPy array, element by element."""
        flat = self.array.reshape(-1)
        if not self.element.packed:
            flat[self._places()] = rows
            return
        bits, per, places = self.element.bits, self.element.per_byte, self._places()
        flat = flat.view(np.uint8)
        column = np.arange(self.shape[-1])
        values = rows[..., column // per] >> (column % per * bits).astype(np.uint8) & ((1 << bits) - 1)
        for k in range(per):  # the elements of one byte in turn, so that no two writes of a pass meet
            mine = places % per == k
            at = places[mine] // per
            flat[at] = (flat[at] & ~np.uint8(((1 << bits) - 1) << k * bits)) | (values[mine] << (k * bits)).astype(
                np.uint8
            )

    def _places(self) -> np.ndarray[Any, Any]:
        """Where each element lies, counted in elements from the array's first."""
        places = np.full(self.shape, self.offset, np.int64)
        for axis, (extent, stride) in enumerate(zip(self.shape, self.strides)):
            places += (np.arange(extent) * stride).reshape([-1 if a == axis else 1 for a in range(len(self.shape))])
        return places

    def __baracuda_tensor__(self) -> Tensor:
        return self._tensor

    def __dlpack__(self, **arguments: Any) -> Any:
        if self.element.packed or "fp8" in self.element.value:
            capsule = self.array.view(np.uint8).__dlpack__(**arguments)
            return dlpack.relabel(capsule, self.element, self.shape, self.strides)
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()  # type: ignore[no-any-return]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._tensor.on_host:
            raise AttributeError("a GpuBuffer over a NumPy array has no __cuda_array_interface__")
        plain = self.element.dtype.kind in "biufc"  # the interface has no name for bf16 and fp8: they go as bytes
        return (self.array if plain else self.array.view(f"u{self.array.itemsize}")).__cuda_array_interface__  # type: ignore[no-any-return]

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<bp.GpuBuffer {self.element}{list(self.shape)} on {self.device}>"


def _storage_dtype(kind: ElementKind) -> np.dtype[Any]:
    """What CuPy holds it as: it has no dtype for fp8 and packed kinds, so those are bytes."""
    return np.dtype(np.uint8) if kind.packed or "fp8" in kind.value else kind.dtype


def _storage_shape(shape: tuple[int, ...], kind: ElementKind) -> tuple[int, ...]:
    return (*shape[:-1], -(-shape[-1] // kind.per_byte)) if kind.packed and shape else shape
