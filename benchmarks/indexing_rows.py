"""Rows of what picks elements by index, adds to them and finds them, beside torch."""

from __future__ import annotations

from collections.abc import Iterator
from math import log, prod
from typing import Any

from .harness import OURS
from .operands import Kit, itemsize
from .row import Calls, Row
from .row_families import SHORT, calls_of, row_name
from .target import BEST, FLOOR, Target

__all__ = ["INDEXING_ROWS"]

INDEX = 8  # bytes of an i64
VOCABULARY, WIDTH, TOKENS = 128256, 4096, 16384
SPREADS = ("uniform", "Zipf")
ADDED = (1_000_000, 128)  # rows that are added to a tenth as many
NORMAL_QUANTILES = {0.01: 2.3263, 0.5: 0.0}  # what that share of normal deviates exceeds


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


def _ids(kit: Kit, count: int, below: int, spread: str) -> Any:
    """That many row numbers: each as likely, or the i-th as 1 / i."""
    if spread == "uniform":
        return kit.xp.random.randint(0, below, count, dtype="int64")
    return (kit.xp.exp(kit.xp.random.rand(count) * log(below)) - 1).astype("int64")


def _embedding() -> Row:
    shape = (TOKENS, WIDTH)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        weight, ids = kit.normal((VOCABULARY, WIDTH), "bfloat16"), _ids(kit, TOKENS, VOCABULARY, "uniform")
        ours = bp.embedding.bind(weight, ids, out=kit.empty(shape, "bfloat16"))
        return calls_of(
            kit, "embedding", ours, lambda torch, *x: torch.nn.functional.embedding(x[1], x[0]), (weight, ids)
        )

    nbytes = prod(shape) * itemsize("bfloat16")
    name = row_name("embedding", shape, "bfloat16", f"of {VOCABULARY}")
    return Row(
        "indexing",
        name,
        "embedding",
        shape,
        "bfloat16",
        nbytes + INDEX * TOKENS,
        nbytes,
        make,
        Target(1.05, against=FLOOR),
    )


def _embedding_backward(spread: str) -> Row:
    """The dense gradient of the whole table."""
    op, shape = "embedding_backward", (TOKENS, WIDTH)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        grad, ids = kit.normal(shape, "bfloat16"), _ids(kit, TOKENS, VOCABULARY, spread)
        weight, made = kit.empty((VOCABULARY, WIDTH), "bfloat16"), kit.empty((VOCABULARY, WIDTH), "bfloat16")
        ours = bp.embedding_backward.bind(grad, ids, weight, grad_weight=made)

        def theirs(torch: Any, grad: Any, ids: Any) -> Any:
            return torch.ops.aten.embedding_dense_backward(grad, ids, VOCABULARY, -1, False)

        return calls_of(kit, op, ours, theirs, (grad, ids))

    size = itemsize("bfloat16")
    return Row(
        "indexing", row_name(op, shape, "bfloat16", f"of {VOCABULARY} {spread}"), op, shape, "bfloat16",
        prod(shape) * size + INDEX * TOKENS, VOCABULARY * WIDTH * size, make, Target(1.35, against=FLOOR),
        Target(0.9, "paired", BEST),
    )  # fmt: skip


def _index_add(spread: str) -> Row:
    """Rows added to a tenth as many, in place."""
    count, width = ADDED

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        x, src = kit.normal((count // 10, width), "bfloat16"), kit.normal(ADDED, "bfloat16")
        index = _ids(kit, count, count // 10, spread)
        ours = bp.index_add.bind(x, index, src, out=kit.empty(x.shape, "bfloat16"))
        return calls_of(kit, "index_add", ours, lambda torch, x, *more: torch.index_add(x, 0, *more), (x, index, src))

    size = itemsize("bfloat16")
    read = count * (width * size + INDEX) + count // 10 * width * size
    return Row(
        "indexing", row_name("index_add", ADDED, "bfloat16", spread), "index_add", ADDED, "bfloat16", read,
        count // 10 * width * size, make, Target(1.35, against=FLOOR), Target(0.9, "paired", BEST),
    )  # fmt: skip


def _rows() -> Iterator[Row]:
    yield _embedding()
    for spread in SPREADS:
        yield _embedding_backward(spread)
        yield _index_add(spread)
    yield _take((8192, 8192), "float32")
    for share in NORMAL_QUANTILES:
        yield _nonzero(64 << 20, share)


INDEXING_ROWS: tuple[Row, ...] = tuple(_rows())
