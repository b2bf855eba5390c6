"""Rows of attention forward, beside PyTorch's FlashAttention-2 and cuDNN backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .harness import OURS
from .operands import Kit, TorchCall, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["ATTENTION_ROWS", "BACKENDS", "CUDNN", "FA2", "peer"]

FA2, CUDNN = "torch FA2", "torch cuDNN"
BACKENDS = {FA2: "FLASH_ATTENTION", CUDNN: "CUDNN_ATTENTION"}
TOKENS = 16384  # of all sequences together
WIDTH = 2048  # columns of all heads together
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def peer(torch: Any, backend: str, q: Any, k: Any, v: Any, causal: bool) -> Callable[[], Any]:
    """Scaled dot product attention, by one backend alone. It sees keys from the top left: with as many keys as queries, no
    matter."""
    kernel, whose = torch.nn.attention.sdpa_kernel, getattr(torch.nn.attention.SDPBackend, backend)
    attend, grouped = torch.nn.functional.scaled_dot_product_attention, q.shape[1] != k.shape[1]

    def call() -> Any:
        with kernel(whose):
            return attend(q, k, v, is_causal=causal, enable_gqa=grouped)

    return call


def _attention(length: int, d: int, causal: bool, group: int = 1) -> Row:
    """[B, H, S, d] with as many sequences and heads as make TOKENS and WIDTH."""
    batch, heads = TOKENS // length, WIDTH // d
    shape, of_keys = (batch, heads, length, d), (batch, heads // group, length, d)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        q, k, v = (kit.normal(s, "bfloat16") for s in (shape, of_keys, of_keys))
        out = kit.empty(shape, "bfloat16")
        plan = bp.AttentionPlan.select(bp.AttentionDescriptor.of(q, k, v, out=out, causal=causal))
        calls: Calls = {OURS: plan.bind(q=q, k=k, v=v, out=out)}
        if kit.torch is not None:
            given = [kit.as_torch(x) for x in (q, k, v)]
            for name, backend in BACKENDS.items():
                calls[name] = TorchCall(peer(kit.torch, backend, *given, causal))
        return calls

    label = f"d{d} S={length} {'causal' if causal else 'full'}" + (f" GQA {group}" if group > 1 else "")
    pairs = batch * heads * length * ((length + 1) // 2 if causal else length)
    size = itemsize("bfloat16") * batch * length * d
    target = Target(0.95, "paired", FA2)
    return Row(
        "attention", label, "attention", shape, "bfloat16", size * (heads + 2 * heads // group), size * heads, make, target,
        flops=4 * d * pairs,
    )  # fmt: skip


def _rows() -> Iterator[Row]:
    for d in (64, 128, 256):
        for causal in (False, True):
            for length in LENGTHS:
                yield _attention(length, d, causal)
    for causal in (False, True):
        yield _attention(4096, 128, causal, group=4)


ATTENTION_ROWS: tuple[Row, ...] = tuple(_rows())
