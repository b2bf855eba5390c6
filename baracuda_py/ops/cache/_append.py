"""How tokens are appended to pages: rows of tokens and heads shared out among threads (kernels/cache/append.cu)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.grammar import Config, term
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Run, Step
from ...types import DeviceSpec, ElementKind, PrecisionGuarantee
from .._fitted import Fitted
from .._launch import divisor, grid_of, index_scalar, index_type
from .._rows import share
from ..position.angles import OF_ANGLE, OF_ENTRY, dense
from ._guarantee import guarantee_of

__all__ = ["AppendConfig", "FewPages", "ManyPages"]

WIDEST, WARP = 16, 32  # bytes of an access; lanes
MOST_ITEMS = 32  # vectors of a row that a thread holds
MOST_WHOLE = 8  # of a row of all heads
UNDER_WAY = 4  # vectors that a thread is to hold
OF_ROW = 110  # machine instructions (sm_90a) of a thread and row, whatever its length
MOST_TOKENS = (1 << 31) - 1  # of a request: its length is an int32
ROUNDS = 4  # of page ids that a group may look at for every row
THREADS = 128  # a CTA: more are no faster
FILE = "cache/append.cu"


class Costs(Fitted, table="rows.append"):
    head_s: float
    vector_s: float
    joined_heads_bandwidth_efficiency: float
    bandwidth_efficiency: float


@dataclass(frozen=True)
class AppendConfig(Config):
    """How rows, each a head of a token or several of them, are shared out."""

    heads: int = term("heads a row: as one where they lie side by side, else one by one, by angles that they share")
    vector: int = term("columns an access")
    lanes: int = term("threads that share a row")

    def items(self, columns: int, at_once: int) -> int:
        """Vectors of a row that a thread holds, where it takes so many at once."""
        return at_once * -(-columns // (at_once * self.vector * self.lanes))


class _Append(Candidate[Any]):
    checked: bool

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        columns, vector = _columns(desc), _vector(desc)
        if columns > WARP * MOST_ITEMS * vector:
            return no(
                f"rows are {columns} columns, and a warp holds {WARP * MOST_ITEMS * vector} of them {vector} at a time",
                "heads of a multiple of 8 columns that lie side by side",
            )
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[AppendConfig]:
        """The widest vectors; a head a row; a token, where its heads are contiguous; else so many heads as are 64 bytes a
        thread, which share what says where they go and by which angles they turn."""
        vector = _vector(desc)
        one = AppendConfig(1, vector, _lanes(desc))
        yield one
        if _side_by_side(desc, vector):
            yield AppendConfig(desc.heads, vector, _lanes(desc, desc.heads))
        elif (shared := math.gcd(desc.heads, UNDER_WAY // one.items(_columns(desc), _at_once(desc)))) > 1:
            yield replace(one, heads=shared)

    def guarantee(self, desc: Any, device: DeviceSpec, config: AppendConfig) -> PrecisionGuarantee:
        return guarantee_of(desc)

    def cost(self, desc: Any, device: DeviceSpec, config: AppendConfig) -> Cost:
        elements = desc.tokens * desc.heads * (desc.k_pages_shape[3] + desc.v_pages_shape[3])
        moved = desc.element.nbytes(elements) + desc.pages_element.nbytes(elements)
        moved += 8 * desc.tokens * desc.heads * desc.has("k_scales")
        instructions = (20.0 if desc.quantized else 1.0) * elements
        instructions += OF_ROW * 2 * desc.tokens * desc.heads // config.heads * config.lanes
        if desc.rotates_keys:
            angles = desc.tokens * desc.heads // config.heads * desc.half
            instructions += (OF_ENTRY if desc.tables else OF_ANGLE) * angles
        costs = Costs.of(device)
        efficiency = costs.joined_heads_bandwidth_efficiency if config.heads > 1 else costs.bandwidth_efficiency
        cost = Cost.streaming(device, moved, instructions=instructions, efficiency=efficiency)
        joined, separate_heads = _heads(desc, config)
        held = config.items(joined * _columns(desc), _at_once(desc))
        seconds = cost.seconds + costs.head_s * (separate_heads - 1) + costs.vector_s * (held - 1)
        return replace(cost, seconds=seconds)

    def lower(self, desc: Any, device: DeviceSpec, config: AppendConfig) -> tuple[Step, ...]:
        heads = desc.heads // config.heads
        rows = desc.tokens * heads
        index = index_type(max(rows, desc.requests))
        ragged, checked = (str(flag).lower() for flag in (desc.ragged, self.checked))
        scaling, taken, stored = _types(desc)
        joined, separate_heads = _heads(desc, config)
        items = config.items(joined * _columns(desc), _at_once(desc))
        shape = f"{config.vector}, {items}, {config.lanes}, {separate_heads}, {THREADS}"
        rotation, angles, places, factor = _rotation(desc)
        kernel = "append_rotated" if rotation else "append_pages"
        entry = f"{kernel}<{taken}, {stored}, cache::{scaling}, {shape}, {ragged}, {checked}, {index}{rotation}>"
        scales = ("k_scales", "v_scales") if scaling == "MADE" else ("k_scale", "v_scale")
        of_batch = (
            _ptr(desc, "page_table"),
            _ptr(desc, "lengths"),
            _ptr(desc, "cu_seqlens"),
            Ptr("status"),
            _batch(desc, index),
        )
        args = (
            Ptr("k_pages"), Ptr("v_pages"), *(_ptr(desc, name) for name in scales), Ptr("k"), Ptr("v"), *of_batch,
            divisor(heads, index), index_scalar(rows, index), _lines(desc, "k", config), _lines(desc, "v", config),
            *angles, *places, *factor,
        )  # fmt: skip
        x, _, _ = grid_of(rows, THREADS // config.lanes)
        grid = (2 * x, 1, 1) if rotation else (x, 2, 1)
        launch = Launch(Kernel(FILE, entry), grid, (THREADS, 1, 1), args)
        if not self.checked:
            return (launch,)
        check = f"{'check_rotated' if rotation else 'check_requests'}<{ragged}, {THREADS}, {index}{rotation}>"
        grid = grid_of(desc.requests, THREADS // WARP)
        ahead = Launch(Kernel(FILE, check), grid, (THREADS, 1, 1), (*of_batch, *angles[:1], *places))
        return (ahead, launch) if rows else (ahead,)


class FewPages(_Append):
    """One launch: every row looks at all pages of its request, of which there are few."""

    variant = "one_launch"
    launches = (f"{FILE}:append_pages", f"{FILE}:append_rotated")
    checked = False

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        said = super().supports(desc, device)
        if said and not desc.heads:
            return no("there are no heads, and so no rows that tell what becomes of their request")
        tokens = desc.tokens if desc.ragged else desc.k_shape[1]
        pages = min(desc.page_table_shape[1], -(-tokens // desc.page_size) + 1)
        most = ROUNDS * _lanes(desc)
        if said and pages > most:
            return no(f"a request may span {pages} pages, too many for every row to look at")
        if said and desc.has("positions") and desc.tables and tokens > most:
            return no(f"a request may have {tokens} positions, too many for every row to look at")
        return said


class ManyPages(_Append):
    """Requests are looked at by a launch ahead, a warp each, whose status every row reads."""

    variant = "checked_ahead"
    launches = tuple(f"{FILE}:{name}" for name in ("append_pages", "check_requests", "append_rotated", "check_rotated"))
    checked = True

    def cost(self, desc: Any, device: DeviceSpec, config: AppendConfig) -> Cost:
        one = super().cost(desc, device, config)
        return Cost(one.bytes, one.flops, one.seconds + device.overhead, one.limit)


def _columns(desc: Any) -> int:
    columns: int = max(desc.k_pages_shape[3], desc.v_pages_shape[3], 1)
    return columns


def _at_once(desc: Any) -> int:
    """Vectors that are taken together: those of a pair of columns where keys are rotated."""
    return 2 if desc.rotates_keys else 1


def _heads(desc: Any, config: AppendConfig) -> tuple[int, int]:
    """Of a row's heads those that are moved as one, and how many times so many there are."""
    return (config.heads, 1) if _side_by_side(desc, config.vector) else (1, config.heads)


