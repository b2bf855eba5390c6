"""Paged caches of keys and values: tokens appended, unchanged or quantised, and pages copied."""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from .requests import requests_of, rotated_keys, rows_of

__all__ = ["MOST", "copy_pages", "paged_kv_append", "quantized", "scales_of"]

Array: TypeAlias = np.ndarray[Any, Any]
MOST = {"int8": 127.0, "float8_e4m3fn": 448.0}


def scales_of(x: Array, dtype: Any) -> Array:
    """A scale for each row of `x`, f32: max(amax / M, 2**-126) of the largest finite magnitude, 1 for a row of zeros."""
    size = np.abs(x.astype(np.float32))
    amax = np.where(np.isfinite(size), size, np.float32(0)).max(axis=-1, initial=0)
    made = np.maximum(amax / np.float32(MOST[np.dtype(dtype).name]), np.float32(2.0**-126))
    return np.asarray(np.where(amax > 0, made, np.float32(1)), np.float32)


def quantized(x: Array, scales: Array, dtype: Any) -> Array:
    """Codes of `x`: x * (1 / scale) in f32, to nearest even, held to [-M, M]; NaN is 0 as int8, NaN as fp8."""
    most = np.float32(MOST[np.dtype(dtype).name])
    with np.errstate(all="ignore"):
        scaled = x.astype(np.float32) * (np.float32(1) / scales.astype(np.float32))[..., None]
    held = np.clip(scaled, -most, most)
    if np.dtype(dtype) == np.int8:
        return np.asarray(np.rint(np.nan_to_num(held)), np.int8)
    codes: Array = held.astype(dtype)
    codes[np.isnan(scaled)] = np.uint8(0x7F).view(ml_dtypes.float8_e4m3fn)
    return codes


def paged_kv_append(desc: Any, **given: Any) -> tuple[Array, ...]:
    """Pages, and scales where they are written, with each request's tokens behind those it has, and a status a request."""
    pages = [given[name].copy() for name in ("k_pages", "v_pages")]
    scales = [given[name].copy() for name in ("k_scales", "v_scales") if given.get(name) is not None]
    rows = [rows_of(desc, given[name]) for name in ("k", "v")]
    if desc.rotates_keys:
        rows[0] = rows_of(desc, rotated_keys(desc, given))
        if desc.quantized:
            rows[0] = rows[0].astype(desc.element.dtype)
        else:
            pages[0] = pages[0].astype(np.float64)
    by_slot = [x if desc.pages_layout == "NHD" else np.swapaxes(x, 1, 2) for x in (*pages, *scales)]
    written, status = requests_of(desc, given)
    for begin, end, place in written:
        for i, scale in enumerate((given.get("k_scale"), given.get("v_scale"))):
            new = rows[i][begin:end]
            if desc.quantized:
                made = scales_of(new, pages[i].dtype) if scale is None else np.broadcast_to(scale, new.shape[:2])
                if scale is None:
                    by_slot[2 + i][place] = made
                new = quantized(new, made, pages[i].dtype)
            by_slot[i][place] = new
    return *pages, *scales, status


def copy_pages(
    desc: Any, k_pages: Array, v_pages: Array, source: Array, dest: Array, k_scales: Array | None = None,
    v_scales: Array | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    """Every array with the pages `source` copied to `dest`, and a status a pair: 1 where an id is out of range."""
    made = [x.copy() for x in (k_pages, v_pages, k_scales, v_scales) if x is not None]
    count = k_pages.shape[desc.page_axis]
    fits = (source >= 0) & (source < count) & (dest >= 0) & (dest < count)
    for x in made:
        pages = np.moveaxis(x, desc.page_axis, 0)
        pages[dest[fits]] = pages[source[fits]]
    return *made, np.where(fits, 0, 1).astype(np.int32)
