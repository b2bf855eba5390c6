"""Rows of what orders elements, beside torch."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from .harness import OURS
from .operands import Kit, itemsize
from .row import Calls, Row
from .row_families import SHORT, calls_of, row_name
from .target import BEST, FLOOR, Target

__all__ = ["SORT_ROWS"]

INDEX = 8  # bytes of an i64
# Shapes, dtypes, and the speed over torch that is asked; the last one served no choice.
SORTED = (
    ((1 << 26,), "float32", 1.4), ((4096, 16384), "float32", 2.5), ((1 << 24,), "bfloat16", 1.4),
    ((50000, 640), "bfloat16", 1.0), ((100000, 64), "float32", 1.0), ((7001, 1777), "float32", 1.0),
)  # fmt: skip


def _topk(shape: tuple[int, int], dtype: str, k: int, target: Target | None = None) -> Row:
    """The k largest of every row, sorted."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, out = kit.normal(shape, dtype), (shape[0], k)
        values, indices = kit.empty(out, dtype), kit.empty(out, "int64")
        plan = bp.TopkPlan.select(bp.TopkDescriptor.of(x, k=k))
        calls: Calls = {OURS: plan.bind(x=x, values=values, indices=indices)}
        if kit.torch is not None:
            topk, torch_x, made = kit.torch.topk, kit.as_torch(x), (kit.as_torch(values), kit.as_torch(indices))
            calls["torch"] = lambda: topk(torch_x, k, out=made)
            if (fused := kit.compiled("topk", lambda given: topk(given, k))) is not None:
                calls["torch.compile"] = lambda: fused(torch_x)
        return calls

    read, written = prod(shape) * itemsize(dtype), shape[0] * k * (itemsize(dtype) + INDEX)
    name = f"topk {shape[0]}x{shape[1]} k={k} {SHORT[dtype]}"
    return Row("sort", name, "topk", shape, dtype, read, written, make, target, Target(1.0, "paired", BEST))


def _sort(shape: tuple[int, ...], dtype: str, least: float) -> Row:
    """Values and int64 indices along the last axis, stable."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, values, indices = kit.normal(shape, dtype), kit.empty(shape, dtype), kit.empty(shape, "int64")
        plan = bp.SortPlan.select(bp.SortDescriptor.of(x))
        calls: Calls = {OURS: plan.bind(x=x, values=values, indices=indices)}
        if kit.torch is not None:
            sort, torch_x, made = kit.torch.sort, kit.as_torch(x), (kit.as_torch(values), kit.as_torch(indices))
            calls["torch"] = lambda: sort(torch_x, dim=-1, stable=True, out=made)
        return calls

    nbytes = prod(shape) * itemsize(dtype)
    name = row_name("sort", shape, dtype)
    return Row(
        "sort", name, "sort", shape, dtype, nbytes, nbytes + prod(shape) * INDEX, make, Target(least, "paired", BEST)
    )


def _counts(count: int, bins: int) -> Row:
    """How many of that many i32 have each value."""
    shape = (count,)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x = kit.xp.random.randint(0, bins, count, dtype="int32")
        ours = bp.bincount.bind(x, bins, out=kit.empty((bins,), "int64"))
        return calls_of(kit, "bincount", ours, lambda torch, x: torch.bincount(x, minlength=bins), (x,))

    name = f"bincount {count >> 20}M i32, {bins} bins"
    return Row("sort", name, "bincount", shape, "int32", 4 * count, INDEX * bins, make, Target(1.0, "paired", BEST))


def _histogram(count: int, bins: int) -> Row:
    """How many of that many normal deviates are in each interval."""
    shape = (count,)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x = kit.normal(shape, "float32")
        ours = bp.histogram.bind(x, bins, -4.0, 4.0, out=kit.empty((bins,), "int64"))
        return calls_of(kit, "histogram", ours, lambda torch, x: torch.histc(x, bins, -4.0, 4.0), (x,))

    name = f"histogram {count >> 20}M f32, {bins} bins"
    return Row("sort", name, "histogram", shape, "float32", 4 * count, INDEX * bins, make, Target(1.0, "paired", BEST))


def _kthvalue(shape: tuple[int, int], dtype: str) -> Row:
    """The median of every row."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, made = kit.normal(shape, dtype), (kit.empty(shape[:1], dtype), kit.empty(shape[:1], "int64"))
        ours = bp.median.bind(x, values=made[0], indices=made[1])
        return calls_of(kit, "median", ours, lambda torch, x: torch.median(x, -1), (x,))

    read, written = prod(shape) * itemsize(dtype), shape[0] * (itemsize(dtype) + INDEX)
    return Row(
        "sort",
        row_name("median", shape, dtype),
        "median",
        shape,
        dtype,
        read,
        written,
        make,
        Target(1.0, "paired", BEST),
    )


def _rows() -> Iterator[Row]:
    for shape, dtype, least in SORTED:
        yield _sort(shape, dtype, least)
    yield _topk((256, 128256), "bfloat16", 1, Target(1.1, against=FLOOR))
    yield _topk((256, 128256), "bfloat16", 8, Target(1.4, against=FLOOR))
    yield _topk((256, 128256), "bfloat16", 50, Target(1.4, against=FLOOR))
    yield _topk((256, 128256), "float32", 1024, Target(1.9, against=FLOOR))
    yield _topk((4096, 32000), "bfloat16", 8, Target(1.4, against=FLOOR))
    # Short rows; the last two shapes served no choice
    for shape, dtype, k in (
        ((50000, 640), "bfloat16", 40),
        ((3000, 5120), "bfloat16", 40),
        ((50000, 640), "bfloat16", 1),
        ((7001, 1777), "bfloat16", 12),
        ((9000, 3072), "float32", 100),
    ):
        yield _topk(shape, dtype, k, Target(2.0, against=FLOOR))
    for bins in (256, 100_000):
        yield _counts(1 << 26, bins)
        yield _histogram(1 << 26, bins)
    yield _kthvalue((4096, 32000), "bfloat16")


SORT_ROWS: tuple[Row, ...] = tuple(_rows())
