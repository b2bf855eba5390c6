"""pack_int4: a float matrix as a PackedInt4; repack_int4: a PackedInt4 in another layout. Once for a weight, on its device."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....packed.int4 import BYTES, Int4Layout, PackedInt4, check_problem, check_zeros, host_values
from ....plan.fields import integer
from ....tensor import intake
from ....types import InvalidProblemError, OperandTypeError
from .._arguments import flag
from .quantize import quantize_int4
from .relayout import relayout_int4
from .weight import order_of

__all__ = ["pack_int4", "repack_int4"]

LEAST_ZERO = {Int4Layout.GPTQ: 1}  # and the largest is 16: points are stored less one, in four bits


def pack_int4(
    w: Any, *, group_size: int = 128, symmetric: bool = True, layout: Any = "tiled", scales_dtype: Any = None,
    stream: Any = None, device: Any = None,
) -> PackedInt4:  # fmt: skip
    """A matrix [K, N] as int4 codes in `layout`, by default the one that the products' kernels read.

    w, group_size, symmetric, scales_dtype: as `quantize_int4` has them. `dequantize_int4` is the inverse.
    Codes that are there already are a PackedInt4 of layout "plain": see `repack_int4`.
    """
    layout = Int4Layout.of(layout, "pack_int4: layout")
    shape, group_size = intake(w, what="pack_int4: w").shape, integer(group_size, "pack_int4: group_size")
    check_problem("pack_int4", layout, shape, group_size)
    check_zeros("pack_int4", layout, shape, zeros=not flag(symmetric, "pack_int4: symmetric"), order=False)
    least = 0 if symmetric else LEAST_ZERO.get(layout, 0)
    made = quantize_int4(
        w, group_size=group_size, symmetric=symmetric, scales_dtype=scales_dtype, least_zero=least, stream=stream,
        device=device,
    )  # fmt: skip
    packed = PackedInt4(Int4Layout.TILED, (shape[0], shape[1]), group_size, *made)
    return packed if layout is Int4Layout.TILED else repack_int4(packed, layout, stream=stream, device=device)


def repack_int4(weight: PackedInt4, layout: Any = "tiled", *, stream: Any = None, device: Any = None) -> PackedInt4:
    """The same weight in another layout, every code, scale and zero point as it was: there and back is the identity.

    A GPTQ weight with `order` (its g_idx) becomes "tiled" with the order that makes its groups contiguous; back, it has it again.
    Reads `order` and, for GPTQ and AWQ, zero points on the host to check them: InvalidProblemError where the groups are not of
    `group_size` each, or the layout has no such zero point or order.
    """
    if not isinstance(weight, PackedInt4):
        raise OperandTypeError(
            f"repack_int4: expected a PackedInt4, got {type(weight).__name__}",
            "PackedInt4(layout=..., ...) says what arrays are",
        )
    layout, known = Int4Layout.of(layout, "repack_int4: layout"), weight.layout
    if layout is known:
        return weight
    if layout is not Int4Layout.TILED and known is not Int4Layout.TILED:
        return repack_int4(repack_int4(weight, stream=stream, device=device), layout, stream=stream, device=device)
    _check_points(weight, layout)
    gather, order = _orders(weight, layout)
    made = relayout_int4(
        weight.codes, weight.scales, weight.zeros, gather, shape=weight.shape, group_size=weight.group_size,
        layout=known, to=layout, stream=stream, device=device,
    )  # fmt: skip
    codes, scales, *zeros = made
    return PackedInt4(layout, weight.shape, weight.group_size, codes, scales, zeros[0] if zeros else None, order)


def _like(x: Any, made: np.ndarray[Any, Any]) -> Any:
    """`made` in the memory of `x`, as an array of the same kind."""
    if isinstance(x, np.ndarray):
        return made
    if hasattr(x, "new_tensor"):
        return x.new_tensor(made)
    import cupy

    return cupy.asarray(made)


def _read(weight: PackedInt4, name: str) -> np.ndarray[Any, Any]:
    known = host_values(getattr(weight, name))
    if known is None:
        kind = type(getattr(weight, name)).__name__
        raise OperandTypeError(
            f"repack_int4: {name} is a {kind}, which is not read on the host", "pass an array of NumPy, CuPy or PyTorch"
        )
    return known


def _orders(weight: PackedInt4, layout: Int4Layout) -> tuple[Any, Any]:
    """Which k of the old layout each k of the new one is, and the order that the new one has."""
    if weight.order is None:
        return None, None
    known = _read(weight, "order")
    if weight.layout is Int4Layout.GPTQ:
        order = _like(weight.order, order_of(known, weight.group_size))
        return order, order
    check_zeros("repack_int4", layout, weight.shape, zeros=False, order=True)
    place = np.argsort(known, kind="stable").astype(np.int32)
    if not np.array_equal(known[place], np.arange(len(known))):
        raise InvalidProblemError(
            "repack_int4: order does not hold each k once", "pass the k that each place holds, as repack_int4 gave it"
        )
    return _like(weight.order, place), _like(weight.order, (place // weight.group_size).astype(np.int32))


def _check_points(weight: PackedInt4, layout: Int4Layout) -> None:
    """Raises InvalidProblemError for zero points that the layout has no bits for."""
    check_zeros("repack_int4", layout, weight.shape, zeros=weight.zeros is not None, order=False)
    if weight.zeros is None or layout in BYTES:
        return
    known = _read(weight, "zeros")
    points = known[:, : weight.shape[1]]
    least = LEAST_ZERO.get(layout, 0)
    low, high = int(points.min()), int(points.max())
    if low < least or high > least + 15:
        raise InvalidProblemError(
            f"repack_int4: zero points are {low} to {high}, and layout {str(layout)!r} has {least} to {least + 15}",
            "keep the weight in layout 'tiled', or pack the matrix again with pack_int4(..., layout=...)",
        )
