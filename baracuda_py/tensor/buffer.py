"""GpuBuffer: typed memory over a CuPy array, zero-copy, with the element kinds that CuPy and NumPy have no dtype for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..runtime.gpu.device import Device, current_ordinal
from ..runtime.gpu.driver import require_cupy
from ..types import BufferTooSmallError, ElementKind, InvalidProblemError, OperandTypeError, UnsupportedError
from ..types.elements import ElementLike
from ..types.errors import shown
from . import dlpack
from .arrays import intake
from .axes import as_ints, c_strides, span
from .operand import Tensor

__all__ = ["GpuBuffer"]


class GpuBuffer:
    """An array of one :class:`ElementKind` (KAIO's ``GpuBuffer``).

    It wraps a CuPy array (or a NumPy array, for ``device="cpu"``) without a copy and states how its bytes are read. ``shape``
    and ``strides`` count elements, packed kinds included. Exports ``__dlpack__`` and ``__cuda_array_interface__``.

    ``array`` is the same view as a CuPy or NumPy array: its elements, or the rows of bytes of a packed kind. A packed view
    without such rows (it begins inside a byte, or has strides that are not whole bytes) is not `plain`: ``array`` is then the
    flat range of bytes that it reaches, and ``offset`` the number of elements in it before the view's first one.

    >>> b = bp.GpuBuffer.view(x_u8, bp.S4)      # doctest: +SKIP
    """

    __slots__ = ("_tensor", "array", "element", "offset", "plain", "shape", "strides")

    def __init__(
        self, array: Any, element: ElementLike, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
    ) -> None:
        """A view of `array`'s memory with that shape and those strides, `offset` elements from the array's first element.

        Raises InvalidProblemError if they are not a layout, and BufferTooSmallError if the view exceeds the array.
        """
        base = intake(getattr(array, "array", array) if isinstance(array, GpuBuffer) else array, what="GpuBuffer")
        kind = self.element = ElementKind.of(element)
        self.shape, self.strides, offset = _layout("GpuBuffer", kind, shape, strides, offset)
        (low, high), held = span(self.shape, self.strides, kind, offset), base.interval()
        if low < high and (base.pointer + low < held[0] or base.pointer + high > held[1]):
            raise BufferTooSmallError(
                f"GpuBuffer: the view reaches bytes {low} to {high} of an array that holds {held[1] - held[0]}",
                high - low,
                held[1] - held[0],
                "stay inside the array",
            )
        per = kind.per_byte
        tensor = replace(
            base, pointer=base.pointer + offset * kind.bits // 8, shape=self.shape, strides=self.strides, element=kind,
            phase=offset % per, bounds=None, source=self,
        )  # fmt: skip
        self._tensor = tensor
        self.plain = not kind.packed or _in_rows(tensor)
        self.offset = 0 if self.plain else offset - low * per
        if not kind.packed:
            self.array = tensor.array(kind.dtype if base.on_host else _storage_dtype(kind))
            return
        rows = replace(tensor, pointer=base.pointer + low, shape=(high - low,), strides=(1,))
        if self.plain:
            steps = (*(s // per for s in self.strides[:-1]), 1)
            rows = replace(tensor, shape=_storage_shape(self.shape, kind), strides=steps)
        self.array = replace(rows, element=ElementKind.U8, phase=0).array()

    # -- making one ------------------------------------------------------------------------------------------------

    @classmethod
    def zeros(cls, shape: int | tuple[int, ...], element: ElementLike, device: Device | int | None = None) -> GpuBuffer:
        """Device memory of `shape` elements, all bits zero."""
        cupy = require_cupy("GpuBuffer.zeros")
        kind = ElementKind.of(element)
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        ordinal = current_ordinal() if device is None else getattr(device, "ordinal", device)
        with cupy.cuda.Device(ordinal):
            bare = cupy.zeros(_storage_shape(extents, kind), dtype=_storage_dtype(kind))
        return cls(bare, kind, extents, c_strides(extents, kind))

    @classmethod
    def alloc_from(cls, host: Any, element: ElementLike | None = None, device: Device | int | None = None) -> GpuBuffer:
        """Device memory holding a copy of a host array; packed kinds take their packed bytes (uint8)."""
        cupy = require_cupy("GpuBuffer.alloc_from")
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
        if kind.packed and not base.element.packed:
            return cls._packed_view(array, base, kind, shape)
        if kind.bits != base.element.bits:
            raise OperandTypeError(
                f"GpuBuffer.view: {base.element} has {base.element.bits} bits an element and {kind} has {kind.bits}: "
                "view the array as a dtype of that width first"
            )
        if shape is not None and _ints("GpuBuffer.view", "shape", shape) != base.shape:
            raise InvalidProblemError(
                f"GpuBuffer.view: shape {tuple(shape)} is not the array's {base.shape}: reshape the array"
            )
        return cls(array, kind, base.shape, base.strides, getattr(array, "offset", 0) if base.element.packed else 0)

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
        extents = (*base.shape[:-1], base.shape[-1] * per)
        if shape is not None:
            extents = _ints("GpuBuffer.view", "shape", shape)
        if len(extents) != len(base.shape) or extents[:-1] != base.shape[:-1] or extents[-1] < 0:
            raise InvalidProblemError(
                f"GpuBuffer.view: shape {extents} does not have the rows of the array's {base.shape}",
                f"give {base.shape[:-1]} and then the elements of a row",
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
        """Another view of the same memory: `strides` and `offset` count elements, any sign and zero included.

        Raises InvalidProblemError if this view is not C-contiguous or the new one is not a layout, and BufferTooSmallError if
        it exceeds this one.
        """
        if not self.plain or (self.array.size and not self.array.flags.c_contiguous):
            raise InvalidProblemError(
                "GpuBuffer.strided: the array is not C-contiguous", "start from the whole allocation"
            )
        extents, steps, first = _layout("GpuBuffer.strided", self.element, shape, strides, offset)
        low, high = span(extents, steps, self.element, first)
        if low < 0 or high > self.nbytes:
            raise BufferTooSmallError(
                f"GpuBuffer.strided: the view reaches bytes {low} to {high} of {self.nbytes}",
                high - low,
                self.nbytes,
                "stay inside the buffer",
            )
        return GpuBuffer(self, self.element, extents, steps, first)

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

    def to_host(self) -> np.ndarray[Any, Any]:
        """A NumPy copy (packed kinds: their rows of bytes). Waits for the current stream."""
        array = np.array(self.array) if self._tensor.on_host else self.array.get()
        if self.plain:
            return array if self.element.packed else array.view(self.element.dtype)
        bits, per, places = self.element.bits, self.element.per_byte, self._places()
        values = array[places // per] >> (places % per * bits).astype(np.uint8) & ((1 << bits) - 1)
        rows = np.zeros(_storage_shape(self.shape, self.element), np.uint8)
        for k in range(per):
            part = values[..., k::per]
            rows[..., : part.shape[-1]] |= (part << (k * bits)).astype(np.uint8)
        return rows

    def put_rows(self, rows: np.ndarray[Any, Any]) -> None:
        """Writes the rows that `to_host` gave back into a view on the host that is not `plain`, element by element."""
        bits, per, places = self.element.bits, self.element.per_byte, self._places()
        flat, column = self.array, np.arange(self.shape[-1])
        values = rows[..., column // per] >> (column % per * bits).astype(np.uint8) & ((1 << bits) - 1)
        for k in range(per):  # one element of each byte per pass, so that no two writes of a pass touch the same byte
            mine = places % per == k
            at = places[mine] // per
            flat[at] = (flat[at] & ~np.uint8(((1 << bits) - 1) << k * bits)) | (values[mine] << (k * bits)).astype(
                np.uint8
            )

    def _places(self) -> np.ndarray[Any, Any]:
        """The position of each element, in elements from the array's first."""
        places = np.full(self.shape, self.offset, np.int64)
        for axis, (extent, stride) in enumerate(zip(self.shape, self.strides)):
            places += (np.arange(extent) * stride).reshape([-1 if a == axis else 1 for a in range(len(self.shape))])
        return places

    def __baracuda_tensor__(self) -> Tensor:
        return self._tensor

    def __dlpack__(self, **arguments: Any) -> Any:
        """Exports the view over DLPack. Raises UnsupportedError if the protocol cannot describe it: packed elements that do not
        form whole rows of bytes, and memory of an immutable framework on a device."""
        bare = self._exported("DLPack")
        if bare.dtype == self.element.dtype and not self.element.packed:
            return bare.__dlpack__(**arguments)
        return dlpack.relabel(
            bare.__dlpack__(**arguments), self.element, self.shape[-1] if self.element.packed else None
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()  # type: ignore[no-any-return]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The view. Kinds without a name in the interface (bf16, fp8) appear as unsigned integers, packed kinds as their rows
        of bytes."""
        if self._tensor.on_host:
            raise AttributeError("a GpuBuffer over a NumPy array has no __cuda_array_interface__")
        return self._exported("__cuda_array_interface__").__cuda_array_interface__  # type: ignore[no-any-return]

    def _exported(self, protocol: str) -> Any:
        """`array`, viewed as unsigned integers if NumPy has no such dtype."""
        if not self.plain:
            raise UnsupportedError(
                f"GpuBuffer: {protocol} cannot say that {self.element} elements begin, step or turn back inside bytes",
                "contiguize it first",
            )
        if self._tensor.readonly and not self._tensor.on_host:
            raise UnsupportedError(
                f"GpuBuffer: the memory is read-only, and CuPy's {protocol} cannot say so", "export the original array"
            )
        native = self.element.dtype.isbuiltin == 1 and self.array.dtype == self.element.dtype
        return self.array if native else self.array.view(f"u{self.array.itemsize}")

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<bp.GpuBuffer {self.element}{list(self.shape)} on {self.device}>"


def _storage_dtype(kind: ElementKind) -> np.dtype[Any]:
    """The dtype of the CuPy array: bytes for fp8 and packed kinds, for which CuPy has none."""
    return np.dtype(np.uint8) if kind.packed or "fp8" in kind.value else kind.dtype


def _storage_shape(shape: tuple[int, ...], kind: ElementKind) -> tuple[int, ...]:
    return (*shape[:-1], -(-shape[-1] // kind.per_byte)) if kind.packed and shape else shape


def _ints(what: str, name: str, values: Any) -> tuple[int, ...]:
    try:
        return as_ints(values)
    except (TypeError, AttributeError):
        raise InvalidProblemError(
            f"{what}: {name}={shown(values)} is not a sequence of integers", "give a tuple of ints"
        ) from None


def _layout(
    what: str, kind: ElementKind, shape: Any, strides: Any, offset: Any
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Converts a shape, strides and an offset to ints; raises InvalidProblemError if they are not a layout."""
    extents, steps, (first,) = (
        _ints(what, "shape", shape),
        _ints(what, "strides", strides),
        _ints(what, "offset", [offset]),
    )
    if len(extents) != len(steps) or any(n < 0 for n in extents):
        raise InvalidProblemError(
            f"{what}: shape {extents} and strides {steps} are no layout",
            "give extents of 0 or more, and a stride for each",
        )
    if kind.packed and not extents:
        raise InvalidProblemError(
            f"{what}: a packed kind lies in rows, and the shape is ()", "give it one axis or more"
        )
    return extents, steps, first


def _in_rows(tensor: Tensor) -> bool:
    """Whether the rows of a packed view begin on a byte and are contiguous."""
    per = tensor.element.per_byte
    *outer, (last, step) = zip(tensor.shape, tensor.strides)
    return not tensor.phase and (step == 1 or last <= 1) and all(s % per == 0 or n <= 1 for n, s in outer)
