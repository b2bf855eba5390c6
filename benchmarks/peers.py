"""The peers' names for our elementwise ops: one kernel a call, written into `out`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["WITHOUT_OUT", "cupy_call", "torch_function"]

CUPY_UFUNCS = {
    "neg": "negative",
    "abs": "absolute",
    "pow": "power",
    **{op: op for op in ("sign", "square", "sqrt", "exp", "log", "tanh", "add", "subtract", "multiply", "divide")},
    **{op: op for op in ("maximum", "minimum", "copysign", "exp2", "expm1", "log1p", "floor", "ceil", "trunc")},
}
TORCH_OVERLOADS = ("gelu", "silu")


def cupy_call(op: str) -> Callable[..., Any] | None:
    """CuPy's one-kernel function for `op`, taking ``out=``; None where CuPy has none (gelu, silu)."""
    import cupy
    import cupyx
    from cupyx.scipy import special

    others: dict[str, Callable[..., Any]] = {
        "rsqrt": cupyx.rsqrt,
        "sigmoid": special.expit,
        "erf": special.erf,
        "relu": lambda x, out: cupy.maximum(x, 0, out=out),
    }
    return getattr(cupy, CUPY_UFUNCS[op]) if op in CUPY_UFUNCS else others.get(op)


WITHOUT_OUT = ("selu",)  # functions of torch that take no `out`


def torch_function(torch: Any, op: str) -> Callable[..., Any] | None:
    """Torch's eager function for `op`, taking ``out=``; without it the result is allocated. None where torch has none.

    Its relu has no kernel that writes into `out`: ``aten::relu.out`` makes a fresh relu and copies it. A clamp does.
    """
    if op in WITHOUT_OUT:
        return None
    if op == "relu":
        return lambda x, out=None: torch.clamp_min(x, 0, out=out)
    if op not in TORCH_OVERLOADS:
        return getattr(torch, op, None)
    overloads = getattr(torch.ops.aten, op)

    def call(x: Any, out: Any = None) -> Any:
        return overloads.default(x) if out is None else overloads.out(x, out=out)

    return call
