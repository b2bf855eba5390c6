"""A digest of a plan's steps: the sources of its kernels, and everything that the host passes to them.

Two lists of steps have the same digest only if a device would execute the same work. So a measurement or a test stays valid as
long as the digest is unchanged.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from ...runtime.compile.sources import source_of
from ...runtime.steps import Kernel, Step, TensorMap
from ...runtime.tensormap import FLAGS

__all__ = ["lowered_digest"]

# Renamed classes and fields keep their names in recorded digests.
_RECORDED_AS = {"DeferredScratch": "Asked", "pdl": "overlapped"}


def lowered_digest(steps: Sequence[Step]) -> str:
    """32 hex digits over the steps: kernels' code (comments left out), entries, grids, blocks, shared bytes and arguments."""
    text = "\n".join(_text(step) for step in steps)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _text(value: Any) -> str:
    """`value` as text that is the same for every version of Python and NumPy, in every process.

    Empty fields (None, False, 0, empty) are left out, so a field added later changes no digest until it is used.
    """
    if isinstance(value, (int, str)) and not isinstance(value, enum.Enum):
        return repr(value)
    if isinstance(value, Kernel):
        return f"{value.entry}@{source_of(value).digest(value.entry)}"
    if isinstance(value, np.generic):
        return f"{value.dtype.name}:{value.tobytes().hex()}"
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, bytes):
        return value.hex()
    if is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        return f"{_RECORDED_AS.get(name, name)}({', '.join(_fields(value))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_text, value))})"
    if isinstance(value, partial):
        return f"{_text(value.func)}{_text(value.args)}"
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    assert value is None or isinstance(value, float), f"{type(value)} in a step"
    return repr(value)


@lru_cache(maxsize=64)
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _fields(value: Any) -> Iterator[str]:
    for name in _names(type(value)):  # type: ignore[arg-type]
        held = getattr(value, name)
        if isinstance(held, np.generic) or held:
            yield f"{_RECORDED_AS.get(name, name)}={_text(held)}"
    if isinstance(value, TensorMap):
        yield f"flags={_text(FLAGS)}"
