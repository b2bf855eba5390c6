"""Rows of what orders elements, beside torch."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from .harness import OURS
from .operands import Kit, itemsize
from .row import Calls, Row
from .row_families import SHORT
from .target import BEST, FLOOR, Target

__all__ = ["SORT_ROWS"]

INDEX = 8  # bytes of an i64


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


SORT_ROWS: tuple[Row, ...] = tuple(_rows())
