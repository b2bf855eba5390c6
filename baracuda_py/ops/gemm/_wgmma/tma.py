"""Matrices as TMA sees them: operands in swizzled boxes, and how results are stored. Mirrors kernels/include/ptx/tma.cuh and
kernels/include/products/staging.cuh."""

from __future__ import annotations

from typing import NamedTuple

from ....runtime.steps import Ptr, Scratch, Struct, TensorMap
from ....types import ElementKind
from ...products.gemm import BATCH_RANK, Gemm, Matrix
from ...products.scales import BLOCK

__all__ = [
    "ELEMENTS", "K_BLOCK", "View", "either_major", "epilogue_store_of", "out_map", "scales_map", "staged_bytes", "taken",
    "view_of",
]  # fmt: skip

K_BLOCK = 128  # bytes of K per stage: one swizzled row
# The element's name in PTX, and how TMA reads it: as TF32 it rounds to nearest, where the tensor core would truncate.
ELEMENTS = {
    ElementKind.F16: ("f16", "float16"), ElementKind.BF16: ("bf16", "bfloat16"), ElementKind.F32: ("tf32", "tfloat32"),
    ElementKind.FP8_E4M3: ("e4m3", "uint8"), ElementKind.FP8_E5M2: ("e5m2", "uint8"),
}  # fmt: skip
RESULTS = {ElementKind.F16: "float16", ElementKind.BF16: "bfloat16", ElementKind.F32: "float32"}
PART = 128  # bytes of a row of the result that one staged part holds


class View(NamedTuple):
    """How TMA sees a matrix operand: `mn_major` where M (or N) is the contiguous axis."""

    matrix: Matrix
    mn: int  # extent of M or N
    k: int
    mn_major: bool

    def boxes(self, of: Ptr | Scratch, batch: tuple[int, ...], box_mn: int) -> Struct:
        """The operand in boxes of `box_mn`, and in those that end with it: kernels/gemm/wgmma.cu's Boxes. A row outside takes
        TMA as long as two or three others (H200: 129 rows in tiles of 128 took 1.6 times as long as 256)."""
        return Struct((self._map(of, batch, min(box_mn, self.mn)), self._map(of, batch, self.mn % box_mn or box_mn)))

    def _map(self, of: Ptr | Scratch, batch: tuple[int, ...], rows: int) -> TensorMap:
        x = self.matrix
        inner, outer, pitch = (self.mn, self.k, x.col) if self.mn_major else (self.k, self.mn, x.row)
        box = (64, 64) if self.mn_major else (K_BLOCK // x.itemsize, rows)
        return _tensor_map(x, ELEMENTS[x.element][1], of, inner, outer, pitch, batch, box, 128)


def _tensor_map(
    x: Matrix,
    dtype: str,
    of: Ptr | Scratch,
    inner: int,
    outer: int,
    pitch: int,
    batch: tuple[int, ...],
    box: tuple[int, int],
    swizzle: int,
) -> TensorMap:
    """The tensor map: rank 2, or rank 5 with a batch, where axes that are not stepped have extent 1."""
    shape, strides, boxes = [inner, outer], [pitch * x.itemsize if outer > 1 else 16], list(box)
    if batch:
        fill = BATCH_RANK - len(batch)
        for extent, step in list(zip((1,) * fill + batch, (0,) * fill + x.batch))[::-1]:
            shape.append(extent if step else 1)
            strides.append(step * x.itemsize if step else 16)
            boxes.append(1)
    return TensorMap(of, dtype, tuple(shape), tuple(strides), tuple(boxes), swizzle)


def _pitched(x: Matrix, pitch: int, outer: int) -> bool:
    """Whether the lines of `x`, and its matrices, begin on multiples of 16 bytes, with positive strides."""
    if x.align < 16 or (outer != 1 and pitch <= 0):
        return False
    size = x.itemsize
    for step in (pitch, *x.batch) if outer > 1 else x.batch:  # a generator would take longer than all else here
        if step < 0 or step * size % 16 or step * size >= 1 << 40:
            return False
    return True


def view_of(x: Matrix, mn: int, k: int) -> View | None:
    """The operand [mn, k] as TMA can take it, or None."""
    if (x.col == 1 or k == 1) and _pitched(x, x.row, mn):
        return View(x, mn, k, False)
    if (x.row == 1 or mn == 1) and _pitched(x, x.col, k):
        return View(x, mn, k, True)
    return None


def either_major(element: ElementKind) -> bool:
    """Whether operands of this type are multiplied from MN-major layouts as well as from K-major ones."""
    return element.bits == 16


def taken(x: Matrix, mn: int, k: int) -> View | None:
    """The operand [mn, k] as wgmma can take it, or None."""
    view = view_of(x, mn, k)
    return view if view is not None and (not view.mn_major or either_major(x.element)) else None


def scales_map(gemm: Gemm, rows: int) -> TensorMap | None:
    """The tensor map of A's block scales, in boxes of `rows` rows and one block of K; None unless M is contiguous and lines are
    on multiples of 16 bytes."""
    x, blocks = gemm.scales["scale_a"], -(-gemm.k // BLOCK)
    if (x.row != 1 and gemm.m > 1) or not _pitched(x, x.col, blocks):
        return None
    return _tensor_map(x, "float32", Ptr(x.operand), gemm.m, blocks, x.col, gemm.batch, (rows, 1), 0)


def epilogue_store_of(out: Matrix, m: int, n: int) -> str:
    """How the result [m, n] is stored: through shared memory in rows (16-bit types also in columns). TMA stores them where they
    begin on and are as long as multiples of 16 bytes (TMA clips stores there, not at elements), otherwise warps do."""
    if out.col != 1 and (out.row != 1 or out.itemsize != 2):
        return "DIRECT"
    axis, pitch, outer, inner = ("ROW", out.row, m, n) if out.col == 1 else ("COLUMN", out.col, n, m)
    whole = inner * out.itemsize % 16 == 0 and _pitched(out, pitch, outer) and all(s > 0 for s in out.batch)
    return f"{'TMA' if whole else 'WARP'}_{axis}"


def _part_of(itemsize: int, columns: int) -> int:
    """Columns of the result that a warpgroup stages at once: staging.cuh's WIDEST."""
    return next(w for w in (64, 32, 16) if w * itemsize <= PART and columns % w == 0)


def staged_bytes(store: str, itemsize: int, columns: int) -> int:
    """Bytes of a warpgroup's staging buffers for 64 rows of so many columns of `itemsize` bytes: staging.cuh's BUFFERS."""
    if store == "DIRECT":
        return 0
    part = _part_of(itemsize, columns)
    return 64 * part * itemsize * min(2, columns // part)


def out_map(gemm: Gemm, columns: int, store: str) -> TensorMap | None:
    """The tensor map through which TMA stores a tile's `columns` columns in boxes; None where warps store them."""
    out, dtype, ptr = gemm.out, RESULTS[gemm.out.element], Ptr(gemm.out.operand)
    width = _part_of(out.itemsize, columns)
    if store == "TMA_ROW":
        swizzle = width * out.itemsize
        return _tensor_map(out, dtype, ptr, gemm.n, gemm.m, out.row, gemm.batch, (width, 64), swizzle)
    if store == "TMA_COLUMN":
        return _tensor_map(out, dtype, ptr, gemm.m, gemm.n, out.col, gemm.batch, (64, width), PART)
    return None
