"""The steps that a plan lowers to: launches, copies, fills and calls as data, with operands by name instead of pointers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

__all__ = [
    "WORKSPACE",
    "Arg",
    "Call",
    "Copy",
    "Copy2D",
    "DeferredScratch",
    "Fill",
    "Kernel",
    "Launch",
    "Packed",
    "Ptr",
    "Run",
    "Scratch",
    "Step",
    "Struct",
    "TensorMap",
    "workspace_size",
]


WORKSPACE = "workspace"  # reserved: `run` and `bind` take scratch under this name


@dataclass(frozen=True)
class Kernel:
    """A ``.cu`` file under ``kernels/``, a C++ name expression with all its compile-time parameters, and optionally a
    generated text (an elementwise functor, a fused chain) that is put before the file."""

    file: str
    entry: str
    prelude: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.entry}"


@dataclass(frozen=True)
class Ptr:
    """The address of an operand's first touched element, `offset` bytes on; null where an optional one is absent."""

    operand: str
    offset: int = 0


@dataclass(frozen=True)
class Scratch:
    """`nbytes` of the plan's workspace, `offset` bytes in; with a `name`, wherever the plan puts what is called so."""

    offset: int
    nbytes: int
    name: str = ""

    @staticmethod
    def named(name: str, nbytes: int) -> Scratch:
        """A region with a name, placed when the plan is lowered."""
        return Scratch(0, nbytes, name)


@dataclass(frozen=True)
class DeferredScratch:
    """Scratch from `offset` bytes of the workspace on. The function `nbytes` gives its size once the library is loaded."""

    nbytes: Callable[[], int]
    offset: int


@dataclass(frozen=True)
class Run:
    """A value given at run time, passed as the NumPy scalar type `dtype`."""

    name: str
    dtype: str = "int64"


@dataclass(frozen=True)
class Packed:
    """A struct passed by value."""

    data: bytes
    align: int = 8


@dataclass(frozen=True)
class TensorMap:
    """A TMA tensor map: 128 bytes by value that describe a tensor `of` which a kernel copies boxes to and from shared memory.

    `shape` and `box` count elements, innermost axis first; `strides` are bytes, of every axis but the innermost; `swizzle`
    is 0, 32, 64 or 128 bytes (CUDA driver API, cuTensorMapEncodeTiled). What lies outside the shape reads as zero.
    """

    of: Ptr | Scratch
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128


@dataclass(frozen=True)
class Struct:
    """A C struct passed by value, of arguments laid out as C lays them out."""

    fields: tuple[Ptr | Scratch | Run | Packed | TensorMap | np.generic, ...]


Arg: TypeAlias = "Ptr | Scratch | Run | Packed | TensorMap | Struct | np.generic"


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `float_atomics` says that the result depends on the order in which threads add; `overlapped` that
    it may begin before the kernel ahead of it has ended, for whose end it waits itself (kernels/include/overlap.cuh)."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Arg, ...]
    shared_bytes: int = 0
    float_atomics: bool = False
    overlapped: bool = False


@dataclass(frozen=True)
class Copy:
    """One device-to-device copy of `nbytes`."""

    dest: Ptr | Scratch
    source: Ptr | Scratch
    nbytes: int


@dataclass(frozen=True)
class Copy2D:
    """`height` runs of `width` bytes, pitched on both sides."""

    dest: Ptr | Scratch
    dest_pitch: int
    source: Ptr | Scratch
    source_pitch: int
    width: int
    height: int


@dataclass(frozen=True)
class Fill:
    """`nbytes` bytes set to `value`."""

    dest: Ptr | Scratch
    value: int
    nbytes: int


@dataclass(frozen=True)
class Call:
    """A library or host routine, called as ``function(pointers by operand, values, stream)`` with its device current.

    `capturable` says a CUDA graph can hold it; the address of `scratch` is the pointer called `WORKSPACE`; `load` is called
    once on a device before the first call there, since a capture can load and create nothing. A function for `scratch` gives
    its bytes, and is called when the plan's workspace is first asked for.
    """

    library: str
    function: Callable[..., None]
    capturable: bool = False
    scratch: Scratch | DeferredScratch | Callable[[], int] | None = None
    load: Callable[[], object] | None = None


Step: TypeAlias = Launch | Copy | Copy2D | Fill | Call


def workspace_size(steps: Sequence[Step]) -> int:
    """Bytes of workspace that the steps need."""
    regions = [a for s in steps if isinstance(s, Launch) for a in _flat(s.args) if isinstance(a, Scratch)]
    regions += [s.dest for s in steps if isinstance(s, Fill) and isinstance(s.dest, Scratch)]
    copies = [s for s in steps if isinstance(s, (Copy, Copy2D))]
    regions += [place for s in copies for place in (s.dest, s.source) if isinstance(place, Scratch)]
    calls = [s.scratch for s in steps if isinstance(s, Call)]
    regions += [scratch for scratch in calls if isinstance(scratch, Scratch)]
    ends = [r.offset + r.nbytes for r in regions]
    ends += [scratch.offset + scratch.nbytes() for scratch in calls if isinstance(scratch, DeferredScratch)]
    return max(ends, default=0)


def _flat(args: Sequence[Arg]) -> Iterator[Arg]:
    for arg in args:
        if isinstance(arg, Struct):
            yield from _flat(arg.fields)
        else:
            yield arg.of if isinstance(arg, TensorMap) else arg
