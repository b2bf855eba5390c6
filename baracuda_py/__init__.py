"""CUDA kernels for CuPy, PyTorch and JAX arrays behind plans that explain themselves.

    import numpy as np, baracuda_py as bp
    bp.gelu(np.linspace(-3, 3, 5), device="ptx")    # the kernel, emulated on the host
    bp.matmul(x, w.T, bias=b, activation="silu")    # arrays of a GPU: no device= is needed
    desc = bp.MatmulDescriptor.of(x, w.T)           # a problem ...
    plan = bp.MatmulPlan.select(desc, device="h200")  # ... and the kernel that serves it
    print(plan.explain())                           # why that one, and what it should cost

ops          bp.list_ops(), bp.find("norm"); help(bp.matmul) says what one takes
plans        bp.get_op("gelu").plan; select, explain, run, bind, verify, to_json
preferences  bp.PlanPreference(batch_invariant=True), as pref= of every call
devices      an ordinal, "h200", "sm_90a", "ptx", "cpu": device=, with bp.device(...)
elements     bp.BF16, bp.FP8_E4M3, ...; bp.GpuBuffer for those that CuPy lacks
inference    bp.PagedKVCache, bp.Graph, bp.pack_int4, bp.PackedGguf
errors       all are bp.BaracudaError, and name the operand and the fix

Shell: python -m baracuda_py ops | env | demo. dir(bp) has all names.
"""

# The package touches no GPU when it is imported, and imports neither CuPy nor an op: names are resolved on first use.

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

from . import functional as functional  # the machinery, so that an op's first call imports no more than its family
from ._index import KINDS, NAMES, RETIRED

__version__ = "0.1.0"
__all__ = [
    "__version__"
]  # a star import would shadow sum, abs and max; and help(bp) is a page, not all of its names in full

if os.environ.get("BARACUDA_LOG"):
    importlib.import_module("baracuda_py.runtime.system.logs").show(os.environ["BARACUDA_LOG"])


def __getattr__(name: str) -> Any:
    if name in NAMES:
        module, _, attribute = NAMES[name].partition(":")
        value = getattr(importlib.import_module(f"baracuda_py.{module}"), attribute)
    elif name in KINDS:
        value = getattr(importlib.import_module("baracuda_py.types").ElementKind, name)
    elif name in RETIRED:
        module, _, attribute = RETIRED[name].partition(":")
        warnings.warn(f"bp.{name} is a helper of the library and will go", DeprecationWarning, stacklevel=2)
        return getattr(importlib.import_module(f"baracuda_py.{module}"), attribute)
    else:
        from .types.names import ADVICE, ALIASES

        if ALIASES.get(name) in NAMES:
            return __getattr__(ALIASES[name])
        if name in ADVICE:
            raise AttributeError(f"module 'baracuda_py' has no attribute {name!r}: {ADVICE[name]}")
        value = (
            None if name.startswith("_") else importlib.import_module("baracuda_py.plan.registry").function_named(name)
        )
        if value is not None:  # an op of another package
            return value
        raise AttributeError(
            f"module 'baracuda_py' has no attribute {name!r}; bp.list_ops() lists the ops, bp.find({name!r}) searches"
        )
    globals()[name] = value  # found without this function from now on
    return value


def __dir__() -> list[str]:
    from .types.names import ALIASES

    return sorted([*NAMES, *KINDS, *(alias for alias in ALIASES if alias not in NAMES), "__version__"])
