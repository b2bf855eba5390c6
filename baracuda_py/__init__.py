"""CUDA kernels for CuPy, PyTorch and JAX arrays behind plans that explain themselves.

>>> import baracuda_py as bp
>>> bp.add(a, b)                                   # doctest: +SKIP
>>> bp.WriteSlicePlan.select(desc, device="h200")  # doctest: +SKIP

Importing the package touches no GPU and imports neither CuPy nor an op; names are resolved on first use through `_index`.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import functional as functional  # the machinery, so that an op's first call imports no more than its family
from ._index import KINDS, NAMES

__version__ = "0.1.0"
__all__ = sorted([*NAMES, *KINDS, "__version__"])


def __getattr__(name: str) -> Any:
    if name in NAMES:
        module, _, attribute = NAMES[name].partition(":")
        value = getattr(importlib.import_module(f"baracuda_py.{module}"), attribute)
    elif name in KINDS:
        value = getattr(importlib.import_module("baracuda_py.types").ElementKind, name)
    else:
        raise AttributeError(
            f"module 'baracuda_py' has no attribute {name!r}; bp.list_ops() lists the ops, bp.find({name!r}) searches"
        )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
