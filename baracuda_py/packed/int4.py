"""PackedInt4: a matrix of 4-bit codes, its scales and zero points, and their layout."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..types import ElementKind, InvalidProblemError
from ..types.keeping import complete
from ..types.vocabulary import Named
from .weight import PackedWeight

__all__ = [
    "BYTES",
    "GROUP_SIZES",
    "Int4Layout",
    "PackedInt4",
    "check_order",
    "check_places",
    "check_problem",
    "check_zeros",
    "host_values",
    "kinds_of",
    "padded",
    "shapes_of",
]

GROUP_SIZES = (32, 64, 128)  # and K
STRIP, BLOCK, LANES, WORDS = 16, 64, 32, 4  # of a tile: rows of n, of k, and its words
HALVES = (ElementKind.F16, ElementKind.BF16)
_WORDS = (ElementKind.U32, ElementKind.I32)


class Int4Layout(Named):
    """The layout of the codes.

    KAIO: u32 [N, K/8] along k, two's complement, symmetric. AWQ: [K, N/8] along n, in the order 0 2 4 6 1 3 5 7. GPTQ: [K/8, N]
    along k, zero points minus one. TILED: the kernels' own layout, u32 [N/16, K/64, 32, 4], where a tile is four fragments of
    mma.sync. PLAIN: u8 [K, N], one code per byte, and one zero point per byte.
    """

    KAIO = enum.auto()
    AWQ = enum.auto()
    GPTQ = enum.auto()
    TILED = enum.auto()
    PLAIN = enum.auto()


BYTES = (Int4Layout.TILED, Int4Layout.PLAIN)  # the layouts whose zero points are bytes


def padded(extent: int, unit: int) -> int:
    """The next multiple of `unit`."""
    return -(-extent // unit) * unit


def shapes_of(layout: Int4Layout, shape: tuple[int, int], group_size: int) -> dict[str, tuple[int, ...]]:
    """The shapes of `codes`, `scales`, `zeros` and `order` of a weight [K, N] in that layout."""
    k, n = shape
    groups, wide = k // group_size if group_size else 0, padded(n, STRIP)
    codes: dict[Int4Layout, tuple[int, ...]] = {
        Int4Layout.KAIO: (n, k // 8),
        Int4Layout.AWQ: (k, n // 8),
        Int4Layout.GPTQ: (k // 8, n),
        Int4Layout.TILED: (wide // STRIP, padded(k, BLOCK) // BLOCK, LANES, WORDS),
        Int4Layout.PLAIN: (k, n),
    }
    columns = wide if layout is Int4Layout.TILED else n
    zeros = (groups, columns if layout in BYTES else n // 8)
    return {"codes": codes[layout], "scales": (groups, columns), "zeros": zeros, "order": (k,)}


def kinds_of(layout: Int4Layout) -> tuple[ElementKind, ...]:
    """The element kinds that may hold the layout's codes."""
    return (ElementKind.U8,) if layout is Int4Layout.PLAIN else _WORDS


def check_problem(op: str, layout: Int4Layout, shape: tuple[int, ...], group_size: int) -> None:
    """Raises InvalidProblemError if a weight of that shape cannot have this layout or these groups."""
    if len(shape) != 2 or min(shape, default=0) < 1:
        raise InvalidProblemError(f"{op}: a weight of shape {shape}", "give (K, N), both at least 1")
    k, n = shape
    if group_size not in (*GROUP_SIZES, k):
        raise InvalidProblemError(f"{op}: group_size={group_size}", f"give 32, 64, 128 or K={k}")
    if k % group_size:
        more = padded(k, group_size)
        raise InvalidProblemError(
            f"{op}: K={k} is no multiple of group_size={group_size}", f"pad K to {more} with numpy.pad, then pack_int4"
        )
    unit = "K" if layout in (Int4Layout.KAIO, Int4Layout.GPTQ) and k % 8 else ""
    unit = unit or ("N" if layout is Int4Layout.AWQ and n % 8 else "")
    if unit:
        have = k if unit == "K" else n
        raise InvalidProblemError(
            f"{op}: {unit}={have} is no multiple of 8, and a word of layout {str(layout)!r} has eight codes along {unit}",
            f"pad {unit} to {padded(have, 8)} with numpy.pad, then pack_int4(..., layout={str(layout)!r})",
        )


