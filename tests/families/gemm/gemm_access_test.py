"""Memory accesses of matrix products by their kernels' arguments: aligned, inside the operands; and stage buffers that fit."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.gemm._variants.simt import Simt
from baracuda_py.ops.gemm._wgmma.launch import launches
from baracuda_py.ops.gemm._wgmma.tile import swapped_ab
from baracuda_py.ops.gemm._wgmma.tma import K_BLOCK, epilogue_store_of, staged_bytes, view_of
from baracuda_py.ops.gemm._wgmma.wgmma import Wgmma
from baracuda_py.ops.products.epilogue import paired
from baracuda_py.ops.products.gemm import Matrix
from baracuda_py.ops.products.mma import Side, side_of
from baracuda_py.ops.products.vector import vector_width
from baracuda_py.runtime.steps import Ptr, TensorMap
from baracuda_py.types import DeviceSpec, ElementKind

COVERS = ("matmul",)
H200 = DeviceSpec.named("h200")
SM_SHARED, CTA_SHARED, OF_EACH = (
    228 * 1024,
    227 * 1024,
    1024,
)  # bytes: CUDA C++ Programming Guide, compute capability 9.0


def matrices(count: int) -> list[tuple[Matrix, int, int]]:
    """Matrices of any strides and alignment, rows or columns contiguous in most, with their extents."""
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        kind = (bp.F16, bp.F32, bp.F64)[rng.integers(3)]
        rows, cols = (int(x) for x in rng.choice((1, 2, 3, 8, 12, 16, 64), 2))
        steps = [int(x) for x in rng.choice((0, 1, 1, 2, 3, 4, 8, 16, 24, 64, -1, -8), 2)]
        steps[rng.integers(2)] = int(rng.choice((1, 1, 1, 2)))
        batch = tuple(int(x) for x in rng.choice((0, 4, 8, 24, 31), rng.integers(0, 3)))
        align = int(rng.choice([n for n in (2, 4, 8, 16) if n >= kind.bits // 8]))
        found.append((Matrix("a", kind, *steps, batch, align), rows, cols))
    return found


def starts(x: Matrix, rows: int, cols: int, axis: int) -> np.ndarray[Any, Any]:
    """The addresses at which lines along `axis` may begin, over a first element at `align`."""
    lines = np.arange(cols) * x.col if axis == 0 else np.arange(rows) * x.row
    for step in x.batch:
        lines = np.add.outer(lines, np.arange(3) * step).ravel()
    return x.align + lines * x.itemsize


def test_vectors_of_mma_operands_are_aligned() -> None:
    wide = 0
    for x, rows, cols in matrices(3000):
        for k_axis in (0, 1):
            side = side_of(x, (rows, cols), k_axis)
            axis = k_axis if side.k_major else 1 - k_axis
            if side.nbytes == x.itemsize:
                continue
            wide += 1
            assert (rows, cols)[axis] == 1 or (x.row, x.col)[axis] == 1, "a piece is of neighbours"
            assert not (starts(x, rows, cols, axis) % side.nbytes).any(), f"{x} {rows}x{cols}: {side.nbytes} bytes"
    assert wide > 300
    whole = Matrix("a", bp.F16, 64, 1, (), 16)
    assert side_of(whole, (64, 64), 1) == Side(True, 16) and side_of(whole.mT, (64, 64), 1) == Side(False, 16)
    for changed in (replace(whole, align=8), replace(whole, row=68), replace(whole, batch=(4,))):
        assert side_of(changed, (64, 64), 1).nbytes == 8


def test_vectors_are_aligned_and_divide_their_lines() -> None:
    wide = 0
    for x, rows, cols in matrices(3000):
        for axis in (0, 1):
            width = vector_width(x, rows, cols, axis, 16 // x.itemsize)
            if width > 1:
                wide += 1
                assert (x.row, x.col)[axis] == 1 and (rows, cols)[axis] % width == 0
                assert not (starts(x, rows, cols, axis) % (width * x.itemsize)).any()
    assert wide > 300


@pytest.mark.parametrize("name", ["out", "c", "bias", "residual"])
@pytest.mark.parametrize("kind", [bp.F16, bp.F32], ids=str)
def test_epilogue_pairs_columns_in_every_operand_or_in_none(name: str, kind: ElementKind) -> None:
    def pairs(**fields: Any) -> bool:
        whole = {"bias_shape": (64,), "c_shape": (32, 64), "residual_shape": (32, 64)}
        given = {f"{n}_element": kind for n in ("c", "bias", "residual")} | whole | fields
        desc = bp.MatmulDescriptor((32, 16), (16, 64), kind, kind, out_element=kind, **given)
        return paired(desc.canonical().gemm)

    assert pairs()
    wrong: list[dict[str, Any]] = [{f"{name}_align": kind.bits // 8}]
    if name == "bias":
        wrong += [{"bias_strides": (2,)}, {"bias_shape": (32, 1)}]
    else:
        wrong += [{f"{name}_strides": strides} for strides in ((65, 1), (128, 2), (64, -1))]
    for fields in wrong:
        assert not pairs(**fields), fields


def test_tma_maps_have_positive_strides_and_boxes_inside() -> None:
    x = Matrix("a", bp.BF16, 64, 1, (), 16)
    assert view_of(x, 40, 64) is not None
    for changed in (
        replace(x, row=-64),
        replace(x, batch=(-640,)),
        replace(x, row=0),
        replace(x, row=60),
        replace(x, align=8),
    ):
        assert view_of(changed, 40, 64) is None, changed
    for rows, *boxes in ((40, 40, 40), (200, 128, 72), (256, 128, 128)):
        view = view_of(x, rows, 64)
        assert view is not None
        assert [m.box[1] for m in view.boxes(Ptr("a"), (), 128).fields if isinstance(m, TensorMap)] == boxes


@pytest.mark.parametrize("k", [1000, 4113, 65537])
def test_parts_of_k_begin_where_vectors_do(k: int) -> None:
    desc = bp.MatmulDescriptor((16, k), (k, 64), "f32", "f32").canonical()
    split = [tile for tile in Simt().configs(desc, H200) if tile.split_k > 1]
    assert split
    for tile in split:
        each = tile.k_split(k)
        assert each % 64 == 0 and (tile.split_k - 1) * each < k <= tile.split_k * each


def problems() -> list[Any]:
    """With and without scales, a K-major and an N-major b, results that leave by TMA, by warps and straight."""
    found = []
    for m, n, k in ((4096, 4096, 4096), (64, 24, 65536), (136, 264, 4096), (16, 4104, 512)):
        for kind, math in (("bf16", None), ("f32", "tf32"), ("fp8_e4m3", None)):
            for out in ("bf16", "f32"):
                lies = {"b_strides": (1, k)} if kind != "bf16" else {}
                found.append(bp.MatmulDescriptor((m, k), (k, n), kind, kind, math=math, out_element=out, **lies))
        scales = {
            "scale_a_shape": (m, k // 128), "scale_a_strides": (1, m), "scale_b_shape": (k // 128, -(-n // 128)),
            "scale_a_element": "f32", "scale_b_element": "f32",
        }  # fmt: skip
        found.append(bp.MatmulDescriptor((m, k), (k, n), "fp8_e4m3", "fp8_e4m3", b_strides=(1, k), **scales))
    return [desc.canonical() for desc in found]


def test_what_wgmma_lays_out_in_shared_memory_fits() -> None:
    """kernels/gemm/wgmma.cu's StageBuffers and what follows it, from the template arguments: stages, buffers or mail, 16
    bytes of barriers a stage and one more, scales from 512 bytes behind these on."""
    seen = 0
    for desc in problems():
        for tile in Wgmma().configs(desc, H200):
            gemm = swapped_ab(desc, tile)
            for step in launches(desc, H200, tile):
                found = re.search(
                    r"gemm<\w+, (\d+), (\d+), \d+, (\d+), (\d+), \d+, (\d+), (\d+), \w+, (\w+)", step.kernel.entry
                )
                assert found is not None
                bm, bn, consumers, stages, split, resident = (int(x) for x in found.groups()[:-1])
                b_rows = -(-bn // 64) * 64 if found[7] == "true" else bn
                in_flight = stages * (bm + b_rows) * K_BLOCK
                staged = consumers * staged_bytes(
                    epilogue_store_of(gemm.out, gemm.m, gemm.n), gemm.out.itemsize, bn // split
                )
                mail = bm * bn * 4 // split * (split - 1)
                barriers = in_flight + staged if split == 1 else max(in_flight, mail + staged)
                behind = 512 + stages * bm * 4 if gemm.blocked else stages * 16 + 8
                assert barriers + behind <= step.shared_bytes <= CTA_SHARED, str(tile)
                assert resident * (step.shared_bytes + OF_EACH) <= SM_SHARED, str(tile)
                seen += 1
    assert seen > 500
