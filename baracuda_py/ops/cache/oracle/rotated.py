"""What bounds of keys that are rotated on their way into the cache name: measures of the rotation, where the keys are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from ...position import oracle as position
from .append import MOST, scales_of
from .requests import requests_of, rope_operands, rotated_keys, rows_of

__all__ = ["MEASURES"]

Array: TypeAlias = np.ndarray[Any, Any]
U32 = 2.0**-24


def _at_pages(desc: Any, given: dict[str, Array], of_tokens: Array) -> Array:
    """What is true of keys, [tokens, heads, ...], at the places where they are written; 0 elsewhere."""
    made = np.zeros((*desc.k_pages_shape[:3], *of_tokens.shape[2:]))
    by_slot = made if desc.pages_layout == "NHD" else np.swapaxes(made, 1, 2)
    for begin, end, place in requests_of(desc, given)[0]:
        by_slot[place] = of_tokens[begin:end]
    return made


def _rotation(name: str) -> Callable[..., Array]:
    """A measure of `rope`."""

    def measure(desc: Any, *, output: str, **given: Array) -> Array:  # noqa: ARG001
        return _at_pages(desc, given, _rope_rows(desc, name, given))

    return measure


def _rope_rows(desc: Any, name: str, given: dict[str, Array]) -> Array:
    return rows_of(desc, position.MEASURES[name](desc.turning(), output="out", **rope_operands(desc, given)))


def _abs_rotated(desc: Any, *, output: str, **given: Array) -> Array:  # noqa: ARG001
    made = np.abs(rows_of(desc, rotated_keys(desc, given)))
    made[..., 2 * desc.half :] = 0  # moved
    return _at_pages(desc, given, made)


def _errors(desc: Any, given: dict[str, Array]) -> tuple[Array, Array]:
    """Keys as the oracle rounds them, and how far those of a kernel may be from them: the rotation's bound and two roundings,
    [tokens, heads, columns]."""
    exact, u = rows_of(desc, rotated_keys(desc, given)), desc.element.unit_roundoff
    names = {"abs_products": 8.1 * U32, "smallest_normal": 5 * u, "abs_pair": 2.0**-62}
    error = sum(scale * _rope_rows(desc, name, given) for name, scale in names.items())
    error = np.asarray(error + 2 * u * np.abs(exact))
    error[..., 2 * desc.half :] = 0
    return exact.astype(desc.element.dtype).astype(np.float64), error


def _scales(desc: Any, given: dict[str, Array]) -> tuple[Array, Array]:
    """The oracle's scales, and how far those of a kernel may be from them, [tokens, heads]."""
    x, error = _errors(desc, given)
    if "k_scale" in given:
        scale = np.broadcast_to(given["k_scale"].astype(np.float64), x.shape[:2])
        return scale, np.zeros_like(scale)
    scale = scales_of(x.astype(desc.element.dtype), desc.pages_element.dtype).astype(np.float64)
    return scale, error.max(axis=-1, initial=0) / _most(desc) + 4 * U32 * scale


def _most(desc: Any) -> float:
    return MOST[np.dtype(desc.pages_element.dtype).name]


def _scale_error(desc: Any, *, output: str, **given: Array) -> Array:  # noqa: ARG001
    return np.asarray(_at_pages(desc, given, _scales(desc, given)[1]) / desc.element.unit_roundoff)


def _code_error(desc: Any, *, output: str, **given: Array) -> Array:  # noqa: ARG001
    """Of two numbers x / scale, and of one step between codes where there is any difference, in units of u."""
    x, error = _errors(desc, given)
    scale, of_scale = (part[..., None] for part in _scales(desc, given))
    with np.errstate(all="ignore"):
        off = (error + np.abs(x) * of_scale / scale) / np.maximum(scale - of_scale, np.finfo(np.float64).tiny)
        size = np.abs(x) / scale + off
    step = np.ones_like(size) if desc.pages_element.dtype == np.int8 else np.maximum(size / 8, 2.0**-9)
    step[off == 0] = 0
    return np.asarray(_at_pages(desc, given, off + step) / desc.element.unit_roundoff)


def _unbounded(desc: Any, *, output: str, **given: Array) -> Array:
    """Where `rope` has no bound; of what is quantised, also rows whose largest value is not well away from 0 or overflow."""
    rows = _rope_rows(desc, "unbounded", given).astype(bool)
    if desc.quantized:
        x, error = _errors(desc, given)
        info = ml_dtypes.finfo(desc.element.dtype)
        with np.errstate(all="ignore"):
            size, off = np.abs(x).max(axis=-1, initial=0), error.max(axis=-1, initial=0)
            vague = ~(size + 2 * off < float(info.max)) | ((off > 0) & (size < 2 * off))
        rows = rows | rows.any(axis=-1, keepdims=True) | vague[..., None]
    of_tokens = rows if output == "k_pages" else np.asarray(rows.any(axis=-1))
    return np.asarray(_at_pages(desc, given, of_tokens) > 0)


MEASURES = {
    "abs_pair": _rotation("abs_pair"),
    "abs_products": _rotation("abs_products"),
    "abs_rotated": _abs_rotated,
    "code_error": _code_error,
    "scale_error": _scale_error,
    "smallest_normal": _rotation("smallest_normal"),
    "unbounded": _unbounded,
}
