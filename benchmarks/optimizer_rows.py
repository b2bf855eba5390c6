"""Rows of optimizers: a step over lists of arrays, beside torch's fused one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .harness import OURS
from .operands import Kit
from .row import Calls, Row
from .target import BEST, FLOOR, Target

__all__ = ["OPTIMIZER_ROWS"]

STATE = ("exp_avg", "exp_avg_sq")
BLOCK = 256  # elements that share an absmax of 8-bit states
READ, WRITTEN = 16, 12  # bytes an element: the parameter, its gradient and both averages, f32


def _adamw(tensors: int, elements: int, *targets: Target) -> Row:
    """AdamW on that many f32 arrays of so many elements each."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        def made() -> list[Any]:
            return [kit.normal((elements,), "float32", positive=True) for _ in range(tensors)]

        lists, step = [made() for _ in range(2 + len(STATE))], kit.xp.zeros((), "float32")
        calls: Calls = {OURS: lambda: bp.adamw(*lists, step)}
        if kit.torch is not None:
            given = [[kit.as_torch(x) for x in held] for held in lists]
            steps = [kit.torch.zeros((), device="cuda") for _ in range(tensors)]
            fused, options = kit.torch._fused_adamw_, {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
            calls["torch"] = lambda: fused(
                *given, [], steps, lr=1e-3, weight_decay=0.01, amsgrad=False, maximize=False, **options
            )
        return calls

    count = tensors * elements
    return Row(
        "optim", f"adamw {tensors} tensors of {elements} f32", "adamw_update", (tensors, elements), "float32",
        READ * count, WRITTEN * count, make, *targets,
    )  # fmt: skip


def _adamw8bit(tensors: int, elements: int, *targets: Target) -> Row:
    """AdamW with 8-bit states on that many f32 arrays of so many elements each."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        def made(shape: tuple[int, ...], kind: str) -> list[Any]:
            return [kit.xp.zeros(shape, kind) for _ in range(tensors)]

        lists = [[kit.normal((elements,), "float32") for _ in range(tensors)] for _ in range(2)]
        lists += [made((elements,), "uint8") for _ in STATE]
        lists += [made((-(-elements // BLOCK),), "float32") for _ in STATE]
        step = kit.xp.zeros((), "float32")
        return {OURS: lambda: bp.adamw8bit(*lists, step)}

    count, blocks = tensors * elements, tensors * -(-elements // BLOCK)
    states = len(STATE) * (count + 4 * blocks)  # a byte an element, and an f32 for each block
    return Row(
        "optim", f"adamw8bit {tensors} tensors of {elements} f32", "adamw8bit_update", (tensors, elements), "float32",
        8 * count + states, 4 * count + states, make, *targets,
    )  # fmt: skip


def _rows() -> Iterator[Row]:
    yield _adamw(300, 3_333_333, Target(1.04, against=FLOOR), Target(1.0, "paired", BEST))
    yield _adamw(1000, 1024, Target(1.0, "paired", BEST))
    yield _adamw8bit(300, 3_333_333, Target(1.15, against=FLOOR))


OPTIMIZER_ROWS: tuple[Row, ...] = tuple(_rows())
