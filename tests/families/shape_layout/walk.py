"""The elementwise and append kernels in NumPy: what a launch's arguments tell the device, carried out on operands' memory.

Mirrors kernels/elementwise/map.cu, kernels/shape_layout/append.cu and kernels/include/core/index.cuh: every thread's indices, the
divisions by multiplication, the offsets, and the width of every access, which must be on a multiple of itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from baracuda_py.runtime.steps import Launch, Ptr

from ...arena import Slot

__all__ = ["Memory", "divide", "run", "template"]

Array = np.ndarray[Any, Any]


@dataclass
class Memory:
    """An operand's whole memory, and how often each byte of it was written. A kernel is given its first touched element, which
    is `displacement` bytes beyond the first."""

    slot: Slot
    image: Array
    displacement: int = 0
    written: Array = field(init=False)

    def __post_init__(self) -> None:
        self.written = np.zeros(len(self.image), np.int64)

    def _places(self, offsets: Array, width: int) -> Array:
        first = self.slot.offset + self.displacement + np.asarray(offsets, np.int64)
        assert not np.any(first % width), (
            f"an access of {width} bytes between its multiples"
        )  # images begin on multiples of 16
        places = np.add.outer(first, np.arange(width))
        assert not places.size or (places.min() >= 0 and places.max() < len(self.image)), "beyond the operand's memory"
        return places

    def load(self, offsets: Array, width: int) -> Array:
        """`width` bytes from each of the byte offsets, in one access."""
        return self.image[self._places(offsets, width)]

    def store(self, offsets: Array, values: Array) -> None:
        places = self._places(offsets, values.shape[-1])
        self.image[places] = values
        np.add.at(self.written, places, 1)


def template(entry: str) -> list[str]:
    """The template arguments of a kernel's name."""
    parts, depth = [""], 0
    for c in entry[entry.index("<") + 1 : entry.rindex(">")]:
        depth += (c == "<") - (c == ">")
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def divide(n: Array, packed: bytes, index: str) -> Array:
    """Divisor32::divide or Divisor64::divide."""
    n = np.asarray(n, np.uint64)
    if index == "u64":
        return n // np.uint64(struct.unpack("<QQ", packed)[0])
    divisor, multiplier, shift, _ = struct.unpack("<IIII", packed)
    assert not n.size or n.max() < 1 << 31, "beyond what Divisor32 divides"
    if divisor == 1:
        return n
    return n * np.uint64(multiplier) >> np.uint64(32 + shift)


def locate(i: Array, packed: bytes, rank: int, operands: int, index: str) -> list[Array]:
    """Dims::locate: every operand's byte offset at flat index `i`."""
    size = 16
    assert len(packed) == (size + 8 * operands) * max(rank, 1)
    extents = [packed[size * axis : size * (axis + 1)] for axis in range(max(rank, 1))]
    strides = np.frombuffer(packed[size * max(rank, 1) :], np.int64).reshape(operands, max(rank, 1))
    offsets = [np.zeros(len(i), np.int64) for _ in range(operands)]
    for axis in range(rank - 1, -1, -1):
        divisor = struct.unpack("<I" if index == "u32" else "<Q", extents[axis][: 4 if index == "u32" else 8])[0]
        rest = divide(i, extents[axis], index) if axis else np.zeros(len(i), np.uint64)
        at = (np.asarray(i, np.uint64) - rest * np.uint64(divisor)).astype(np.int64)
        for k in range(operands):
            offsets[k] += at * strides[k, axis]
        i = rest
    return offsets


def run(launch: Launch, memory: Mapping[str, Memory], function: Callable[..., Array] | None = None) -> None:
    """Carries out a launch; `function` is what an elementwise kernel's functor computes."""
    assert all(0 < n <= most for n, most in zip(launch.grid, (2**31 - 1, 65535, 65535)))
    name = launch.kernel.entry.partition("<")[0]
    if name == "append_runs":
        _append(launch, memory)
    else:
        {"map_contiguous": _contiguous, "map_strided": _strided}[name](launch, memory, function)


def _firsts(launch: Launch, per_thread: int) -> Array:
    """The first index of each thread, where a CTA's threads are adjacent and take `per_thread` each."""
    threads = launch.block[0]
    return np.add.outer(np.arange(launch.grid[0]) * (threads * per_thread), np.arange(threads)).ravel()


