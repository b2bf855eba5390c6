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
    """The address of an operand's first touched element, plus `offset` bytes; null if an optional operand is absent."""

    operand: str
    offset: int = 0


@dataclass(frozen=True)
class Scratch:
    """`nbytes` bytes of the plan's workspace, at `offset`; a region with a `name` gets its offset when the plan is lowered."""

    offset: int
    nbytes: int
    name: str = ""

    @staticmethod
    def named(name: str, nbytes: int) -> Scratch:
        """A region with a name, placed when the plan is lowered."""
        return Scratch(0, nbytes, name)


@dataclass(frozen=True)
class DeferredScratch:
    """Scratch of a library, at `offset` of the workspace. The function `nbytes` returns its size once the library is loaded."""

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
    """A TMA tensor map, 128 bytes passed by value. It describes the tensor at `of`, whose boxes a kernel copies to and from
    shared memory.

    `shape` and `box` count elements, innermost axis first; `strides` are bytes, of every axis but the innermost; `swizzle` is
    0, 32, 64 or 128 bytes (CUDA driver API, cuTensorMapEncodeTiled). Elements outside the shape read as zero.
    """

    of: Ptr | Scratch
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 128


@dataclass(frozen=True)
class Struct:
    """A C struct of arguments, passed by value with C's layout."""

    fields: tuple[Ptr | Scratch | Run | Packed | TensorMap | np.generic, ...]


Arg: TypeAlias = "Ptr | Scratch | Run | Packed | TensorMap | Struct | np.generic"


@dataclass(frozen=True)
class Launch:
    """One kernel launch. With `float_atomics` the result depends on the order in which threads add. With `pdl` it is a
    programmatic dependent launch: the kernel may begin before the previous one has ended, and waits for that itself
    (kernels/include/ptx/overlap.cuh). `cluster`: CTAs of a cluster, as the kernel says too; 0 for no clusters."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Arg, ...]
    shared_bytes: int = 0
    float_atomics: bool = False
    pdl: bool = False
    cluster: int = 0


@dataclass(frozen=True)
class Copy:
    """One device-to-device copy of `nbytes`."""

    dest: Ptr | Scratch
    source: Ptr | Scratch
    nbytes: int


@dataclass(frozen=True)
class Copy2D:
    """`height` rows of `width` bytes, with a pitch on both sides."""

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

    `capturable` says that a CUDA graph can hold it. The address of `scratch` is passed as the pointer `WORKSPACE`. `load` is
    called once per device before the first call, because nothing can be loaded or created during a capture. If `scratch` is a
    function, it returns the number of bytes, and is called when the plan's workspace size is first read.
    """

    library: str
    function: Callable[..., None]
    capturable: bool = False
    scratch: Scratch | DeferredScratch | Callable[[], int] | None = None
    load: Callable[[], object] | None = None


Step: TypeAlias = Launch | Copy | Copy2D | Fill | Call


def workspace_size(steps: Sequence[Step]) -> int:
    """The bytes of workspace that the steps need."""
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
