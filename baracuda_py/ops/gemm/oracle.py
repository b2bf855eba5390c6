"""Matrix products in float64 (long double for f64 operands), and what their error bounds are measured against."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ...numerics import rounding
from ...numerics.special import phi
from ...types import Componentwise, ElementKind, MathPrecision, PrecisionGuarantee, Term
from ..elementwise.oracle import gelu, relu, silu

__all__ = ["ACTIVATIONS", "MEASURES", "guarantee", "matmul"]

Array: TypeAlias = np.ndarray[Any, Any]
SCALES, BLOCK = ("scale_a", "scale_b"), 128
PLACES = 32  # along K, at which partial sums are looked at
TF32_INFINITE = (2 - 2.0**-11) * 2.0**127  # f32 from here on are nearer to 2**128 than to the largest TF32


def identity(x: Array) -> Array:
    return x


def gelu_tanh(x: Array) -> Array:
    """0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): D. Hendrycks and K. Gimpel, arXiv:1606.08415."""
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return np.where(np.isneginf(x), -np.zeros_like(x), 0.5 * x * (1 + np.tanh(u)))


# name -> (function, Lipschitz constant)
ACTIVATIONS = {
    "identity": (identity, 1.0), "relu": (relu, 1.0), "gelu": (gelu, 1.13), "gelu_tanh": (gelu_tanh, 1.13),
    "silu": (silu, 1.1),
}  # fmt: skip


def _scaled(desc: Any, x: Array, scale: Array | None, axes: tuple[int, ...]) -> Array:
    """A matrix operand times its scales, each of which is of up to 128 elements along `axes` where they are by blocks."""
    wide = rounding.wide(x, desc.a_element)
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
    rows, columns = _matrices(a, b)
    first = _scaled(desc, rows, scales.get("scale_a"), (-1,))
    return first, _scaled(desc, columns, scales.get("scale_b"), (-2, -1))


def _of_shape(x: Array, a: Array, b: Array) -> Array:
    """The product of `_factors` in NumPy's shape: without the axis of a vector."""
    return x.squeeze(tuple(axis for axis, operand in ((-2, a), (-1, b)) if operand.ndim == 1))


def _weights(desc: Any) -> tuple[float, float]:
    """alpha and beta as multiplied: rounded to f32 where sums are f32."""
    if desc.a_element is ElementKind.F64:
        return desc.alpha, desc.beta
    with np.errstate(over="ignore"):
        return float(np.float32(desc.alpha)), float(np.float32(desc.beta))


def _before(
    desc: Any, a: Array, b: Array, c: Array | None, bias: Array | None, *, absolute: bool, **scales: Array
) -> Array:
    """alpha A B + beta C + bias, or the same of magnitudes. As in BLAS, what is weighted by 0 does not count."""

    def size(x: Any) -> Any:
        return np.abs(x) if absolute else x

    first, second = _factors(desc, a, b, **scales)
    x = _of_shape(np.matmul(size(first), size(second)), a, b)
    alpha, beta = _weights(desc)
    x = size(alpha) * x if alpha else np.zeros_like(x)
    if c is not None and beta:
        x = x + size(beta) * size(rounding.wide(c, desc.a_element))
    return x if bias is None else x + size(rounding.wide(bias, desc.a_element))


def matmul(
    desc: Any, a: Array, b: Array, c: Array | None = None, bias: Array | None = None, residual: Array | None = None,
    **scales: Array,
) -> Array:  # fmt: skip
    """residual + f(alpha A B + beta C + bias), wide; alpha and beta are f32 numbers where sums are f32."""
    with np.errstate(all="ignore"):
        x = ACTIVATIONS[desc.activation.value][0](_before(desc, a, b, c, bias, absolute=False, **scales))
        return np.asarray(x if residual is None else x + rounding.wide(residual, desc.a_element))


def _size(desc: Any, a: Array, b: Array, c: Array | None = None, bias: Array | None = None, **scales: Array) -> Array:
    """|alpha| |A| |B| + |beta C| + |bias|; 0 where that is not finite, for an infinity is summed without an error."""
    with np.errstate(all="ignore"):
        x = _before(desc, a, b, c, bias, absolute=True, **scales)
    return np.where(np.isfinite(x), x, 0)


