"""The demo's matrix products: bf16 with bias and GELU in one kernel, against float64 and the plan's own bound."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from ..machine import SEED, Machine
from ..terminal import show_table, time_text, title

__all__ = ["exact_gelu", "products"]

# M, N, K: a square, ragged extents, and one token through a layer
GPU = ((4096, 4096, 4096), (1000, 1999, 777), (1, 14336, 4096))
HOST = ((96, 80, 64), (33, 47, 129), (1, 130, 96))
WINDOW = (16, 64)  # rows and columns that are checked, at the end of the result


def exact_gelu(x: Any) -> Any:
    """x Φ(x) by the C library's erfc."""
    import numpy as np

    return np.vectorize(lambda v: 0.5 * v * math.erfc(-v / math.sqrt(2.0)), otypes=[np.float64])(x)


def products(screen: Any, where: Machine) -> str:
    """gelu(a @ b + bias): checks a window of each result in float64, and times the whole product."""
    import numpy as np

    from ...ops.gemm.matmul import MatmulDescriptor, MatmulPlan, matmul
    from ...types import ElementKind

    title(screen, "4", "matrix products gelu(a @ b + bias) in bf16, against their guarantee")
    kind = ElementKind.BF16
    rng = np.random.default_rng(SEED)
    cells = []
    for m, n, k in HOST if where.ordinal is None else GPU:
        shapes = {"a": (m, k), "b": (k, n), "bias": (n,)}
        operands = {name: rng.standard_normal(s, dtype=np.float32).astype(kind.dtype) for name, s in shapes.items()}
        arrays = {name: where.xp.asarray(x) for name, x in operands.items()}
        got = where.host(matmul(arrays["a"], arrays["b"], bias=arrays["bias"], activation="gelu"))
        rows, cols = slice(-WINDOW[0], None), slice(-WINDOW[1], None)
        part: dict[str, Any] = {"a": operands["a"][rows], "b": operands["b"][:, cols], "bias": operands["bias"][cols]}
        a, b, bias = (x.astype(np.float64) for x in part.values())
        wide = exact_gelu(a @ b + bias)
        plan = MatmulPlan.select(MatmulDescriptor.of(**arrays, activation="gelu"))
        window = MatmulDescriptor.of(**part, activation="gelu")
        measures = {name: partial(measure, window) for name, measure in MatmulPlan.measures.items()}
        guarantee = plan.precision_guarantee
        guarantee.check(got[rows, cols], wide, part, measures=measures)
        allowed = guarantee.bound.allowed(wide, kind, part, measures)
        worst = float((np.abs(got[rows, cols].astype(np.float64) - wide) / allowed).max())
        seconds = where.seconds(plan.bind(**arrays))
        rate = f"{2 * m * n * k / seconds * 1e-12:.3g}"
        cells.append((f"{m} x {n} x {k}", str(plan.sku), time_text(seconds), rate, f"{worst:.0%}"))
    show_table(screen, ("M x N x K", "kernel", ">time", ">TFLOP/s", ">worst error, of its bound"), cells)
    return "every element of the windows looked at is within its bound"
