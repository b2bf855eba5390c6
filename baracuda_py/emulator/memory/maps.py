"""Tensor maps of emulated launches: 128 bytes that name a map of this process and the address of its tensor.

A GPU's tensor map is opaque, and the driver that encodes it may be missing. Only the emulator reads these maps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from ...runtime.steps import TensorMap
from ...runtime.tensormap import BYTES
from ...types import DriverError
from ...types.faults import MisalignedFault, OutOfBoundsFault
from ..threads.lanes import Selection
from .boxes import ITEMSIZE, UNIT

if TYPE_CHECKING:
    from ..wave import Wave

__all__ = ["EmulatedMap", "map_at"]

_MAGIC = 0x6261_7261_6375_6461
_INVALID = "CUDA_ERROR_INVALID_VALUE"
_numbers = count(1)
_known: WeakValueDictionary[int, EmulatedMap] = WeakValueDictionary()


class EmulatedMap:
    """Replaces runtime.tensormap.MapEncoder."""

    def __init__(self, tensor: TensorMap) -> None:
        self.tensor, self._number = tensor, next(_numbers)
        self._wrong = next((why for why, bad in _refusals(tensor) if bad), "")
        _known[self._number] = self

    def at(self, address: int) -> bytes:
        why = self._wrong or ("an address that is no multiple of 16" if address % UNIT else "")
        if why:
            raise DriverError(f"encoding {self.tensor} at {address:#x}: {_INVALID}, {why}", 1, _INVALID)
        return np.array([_MAGIC, self._number, address], np.uint64).tobytes().ljust(BYTES, b"\0")


def _refusals(tensor: TensorMap) -> Iterator[tuple[str, bool]]:
    """The driver's reasons to refuse a map, and whether each applies to this tensor (CUDA driver API, cuTensorMapEncodeTiled)."""
    rank, width = len(tensor.shape), tensor.box[0] * ITEMSIZE[tensor.dtype]
    yield "axes", not 1 <= rank == len(tensor.box) == len(tensor.strides) + 1 <= 5
    yield "an extent beyond 1 to 2**32", not all(1 <= n <= 1 << 32 for n in tensor.shape)
    yield (
        "a stride that is no multiple of 16 below 2**40",
        not all(0 <= n < 1 << 40 and n % UNIT == 0 for n in tensor.strides),
    )
    yield "a box beyond 1 to 256 elements along an axis", not all(1 <= n <= 256 for n in tensor.box)
    yield "rows of a box that are no multiple of 16 bytes", width % UNIT != 0
    yield "rows of a box that are longer than the swizzle", tensor.swizzle != 0 and width > tensor.swizzle


def map_at(wave: Wave, n: int, s: Selection, j: int, address: int) -> tuple[TensorMap, int]:
    """The tensor map that is stored at an address, and its tensor's address."""
    lane = wave.lanes.numbers(s)[j : j + 1]
    if address % 64:
        raise wave.fault(MisalignedFault, "a tensor map at no multiple of 64 bytes", n, lane, 0)
    words = wave.memory.read_bytes(wave, n, lane, np.array([address], np.uint64), 8)
    words = np.concatenate(
        [words, *(wave.memory.read_bytes(wave, n, lane, np.array([address + k], np.uint64), 8) for k in (8, 16))], 1
    )
    magic, number, base = (int(w) for w in words.view(np.uint64)[0])
    if magic != _MAGIC:
        raise wave.fault(OutOfBoundsFault, f"{address:#x} holds no tensor map", n, lane, 0)
    return _known[number].tensor, base
