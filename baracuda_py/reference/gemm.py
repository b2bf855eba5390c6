"""Matrix products in float64 (long double for f64 operands), and what their error bounds are measured against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ..types import Componentwise, ElementKind, MathPrecision, PrecisionGuarantee, Term
from .elementwise import gelu, relu, silu
from .special import phi

__all__ = ["MEASURES", "guarantee", "matmul"]

Array: TypeAlias = np.ndarray[Any, Any]
SCALES, BLOCK = ("scale_a", "scale_b"), 128


def identity(x: Array) -> Array:
    return x


def gelu_tanh(x: Array) -> Array:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): D. Hendrycks and K. Gimpel, arXiv:1606.08415."""
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return np.where(np.isneginf(x), -np.zeros_like(x), 0.5 * x * (1 + np.tanh(u)))


# name -> (function, Lipschitz constant)
_ACTIVATIONS = {
    "identity": (identity, 1.0), "relu": (relu, 1.0), "gelu": (gelu, 1.13), "gelu_tanh": (gelu_tanh, 1.13),
    "silu": (silu, 1.1),
}  # fmt: skip


def _wide(desc: Any, x: Array) -> Array:
    return x.astype(np.longdouble if desc.a_element is ElementKind.F64 else np.float64)


def _scaled(desc: Any, x: Array, scale: Array | None, axes: tuple[int, ...]) -> Array:
    """A matrix operand times its scales, each of which is of up to 128 elements along `axes` where they are by blocks."""
    wide = _wide(desc, x)
    if scale is None:
        return wide
    grid = scale.astype(wide.dtype)
    for axis in axes:
        if grid.ndim >= -axis and grid.shape[axis] == -(-x.shape[axis] // BLOCK):
            grid = np.repeat(grid, BLOCK, axis)
            grid = np.take(grid, np.arange(x.shape[axis]), axis)
    return np.asarray(wide * grid)


def _factors(desc: Any, a: Array, b: Array, **scales: Array) -> tuple[Array, Array]:
    """Both operands as matrices, wide and times their scales: a vector A is one row, a vector B one column."""
    rows, columns = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    first = _scaled(desc, rows, scales.get("scale_a"), (-1,))
    return first, _scaled(desc, columns, scales.get("scale_b"), (-2, -1))


def _of_shape(x: Array, a: Array, b: Array) -> Array:
    """The product of `_factors` in NumPy's shape: without the axis of a vector."""
    return x.squeeze(tuple(axis for axis, operand in ((-2, a), (-1, b)) if operand.ndim == 1))


def _before(
    desc: Any, a: Array, b: Array, c: Array | None, bias: Array | None, *, absolute: bool, **scales: Array
) -> Array:
    """alpha A B + beta C + bias, or the same of magnitudes. As in BLAS, what is weighted by 0 does not count."""

    def size(x: Any) -> Any:
        return np.abs(x) if absolute else x

    first, second = _factors(desc, a, b, **scales)
    x = _of_shape(np.matmul(size(first), size(second)), a, b)
    x = size(desc.alpha) * x if desc.alpha else np.zeros_like(x)
    if c is not None and desc.beta:
        x = x + size(desc.beta) * size(_wide(desc, c))
    return x if bias is None else x + size(_wide(desc, bias))


def matmul(
    desc: Any, a: Array, b: Array, c: Array | None = None, bias: Array | None = None, residual: Array | None = None,
    **scales: Array,
) -> Array:  # fmt: skip
    """residual + f(alpha A B + beta C + bias), wide."""
    with np.errstate(all="ignore"):
        x = _ACTIVATIONS[desc.activation.value][0](_before(desc, a, b, c, bias, absolute=False, **scales))
        return np.asarray(x if residual is None else x + _wide(desc, residual))


def _size(desc: Any, a: Array, b: Array, c: Array | None = None, bias: Array | None = None, **scales: Array) -> Array:
    """|alpha| |A| |B| + |beta C| + |bias|; 0 where that is not finite, for an infinity is summed without an error."""
    with np.errstate(all="ignore"):
        x = _before(desc, a, b, c, bias, absolute=True, **scales)
    return np.where(np.isfinite(x), x, 0)


def _abs_matmul(desc: Any, a: Array, b: Array, **others: Array) -> Array:
    """L |alpha| |A| |B|, L the activation's Lipschitz constant: how far an error in a product or a sum may carry."""
    scales = {n: x for n, x in others.items() if n in SCALES}
    return _ACTIVATIONS[desc.activation.value][1] * _size(desc, a, b, **scales)


def _abs_epilogue(
    desc: Any, a: Array, b: Array, c: Array | None = None, bias: Array | None = None, residual: Array | None = None,
    **scales: Array,
) -> Array:  # fmt: skip
    """L (|alpha| |A| |B| + |beta C| + |bias|) + |residual|."""
    x = _ACTIVATIONS[desc.activation.value][1] * _size(desc, a, b, c, bias, **scales)
    return np.asarray(x if residual is None else x + np.abs(_wide(desc, residual)))


def _gelu_tail(
    desc: Any, a: Array, b: Array, c: Array | None = None, bias: Array | None = None, residual: Array | None = None,
    **scales: Array,
) -> Array:  # fmt: skip
    """|x| Phi(-|x|), how far GELU of x is from max(x, 0), x = alpha A B + beta C + bias."""
    with np.errstate(all="ignore"):
        x = np.abs(_before(desc, a, b, c, bias, absolute=False, **scales))
        return np.where(np.isfinite(x), x * phi(-x), 0)


def _smallest_normal(desc: Any, **_: Array) -> float:
    """The output's smallest normal number: times its unit roundoff, half the spacing of its subnormals."""
    import ml_dtypes

    return float(ml_dtypes.finfo(desc.layout("out").element.dtype).smallest_normal)


MEASURES: Mapping[str, Callable[..., Any]] = {
    "abs_matmul": _abs_matmul,
    "abs_epilogue": _abs_epilogue,
    "gelu_tail": _gelu_tail,
    "smallest_normal": _smallest_normal,
}


def guarantee(desc: Any) -> PrecisionGuarantee:
    """What the oracle itself promises: float64 sums, one rounding."""
    out = desc.layout("out").element
    terms = (
        Term(desc.a_shape[-1] + 16.0, ElementKind.F64, "abs_epilogue"),
        Term(1.0, out, "abs_result"), Term(1.0, out, "smallest_normal"),
    )  # fmt: skip
    bound = Componentwise(terms, "Higham 2002, section 3.1")
    return PrecisionGuarantee(MathPrecision.F64, ElementKind.F64, True, True, True, False, bound)
