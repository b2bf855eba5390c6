"""Operands for tests: host arrays laid into guarded, poisoned memory, on the host or byte for byte on the device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import baracuda_py as bp
from baracuda_py.samples import Packed
from baracuda_py.types import ElementKind

__all__ = ["GUARD", "Slot", "as_bytes", "host", "materialise", "poisoned"]

GUARD = 64
Array = np.ndarray[Any, Any]


def as_bytes(view: Array) -> Array:
    """The same elements as opaque bytes, so that an assignment keeps every bit (NaN payloads too)."""
    return view.view(f"u{view.itemsize}") if view.itemsize <= 8 else view.view(np.dtype((np.void, view.itemsize)))


def host(x: Any) -> Array:
    """What an op returned, on the host."""
    if isinstance(x, np.ndarray):
        return x
    if type(x).__module__.partition(".")[0] == "torch":
        flat = x.detach().cpu().contiguous().reshape(-1)
        return flat.view(sys.modules["torch"].uint8).numpy().view(ElementKind.of(str(x.dtype)).dtype).reshape(x.shape)
    return x.to_host() if isinstance(x, bp.GpuBuffer) else x.get()  # type: ignore[no-any-return]


class Slot:
    """One operand in memory of its own: guard bytes on either side, poison in the gaps, its layout and alignment kept.

    `operand` is what a plan takes; `image()` is the whole memory now, `initial` as it was, `view(image)` the operand in it.
    """

    def __init__(self, data: Array | Packed, backend: str, *, poison: bool = False) -> None:
        self.packed = data if isinstance(data, Packed) else None
        array = np.asarray(data.data if isinstance(data, Packed) else data)
        self.shape, self.dtype, self.strides = array.shape, array.dtype, array.strides
        self.element = self.packed.element if self.packed else ElementKind.of(self.dtype)
        low = sum(min(0, s * (n - 1)) for n, s in zip(self.shape, self.strides)) if array.size else 0
        high = sum(max(0, s * (n - 1)) for n, s in zip(self.shape, self.strides)) + array.itemsize if array.size else 0
        phase = (array.__array_interface__["data"][0] if array.dtype.kind != "V" else array.ctypes.data) % 16
        start = GUARD - low
        start += (phase - start) % 16
        size = start + high + GUARD
        self.initial = (np.arange(size, dtype=np.uint32) * 37 + 0xA5).astype(np.uint8)
        self.offset = start
        if not poison and array.size:
            as_bytes(self.view(self.initial))[...] = as_bytes(array)
        self.backend = backend
        if backend != "cuda":
            self._memory = np.empty(size + 16, np.uint8)
            base = -self._memory.ctypes.data % 16
            self._host = self._memory[base : base + size]
            self._array: Any = self.view(self._host)
        else:
            import cupy

            self._memory = cupy.empty(size, np.uint8)
            assert self._memory.data.ptr % 16 == 0
            held = np.dtype(np.uint8) if "float8" in self.dtype.name else self.dtype  # CuPy has no dtype for fp8
            self._array = cupy.ndarray(self.shape, held, self._memory.data + self.offset, self.strides)
        self.reset()
        self.operand = self.over(self._array)

    def over(self, array: Any) -> Any:
        """What a plan takes, of an array of this layout: a GpuBuffer where that holds bytes of another kind."""
        packed = self.packed
        if packed is None:
            return array if array.dtype == self.dtype else bp.GpuBuffer.view(array, self.element)
        if packed.strides is None:
            return bp.GpuBuffer.view(array, packed.element, packed.shape)
        return bp.GpuBuffer.view(array, packed.element).strided(packed.shape, packed.strides, packed.offset)

    def reset(self) -> None:
        """Puts the initial bytes back."""
        if self.backend != "cuda":
            self._host[...] = self.initial
        else:
            self._memory.set(self.initial)

    def image(self) -> Array:
        """A copy of the whole memory as it is now (after all work on the device)."""
        if self.backend != "cuda":
            return self._host.copy()
        import cupy

        cupy.cuda.runtime.deviceSynchronize()
        return self._memory.get()

    def view(self, image: Array) -> Array:
        """The operand's elements (a packed kind's bytes) inside an image."""
        return np.ndarray(self.shape, self.dtype, image.data, self.offset, self.strides)

    def host(self) -> Array:
        """The initial elements on the host, laid out as the operand; another view of packed bytes, as its own rows."""
        view = self.view(self.initial.copy())
        if self.packed is None or self.packed.strides is None:
            return view
        buffer = bp.GpuBuffer.view(view, self.element).strided(
            self.packed.shape, self.packed.strides, self.packed.offset
        )
        return buffer.to_host()

    def expected(self, result: Array) -> Array:
        """The image that writing `result` here must leave: everything else as it was, spare nibbles included."""
        image = self.initial.copy()
        if not np.asarray(result).size:
            return image
        view = self.view(image)
        if self.packed is not None and self.packed.shape and self.packed.shape[-1] % self.element.per_byte:
            used = self.packed.shape[-1] * self.element.bits % 8
            spare = view[..., -1] & ~np.uint8((1 << used) - 1)
            view[...] = result
            view[..., -1] = (view[..., -1] & np.uint8((1 << used) - 1)) | spare
        else:
            array = np.asarray(result, order="C")
            if (
                array.ndim and array.shape != self.shape and array.shape[1:] == self.shape[1:]
            ):  # an extent that was counted
                view = view[: len(array)]
            as_bytes(view)[...] = as_bytes(array.reshape(view.shape))
        return image

    def touched(self) -> Array:
        """A mask over the image: True where an element of the operand is."""
        mask = np.zeros(self.initial.shape, np.uint8)
        if 0 not in self.shape:
            bits = as_bytes(self.view(mask))
            bits[...] = np.frombuffer(b"\xff" * self.dtype.itemsize, bits.dtype)[0]
        return mask != 0


def poisoned(layout: Any, backend: str) -> Slot:
    """A poisoned output of a descriptor's layout."""
    itemsize = layout.element.dtype.itemsize
    if layout.element.packed:
        per = layout.element.per_byte
        rows = np.empty((*layout.shape[:-1], -(-layout.shape[-1] // per)), np.uint8)
        return Slot(Packed(rows, layout.element, layout.shape), backend, poison=True)
    strides = tuple(s * itemsize for s in layout.strides)
    size = sum(abs(s) * max(n - 1, 0) for n, s in zip(layout.shape, strides)) + itemsize
    start = -sum(min(0, s * max(n - 1, 0)) for n, s in zip(layout.shape, strides))
    memory = np.zeros(size + 16, np.uint8)
    base = -memory.ctypes.data % 16
    return Slot(
        np.ndarray(layout.shape, layout.element.dtype, memory.data, base + start, strides), backend, poison=True
    )


def materialise(
    operands: Mapping[str, Any], backend: str, *, poison: Callable[[str], bool] = lambda _: False
) -> dict[str, Slot]:
    """Every operand of a sample in guarded memory of its own."""
    return {name: Slot(data, backend, poison=poison(name)) for name, data in operands.items()}
