"""Rows of running sums, beside torch."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from .harness import OURS
from .operands import Kit, itemsize
from .row import Calls, Row
from .target import BEST, Target

__all__ = ["SCAN_ROWS", "cumsum_row"]

FASTER = Target(1.0, "paired", BEST)
SHORT = {"bfloat16": "bf16", "float32": "f32"}


def cumsum_row(shape: tuple[int, ...], dtype: str, axis: int, target: Target | None = FASTER) -> Row:
    """Running sums along an axis."""

    name = f"cumsum {'x'.join(map(str, shape))} axis {axis} {SHORT[dtype]}"

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, out = kit.normal(shape, dtype), kit.empty(shape, dtype)
        plan = bp.CumsumPlan.select(bp.CumsumDescriptor.of(x, axis=axis))
        calls: Calls = {OURS: plan.bind(x=x, out=out)}
        if dtype == "float32":
            calls["cupy"] = lambda: kit.xp.cumsum(x, axis, out=out)
        if kit.torch is not None:
            cumsum, torch_x, torch_out = kit.torch.cumsum, kit.as_torch(x), kit.as_torch(out)
            calls["torch"] = lambda: cumsum(torch_x, axis, out=torch_out)
            if (fused := kit.compiled(name, lambda x: cumsum(x, axis))) is not None:
                calls["torch.compile"] = lambda: fused(torch_x)
        return calls

    nbytes = prod(shape) * itemsize(dtype)
    return Row("scan", name, "cumsum", shape, dtype, nbytes, nbytes, make, target)


def _rows() -> Iterator[Row]:
    yield cumsum_row((16384, 8192), "bfloat16", 1)
    yield cumsum_row((16384, 8192), "bfloat16", 0)
    yield cumsum_row((64 << 20,), "float32", 0)
    for axis in (0, 1):
        yield cumsum_row((16384, 4096), "float32", axis)
    for axis in (0, 1, 2):
        yield cumsum_row((64, 256, 8192), "bfloat16", axis)


SCAN_ROWS: tuple[Row, ...] = tuple(_rows())