def check_zeros(op: str, layout: Int4Layout, shape: tuple[int, ...], *, zeros: bool, order: bool) -> None:
    """Raises InvalidProblemError for zero points or an order that the layout does not have."""
    if zeros and layout is Int4Layout.KAIO:
        raise InvalidProblemError(
            f"{op}: layout 'kaio' has no zero points", "choose another layout: 'awq', 'gptq' or 'tiled'"
        )
    if zeros and layout is Int4Layout.GPTQ and shape[1] % 8:
        wide = padded(shape[1], 8)
        raise InvalidProblemError(
            f"{op}: N={shape[1]} is no multiple of 8, and zero points of layout 'gptq' come in words of eight",
            f"pad N to {wide} with numpy.pad, then pack_int4(..., layout='gptq')",
        )
    if order and layout not in (Int4Layout.GPTQ, Int4Layout.TILED):
        raise InvalidProblemError(
            f"{op}: layout {str(layout)!r} has no order",
            "leave order out, or pass the group of each k with layout='gptq'",
        )


def host_values(x: Any) -> np.ndarray[Any, Any] | None:
    """The values of a NumPy, CuPy or PyTorch array as a NumPy array, after synchronising; None for other objects."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(type(x), "__cuda_array_interface__") and callable(getattr(x, "get", None)):
        return np.asarray(x.get())
    try:
        return np.asarray(x.detach().cpu().numpy()) if hasattr(x, "detach") else None
    except (TypeError, NotImplementedError, RuntimeError):  # no such dtype in NumPy, or a meta tensor
        return None


def check_places(what: str, places: np.ndarray[Any, Any], extent: int, of: str) -> None:
    """Raises InvalidProblemError if one of `places` is not in [0, extent)."""
    outside = np.flatnonzero((places < 0) | (places >= extent))
    if outside.size:
        at = int(outside[0])
        raise InvalidProblemError(
            f"{what}[{at}] is {int(places[at])}, and {of} are 0 to {extent - 1}", f"pass the {of} that there are"
        )


def check_order(op: str, layout: Int4Layout, order: Any, group_size: int) -> None:
    """Raises InvalidProblemError for an `order` with groups that do not exist ("gptq"), or that is not a permutation
    ("tiled")."""
    known = host_values(order)
    if known is None or known.ndim != 1 or known.dtype.kind not in "iu":  # shape and type have errors of their own
        return
    if layout is Int4Layout.GPTQ:
        check_places(f"{op}: order", known, len(known) // group_size, "groups")
        return
    check_places(f"{op}: order", known, len(known), "k's")
    twice = np.flatnonzero(np.bincount(known, minlength=len(known)) > 1)
    if twice.size:
        raise InvalidProblemError(
            f"{op}: order names k={int(twice[0])} more than once, and is no permutation",
            "pass the order that repack_int4 made",
        )


@dataclass(frozen=True, eq=False, repr=False)
class PackedInt4(PackedWeight):
    """A weight [K, N] with w[k, n] = (code - zero) scale, and one scale per `group_size` of K (32, 64, 128 or K).

    `codes`: u32 (or int32) words of eight, as `layout` has them. `scales`: f16 or bf16 [K/group_size, N]. `zeros`: int32 or u32
    words [K/group_size, N/8] ("awq", "gptq"), u8 [K/group_size, N] ("tiled", "plain"), or None: 8 for all. `order`: int32 [K]
    or None; for "gptq" the group of each k (g_idx), for "tiled" the k at each position, a permutation. The constructor reads it
    on the host to check this, which synchronises. "tiled" pads N to a multiple of 16 and K to a multiple of 64.

    The arrays are CuPy's, NumPy's or PyTorch's, on one device, in C order. Raises InvalidProblemError or OperandTypeError if
    they do not fit the layout. An array that is packed for another layout is refused, unless the two are indistinguishable:
    those of a square weight in "kaio" and "awq".
    """

    arrays = ("codes", "scales", "zeros", "order")
    needed = ("codes", "scales")
    multiplied_by = "matmul_int4"

    layout: Int4Layout | str
    shape: tuple[int, int]
    group_size: int
    codes: Any
    scales: Any
    zeros: Any = None
    order: Any = None

    def __post_init__(self) -> None:
        layout = Int4Layout.of(self.layout, "PackedInt4: layout")
        complete(self, layout=layout)
        self._settle("give (K, N) and an int", "group_size")
        check_problem("PackedInt4", layout, self.shape, self.group_size)
        check_zeros("PackedInt4", layout, self.shape, zeros=self.zeros is not None, order=self.order is not None)
        kinds = {"codes": kinds_of(layout), "scales": HALVES, "order": (ElementKind.I32,)}
        kinds["zeros"] = (ElementKind.U8,) if layout in BYTES else _WORDS
        whole = f"a weight {self.shape} of layout {str(layout)!r} and group_size={self.group_size} has"
        shapes = shapes_of(layout, self.shape, self.group_size)
        said = "name the layout and group_size that it is packed in, or pack it with pack_int4 or repack_int4"
        for name in self.operands:
            self._check_shape(name, shapes[name], whole, said)
            self._check_element(name, kinds[name])
            self._check_order(name)
        if self.order is not None:
            check_order("PackedInt4", layout, self.order, self.group_size)
