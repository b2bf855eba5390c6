"""wgmma: how results leave, rings that cannot hang, and results of any extent in rows that TMA could take, on the device."""

from __future__ import annotations

import itertools
import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.ops.gemm._wgmma.launch import launches
from baracuda_py.ops.gemm._wgmma.tile import Tile
from baracuda_py.ops.gemm._wgmma.tma import staged_bytes
from baracuda_py.ops.gemm._wgmma.wgmma import Wgmma
from baracuda_py.plan import get_op
from baracuda_py.plan.about.tune import admissible
from baracuda_py.runtime.gpu.device import spec_of
from baracuda_py.runtime.steps import Launch, Packed, Struct, TensorMap
from baracuda_py.samples import Sample
from baracuda_py.samples.sample import values
from baracuda_py.types import DeviceSpec, ElementKind, PlanPreference

from ...gauntlet import Part, Problem, graph, in_parts, named, served, warm

COVERS = ("matmul",)
H200 = DeviceSpec.named("h200")
SIZES = (1, 2, 3, 8, 9, 33, 72, 73)


def launched(tile: Tile, m: int, n: int, k: int, kind: str = "bf16", **fields: Any) -> tuple[str, TensorMap | None]:
    """How the result of a product with that tile leaves, and through what tensor map."""
    desc = bp.MatmulDescriptor((m, k), (k, n), kind, kind, b_strides=(1, k), **fields).canonical()
    (step,) = launches(desc, H200, tile)
    store = re.search(r"DIRECT|(TMA|WARP)_(ROW|COLUMN)", step.kernel.entry)
    assert store is not None
    a, _, out = step.args[:3]
    assert isinstance(a, Struct) and isinstance(out, TensorMap)
    return store[0], None if out == a.fields[0] else out


