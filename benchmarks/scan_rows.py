"""Rows of running sums, beside torch."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from .harness import OURS
from .operands import Kit, itemsize
from .row import Calls, Row
from .target import BEST, Target

__all__ = ["SCAN_ROWS"]

SHORT = {"bfloat16": "bf16", "float32": "f32"}


def _cumsum(shape: tuple[int, ...], dtype: str, axis: int) -> Row:
    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, out = kit.normal(shape, dtype), kit.empty(shape, dtype)
        plan = bp.CumsumPlan.select(bp.CumsumDescriptor.of(x, axis=axis))
        calls: Calls = {OURS: plan.bind(x=x, out=out)}
        if kit.torch is not None:
            cumsum, torch_x, torch_out = kit.torch.cumsum, kit.as_torch(x), kit.as_torch(out)
            calls["torch"] = lambda: cumsum(torch_x, axis, out=torch_out)
        return calls

    nbytes = prod(shape) * itemsize(dtype)
    name = f"cumsum {'x'.join(map(str, shape))} axis {axis} {SHORT[dtype]}"
    return Row("scan", name, "cumsum", shape, dtype, nbytes, nbytes, make, Target(1.0, "paired", BEST))


def _rows() -> Iterator[Row]:
    yield _cumsum((16384, 8192), "bfloat16", 1)
    yield _cumsum((16384, 8192), "bfloat16", 0)
    yield _cumsum((64 << 20,), "float32", 0)


SCAN_ROWS: tuple[Row, ...] = tuple(_rows())
