"""Operands that only a handshake can read (JAX's arrays, producers of DLPack or ``__cuda_array_interface__``), taken in once."""

from __future__ import annotations

import sys
from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from ..runtime.driver import device_count
from ..runtime.streams import current_stream, foreign_stream, stream_pointer
from ..tensor import Tensor, intake, ordinal_of
from ..tensor.pytorch import is_tensor
from ..types import BaracudaError
from .key import is_read
from .outputs import kind_of

__all__ = ["taken_in"]


def taken_in(operands: Mapping[str, Any], written: Container[str], stream: Any) -> tuple[dict[str, Any], int] | None:
    """The operands, strangers among them as Tensors whose work is ordered before the stream that the call belongs on, and that
    stream; None where the long way is to look: at arrays of the host, at what is refused, on another device."""
    strangers = {name: x for name, x in operands.items() if x is not None and not is_read(x)}
    if not strangers or not device_count() or any(isinstance(x, np.ndarray) or is_tensor(x) for x in strangers.values()):
        return None
    ordinal = ordinal_of(operands.values())
    if ordinal is None or ordinal != sys.modules["cupy"].cuda.runtime.getDevice():
        return None
    try:
        handle = _stream_of(operands, written, ordinal) if stream is None else stream_pointer(stream)
        tensors = {name: intake(x, what=name, stream=handle) for name, x in strangers.items()}
    except BaracudaError:
        return None
    return {name: tensors.get(name, x) for name, x in operands.items()}, handle


def _stream_of(operands: Mapping[str, Any], written: Container[str], ordinal: int) -> int:
    """torch's current stream where the result is torch's, else CuPy's."""
    results = [x for name, x in operands.items() if name in written]
    of_torch = any(map(is_tensor, results)) or (None in results and kind_of(operands.values()) == "torch")
    found = foreign_stream("torch", ordinal) if of_torch else None
    return current_stream() if found is None else found
