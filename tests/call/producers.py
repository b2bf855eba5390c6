"""Arrays that are no framework's: what speaks DLPack only, and what has a `__cuda_array_interface__` only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from baracuda_py.tensor import dlpack
from baracuda_py.types import ElementKind

__all__ = ["Exporter", "Interface"]


class Exporter:
    """A foreign array that speaks DLPack only; `change` may alter the capsule, whose memory is NumPy's."""

    def __init__(
        self,
        x: np.ndarray[Any, Any],
        kind: ElementKind | None = None,
        change: Callable[[Any], Any] = lambda _: None,
        *,
        legacy: bool = False,
        device: Any = (1, 0),
    ) -> None:
        self.x, self.kind, self.change, self.legacy, self.device = x, kind, change, legacy, device

    def __dlpack_device__(self) -> Any:
        if isinstance(self.device, Exception):
            raise self.device
        return self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        capsule = self.x.__dlpack__(max_version=None if self.legacy else max_version)
        tensor, _ = dlpack._fields(capsule, "x")
        if self.kind is not None:
            tensor.dtype.code, tensor.dtype.bits = self.kind.dlpack
        got = self.change(tensor)
        return capsule if got is None else got


class Interface:
    """Four f32 at an address that no test reads, unless `fields` say otherwise."""

    def __init__(self, **fields: Any) -> None:
        self.__cuda_array_interface__ = {"version": 3, "shape": (4,), "typestr": "<f4", "data": (4096, False), **fields}