def _evaluated(
    memory: Mapping[str, Memory], names: list[str], offsets: list[Array], widths: list[int], vector: int, function: Any
) -> None:
    """Loads, computes and stores `vector` elements from each offset; an input of a narrower access is one element for all."""
    dtypes = [memory[name].slot.dtype for name in names]
    values = []
    for name, dtype, offset, width in zip(names[1:], dtypes[1:], offsets[1:], widths[1:]):
        loaded = memory[name].load(offset, width).view(dtype)
        values.append(np.broadcast_to(loaded, (len(offset), vector)))
    result = np.asarray(function(*values)).astype(dtypes[0]).reshape(len(offsets[0]), vector)
    memory[names[0]].store(offsets[0], result.view(np.uint8))


def _contiguous(launch: Launch, memory: Mapping[str, Memory], function: Any) -> None:
    _, _, _, *numbers, index = template(launch.kernel.entry)[:7]
    vector, unroll, threads = map(int, numbers)
    count, *pointers = launch.args
    assert isinstance(count, np.uint32 if index == "u32" else np.uint64) and launch.block == (threads, 1, 1)
    names = [p.operand for p in pointers if isinstance(p, Ptr)]
    sizes = [memory[name].slot.dtype.itemsize for name in names]
    cta, thread = np.divmod(_firsts(launch, unroll * vector), threads * unroll * vector)
    for u in range(unroll):
        i = (cta * threads * unroll + thread + u * threads) * vector
        whole = i[i + vector <= int(count)]
        _evaluated(memory, names, [whole * s for s in sizes], [vector * s for s in sizes], vector, function)
        rest = [np.arange(first, int(count)) for first in i[(i < int(count)) & (i + vector > int(count))]]
        tail = np.concatenate([np.zeros(0, np.int64), *rest])
        _evaluated(memory, names, [tail * s for s in sizes], sizes, 1, function)


def _strided(launch: Launch, memory: Mapping[str, Memory], function: Any) -> None:
    _, _, _, vector, unroll, threads, rank, splat, index, *_ = template(launch.kernel.entry)
    count, dims, *pointers = launch.args
    assert launch.block == (int(threads), 1, 1)
    names = [p.operand for p in pointers if isinstance(p, Ptr)]
    sizes = [memory[name].slot.dtype.itemsize for name in names]
    widths = [sizes[0] * int(vector)]
    widths += [s if int(splat) >> k & 1 else s * int(vector) for k, s in enumerate(sizes[1:])]
    for u in range(int(unroll)):
        i = _firsts(launch, int(unroll)) + u * int(threads)
        i = i[i < int(count)]  # type: ignore[arg-type]
        offsets = locate(i, dims.data, int(rank), len(names), index)  # type: ignore[union-attr]
        _evaluated(memory, names, offsets, widths, int(vector), function)


def _append(launch: Launch, memory: Mapping[str, Memory]) -> None:
    index, position, rank, width, threads, unroll, parts, many = template(launch.kernel.entry)
    *pointers, sequences, limit, step, count, per_sequence, dims = launch.args
    names = [p.operand for p in pointers]  # type: ignore[union-attr]
    assert int(limit) == limit and launch.block == (int(threads), 1, 1) and launch.grid[1:] == (int(parts), 1)
    positions, status = memory[names[4]], memory.get(names[5])
    size = {"i32": 4, "i64": 8}[position]
    if not int(count):
        held = positions.load(np.arange(int(sequences)) * size, size).view(f"i{size}").ravel()
        fits = (held >= 0) & (held <= int(limit))
        if status is not None:
            status.store(np.arange(int(sequences)) * 4, (~fits).astype(np.int32).view(np.uint8).reshape(-1, 4))
        return
    for y in range(int(parts)):
        dest, source = memory[names[y]], memory[names[2 + y]]
        for u in range(int(unroll)):
            thread = _firsts(launch, int(unroll)) + u * int(threads)
            i = np.minimum(thread, int(count) - 1)
            sequence = divide(i, per_sequence.data, index).astype(np.int64) if many == "true" else i * 0
            at = positions.load(sequence * size, size).view(f"i{size}").ravel().astype(np.int64)
            to, of = locate(i, dims.data, int(rank), 2, index)
            fits, own = (at >= 0) & (at <= int(limit)), thread < int(count)
            value = source.load(of, int(width))
            dest.store((to + at * int(step))[fits & own], value[fits & own])
            first = (
                sequence
                * struct.unpack("<I" if index == "u32" else "<Q", per_sequence.data[: 4 if index == "u32" else 8])[0]
            )
            reports = (thread == (first if many == "true" else 0)) & (y == 0)
            if status is not None:
                status.store(sequence[reports] * 4, (~fits[reports]).astype(np.int32).view(np.uint8).reshape(-1, 4))
