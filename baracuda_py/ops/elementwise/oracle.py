"""Elementwise functions in float64 (long double for f64 results), exactly in integers; where NumPy has one, the row names it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ...numerics import special
from ...numerics.expression import Precision, Rounded
from ...numerics.rounding import round_to
from ...types import ElementKind, PrecisionGuarantee, Ulp

__all__ = ["MEASURES", "evaluate", "guarantee", "native", "params_of", "wide_inputs"]

Array: TypeAlias = np.ndarray[Any, Any]


def square(x: Array) -> Array:
    return np.multiply(x, x)


def rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def sigmoid(x: Array) -> Array:
    t = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, t, np.ones_like(t)) / (1 + t))


def erf(x: Array) -> Array:
    return special.erf(x)


def relu(x: Array) -> Array:
    return np.maximum(x, np.zeros((), np.asarray(x).dtype))


def gelu(x: Array) -> Array:
    return np.where(np.isneginf(x), -np.zeros_like(x), x * special.phi(x))


def silu(x: Array) -> Array:
    return np.where(np.isneginf(x), -np.zeros_like(x), x * sigmoid(x))


def silu_mul(x: Array, y: Array) -> Array:
    never_zero = np.isinf(y) & np.isfinite(x) & (x != 0)  # silu(x), that is, but for what underflows
    return np.where(never_zero, np.sign(x) * y, silu(x) * y)


def where(condition: Array, x: Array, y: Array) -> Array:
    return np.where(condition, x, y)


def clamp(x: Array, low: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)


def pow(x: Array, y: Array) -> Array:
    return _integer_pow(x, y) if x.dtype.kind in "iu" else np.power(x, y)


def cast(x: Array, kind: ElementKind) -> Array:
    """`x` as NumPy and ml_dtypes cast it, but that floats are rounded once, and that those no integer can hold become the end of
    its range, and NaN 0."""
    if kind is ElementKind.BOOL:
        return np.asarray(x != 0)
    if kind.is_integer and ElementKind.of(x.dtype).is_float:
        info, wide = np.iinfo(kind.dtype), np.trunc(x.astype(np.float64))
        fits = (wide >= info.min) & (wide < float(info.max) + (info.max < 1 << 53))
        inside, ends = np.where(fits, wide, 0).astype(kind.dtype), np.array([info.max, info.min], kind.dtype)
        return np.where(fits | np.isnan(wide), inside, np.where(wide > 0, *ends)).astype(kind.dtype)
    if kind.is_integer:
        return x.astype(kind.dtype)
    exact = x.astype(np.longdouble) if x.dtype.kind in "iu" else x.astype(np.float64)
    if exact.dtype == np.longdouble and kind.digits < 24:  # an integer of 64 bits, rounded to odd in float64
        near = exact.astype(np.float64)
        toward = np.where(np.abs(near.astype(np.longdouble)) > np.abs(exact), np.nextafter(near, 0), near)
        exact = (toward.view(np.uint64) | (toward.astype(np.longdouble) != exact)).view(np.float64)
    return round_to(exact, kind)


def cast_by_scale(x: Array, scale: Array, kind: ElementKind) -> Array:
    """The quotient, or the product, in float64 rounded to f32, which is that of f32: it has more than twice its digits."""
    wide, factor = x.astype(np.float64), scale.astype(np.float64)
    if kind.bits > 8:
        return round_to((wide * factor).astype(np.float32), kind)
    largest = 448.0 if kind is ElementKind.FP8_E4M3 else 57344.0
    return round_to(np.clip((wide / factor).astype(np.float32), -largest, largest), kind)


def _wide(x: Array, out: ElementKind, rounded: bool) -> Array:
    """The type computed in: integers exactly, floats with digits to spare. Integers become floats by way of the
    result's own type, as in NumPy. What IEEE 754 rounds correctly is the oracle in float64 as it stands: more digits would round
    twice."""
    if not out.is_float:
        return x.astype(out.dtype)
    if x.dtype.kind in "iub":
        x = x.astype(np.float64 if out is ElementKind.F64 else np.float32)
    return x.astype(np.longdouble if out is ElementKind.F64 and not rounded else np.float64)


def evaluate(desc: Any, arrays: Mapping[str, Array]) -> Array:
    """What an elementwise problem gives for `arrays` by name, wide; its run-time numbers are in the descriptor."""
    row, out = desc.row, desc.layout("out").element
    with np.errstate(all="ignore"):
        inputs = [_given(desc, name, arrays) for name in desc.inputs]
        if row.result == "given":
            return np.asarray(row.oracle(*inputs, out))
        if row.native:
            kind = desc.common if row.result == "bool" else out
            return native(row, kind, inputs, _params_taken(desc).values())
        if row.result == "bool":
            return np.asarray(row.oracle(*_comparable(desc, inputs)))
        if not desc.moved:
            inputs = [x if mask else _wide(x, out, row.rounded) for x, mask in zip(inputs, desc.masks)]
        return np.asarray(row.oracle(*inputs, **_params_taken(desc)))


def native(row: Any, kind: ElementKind, inputs: Iterable[Array], params: Iterable[Any]) -> Array:
    """A row that is exact in the type computed in: in the result's own, or in f32 or f64 where it compares numbers of `kind`."""
    if row.result == "bool":
        kind = kind if kind is ElementKind.F64 else ElementKind.F32
    taken = [np.asarray(x).astype(kind.dtype) for x in (*inputs, *params)]
    found = np.asarray(row.oracle(*taken))
    return found.astype(np.float64) if found.dtype.kind not in "biu" else found


