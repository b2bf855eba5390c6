"""What bounds of products with quantised weights are made of: matmul's measures, of the weights as floats, and what it costs to
round those.

A format says what its weights are: a function of the problem and the weight's operands by name, which returns [K, N] in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ..gemm import oracle as gemm

__all__ = ["Measure", "beyond_weights", "cost_of", "measures_of", "of_product"]

Array: TypeAlias = np.ndarray[Any, Any]
Weights: TypeAlias = Callable[..., Array]
Measure: TypeAlias = Callable[..., Any]


def of_product(measure: Measure, weights: Weights) -> Measure:
    """A measure of matmul, of the dequantised weights."""

    def measured(desc: Any, x: Array, bias: Array | None = None, **packed: Array) -> Any:
        given = {} if bias is None else {"bias": bias}
        return measure(desc.product, a=x, b=weights(desc, **packed), **given)

    return measured


def _rounded(desc: Any, wide: Array) -> Array:
    """Weights as kernels that dequantise first have them: in f32, and then in the activations' type."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(wide.astype(np.float32).astype(desc.layout("x").element.dtype).astype(np.float64))


def cost_of(desc: Any, x: Array, off: Array) -> Array:
    """L |x off|, L the activation's Lipschitz constant: what errors of weights cost, no more and no less; 0 where not finite."""
    with np.errstate(all="ignore"):
        size = np.abs(np.matmul(x.astype(np.float64), off))
        return np.where(np.isfinite(size), size, 0) * gemm.ACTIVATIONS[desc.activation.value][1]


def beyond_weights(beyond: Measure, weights: Weights) -> Measure:
    """`beyond`, or whether a weight of the column is beyond the activations' type, or x infinite, and weights rounded to 0."""

    def measured(desc: Any, x: Array, bias: Array | None = None, **packed: Array) -> Any:
        most = desc.layout("x").element.largest
        large = (np.abs(weights(desc, **packed)) > most).any(0)
        given = {} if bias is None else {"bias": bias}
        infinite = np.isinf(x.astype(np.float32)).any(-1, keepdims=True)
        return beyond(desc, x, **given, **packed) | large | infinite

    return measured


def measures_of(weights: Weights) -> dict[str, Measure]:
    """Those of matmul; `rounded_weights`, what rounding weights costs; and `small_weights`, by what those err at least that are
    below the smallest normal number of the activations' type: L times the sum of |x| times that."""

    def rounded_weights(desc: Any, x: Array, bias: Array | None = None, **packed: Array) -> Any:  # noqa: ARG001
        wide = weights(desc, **packed)
        with np.errstate(invalid="ignore"):
            return cost_of(desc, x, wide - _rounded(desc, wide))

    def small_weights(desc: Any, x: Array, **_: Array) -> Any:
        tiny = np.full(desc.product.b_shape, desc.layout("x").element.smallest_normal)
        return gemm.MEASURES["abs_matmul"](desc.product, a=x, b=tiny)

    made = {name: of_product(measure, weights) for name, measure in gemm.MEASURES.items()}
    return made | {"rounded_weights": rounded_weights, "small_weights": small_weights}
