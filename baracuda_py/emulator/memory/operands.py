"""Operands as regions of an emulated launch's memory, and back.

Each operand gets addresses far from all others. The host's addresses would depend on the run, could be adjacent, and could fall
into the windows of shared and local memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...tensor import Tensor
from ...tensor.axes import without_unit_axes
from ...types.faults import OutOfBoundsFault, ReadOnlyFault, UninitialisedFault
from ..threads.lanes import Array
from .global_memory import Region

__all__ = ["fill", "move", "put_back", "regions_of", "together"]

OPERANDS = 0x1000_0000_0000
STRIDE = 1 << 36
PAGE = 4096  # an address modulo PAGE is the host's, which preserves alignment

Group: TypeAlias = "tuple[int, int, list[str]]"  # [low, high) of the host's memory, and the operands there


def together(tensors: Mapping[str, Tensor]) -> list[Group]:
    """The operands in groups: operands whose bytes interleave share a group."""
    groups: list[Group] = []
    for low, high, name in sorted((*t.interval(), name) for name, t in tensors.items()):
        if groups and low < groups[-1][1]:
            first, last, names = groups[-1]
            groups[-1] = first, max(last, high), [*names, name]
        else:
            groups.append((low, high, [name]))
    return groups


def regions_of(
    groups: Sequence[Group], tensors: Mapping[str, Tensor], written: Collection[str]
) -> tuple[list[Region], dict[str, int]]:
    """A region for each group, and the address of each operand's first element."""
    regions: list[Region] = []
    places: dict[str, int] = {}
    end = OPERANDS
    for low, high, names in groups:
        base = end + low % PAGE
        end += -(-(high - low + PAGE) // STRIDE) * STRIDE
        places |= {name: base + tensors[name].pointer - low for name in names}
        data = np.frombuffer(ctypes.string_at(low, high - low), np.uint8)
        elements, stored = np.zeros((2, high - low), bool)
        for name in names:
            _mark(elements, tensors[name], low)
            if name in written:
                _mark(stored, tensors[name], low)
        regions.append(Region(" = ".join(names), base, data, elements=elements, stored=stored, home=low))
    return regions, places


def _mark(marks: Array, tensor: Tensor, low: int) -> None:
    """Sets the bytes of a tensor's elements."""
    bits = tensor.element.bits
    if tensor.element.packed:
        offsets = np.full((), tensor.phase, np.int64)
        for extent, stride in zip(tensor.shape, tensor.strides):
            offsets = offsets[..., None] + np.arange(extent) * stride
        marks[tensor.pointer - low + offsets.ravel() * bits // 8] = True
        return
    size = bits // 8
    shape, (strides,) = without_unit_axes(
        tensor.shape, [tensor.strides]
    )  # one axis of bytes more, and NumPy has 64 at most
    view = np.lib.stride_tricks.as_strided(
        marks[tensor.pointer - low :], (*shape, size), (*(s * size for s in strides), 1)
    )
    view[...] = True


def put_back(region: Region) -> None:
    """Copies back to the host the bytes that a kernel may write, and no others."""
    target = np.ctypeslib.as_array((ctypes.c_ubyte * region.extent).from_address(region.home))
    target[region.stored] = region.data[region.stored]


def fill(regions: Sequence[Region], to: int, value: int, nbytes: int) -> None:
    """Sets bytes of an operand, which must all belong to its elements, to a value."""
    if not nbytes:
        return
    region, at = _at(regions, to, nbytes, store=True)
    region.bytes[at] = value
    if region.known is not None:
        region.known[at] = True


def move(regions: Sequence[Region], to: int, of: int, nbytes: int) -> None:
    """Copies bytes of operands, which must all belong to elements. UninitialisedFault if unwritten bytes are copied to an
    operand; scratch may hold them."""
    if not nbytes:
        return
    (source, here), (dest, there) = _at(regions, of, nbytes, store=False), _at(regions, to, nbytes, store=True)
    known = np.ones(nbytes, bool) if source.known is None else source.known[here].copy()
    dest.bytes[there] = source.bytes[here].copy()
    if dest.known is not None:
        dest.known[there] = known
    elif not known.all():
        byte = here.start - source.head + int(np.argmin(known))
        text = f"a copy's read of {nbytes} bytes, of which nothing had written {int((~known).sum())}"
        raise UninitialisedFault(text, operand=source.name, space="global", byte=byte, extent=source.extent)


def _at(regions: Sequence[Region], address: int, nbytes: int, *, store: bool) -> tuple[Region, slice]:
    """The region that contains the bytes of a copy or a fill, and their positions in it."""
    verb = "write" if store else "read"
    for region in regions:
        if region.address <= address < region.low + region.nbytes:
            offset = address - region.low
            place: dict[str, Any] = {
                "operand": region.name,
                "space": "global",
                "byte": offset - region.head,
                "extent": region.extent,
            }
            if region.outside(np.array([offset]), nbytes).any():
                raise OutOfBoundsFault(f"a copy's {verb} of {nbytes} bytes that are no element's", **place)
            if store and region.kept(np.array([offset]), nbytes).any():
                raise ReadOnlyFault(f"a copy's write of {nbytes} bytes into a read-only operand", **place)
            return region, slice(offset, offset + nbytes)
    raise OutOfBoundsFault(f"a copy's {verb} of {nbytes} bytes at {address:#x}, where nothing is", space="global")