def params_of(desc: Any) -> dict[str, Any]:
    """The values of the row's params."""
    held = dict(zip(desc.numbered, desc.numbers or ()))
    return {name: np.float64(held.get(name, default)) for name, default in desc.row.params.items()}


def _params_taken(desc: Any) -> dict[str, Any]:
    """The same, rounded to the type that a kernel takes them in: a threshold that is off by a rounding is another."""
    return {name: np.float64(desc.kind_of(name).dtype.type(value)) for name, value in params_of(desc).items()}


def wide_inputs(desc: Any, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs of a problem of floats by name, numbers and absent ones included, in the type computed in; masks unchanged."""
    out, found = desc.kind_of("out"), {name: _given(desc, name, arrays) for name in desc.inputs}
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return {name: x if x.dtype == np.bool_ else _wide(x, out, False) for name, x in found.items()}


def _rounded(desc: Any, arrays: Mapping[str, Array]) -> Rounded:
    """The result of a row's formula with its error as a kernel computes it."""
    values = dict(zip(desc.row.letters, wide_inputs(desc, arrays).values()))
    return desc.row.expression.rounded(values | _params_taken(desc), Precision.of(desc.kind_of("out")), {})  # type: ignore[no-any-return]


def _error(desc: Any, **arrays: Array) -> Array:
    """In roundoffs of the type computed in."""
    unit = Precision.of(desc.kind_of("out")).computed.unit_roundoff
    return np.broadcast_to(_rounded(desc, arrays).error / unit, desc.out_shape)


def _beyond(desc: Any, **arrays: Array) -> Array:
    return np.broadcast_to(_rounded(desc, arrays).beyond, desc.out_shape)


# Of a formula: the propagated error; whether an intermediate result may leave the range of the type computed in.
MEASURES: Mapping[str, Any] = {"propagated": _error, "intermediate_overflows": _beyond}


def _given(desc: Any, name: str, arrays: Mapping[str, Array]) -> Array:
    """An input: an array, a number rounded to its kind, or what stands for one that was left out."""
    if name in arrays:
        return arrays[name]
    if name in desc.numbered:
        value = desc.numbers[desc.numbered.index(name)]
        kind = desc.kind_of(name)
        return round_to(np.asarray(value, np.float64 if kind.is_float else kind.dtype), kind)
    return np.asarray(desc.stands_in(name))


def _comparable(desc: Any, inputs: list[Array]) -> list[Array]:
    """Integers unchanged, which NumPy compares exactly; others in their common type."""
    if all(x.dtype.kind in "iub" for x in inputs):
        return inputs
    return [x.astype(desc.common.dtype).astype(np.float64) for x in inputs]


def _integer_pow(a: Array, b: Array) -> Array:
    """Wraps like NumPy's; a negative exponent truncates a**b toward zero."""
    a, b = np.broadcast_arrays(a, b)
    positive = np.power(a, np.where(b < 0, 0, b).astype(b.dtype))
    odd = np.where(b & 1, a, np.ones_like(a))
    return np.where(
        b < 0, np.where(a == 1, 1, np.where((a == -1) if a.dtype.kind == "i" else False, odd, 0)), positive
    ).astype(a.dtype)


def guarantee(kernel: PrecisionGuarantee) -> PrecisionGuarantee:
    """What the oracle itself promises: one rounding; in f64 the C library's functions err too, as much as the kernels may."""
    if not isinstance(kernel.bound, Ulp):
        return replace(kernel, flushes_subnormals=False)
    bound = Ulp(max(kernel.bound.n, 1.0) if kernel.accumulator is ElementKind.F64 else 1.0)
    return replace(kernel, bound=bound, flushes_subnormals=False)