def _abs_matmul(desc: Any, a: Array, b: Array, **others: Array) -> Array:
    """L |alpha| |A| |B|, L the activation's Lipschitz constant: how far an error in a product or a sum may carry."""
    scales = {n: x for n, x in others.items() if n in SCALES}
    return ACTIVATIONS[desc.activation.value][1] * _size(desc, a, b, **scales)


def _abs_epilogue(
    desc: Any, a: Array, b: Array, c: Array | None = None, bias: Array | None = None, residual: Array | None = None,
    **scales: Array,
) -> Array:  # fmt: skip
    """L (|alpha| |A| |B| + |beta C| + |bias|) + |residual|."""
    x = ACTIVATIONS[desc.activation.value][1] * _size(desc, a, b, c, bias, **scales)
    return np.asarray(x if residual is None else x + np.abs(rounding.wide(residual, desc.a_element)))


def _partial_sums(desc: Any, a: Array, b: Array, **others: Array) -> Array:
    """L |alpha| times the mean |sum of the first k products| over some k's, evenly from 1 to K."""
    first, second = _factors(desc, a, b, **{n: x for n, x in others.items() if n in SCALES})
    ends = np.unique(np.linspace(0, first.shape[-1], PLACES + 1).astype(int))
    with np.errstate(all="ignore"):
        total = np.matmul(first[..., :0], second[..., :0, :])
        size = np.zeros_like(total)
        for start, end in itertools.pairwise(ends):
            total = total + np.matmul(first[..., start:end], second[..., start:end, :])
            size += np.abs(total)
    return _carried(desc, _of_shape(size, a, b) / max(1, len(ends) - 1))


def _root_products(desc: Any, a: Array, b: Array, **others: Array) -> Array:
    """L |alpha| times the root of the sum of the squares of all K products."""
    first, second = _factors(desc, a, b, **{n: x for n, x in others.items() if n in SCALES})
    with np.errstate(all="ignore"):
        return _carried(desc, np.sqrt(_of_shape(np.matmul(first * first, second * second), a, b)))


def _like_signs(desc: Any, a: Array, b: Array, **others: Array) -> Array:
    """`partial_sums` times |products above zero less those below|: what is cut off products of one sign adds up."""
    first, second = _factors(desc, a, b)
    surplus = np.abs(np.matmul(np.sign(first), np.sign(second)))
    return _of_shape(np.where(np.isfinite(surplus), surplus, 0), a, b) * _partial_sums(desc, a, b, **others)


def _carried(desc: Any, x: Array) -> Array:
    """An error in a product or a sum as the result may have it; 0 where it is not finite, for an infinity has none."""
    carried = ACTIVATIONS[desc.activation.value][1] * abs(_weights(desc)[0]) * x
    return np.where(np.isfinite(carried), carried, 0)


def _finite_sizes(desc: Any, *arrays: Array) -> list[Array]:
    """Magnitudes, wide, with 0 for what is not finite."""
    wide = [np.abs(rounding.wide(x, desc.a_element)) for x in arrays]
    return [np.where(np.isfinite(x), x, 0) for x in wide]


def _matrices(a: Array, b: Array) -> tuple[Array, Array]:
    """Both operands as matrices: a vector A is one row, a vector B one column."""
    return a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b


def _largest_scales(desc: Any, a: Array, b: Array, **scales: Array) -> tuple[Array, Array]:
    """The largest scale of each row of A, and of each column of B; 1 where all are smaller."""
    largest = []
    for x, name, axes in zip(_matrices(a, b), SCALES, ((-1,), (-2, -1))):
        (grid,) = _finite_sizes(desc, _scaled(desc, np.ones(x.shape), scales.get(name), axes))
        largest.append(np.max(grid, axis=axes[0], keepdims=True, initial=1.0))
    return largest[0], largest[1]


def _underflow(desc: Any, a: Array, b: Array, **others: Array) -> Array:
    """The accumulator's smallest normal number, times L |alpha| and the scales (at least 1): what is lost at one step below it,
    in units roundoff. Scales are multiplied together, and so may lose as much of every product."""
    carried: Any = 1.0
    if scales := {n: x for n, x in others.items() if n in SCALES}:
        sums = np.matmul(*_finite_sizes(desc, *_matrices(a, b)))
        carried = _of_shape(np.maximum(sums, np.maximum(*_largest_scales(desc, a, b, **scales))), a, b)
    tiny = _accumulator(desc).smallest_normal
    size = ACTIVATIONS[desc.activation.value][1] * np.maximum(1.0, np.abs(_weights(desc)[0]) * carried) * tiny
    return np.where(np.isfinite(size), size, 0)