@pytest.mark.parametrize("out", [bp.BF16, bp.F32], ids=str)
@pytest.mark.parametrize("n", SIZES)
def test_tma_stores_only_lines_of_whole_16_bytes(n: int, out: ElementKind) -> None:
    """It clips what it stores at 16 bytes: of 9 bf16 that begin on such multiples, 7 behind the end were zeros."""
    itemsize = out.bits // 8
    for pitch in (n, -(-n // 8) * 8, -(-n // 8) * 8 + 8):
        store, box = launched(Tile(128, 128), 64, n, 64, out_element=out, out_strides=(pitch, 1))
        assert store == ("TMA_ROW" if n * itemsize % 16 == 0 and pitch * itemsize % 16 == 0 else "WARP_ROW")
        assert (box is not None) == (store == "TMA_ROW")
        if box is not None:
            assert box.shape[0] * itemsize % 16 == 0 and box.box[0] * itemsize <= 128


@pytest.mark.parametrize("m", SIZES)
def test_nor_columns_that_end_between(m: int) -> None:
    for tile in (Tile(128, 128), Tile(128, 128, transposed=True)):
        store, _ = launched(tile, m, 64, 64, out_strides=(1, -(-m // 8) * 8))
        lies = "ROW" if m > 1 and not tile.transposed else "COLUMN"
        if m > 1:  # a single row is in row order
            assert store == f"{'TMA' if m * 2 % 16 == 0 else 'WARP'}_{lies}"


@pytest.mark.parametrize(
    ("kind", "math"), [("bf16", None), ("f32", "tf32"), ("fp8_e4m3", None), ("fp8_e5m2", "fp8_fast")]
)
def test_f32_results_leave_in_rows_through_shared_memory(kind: str, math: Any) -> None:
    def leaves(tile: Tile, **fields: Any) -> tuple[str, TensorMap | None]:
        return launched(tile, 512, 512, 512, kind, math=math, out_element="f32", **fields)

    for bn, width in ((128, 32), (96, 32), (16, 16)):
        store, box = leaves(Tile(64, bn))
        assert store == "TMA_ROW" and box is not None
        assert (box.dtype, box.box, box.swizzle) == ("float32", (width, 64), width * 4)
    assert leaves(Tile(128, 128), out_strides=(516, 1))[0] == "TMA_ROW"
    assert leaves(Tile(128, 128), out_strides=(514, 1))[0] == "WARP_ROW"
    assert leaves(Tile(128, 128, transposed=True))[0] == "DIRECT"  # in columns of the product that is computed


@pytest.mark.parametrize(("kind", "math"), [("bf16", None), ("f32", "tf32"), ("fp8_e4m3", None)])
@pytest.mark.parametrize("out", ["bf16", "f32"])
def test_every_pipeline_has_two_stages_and_fits(kind: str, math: Any, out: str) -> None:
    """A stage is released once the next is being multiplied: a pipeline of one would wait for ever."""
    for m, n, k in ((256, 128, 8192), (256, 512, 8192), (4096, 4096, 4096), (64, 24, 65536)):
        strides = {} if kind == "bf16" else {"b_strides": (1, k)}
        desc = bp.MatmulDescriptor((m, k), (k, n), kind, kind, math=math, out_element=out, **strides).canonical()
        tiles = list(Wgmma().configs(desc, H200))
        assert tiles
        for tile in tiles:
            for step in launches(desc, H200, tile):
                assert stages_of(step) >= 2, str(tile)
                assert step.shared_bytes <= H200.shared_bytes


@pytest.mark.parametrize(
    ("out", "columns", "expected"),
    [("bf16", 16, 2048), ("bf16", 32, 4096), ("bf16", 64, 8192), ("bf16", 96, 2 * 4096), ("bf16", 256, 2 * 8192),
     ("f32", 16, 4096), ("f32", 32, 8192), ("f32", 64, 2 * 8192)],
)  # fmt: skip
def test_a_warpgroup_stages_two_parts_of_its_result_at_most(out: str, columns: int, expected: int) -> None:
    assert staged_bytes("TMA_ROW", bp.ElementKind.of(out).bits // 8, columns) == expected
    assert expected % 1024 == 0  # what follows begins where a swizzle does


def stages_of(step: Launch) -> int:
    return int(step.kernel.entry.split(", ")[5])


def in_blocks(m: int, n: int, k: int, batch: tuple[int, ...] = (), **fields: Any) -> Any:
    """fp8 with scales by blocks, those of a with M innermost."""
    a, b = ((*batch, m, k), (*batch, k, n))
    strides = {"b_strides": (*(n * k for _ in batch), 1, k), "scale_a_strides": (1, -(-m // 4) * 4)}
    scales = {"scale_a_shape": (m, -(-k // 128)), "scale_b_shape": (-(-k // 128), -(-n // 128))}
    elements = {"out_element": "bf16", "scale_a_element": "f32", "scale_b_element": "f32"}
    return bp.MatmulDescriptor(a, b, "fp8_e4m3", "fp8_e4m3", **(strides | scales | elements | fields)).canonical()


@pytest.mark.parametrize(
    ("shape", "marks"),
    [
        ((1024, 4224, 4096), {"cluster=2"}),
        ((136, 264, 4096), {"split_k=2", "split_k=4", "split_k=8"}),
        ((8192, 8192, 8192), {"split_last_wave=8"}),
    ],
)
def test_block_scales_have_their_place_in_a_stage(shape: tuple[int, int, int], marks: set[str]) -> None:
    m, n, k = shape
    plain = bp.MatmulDescriptor(
        (m, k), (k, n), "fp8_e4m3", "fp8_e4m3", out_element="bf16", b_strides=(1, k)
    ).canonical()
    blocked = in_blocks(m, n, k)
    tiles = list(Wgmma().configs(blocked, H200))
    assert marks <= {mark for tile in tiles for mark in str(tile).split()}
    for tile in tiles:
        for without, having in zip(launches(plain, H200, tile), launches(blocked, H200, tile), strict=True):
            stages = stages_of(having)
            assert 2 <= stages <= stages_of(without) and having.shared_bytes <= H200.shared_bytes
            if stages == stages_of(without):  # a float a row of the tile
                assert having.shared_bytes - without.shared_bytes == stages * tile.bm * 4


@pytest.mark.parametrize(
    ("batch", "shape", "flags"),
    [
        ((), (96, 4), (0, 0, 0)),
        ((6,), (96, 4), (0, 0, 0)),
        ((6,), (6, 96, 4), (0, 0, 1)),
        ((2, 3), (2, 1, 96, 4), (0, 1, 0)),
    ],
)
def test_scales_that_a_batch_shares_are_not_stepped_along_it(batch: Any, shape: Any, flags: Any) -> None:
    steps = tuple(96 * 4 if extent > 1 else 0 for extent in shape[:-2])
    desc = in_blocks(96, 80, 512, batch, scale_a_shape=shape, scale_a_strides=(*steps, 1, 96))
    (step, *_) = launches(desc, H200, next(iter(Wgmma().configs(desc, H200))))
    scales = step.args[-1]
    assert isinstance(scales, Struct) and isinstance(scales.fields[0], TensorMap)
    of_a, *_, batched = scales.fields
    assert isinstance(of_a, TensorMap) and isinstance(batched, Packed)
    assert struct.unpack("<3I", batched.data) == flags
    axes = (1, 1, 1, *batch)[-3:]
    walked = tuple(extent if flag else 1 for extent, flag in zip(axes, flags))[::-1]
    assert of_a.shape == (96, 4, *(walked if batch else ()))


def visited(step: Launch, tile: Tile) -> Counter[tuple[int, int, int]]:
    """How often a launch's CTAs of `tile` compute each tile: matrix, row and column, from the raster it packs. Mirrors
    kernels/include/products/raster.cuh."""
    order = next(x.data for x in step.args if isinstance(x, Packed) and len(x.data) == 20 + 8)
    rows, cols, band, begin, end = struct.unpack_from("<5I", order)
    found: Counter[tuple[int, int, int]] = Counter()
    for i in range(begin, end):
        matrix, at = divmod(i, rows * cols)
        first = at // (band * cols) * band
        height, within = min(band, rows - first), at - first * cols
        row = first + within % height
        found.update((matrix, row * tile.cluster + above, within // height) for above in range(tile.cluster))
    return found


@pytest.mark.parametrize(("m", "n", "batch"), [(2200, 4488, ()), (8192, 8192, ()), (700, 3000, (3,)), (1, 65536, ())])
def test_split_last_wave_covers_every_tile_once(m: int, n: int, batch: tuple[int, ...]) -> None:
    desc = bp.MatmulDescriptor((*batch, m, 4096), (*batch, 4096, n), "bf16", "bf16").canonical()
    tails = [tile for tile in Wgmma().configs(desc, H200) if tile.split_last_wave > 1]
    assert tails
    for tile in tails:
        gemm = desc.gemm.swapped if tile.transposed else desc.gemm
        (whole,) = launches(desc, H200, replace(tile, split_last_wave=1))
        waves, rest = launches(desc, H200, tile)
        before, last = visited(waves, tile), visited(rest, tile.of_last_wave)
        assert before + last == visited(whole, tile) and set((before + last).values()) == {1}
        rows = -(-gemm.m // (tile.bm * tile.cluster)) * tile.cluster
        assert len(before) + len(last) == gemm.batches * rows * -(-gemm.n // tile.bn)
        assert waves.grid[0] == whole.grid[0] and len(before) % waves.grid[0] == 0  # whole waves
        assert rest.grid[0] == len(last) * tile.split_last_wave <= 132


def test_what_a_split_last_wave_promises() -> None:
    desc = bp.MatmulDescriptor((8192, 8192), (8192, 8192), "bf16", "bf16").canonical()
    for tile in (t for t in Wgmma().configs(desc, H200) if t.split_last_wave > 1):
        split, whole = (Wgmma().guarantee(desc, H200, t) for t in (tile, replace(tile, split_last_wave=1)))
        assert whole.batch_invariant and split.deterministic and not split.batch_invariant
        assert isinstance(split.bound, bp.Componentwise) and isinstance(whole.bound, bp.Componentwise)
        assert split.bound.terms[0].coefficient == whole.bound.terms[0].coefficient + tile.split_last_wave - 1


def test_the_widest_tiles_in_clusters_leave_by_rows_only() -> None:
    desc = bp.MatmulDescriptor((4096, 4096), (4096, 4096), "bf16", "bf16").canonical()
    names = {str(tile) for tile in Wgmma().configs(desc, H200)}
    assert {"128x256 cluster=2", "256x128 cluster=2", "256x128 transposed"} <= names and not {
        "128x256 cluster=2 transposed",
        "256x128 cluster=2 transposed",
    } & names


# ---- on the device ---------------------------------------------------------------------------------------------------


def plans_of(problem: Problem) -> list[Any]:
    """Every configuration of wgmma for it."""
    return admissible(bp.MatmulPlan, problem.desc, PlanPreference(variant="wgmma"), spec_of(None))


def serve(*taken: tuple[Problem, list[Any]]) -> None:
    """Every problem by each of its plans, of which there are some."""
    assert any(plans for _, plans in taken)
    warm([plan for _, plans in taken for plan in plans])
    for problem, plans in taken:
        with named(problem.sample.label):
            served(problem, plans)


def small(kind: ElementKind, out: ElementKind, m: int, n: int, columns: bool) -> Problem:
    """A product into a view whose lines begin on multiples of 16 bytes, wider than they are long."""
    k = 96
    rng = np.random.default_rng([m, n])
    a, b = (values(rng, shape, bp.F32, 1.0).astype(kind.dtype) for shape in ((m, k), (n, k)))
    rows, cols = (n, m) if columns else (m, n)
    whole = np.zeros((rows, -(-cols // 16) * 16 + 16), out.dtype)[:, :cols]
    operands = {"a": a, "b": b.T, "out": whole.T if columns else whole}
    options = {"math": "tf32"} if kind is bp.F32 else {}
    return Problem(get_op("matmul"), Sample(f"{kind} {out} {m}x{n} {columns}", operands, options), "cuda")


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("out", [bp.BF16, bp.F32], ids=str)
@pytest.mark.parametrize("kind", [bp.BF16, bp.F32, bp.FP8_E4M3], ids=str)
def test_wgmma_writes_nothing_past_the_end_of_a_line(kind: ElementKind, out: ElementKind, everything: bool) -> None:
    """The bytes between lines are as they were, in rows and in columns, with the cheapest tiles (with --all every one)."""
    taken = []
    for m, n, columns in itertools.product(SIZES, SIZES, (False, True)):
        problem = small(kind, out, m, n, columns)
        taken.append((problem, plans_of(problem)[: None if everything else 3]))
    assert all(plans for _, plans in taken)
    warm([plan for _, plans in taken for plan in plans])
    for problem, plans in taken:
        for plan in plans:
            with named(f"{problem.sample.label} {plan.sku}"):
                problem.reset()
                plan.run(**problem.operands)
                problem.check_images(problem.images(), plan)


F32_RESULTS = ((333, 420, 592), (200, 419, 592), (136, 264, 4112))  # M, N, K: by TMA, by warps, K in parts


def size_of(config: Any) -> str:
    """A tile's size, and whether the transposed product is computed."""
    words = str(config).split()
    return f"{words[0]}-transposed" if "transposed" in words else words[0]


def sizes() -> Iterator[tuple[ElementKind, str]]:
    """The element and size of every tile that gives f32 results."""
    for kind in (bp.BF16, bp.F32, bp.FP8_E4M3):
        found, math = set(), "tf32" if kind is bp.F32 else None
        for m, n, k in F32_RESULTS:
            desc = bp.MatmulDescriptor((m, k), (k, n), kind, kind, math=math, out_element="f32", b_strides=(1, k))  # type: ignore[arg-type]
            found |= {size_of(tile) for tile in Wgmma().configs(desc.canonical(), H200)}
        yield from ((kind, size) for size in sorted(found))


SIZES_OF_TILES = list(sizes())


@lru_cache(maxsize=1)
def f32_results(kind: ElementKind) -> list[Problem]:
    """Plain and with addends of every type; the sizes' tests share them."""
    rng, problems = np.random.default_rng(0), []
    options: dict[str, Any] = {"out_dtype": "f32"} | ({"math": "tf32"} if kind is bp.F32 else {})
    for m, n, k in F32_RESULTS:
        a, b = (values(rng, shape, bp.F32, 1.0).astype(kind.dtype) for shape in ((m, k), (n, k)))
        operands = {"a": a, "b": b.T}
        addends = {"bias": values(rng, (n,), bp.F32, 1.0), "residual": values(rng, (m, n), bp.F32, 1.0)}
        for given, more in ((operands, {}), (operands | addends, {"activation": "gelu", "alpha": 0.5})):
            problems.append(Problem(get_op("matmul"), Sample(f"{kind} {m}x{n}x{k}", given, options | more), "cuda"))
    return problems


@pytest.mark.gpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "size"), SIZES_OF_TILES, ids=str)
def test_wgmma_f32_result_of_every_tile(kind: ElementKind, size: str) -> None:
    """All tiles of a size, by TMA and by warps, plain and with addends of every type, K whole and in parts."""
    serve(*((x, [plan for plan in plans_of(x) if size_of(plan.sku.config) == size]) for x in f32_results(kind)))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [bp.BF16, bp.F32, bp.FP8_E4M3], ids=str)
def test_no_size_of_tile_is_left_out(kind: ElementKind) -> None:
    served = [plans_of(problem) for problem in f32_results(kind)]
    assert all(served)
    found = {size_of(plan.sku.config) for plans in served for plan in plans}
    assert found == {size for of, size in SIZES_OF_TILES if of is kind}


def with_block_scales(
    batch: tuple[int, ...], m: int, n: int, k: int, out: str, of_batch: tuple[int, ...] | None = None
) -> Problem:
    """fp8, the scales of a (of the batch, or of `of_batch`) with M innermost and a pitch of a multiple of 16 bytes, those of b
    for all of the batch."""
    rng = np.random.default_rng([m, n, k])
    blocks, pitch, lead = -(-k // 128), -(-m // 4) * 4, batch if of_batch is None else of_batch
    a, b = (values(rng, (*batch, *s), bp.F32, 1.0).astype(bp.FP8_E4M3.dtype) for s in ((m, k), (n, k)))
    of_a, of_b = (
        rng.uniform(0.25, 4.0, s).astype(np.float32) for s in ((*lead, blocks, pitch), (blocks, -(-n // 128)))
    )
    given = {"a": a, "b": b.swapaxes(-1, -2), "scale_a": of_a[..., :m].swapaxes(-1, -2), "scale_b": of_b}
    return Problem(get_op("matmul"), Sample(f"blocks {m}x{n}x{k}", given, {"out_dtype": out}), "cuda")


IN_BLOCKS: dict[str, tuple[Any, ...]] = {
    "K that ends within a block": ((), 333, 420, 592, "f32"),
    "K in parts": ((2,), 130, 136, 4112, "f32"),
    "last wave": ((), 2060, 2040, 4112, "f32"),
    "bf16": ((), 136, 264, 2048, "bf16"),
    "batch": ((2, 3), 70, 136, 640, "f32", ()),
    "batch of which part shares scales": ((2, 3), 70, 136, 640, "f32", (2, 1)),
}
blocks_of = lru_cache(maxsize=1)(with_block_scales)


@pytest.mark.gpu
@pytest.mark.timeout(600)
@in_parts(2)
@pytest.mark.parametrize("name", IN_BLOCKS)
def test_every_tile_with_scales_by_blocks(name: str, part: Part) -> None:
    """K whole, in parts, and in parts for the last wave; a K that ends within a block; in a batch that shares b's scales."""
    problem = blocks_of(*IN_BLOCKS[name])
    serve((problem, part.of(plans_of(problem))))


@pytest.mark.gpu
def test_scales_by_blocks_go_with_every_sort_of_tile() -> None:
    configs = [plan.sku.config for given in IN_BLOCKS.values() for plan in plans_of(with_block_scales(*given))]
    marks = {mark for config in configs for mark in config.split()}
    assert marks >= {"cluster=2", "split_k=2", "split_k=4", "split_k=8", "split_last_wave=8"}


def split_last_waves(problem: Problem) -> list[Any]:
    return [plan for plan in plans_of(problem) if "split_last_wave" in plan.sku.config]


def waves(kind: ElementKind, shape: tuple[Any, ...], rows: bool = False, **options: Any) -> Problem:
    """A product of more than two waves, b in columns or in rows."""
    batch, m, n, k = shape
    rng = np.random.default_rng([m, n])
    a, b = (values(rng, (*batch, *s), bp.F32, 1.0).astype(kind.dtype) for s in ((m, k), (n, k)))
    given = {"a": a, "b": np.ascontiguousarray(b.swapaxes(-1, -2)) if rows else b.swapaxes(-1, -2)}
    if "activation" in options:
        given |= {"bias": values(rng, (n,), bp.F32, 1.0), "residual": values(rng, (*batch, m, n), bp.F32, 1.0)}
    return Problem(get_op("matmul"), Sample(f"{kind} {m}x{n}x{k} {options}", given, options), "cuda")


waves_of = lru_cache(maxsize=1)(waves)
WAVES = {"wide": ((), 1060, 4168, 1040), "batch": ((3,), 700, 3001, 1040), "deep": ((), 2060, 2040, 4112)}
WAVES_OF = (bp.BF16, bp.FP8_E4M3)


@pytest.mark.gpu
@pytest.mark.timeout(600)
@in_parts(2)
@pytest.mark.parametrize("name", WAVES)
@pytest.mark.parametrize("kind", WAVES_OF, ids=str)
def test_every_last_wave_that_splits_k(kind: ElementKind, name: str, part: Part) -> None:
    """Alone and in a batch, with odd edges and odd numbers of tile rows."""
    problem = waves_of(kind, WAVES[name])
    serve((problem, part.of(split_last_waves(problem))))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", WAVES_OF, ids=str)
def test_last_waves_split_k_in_2_4_and_8(kind: ElementKind) -> None:
    configs = [plan.sku.config for shape in WAVES.values() for plan in split_last_waves(waves(kind, shape))]
    assert {re.sub(r".*split_last_wave=(\d).*", r"\1", config) for config in configs} == {"2", "4", "8"}


FINISHED = {"rows": True, "out_dtype": "f32", "activation": "gelu", "alpha": 0.5}
OTHER_WAVES: dict[str, tuple[ElementKind, Any, dict[str, Any]]] = {
    "rows of b, wide": (bp.BF16, WAVES["wide"], FINISHED),
    "rows of b, batch": (bp.BF16, ((3,), 700, 3000, 1040), FINISHED),
    "rows of b, deep": (bp.BF16, WAVES["deep"], FINISHED),
    "tf32": (bp.F32, WAVES["batch"], {"math": "tf32"}),
    "fp8_fast": (bp.FP8_E5M2, WAVES["deep"], {"math": "fp8_fast", "out_dtype": "f32"}),
}


@pytest.mark.gpu
@pytest.mark.timeout(600)
@in_parts(3)
@pytest.mark.parametrize("name", OTHER_WAVES)
def test_split_last_waves_with_epilogues_and_in_other_layouts(name: str, part: Part) -> None:
    """And captured."""
    kind, shape, options = OTHER_WAVES[name]
    problem = waves_of(kind, shape, **options)
    plans = split_last_waves(problem)
    serve((problem, part.of(plans)))
    if part.first:
        problem.plan = plans[0]
        assert problem.plan.capture_safe
        problem.reset()
        with named(problem.sample.label):
            graph(problem)