def _lanes(desc: Any, heads: int = 1) -> int:
    return min(WARP, share(-(-heads * _columns(desc) // (_vector(desc) * _at_once(desc)))))


def _side_by_side(desc: Any, vector: int) -> bool:
    """Whether all heads of a token move as one row: unchanged, and each behind the other in tokens and pages."""
    if (
        desc.quantized
        or desc.rotates_keys
        or desc.heads < 2
        or desc.heads * _columns(desc) > WARP * MOST_WHOLE * vector
    ):
        return False
    for part in ("k", "v"):
        new, pages = desc.layout(part), desc.layout(f"{part}_pages")
        if not new.strides[-2] == desc.split(pages.strides)[2] == new.shape[-1]:
            return False
    return True


def _rotation(desc: Any) -> tuple[str, tuple[Arg, ...], tuple[Arg, ...], tuple[Arg, ...]]:
    """How keys are rotated, nothing where they are not: a template argument, and pointers, places and the factor."""
    if not desc.rotates_keys:
        return "", (), (), ()
    kind, batch, token = ElementKind.I64, 0, 0
    if desc.has("positions"):
        layout = desc.layout("positions")
        kind = layout.element
        batch, token = (0, *layout.strides) if desc.ragged else layout.strides
    pointers = (_ptr(desc, "positions"), Ptr("cos" if desc.tables else "inv_freq"), _ptr(desc, "sin"))
    factor = Run("attention_factor", "float32")
    return (
        f", cache::Rotated<{kind.number}, {desc.table_types}>",
        pointers,
        (desc.packed_angles(batch, token),),
        (factor,),
    )


def _types(desc: Any) -> tuple[str, str, str]:
    """The kernel's scaling, and the types that it takes and stores; what is stored as it is moves as bytes."""
    if not desc.quantized and desc.rotates_keys:
        return "STORED", desc.element.number, desc.element.number
    if not desc.quantized:
        return "STORED", *(2 * (f"u{desc.element.bits}",))
    stored = "i8" if desc.pages_element is ElementKind.I8 else "e4m3"
    return "MADE" if desc.has("k_scales") else "GIVEN", desc.element.number, stored


def _vector(desc: Any) -> int:
    """The most columns that every row of tokens and pages can be accessed by, 16 bytes at most."""
    layouts = [desc.layout(name) for name in ("k", "v", "k_pages", "v_pages")]
    vector: int = WIDEST // (max(desc.element.bits, desc.pages_element.bits) // 8)
    while vector > 1 and not (all(_fits(layout, vector) for layout in layouts) and _rotates_by(desc, vector)):
        vector //= 2
    return vector


def _rotates_by(desc: Any, vector: int) -> bool:
    """Whether so many neighbouring pairs, and their frequencies or rows of tables, can be accessed together."""
    tables = (desc.layout(name) for name in ("inv_freq", "cos", "sin") if desc.has(name))
    return not desc.half % vector and all(dense(x, min(vector, WIDEST // x.natural)) for x in tables)


def _fits(layout: Any, vector: int) -> bool:
    width = vector * layout.element.bits // 8
    outer = [s * layout.element.bits // 8 for s in layout.strides[:-1]]
    dense = layout.strides[-1] == 1 and not layout.shape[-1] % vector
    return dense and all(at % width == 0 for at in (layout.align, *outer))


def _ptr(desc: Any, name: str) -> Arg:
    return Ptr(name) if desc.has(name) else Packed(bytes(8))


def _batch(desc: Any, index: str) -> Packed:
    """cache::Batch<index> of kernels/include/cache/request.cuh."""
    table = desc.layout("page_table").strides
    capacity = min(desc.page_table_shape[1] * desc.page_size, MOST_TOKENS)
    data = struct.pack("<qqq", *table, capacity) + struct.pack("<I" if index == "u32" else "<Q", desc.tokens)
    each = 1 if desc.ragged else desc.k_shape[1]
    data += divisor(each, index).data if each else bytes(16)  # 0 tokens: nothing is divided
    data += divisor(desc.page_size, "u32").data
    data += struct.pack("<II", desc.requests, desc.k_pages_shape[0])
    return Packed(data + bytes(-len(data) % 8), 8)


def _lines(desc: Any, part: str, config: AppendConfig) -> Packed:
    """Lines of kernels/cache/append.cu; of values, which are not rotated, any half will do."""
    new, pages = desc.layout(part), desc.layout(f"{part}_pages")
    token = new.strides if len(new.strides) == 4 else (0, *new.strides)
    scale = (0, 0, 0)
    if desc.has(f"{part}_scales"):
        scale = desc.split(desc.layout(f"{part}_scales").strides)
    elif desc.has(f"{part}_scale"):
        scale = (0, 0, *desc.layout(f"{part}_scale").strides)
    size, stored = new.element.bits // 8, pages.element.bits // 8
    joined, _ = _heads(desc, config)
    steps = [s * size for s in token] + [s * stored for s in desc.split(pages.strides)] + [s * 4 for s in scale]
    half = desc.half if part == "k" else pages.shape[3] // 2 // config.vector * config.vector
    return Packed(struct.pack("<11qII", *steps, joined * pages.shape[3], half), 8)
