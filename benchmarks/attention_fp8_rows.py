"""Rows of attention of e4m3 operands, beside our own attention of as large bf16 operands."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .attention_rows import TOKENS, WIDTH
from .harness import OURS
from .operands import Kit, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["ATTENTION_FP8_ROWS"]

E4M3, BF16 = "float8_e4m3fn", "bfloat16"
UNQUANTIZED = "bf16"  # ours, of bf16 operands
FLOPS_A_SECOND = 900e12  # that full attention of 128 columns and 8192 keys is asked to reach


def _row(length: int, d: int, causal: bool) -> Row:
    """[B, H, S, d] with as many sequences and heads as make TOKENS and WIDTH; bf16 results, a scale per head."""
    batch, heads = TOKENS // length, WIDTH // d
    shape = (batch, heads, length, d)
    flops = 4 * d * batch * heads * length * ((length + 1) // 2 if causal else length)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        given: dict[str, Any] = {name: bp.GpuBuffer.view(kit.normal(shape, E4M3), E4M3) for name in "qkv"}
        given |= {f"{name}_scales": kit.normal((heads,), "float32", positive=True) for name in "qkv"}
        given["out"] = kit.empty(shape, BF16)
        desc = bp.AttentionFp8Descriptor.of(**given, causal=causal)
        calls: Calls = {OURS: bp.AttentionFp8Plan.select(desc).bind(**given)}
        halves = {name: kit.normal(shape, BF16) for name in "qkv"} | {"out": kit.empty(shape, BF16)}
        plan = bp.AttentionPlan.select(bp.AttentionDescriptor.of(**halves, causal=causal))
        return calls | {UNQUANTIZED: plan.bind(**halves)}

    size = batch * heads * length * d
    asked = (d, length, causal) == (128, 8192, False)
    target = Target(1e6 * flops / FLOPS_A_SECOND, "absolute") if asked else None
    label = f"fp8 d{d} S={length} {'causal' if causal else 'full'}"
    return Row(
        "attention", label, "attention_fp8", shape, E4M3, 3 * size, size * itemsize(BF16), make, target, flops=flops
    )


def _rows() -> Iterator[Row]:
    for d in (64, 128, 256):
        for causal in (False, True):
            for length in (2048, 8192):
                yield _row(length, d, causal)


ATTENTION_FP8_ROWS: tuple[Row, ...] = tuple(_rows())
