"""Moving elements, on bytes: NaN payloads and spare nibbles come through untouched."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["contiguize", "kv_append", "pack_nibbles", "unpack_nibbles", "write_slice"]

Array: TypeAlias = np.ndarray[Any, Any]


def unpack_nibbles(packed: Array) -> Array:
    """One element a byte: (..., n) bytes to (..., 2 n) nibbles, the low one first."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], packed.shape[-1] * 2)


def pack_nibbles(nibbles: Array) -> Array:
    """The reverse, for an even last extent."""
    return np.asarray(nibbles[..., 0::2] | (nibbles[..., 1::2] << 4), dtype=np.uint8)


def write_slice(desc: Any, dest: Array, source: Array, start: Array | None = None, status: Array | None = None) -> Any:
    """dest with its window replaced by source; with a device start, also the status."""
    ranges = list(desc.ranges)
    valid = True
    if desc.dynamic_axis is not None:
        axis = desc.dynamic_axis
        extent = ranges[axis][1] - ranges[axis][0]
        first = int(np.asarray(start).reshape(()))
        valid = 0 <= first <= desc.dest_shape[axis] - extent
        ranges[axis] = (first, first + extent)
    result = dest.copy()
    window = tuple(slice(a, b) for a, b in ranges)
    if valid and desc.element.packed:
        nibbles = unpack_nibbles(result)
        nibbles[window] = unpack_nibbles(source)[tuple(slice(0, b - a) for a, b in ranges)]
        result = pack_nibbles(nibbles)
    elif valid:
        result[window] = source
    if status is None:
        return result
    return result, np.asarray(0 if valid else 1, dtype=np.int32).reshape(status.shape)


def contiguize(desc: Any, x: Array) -> Array:
    """x in C order; a packed view comes as its rows of bytes."""
    if not desc.element.packed:
        return np.array(x, order="C")
    shape = desc.shape
    nibbles = unpack_nibbles(x)[..., : shape[-1]]
    spare = np.zeros((*shape[:-1], shape[-1] % 2), np.uint8)
    return pack_nibbles(np.concatenate([nibbles, spare], axis=-1))


def kv_append(
    desc: Any, k_cache: Array, v_cache: Array, k: Array, v: Array, positions: Array
) -> tuple[Array, Array, Array]:
    """Both caches with each sequence's tokens put at its position, and the status of each sequence."""
    caches = k_cache.copy(), v_cache.copy()
    axis = desc.token_axis
    tokens, limit = k.shape[axis], k_cache.shape[axis]
    status = np.zeros(len(positions), dtype=np.int32)
    for b, position in enumerate(positions.tolist()):
        if position < 0 or (position > limit - tokens and not desc.wrap):
            status[b] = 1
            continue
        places = [(position + t) % limit for t in range(tokens)]
        for cache, new in zip(caches, (k, v)):
            np.moveaxis(cache[b], axis - 1, 0)[places] = np.moveaxis(new[b], axis - 1, 0)
    return *caches, status
