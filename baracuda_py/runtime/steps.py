"""What a plan lowers to: launches, copies, fills and calls as data, with operands named and no pointer in sight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

__all__ = [
    "Arg",
    "Call",
    "Copy",
    "Copy2D",
    "Fill",
    "Kernel",
    "Launch",
    "Packed",
    "Ptr",
    "Run",
    "Scratch",
    "Step",
    "workspace_size",
]


@dataclass(frozen=True)
class Kernel:
    """A ``.cu`` file under ``kernels/``, a C++ name expression with all its compile-time parameters, and optionally a
    generated text (an elementwise functor, a fused chain) that is put before the file."""

    file: str
    entry: str
    prelude: str = ""
    heavy: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.entry}"


@dataclass(frozen=True)
class Ptr:
    """The address of an operand's first touched element, `offset` bytes on; null where an optional one is absent."""

    operand: str
    offset: int = 0


@dataclass(frozen=True)
class Scratch:
    """`nbytes` of the plan's workspace, `offset` bytes in."""

    offset: int
    nbytes: int


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


Arg: TypeAlias = "Ptr | Scratch | Run | Packed | np.generic"


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `float_atomics` says that the result depends on the order in which threads add."""

    kernel: Kernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    args: tuple[Arg, ...]
    shared_bytes: int = 0
    float_atomics: bool = False


@dataclass(frozen=True)
class Copy:
    """One device-to-device copy of `nbytes`."""

    dest: Ptr
    source: Ptr
    nbytes: int


@dataclass(frozen=True)
class Copy2D:
    """`height` runs of `width` bytes, pitched on both sides."""

    dest: Ptr
    dest_pitch: int
    source: Ptr
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
    """A library or host routine called with the operands by name. `capturable` says a CUDA graph can hold it."""

    library: str
    function: Callable[..., None]
    capturable: bool = False


Step: TypeAlias = Launch | Copy | Copy2D | Fill | Call


def workspace_size(steps: Sequence[Step]) -> int:
    """Bytes of scratch that the steps reach."""
    regions = [a for s in steps if isinstance(s, Launch) for a in s.args if isinstance(a, Scratch)]
    regions += [s.dest for s in steps if isinstance(s, Fill) and isinstance(s.dest, Scratch)]
    return max((r.offset + r.nbytes for r in regions), default=0)
