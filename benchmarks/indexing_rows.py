"""Rows of what picks elements by index, finds them and orders them, beside torch."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from .harness import OURS
from .operands import Kit, itemsize
from .row import Calls, Row
from .target import BEST, FLOOR, Target

__all__ = ["INDEXING_ROWS"]

INDEX = 8  # bytes of an i64
SHORT = {"bfloat16": "bf16", "float32": "f32"}
NORMAL_QUANTILES = {0.01: 2.3263, 0.5: 0.0}  # what that share of normal deviates exceeds


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


def _take(shape: tuple[int, int], dtype: str) -> Row:
    """As many elements of every row as it has, at random places."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, out = kit.normal(shape, dtype), kit.empty(shape, dtype)
        indices = kit.xp.random.randint(0, shape[1], shape, dtype="int64")
        status = kit.xp.zeros((), "int32")
        plan = bp.TakeAlongAxisPlan.select(bp.TakeAlongAxisDescriptor.of(x, indices, axis=1))
        calls: Calls = {OURS: plan.bind(x=x, indices=indices, out=out, status=status)}
        if kit.torch is not None:
            gather, torch_x, torch_indices, torch_out = kit.torch.gather, *map(kit.as_torch, (x, indices, out))
            calls["torch"] = lambda: gather(torch_x, 1, torch_indices, out=torch_out)
        return calls

    read, written = prod(shape) * (itemsize(dtype) + INDEX), prod(shape) * itemsize(dtype)
    name = f"take_along_axis {shape[0]}x{shape[1]} axis 1 {SHORT[dtype]}"
    return Row("indexing", name, "take_along_axis", shape, dtype, read, written, make, Target(1.0, "paired", BEST))


def _nonzero(count: int, share: float) -> Row:
    """Indices of that share of booleans, the buffer untrimmed; torch is given their number beforehand."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x = kit.normal((count,), "float32") > NORMAL_QUANTILES[share]
        out, found = kit.empty((count, 1), "int64"), kit.empty((1,), "int64")
        plan = bp.NonzeroPlan.select(bp.NonzeroDescriptor.of(x))
        calls: Calls = {OURS: plan.bind(x=x, out=out, count=found)}
        if kit.torch is not None:
            known, torch_x, static = int(x.sum()), kit.as_torch(x), kit.torch.nonzero_static
            calls["torch"] = lambda: static(torch_x, size=known)
        return calls

    name = f"nonzero {count >> 20}M bool, {share:.0%}"
    return Row(
        "indexing",
        name,
        "nonzero",
        (count,),
        "bool",
        count,
        int(count * share) * INDEX,
        make,
        Target(1.0, "paired", BEST),
    )


def _rows() -> Iterator[Row]:
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
    yield _take((8192, 8192), "float32")
    for share in NORMAL_QUANTILES:
        yield _nonzero(64 << 20, share)


INDEXING_ROWS: tuple[Row, ...] = tuple(_rows())
