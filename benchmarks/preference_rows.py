"""Rows of products with quantised weights under a preference, beside the fastest: what either costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from baracuda_py.types import GgufFormat

from .gguf_rows import Weights, gguf_operands
from .harness import OURS
from .int4_rows import Weight, int4_operands
from .int8_rows import codes
from .nf4_rows import nf4_arrays, nf4_bytes
from .operands import Kit, itemsize
from .row import Calls, Row

__all__ = ["PREFERENCE_ROWS"]

N, K = 14336, 4096
TOKENS = (1, 16, 128, 2048)
BF16, FASTEST = "bfloat16", "fastest"
PREFERENCES = {"batch invariant": "batch_invariant", "exact": "exact_weights"}


class Kind(NamedTuple):
    """A product with one kind of weight, of so many bytes: the operands of a call, and options of its descriptor."""

    op: str
    nbytes: int
    operands: Callable[[Kit, int], dict[str, Any]]
    options: dict[str, Any]


def _w8a16(kit: Kit, m: int) -> dict[str, Any]:
    scales = kit.normal((N,), "float32", positive=True)
    return {"a": kit.normal((m, K), BF16), "b": codes(kit, N, K).T, "scale_b": scales, "out": kit.empty((m, N), BF16)}


def _nf4(kit: Kit, m: int) -> dict[str, Any]:
    return {"x": kit.normal((m, K), BF16), **nf4_arrays(kit, N, K), "out": kit.empty((m, N), BF16)}


def _kinds() -> dict[str, Kind]:
    int4, gguf = Weight(N, K), Weights(GgufFormat.of("q4_k"), N, K)
    return {
        "int4": Kind("matmul_int4", int4.bytes, lambda kit, m: int4_operands(kit, int4, m), {"shape": (K, N)}),
        "NF4": Kind("matmul_nf4", nf4_bytes(N, K), _nf4, {}),
        "Q4_K": Kind(
            "matmul_gguf", gguf.nbytes, lambda kit, m: gguf_operands(gguf.made(kit), kit, gguf, m), {"format": "q4_k"}
        ),
        "W8A16": Kind("matmul_int8", N * K, _w8a16, {}),
    }


def _row(name: str, kind: Kind, m: int, wish: str) -> Row:
    def make(kit: Kit) -> Calls:
        import baracuda_py as bp
        from baracuda_py.plan import get_op

        plan, operands = get_op(kind.op).plan, kind.operands(kit, m)
        desc = plan.descriptor.of(**operands, **kind.options)
        pref = bp.PlanPreference(**{PREFERENCES[wish]: True})
        return {OURS: plan.select(desc, pref).bind(**operands), FASTEST: plan.select(desc).bind(**operands)}

    size, label = itemsize(BF16), f"{name} {N}×{K} M={m}"
    read, written = kind.nbytes + size * m * K, size * m * N
    return Row(f"weights, {wish}", label, kind.op, (m, N), BF16, read, written, make)


def _rows() -> Iterator[Row]:
    for wish in PREFERENCES:
        for name, kind in _kinds().items():
            for m in TOKENS:
                yield _row(name, kind, m, wish)


PREFERENCE_ROWS: tuple[Row, ...] = tuple(_rows())