def _subnormal_operands(desc: Any, a: Array, b: Array, **_: Array) -> Array:
    """L |alpha| 2**-126 (sum of |a_ik| + sum of |b_kj|): below 2**-126 the last place of an operand is no smaller."""
    rows, columns = _matrices(a, b)
    first, second = _finite_sizes(desc, rows, columns)
    sums = first.sum(-1, keepdims=True) + second.sum(-2, keepdims=True)
    return _carried(desc, _of_shape(sums, a, b) * 2.0**-126)


def _beyond_sums(
    desc: Any, a: Array, b: Array, c: Array | None = None, bias: Array | None = None, residual: Array | None = None,
    **scales: Array,
) -> Array:  # fmt: skip
    """Whether sums of finite products, in whatever order, their scales multiplied together, or what the epilogue makes of them
    may be infinite on the way: whether their magnitudes come to half of the accumulator's largest number."""
    alpha, beta = _weights(desc)
    with np.errstate(all="ignore"):
        size = np.matmul(*_finite_sizes(desc, *_matrices(a, b)))
        if scales:
            of_rows, of_columns = _largest_scales(desc, a, b, **scales)
            size = of_rows * of_columns * np.maximum(size, 1)
        size = _of_shape(size, a, b) * (max(1.0, abs(alpha)) if alpha else 0.0)
        for weight, x in ((beta, c), (1.0, bias), (1.0, residual)):
            if x is not None and weight:
                size = size + (abs(weight) if np.isfinite(weight) else 1.0) * _finite_sizes(desc, x)[0]
        return np.asarray(size >= _accumulator(desc).max / 2)


def _accumulator(desc: Any) -> Any:
    return np.finfo(np.float64 if desc.a_element is ElementKind.F64 else np.float32)


def _beyond_tf32(desc: Any, a: Array, b: Array, **others: Array) -> Array:
    """Whether an operand of the element is finite and becomes an infinity as the nearest TF32, or sums are beyond f32."""
    rows, columns = _matrices(a, b)
    wide = (
        np.any((np.abs(x) >= TF32_INFINITE) & np.isfinite(x), axis, keepdims=True)
        for x, axis in ((rows, -1), (columns, -2))
    )
    return _of_shape(np.logical_or(*wide), a, b) | _beyond_sums(desc, a, b, **others)


def _gelu_tail(
    desc: Any, a: Array, b: Array, c: Array | None = None, bias: Array | None = None, **others: Array
) -> Array:
    """|x| Phi(-|x|), how far GELU of x is from max(x, 0), x = alpha A B + beta C + bias."""
    with np.errstate(all="ignore"):
        scales = {n: x for n, x in others.items() if n in SCALES}
        x = np.abs(_before(desc, a, b, c, bias, absolute=False, **scales))
        return np.where(np.isfinite(x), x * phi(-x), 0)


MEASURES: Mapping[str, Callable[..., Any]] = {
    "abs_matmul": _abs_matmul,
    "abs_epilogue": _abs_epilogue,
    "partial_sums": _partial_sums,
    "root_products": _root_products,
    "like_signs": _like_signs,
    "underflow": _underflow,
    "subnormal_operands": _subnormal_operands,
    "beyond_f32": _beyond_sums,
    "beyond_f64": _beyond_sums,
    "beyond_tf32": _beyond_tf32,
    "gelu_tail": _gelu_tail,
}


def guarantee(desc: Any) -> PrecisionGuarantee:
    """What the oracle itself promises: float64 sums, one rounding."""
    out = desc.layout("out").element
    sums = Term(desc.a_shape[-1] + 16.0, ElementKind.F64, "abs_epilogue")
    bound = Componentwise.rounded((sums,), out, "Higham 2002, section 3.1")
    return PrecisionGuarantee(MathPrecision.F64, ElementKind.F64, True, True, True, False, bound)
