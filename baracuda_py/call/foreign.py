"""Reads foreign operands (for example JAX arrays) through DLPack or ``__cuda_array_interface__``, once per call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..plan.descriptor import Descriptor
from ..runtime.gpu.driver import device_count, require_gpu
from ..runtime.gpu.streams import current_stream, foreign_stream, is_capturing, stream_pointer
from ..tensor import Tensor, intake, ordinal_of
from ..tensor.pytorch import is_tensor
from ..types import BaracudaError
from .operands.key import is_read
from .results.outputs import kind_of

__all__ = ["import_foreign", "operands_as_read"]


def operands_as_read(operands: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The operands, with foreign ones replaced by the Tensors that were read from them."""
    return {name: x if x is None or is_read(x) else tensors.get(name, x) for name, x in operands.items()}


def import_foreign(
    operands: Mapping[str, Any], family: type[Descriptor], stream: Any
) -> tuple[dict[str, Any], int] | None:
    """The operands, with foreign arrays replaced by Tensors, and the call's stream, which waits for the work that is queued on
    them. None where the long path must decide: host arrays, refused operands, other devices."""
    foreign = {name: x for name, x in operands.items() if x is not None and not is_read(x)}
    if not foreign or not device_count() or any(isinstance(x, np.ndarray) or is_tensor(x) for x in foreign.values()):
        return None
    ordinal = ordinal_of(operands.values())
    if ordinal is None or ordinal != require_gpu("a call").cuda.runtime.getDevice():
        return None
    try:
        handle = _stream_of(operands, family, ordinal) if stream is None else stream_pointer(stream)
        if is_capturing(handle):  # the protocol's stream waits would be recorded into the graph
            return None
        tensors = {name: intake(x, what=name, stream=handle) for name, x in foreign.items()}
    except BaracudaError:
        return None
    return operands_as_read(operands, tensors), handle


def _stream_of(operands: Mapping[str, Any], family: type[Descriptor], ordinal: int) -> int:
    """torch's current stream if the result is a torch tensor, else CuPy's."""
    written = {operand.name for operand in family.signature_operands if operand.written}
    results = [x for name, x in operands.items() if name in written]
    result_is_torch = any(map(is_tensor, results)) or (
        any(x is None for x in results) and kind_of(operands.values()) == "torch"
    )
    found = foreign_stream("torch", ordinal) if result_is_torch else None
    return current_stream() if found is None else found
