"""wgmma: Hopper's warpgroup tensor cores fed by TMA (kernels/gemm/wgmma.cu), for operands whose rows lie on 16 bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...runtime.steps import Kernel, Launch, Packed, Ptr, Scratch, Step, Struct, TensorMap
from ...types import ArchSku, DeviceSpec, ElementKind, MathPrecision, PrecisionGuarantee
from .._launch import overlapped_overhead
from ._checks import admitted, countable, extent_limit
from ._epilogue import batch_struct, epilogue_args, epilogue_type, scale_args
from ._guarantee import TRUNCATED, guarantee_of, narrow_additions
from ._problem import BATCH_RANK, Gemm, Matrix
from ._scales import BLOCK

__all__ = ["Wgmma"]

SLAB = 128  # bytes of K a stage, one swizzled row
STEP = 32  # bytes of K an instruction
MATHS = (MathPrecision.BF16, MathPrecision.F16, MathPrecision.TF32, MathPrecision.FP8, MathPrecision.FP8_FAST)
# How PTX names the element, and how TMA reads it: TF32 rounds to nearest where the tensor core would truncate.
ELEMENTS = {
    ElementKind.F16: ("f16", "float16"), ElementKind.BF16: ("bf16", "bfloat16"), ElementKind.F32: ("tf32", "tfloat32"),
    ElementKind.FP8_E4M3: ("e4m3", "uint8"), ElementKind.FP8_E5M2: ("e5m2", "uint8"),
}  # fmt: skip
RESULTS = {ElementKind.F16: "float16", ElementKind.BF16: "bfloat16", ElementKind.F32: "float32"}
PART = 128  # bytes of a row of the result that are staged at once
SHARED, RESERVED = 232448, 1024  # bytes a CTA may have, and those that it takes besides
STAGING = 16384  # a consumer
SLACK = 512  # barriers
MOST_STAGES, LEAST_STAGES = 16, 2  # a stage is released one behind
LEAST_WAVES = 2  # before a last one of its own
INDEX_BITS = 31  # of TMA's coordinates

# The cost model, fitted to the sweep of an H200. Cycles, and bytes a cycle:
CORES = 1.03  # of the tensor cores' own time
SHARED_RATE, L2_RATE = 162.0, 47.3
OUTSIDE = 10.4  # a row of a box that lies outside the operand
IN_TURN, TOGETHER = 185.0, 383.0  # what finishing a tile takes, where consumers take turns or share it
PER_ELEMENT, RAGGED = 0.034, 2.65  # of a shared tile of two-byte results, and where it leaves by warps
SENT_RATE = 29.3  # of partial sums within a cluster
DRAIN_RATE = 23.7  # the last tile's result
START, START_PAIR = 307.0, 300.0
HIDDEN, HIDDEN_ALONE = 0.35, 0.48  # of the lesser of computing and moving; where every tile is under way at once
READ_AGAIN = 1.37  # slower where the larger operand is read by CTAs of several clusters
BANDWIDTH = 1.25  # times a copy's: reads alone are faster, and small operands stay in L2
THROTTLE, BEFORE = 0.12, 60e-6  # how much slower power makes what takes much longer than so many seconds


@dataclass(frozen=True)
class Tile:
    """BM x BN of the result, `rows` blocks of 64 a consumer. `cluster` CTAs, one above the other, share B, or `split` CTAs
    share a tile and each sums its part of K. `resident`: CTAs an SM. `tail`: into how many parts K is split for the tiles of
    the last wave, a launch of their own. `swapped`: of the transposed product."""

    bm: int
    bn: int
    rows: int = 1
    consumers: int = 2
    cluster: int = 1
    split: int = 1
    resident: int = 1
    tail: int = 1
    swapped: bool = False

    @property
    def sharers(self) -> int:
        return self.bm // (64 * self.rows)

    @property
    def by_turns(self) -> bool:
        """Whether the consumers take tiles in turn."""
        return self.sharers < self.consumers

    @property
    def of_tail(self) -> Tile:
        """The tile, as large, of which `tail` CTAs each sum a part."""
        return replace(
            self, rows=max(1, self.bm // 128), consumers=min(2, self.bm // 64), cluster=1, split=self.tail, tail=1
        )

    def __str__(self) -> str:
        marks = (
            ("p", self.by_turns),
            (f"c{self.cluster}", self.cluster > 1),
            (f"k{self.split}", self.split > 1),
            (f"r{self.resident}", self.resident > 1),
            (f"+k{self.tail}", self.tail > 1),
            ("T", self.swapped),
        )
        return f"{self.bm}x{self.bn}" + "".join(mark for mark, on in marks if on)


SHAPES = (
    Tile(128, 128, 2), Tile(64, 256),
    *(Tile(128, bn) for bn in (256, 224, 192, 160, 128, 96, 64)), Tile(256, 128, 2),
    *(Tile(64, bn, 1, 1) for bn in (256, 192, 128, 64, 32, 16)),
)  # fmt: skip
TILES = tuple(replace(t, cluster=c) for t in SHAPES for c in (1, 2))
SPLITS = tuple(
    replace(t, split=k)
    for t in (*(Tile(128, bn) for bn in (128, 64, 32)), *(Tile(256, bn, 2) for bn in (128, 64, 32)), Tile(64, 64, 1, 1))
    for k in (2, 4, 8)
    if t.bn // k >= 16  # columns that each of them finishes
)  # fmt: skip
SHORT = (Tile(64, 32, 1, 1, split=2, resident=3), Tile(64, 64, 1, 1, split=2, resident=2))


@dataclass(frozen=True)
class View:
    """How TMA sees a matrix operand: `mn_major` where M (or N) is the contiguous axis."""

    matrix: Matrix
    mn: int  # extent of M or N
    k: int
    mn_major: bool

    def tensor_map(self, of: Ptr | Scratch, batch: tuple[int, ...], box_mn: int) -> TensorMap:
        x = self.matrix
        inner, outer, pitch = (self.mn, self.k, x.col) if self.mn_major else (self.k, self.mn, x.row)
        box = (64, 64) if self.mn_major else (SLAB // x.itemsize, self.rows(box_mn))
        return _tensor_map(x, ELEMENTS[x.element][1], of, inner, outer, pitch, batch, box, 128)

    def rows(self, box_mn: int) -> int:
        """Rows of SLAB bytes that a box of `box_mn` brings: rows outside the operand would take four times as long as others.
        What is left in their place stays in rows or columns that are not written."""
        return -(-box_mn // 64) * 64 if self.mn_major else min(box_mn, self.mn)


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
    """Rank 2, or rank 5 where there is a batch; axes that are not stepped along have extent 1."""
    shape, strides, boxes = [inner, outer], [pitch * x.itemsize if outer > 1 else 16], list(box)
    if batch:
        fill = BATCH_RANK - len(batch)
        for extent, step in list(zip((1,) * fill + batch, (0,) * fill + x.batch))[::-1]:
            shape.append(extent if step else 1)
            strides.append(step * x.itemsize if step else 16)
            boxes.append(1)
    return TensorMap(of, dtype, tuple(shape), tuple(strides), tuple(boxes), swizzle)


def _pitched(x: Matrix, pitch: int, outer: int) -> bool:
    """Whether the lines of `x` and its matrices start on multiples of 16 bytes, upwards."""
    steps = (*((pitch,) if outer > 1 else ()), *x.batch)
    return (
        x.align >= 16
        and all(s >= 0 and s * x.itemsize % 16 == 0 and s * x.itemsize < 1 << 40 for s in steps)
        and (outer == 1 or pitch > 0)
    )


def view_of(x: Matrix, mn: int, k: int) -> View | None:
    """The operand [mn, k] as TMA can take it, or None."""
    if (x.col == 1 or k == 1) and _pitched(x, x.row, mn):
        return View(x, mn, k, False)
    if (x.row == 1 or mn == 1) and _pitched(x, x.col, k):
        return View(x, mn, k, True)
    return None


def either_major(element: ElementKind) -> bool:
    """Whether operands of this type are multiplied from K-major and from MN-major layouts, not from the first alone."""
    return element.bits == 16


def taken(x: Matrix, mn: int, k: int) -> View | None:
    """The operand [mn, k] as wgmma can take it, or None."""
    view = view_of(x, mn, k)
    return view if view is not None and (not view.mn_major or either_major(x.element)) else None


def takes_any_m(gemm: Gemm) -> bool:
    """Whether wgmma or, over copies, wgmma_padded takes the product whatever the number of rows: the same sums in both."""
    return 0 < gemm.k < extent_limit(INDEX_BITS)


@lru_cache(maxsize=256)
def product_text(n: int, a: ElementKind, b: ElementKind, a_transposed: bool, b_transposed: bool) -> str:
    """wgmma(acc, a, b, accumulate): acc += A B, or = where `accumulate` is 0, for m64n{n} and 32 bytes of K of operands in
    shared memory. Only 16-bit types may be transposed."""
    first, second = ELEMENTS[a][0], ELEMENTS[b][0]
    flags = f", {int(a_transposed)}, {int(b_transposed)}" if a.bits == 16 else ""
    count = n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return (
        '#include "dtype.cuh"\n'
        f"__device__ __forceinline__ void wgmma(float (&d)[{count}], u64 a, u64 b, int accumulate) {{\n"
        f'  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'    "wgmma.mma_async.sync.aligned.m64n{n}k{STEP * 8 // a.bits}.f32.{first}.{second} {{{registers}}}, '
        f'%{count}, %{count + 1}, p, 1, 1{flags}; }}"\n'
        f'    : {outputs} : "l"(a), "l"(b), "r"(accumulate));\n}}\n'
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"


class Wgmma(Candidate[Any]):
    variant = "wgmma"

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        gemm: Gemm = desc.gemm
        if not (admissible := admitted(desc, self.variant, MATHS)):
            return admissible
        if device.tier is not ArchSku.SM90A:
            return no("warpgroup instructions exist on sm_90a only", 'device="sm_90a"')
        if gemm.k == 0:
            return no("there is nothing to multiply (K = 0)")
        if not (counted := countable(gemm, INDEX_BITS)):
            return counted
        for x, mn, k in ((gemm.a, gemm.m, gemm.k), (gemm.b.mT, gemm.n, gemm.k)):
            if taken(x, mn, k) is not None:
                continue
            if view_of(x, mn, k) is not None:
                return no(
                    f"{x.operand} is not contiguous along K, and only 16-bit elements are multiplied from other layouts",
                    f"contiguize {x.operand} with K innermost",
                )
            return no(
                f"{x.operand}'s rows or columns do not lie on multiples of 16 bytes with unit steps along them "
                f"(steps {x.row}, {x.col}, alignment {x.align})",
                f"pad {x.operand}'s leading dimension to a multiple of {16 // x.itemsize} elements",
            )
        if gemm.blocked and any(x.operand != name[-1] for name, x in (("scale_a", gemm.a), ("scale_b", gemm.b))):
            return no("the scales of 128 x 128 blocks go with the result's columns", "a row-major out")
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterator[Tile]:
        for tile in (replace(t, swapped=s) for t in (*TILES, *SPLITS, *SHORT) for s in (False, True)):
            gemm = _oriented(desc, tile)
            if _promoted(desc) and (tile.rows > 1 or tile.bn > 128):
                continue  # the sums of two slabs need as many registers again, each
            if gemm.blocked and (tile.swapped or tile.split > 1 or BLOCK % tile.bn):
                continue
            b = view_of(gemm.b.mT, gemm.n, gemm.k)
            assert b is not None
            if tile.cluster > 1 and gemm.n <= tile.bn // tile.cluster:
                continue  # one of them would bring nothing of B
            parts = tile.bn // 64 if b.mn_major else tile.bn // 8  # of B, that the CTAs of a cluster may share out
            widest = tile.bn == 256 or (tile.bm, tile.bn) == (256, 128)
            if tile.cluster > 1 and widest and (tile.swapped or gemm.a.itemsize == 1):
                continue  # the widest tiles have no registers to spare: for stores by columns, or with fp8
            if tile.cluster > 1 and (parts % tile.cluster or (b.mn_major and tile.bn % 64) or gemm.m <= tile.bm):
                continue
            if tile.split > 1 and (_slabs(gemm) < 4 * tile.split or _tiles(gemm, tile) > _clusters(device, tile)):
                continue
            if _ring(gemm, tile)[0] < LEAST_STAGES:
                continue
            yield tile
            if tail := _tail(gemm, tile, device):
                yield replace(tile, tail=tail)

    def cost(self, desc: Any, device: DeviceSpec, config: Tile) -> Cost:
        gemm = _oriented(desc, config)
        clock = device.rate("issue") / (device.sms * 128)
        whole, rest = divmod(_tiles(gemm, config), _clusters(device, config))
        if config.tail > 1:
            cycles, limit = _cycles(gemm, config, whole, device)
            cycles += _cycles(gemm, config.of_tail, 1, device)[0]
        else:
            cycles, limit = _cycles(gemm, config, whole + (rest > 0), device)
        compute = cycles / clock
        compute *= 1 + THROTTLE * compute / (compute + BEFORE)
        memory = gemm.nbytes / (device.bandwidth * BANDWIDTH)
        if (gemm.n > config.bn) if gemm.m >= gemm.n else (gemm.m > config.bm * config.cluster):
            memory *= READ_AGAIN
        visible = 1 - (HIDDEN_ALONE if whole + (rest > 0) == 1 else HIDDEN)
        seconds = max(compute, memory) + visible * min(compute, memory)
        seconds += overlapped_overhead(device) * (1 + (config.tail > 1))
        return Cost(gemm.nbytes, gemm.flops, seconds, "bandwidth" if memory > compute else limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Tile) -> PrecisionGuarantee:
        # Every tile sums instruction by instruction in order, so a row's result is the same whatever the tile, unless K is
        # split.
        k = desc.gemm.k
        eight = desc.gemm.a.element.bits == 8
        return guarantee_of(
            desc,
            desc.precision,
            narrow_additions(k, SLAB if _promoted(desc) else k) if eight else k,
            each=TRUNCATED,
            splits=max(config.split, config.tail),
            batch_invariant=config.split == config.tail == 1 and takes_any_m(desc.gemm),
        )

    def lower(self, desc: Any, device: DeviceSpec, config: Tile) -> tuple[Step, ...]:
        return launches(desc, device, config)


def _cycles(gemm: Gemm, tile: Tile, waves: int, device: DeviceSpec) -> tuple[float, str]:
    """What `waves` of tiles take, and what limits them: every slab of K takes the tensor cores, shared memory and L2 of an SM
    some cycles, and every tile and launch adds some."""
    beside = min(tile.resident, -(-_tiles(gemm, tile) * tile.split // device.sms))
    slabs = _slabs(gemm) / tile.split
    staged = (tile.bm + tile.bn) * SLAB
    read = tile.bm // 64 * (SLAB // STEP) * (64 + tile.bn) * STEP  # every instruction reads its operands
    outside = max(0, min(tile.bn - gemm.n, tile.bn // tile.cluster)) if tile.cluster > 1 else 0
    limits = {
        "tensor cores": tile.bm * tile.bn / 32 * CORES,
        "shared memory": (staged + read) / SHARED_RATE,
        "L2": (tile.bm + tile.bn / tile.cluster) * SLAB / L2_RATE + outside * OUTSIDE,
    }
    limit = max(limits, key=lambda name: limits[name])
    area = tile.bm * tile.bn
    sent = area * 4 * (tile.split - 1) / tile.split
    leaving = PER_ELEMENT * gemm.out.itemsize / 2 * (RAGGED if _leave(gemm).endswith("WARPS") else 1.0)
    finish = IN_TURN if tile.by_turns else TOGETHER + area * leaving
    each = slabs * limits[limit] * beside + finish + sent / SENT_RATE
    last = area * gemm.out.itemsize / tile.split / DRAIN_RATE
    return waves * each + last + START + START_PAIR * (tile.cluster - 1), limit


def _promoted(desc: Any) -> bool:
    """Whether the sums of each slab are added up in f32."""
    return bool(desc.precision is MathPrecision.FP8)


def _slabs(gemm: Gemm) -> int:
    return -(-gemm.k * gemm.a.itemsize // SLAB)


def _sums(gemm: Gemm, desc: Any) -> tuple[str, Struct]:
    """How slabs are summed: the C++ type and its struct. Mirrors kernels/include/sums.cuh."""
    if gemm.blocked:
        return "BlockScaled", Struct(scale_args(gemm))
    return "Promoted" if _promoted(desc) else "Accumulated", Struct((Packed(bytes(1), 1),))


def _oriented(desc: Any, tile: Tile) -> Gemm:
    gemm: Gemm = desc.gemm
    return gemm.swapped if tile.swapped else gemm


def _tiles(gemm: Gemm, tile: Tile) -> int:
    """Tiles, those of a cluster counted as one."""
    return -(-gemm.m // (tile.bm * tile.cluster)) * -(-gemm.n // tile.bn) * gemm.batches


def _clusters(device: DeviceSpec, tile: Tile) -> int:
    """Clusters that run at once. Those of four and more leave SMs of some GPCs idle: about one in seven on an H200."""
    together = tile.cluster * tile.split
    return (device.sms if together <= 2 else device.sms * 6 // 7) * tile.resident // together


def _tail(gemm: Gemm, tile: Tile, device: DeviceSpec) -> int:
    """Into how many parts K can be split for the tiles of the last wave, so that all SMs work on them; 0 where it does not pay
    to try."""
    whole, rest = divmod(_tiles(gemm, tile), _clusters(device, tile))
    if tile.split > 1 or gemm.blocked or whole < LEAST_WAVES or not rest:
        return 0
    for parts in (8, 4, 2):
        split = replace(tile, tail=parts).of_tail
        if tile.bn // parts > (32 if tile.bm == 64 else 96):
            continue  # no registers for a second share of the sums
        fits = tile.bn % (parts * 16) == 0 and _slabs(gemm) >= 4 * parts and _ring(gemm, split)[0] >= LEAST_STAGES
        if fits and rest * tile.cluster <= _clusters(device, split):
            return parts
    return 0


def _leave(gemm: Gemm) -> str:
    """How the result leaves: in rows (16-bit also in columns) through shared memory, by TMA if these lie on multiples of 16
    bytes and are such multiples long (TMA clips a store there, not at an element), and else by warps."""
    out = gemm.out
    if out.col != 1 and (out.row != 1 or out.itemsize != 2):
        return "STRAIGHT"
    lies, pitch, outer, inner = (
        ("ROWS", out.row, gemm.m, gemm.n) if out.col == 1 else ("COLUMNS", out.col, gemm.n, gemm.m)
    )
    whole = inner * out.itemsize % 16 == 0 and _pitched(out, pitch, outer) and all(s > 0 for s in out.batch)
    return f"{lies}_BY_{'TMA' if whole else 'WARPS'}"


def _ring(gemm: Gemm, tile: Tile) -> tuple[int, int]:
    """Stages, and the bytes of shared memory in all."""
    b = view_of(gemm.b.mT, gemm.n, gemm.k)
    assert b is not None
    stage = (tile.bm + (-(-tile.bn // 64) * 64 if b.mn_major else tile.bn)) * SLAB
    stage += tile.bm * 4 + 16 if gemm.blocked else 0  # its scales: sums.cuh's STAGED
    staged = 0 if _leave(gemm) == "STRAIGHT" else STAGING * tile.consumers
    room = ((SHARED + RESERVED) // tile.resident - RESERVED) // 128 * 128 - SLACK
    if tile.split == 1:
        stages = min(MOST_STAGES, (room - staged) // stage)
        return stages, stages * stage + staged + SLACK
    mail = tile.bm * tile.bn * 4 * (tile.split - 1) // tile.split
    stages = min(MOST_STAGES, room // stage) if mail + staged <= room else 0
    return stages, max(stages * stage, mail + staged) + SLACK


def _out_map(gemm: Gemm, tile: Tile, leave: str) -> TensorMap | None:
    out, dtype, ptr = gemm.out, RESULTS[gemm.out.element], Ptr(gemm.out.operand)
    width = next(w for w in (64, 32, 16) if w * out.itemsize <= PART and tile.bn // tile.split % w == 0)
    if leave == "ROWS_BY_TMA":
        swizzle = width * out.itemsize
        return _tensor_map(out, dtype, ptr, gemm.n, gemm.m, out.row, gemm.batch, (width, 64), swizzle)
    if leave == "COLUMNS_BY_TMA":
        return _tensor_map(out, dtype, ptr, gemm.m, gemm.n, out.col, gemm.batch, (64, width), PART)
    return None


def launches(desc: Any, device: DeviceSpec, tile: Tile) -> tuple[Launch, ...]:
    gemm = _oriented(desc, tile)
    raster = Raster.of(gemm, tile, device)
    if tile.tail == 1:
        return (_launch(desc, gemm, tile, raster, device),)
    at_once = _clusters(device, tile)
    raster, last = raster.cut(raster.end // at_once * at_once)
    return _launch(desc, gemm, tile, raster, device), _launch(
        desc, gemm, tile.of_tail, last.apart(tile.cluster), device
    )


@dataclass(frozen=True)
class Raster:
    """The order of tiles, those of a cluster counted as one, and the running numbers of those to do: raster.cuh's Raster."""

    rows: int
    cols: int
    band: int
    begin: int
    end: int

    @classmethod
    def of(cls, gemm: Gemm, tile: Tile, device: DeviceSpec) -> Raster:
        rows, cols = -(-gemm.m // (tile.bm * tile.cluster)), -(-gemm.n // tile.bn)
        return cls(rows, cols, _band(rows, cols, tile, device), 0, rows * cols * gemm.batches)

    def cut(self, at: int) -> tuple[Raster, Raster]:
        return replace(self, end=at), replace(self, begin=at)

    def apart(self, n: int) -> Raster:
        """The same work where the `n` tiles of a cluster, one above the other, count as so many."""
        return Raster(self.rows * n, self.cols, self.band * n, self.begin * n, self.end * n)


def _launch(desc: Any, gemm: Gemm, tile: Tile, raster: Raster, device: DeviceSpec) -> Launch:
    a, b = view_of(gemm.a, gemm.m, gemm.k), view_of(gemm.b.mT, gemm.n, gemm.k)
    assert a is not None and b is not None
    a_map = a.tensor_map(Ptr(gemm.a.operand), gemm.batch, tile.bm)
    leave = _leave(gemm)
    out_map = _out_map(gemm, tile, leave)
    stages, shared_bytes = _ring(gemm, tile)
    sums, sums_args = _sums(gemm, desc)
    sizes = (tile.bm, tile.bn, tile.rows, tile.consumers, stages, tile.cluster, tile.split, tile.resident)
    flags = map(_flag, (a.mn_major, b.mn_major, bool(gemm.batch)))
    entry = (
        f"gemm<{gemm.a.element.cuda}, {', '.join(map(str, sizes))}, {', '.join(flags)}, {leave}, {sums}, "
        f"{epilogue_type(gemm, desc.activation)}>"
    )
    prelude = product_text(tile.bn, gemm.a.element, gemm.b.element, a.mn_major, b.mn_major)
    part = tile.bn // tile.cluster
    arriving = (a.rows(tile.bm) + tile.cluster * b.rows(part)) * SLAB
    order = (
        struct.pack("<5I", raster.rows, raster.cols, raster.band, raster.begin, raster.end) + batch_struct(gemm).data
    )
    fill = (0,) * (BATCH_RANK - len(gemm.batch))
    batched = [*fill, *(int(s != 0) for s in gemm.a.batch), *fill, *(int(s != 0) for s in gemm.b.batch)]
    clusters = raster.end - raster.begin
    if tile.split == 1:
        clusters = min(clusters, _clusters(device, tile))
    return Launch(
        Kernel("gemm/wgmma.cu", entry, prelude),
        (clusters * tile.cluster * tile.split, 1, 1),
        (128 * (1 + tile.consumers), 1, 1),
        (
            a_map,
            b.tensor_map(Ptr(gemm.b.operand), gemm.batch, part),
            out_map or a_map,
            epilogue_args(gemm),
            Packed(order, 4),
            Packed(struct.pack("<4I6I", gemm.m, gemm.n, _slabs(gemm), arriving, *batched), 4),
            sums_args,
        ),
        shared_bytes=shared_bytes,
        overlapped=True,
    )


def _band(rows: int, cols: int, tile: Tile, device: DeviceSpec) -> int:
    """Rows of tiles a band: what the tiles in flight together read of A and B is least."""
    flying = _clusters(device, tile)
    height = tile.bm * tile.cluster
    return min(range(1, min(rows, 32) + 1), key=lambda band: band * height + min(cols, -(-flying // band)) * tile.bn)
