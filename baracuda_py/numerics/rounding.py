"""Conversion of operands to the wide type in which an oracle computes, and of wide values to an element kind, with one rounding.
An oracle loses no bit elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..types import ElementKind

__all__ = ["halves", "round_to", "wide", "wide_dtype"]


def wide_dtype(element: ElementKind) -> Any:
    """The dtype in which an oracle computes with floats: float64, and long double for f64."""
    return np.longdouble if element is ElementKind.F64 else np.float64


def wide(x: np.ndarray[Any, Any], element: ElementKind) -> np.ndarray[Any, Any]:
    """`x` as an oracle for `element` computes with it; integers as 64-bit integers."""
    x = np.asarray(x)
    if element.is_float:
        return np.asarray(x.astype(wide_dtype(element)))
    return np.asarray(x.astype(np.uint64 if x.dtype.kind == "u" else np.int64))


def round_to(wide: np.ndarray[Any, Any], element: ElementKind) -> np.ndarray[Any, Any]:
    """`wide` in the dtype of `element`: float64 rounds to nearest even in one step (ml_dtypes goes through float32,
    which would round twice); NumPy converts to the other dtypes."""
    wide = np.asarray(wide)
    if wide.dtype == element.dtype:
        return wide
    with np.errstate(over="ignore", invalid="ignore"):
        if wide.dtype == np.float64 and element in (ElementKind.BF16, ElementKind.FP8_E4M3, ElementKind.FP8_E5M2):
            return _to_odd_float32(wide).astype(element.dtype)
        return wide.astype(element.dtype)


def _to_odd_float32(wide: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rounds to float32 by rounding to odd, so that a second rounding to fewer than 23 digits is correct (S. Boldo and
    G. Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE TC 57(4), 2008)."""
    near = wide.astype(np.float32)
    inexact = np.isfinite(near) & (near.astype(np.float64) != wide)
    toward = np.where(np.abs(near.astype(np.float64)) > np.abs(wide), np.nextafter(near, np.float32(0)), near)
    bits = toward.view(np.uint32) | inexact.astype(np.uint32)
    return np.where(inexact, bits.view(np.float32), near).astype(np.float32)


def halves(x: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Long doubles as sums of two numbers of half their digits (Dekker)."""
    scaled = x * np.longdouble(2**32 + 1)
    high = scaled - (scaled - x)
    return high, x - high
