"""The table of op types, which the modules of functions fill in."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

__all__ = ["MAPPED", "Array", "Mapped", "dtype_of", "ints", "maps"]

Array: TypeAlias = "np.ndarray[Any, Any]"
Mapped: TypeAlias = "Callable[..., Any]"
MAPPED: dict[str, Mapped] = {}  # functions (node, *inputs) -> output, or a tuple of outputs


def maps(*names: str) -> Callable[[Mapped], Mapped]:
    """Registers a function for op types."""

    def put(function: Mapped) -> Mapped:
        MAPPED.update(dict.fromkeys(names, function))
        return function

    return put


def dtype_of(code: int) -> Any:
    """The NumPy dtype of one of ONNX's codes."""
    return importlib.import_module("onnx.helper").tensor_dtype_to_np_dtype(code)


def ints(x: Any) -> tuple[int, ...]:
    return tuple(int(i) for i in np.asarray(x).reshape(-1))
