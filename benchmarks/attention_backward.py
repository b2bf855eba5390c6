"""Rows of attention's gradients, beside those of PyTorch's FlashAttention-2 and cuDNN backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from .attention_rows import CHANGES, CUDNN, FA2, LENGTHS, TOKENS, WIDTH
from .harness import OURS
from .operands import Kit, TorchCall, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["ATTENTION_BACKWARD_ROWS"]

ORDERED = (Target(0.85, "paired", "fast"),)
OF_CUDNN = {64: 0.97, 128: 0.97, 256: 0.95}


def _peer(torch: Any, backend: str, given: list[Any], causal: bool) -> Callable[[], Any]:
    """The gradients by one of PyTorch's backends, called as autograd does; what they need of the forward op is computed at the
    first call. Heads that share keys have copies of them, which is not timed."""
    aten = torch.ops.aten

    @cache
    def prepared() -> Callable[[], Any]:
        grad, q, *shared = given
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in shared)
        if backend == FA2:
            out, lse, *extents, seed, offset, _ = aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
            backward = aten._scaled_dot_product_flash_attention_backward
            return lambda: backward(grad, q, k, v, out, lse, *extents, 0.0, causal, seed, offset)
        out, lse, *extents, seed, offset, _ = aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)
        backward = aten._scaled_dot_product_cudnn_attention_backward
        return lambda: backward(grad, q, k, v, out, lse, seed, offset, None, *extents, 0.0, causal)

    return lambda: prepared()()


def _attended(kit: Kit, q: Any, k: Any, v: Any, more: dict[str, Any], **options: Any) -> dict[str, Any]:
    """out and lse, by a bound plan: where a row is only looked at, that computes nothing."""
    import baracuda_py as bp

    given = {
        "q": q,
        "k": k,
        "v": v,
        **more,
        "out": kit.empty(q.shape, "bfloat16"),
        "lse": kit.empty(q.shape[:-1], "float32"),
    }
    desc = bp.AttentionDescriptor.of(**given, **options)
    values = {name: x for name, x in options.items() if name == "softcap"}
    bp.AttentionPlan.select(desc).bind(**given, **values)()
    return given


def _backward(length: int, d: int, causal: bool, way: str, group: int = 1) -> Row:
    """[B, H, S, d] with as many sequences and heads as make TOKENS and WIDTH; "fast" adds grad_q up in any order."""
    batch, heads = TOKENS // length, WIDTH // d
    shape, of_keys = (batch, heads, length, d), (batch, heads // group, length, d)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        q, k, v, grad = (kit.normal(s, "bfloat16") for s in (shape, of_keys, of_keys, shape))
        given = {**_attended(kit, q, k, v, {}, causal=causal), "grad": grad}
        made = {f"grad_{n}": kit.empty(s, "bfloat16") for n, s in (("q", shape), ("k", of_keys), ("v", of_keys))}
        desc = bp.AttentionBackwardDescriptor.of(**given, **made, causal=causal)

        def ours(way: str) -> Any:
            pref = bp.PlanPreference(deterministic=way != "fast")
            return bp.AttentionBackwardPlan.select(desc, pref).bind(**given, **made)

        calls: Calls = {OURS: ours(way)}
        if way != "fast":
            calls["fast"] = ours("fast")
        elif kit.torch is not None:
            theirs = [kit.as_torch(x) for x in (grad, q, k, v)]
            for name in (FA2, CUDNN):
                calls[name] = TorchCall(_peer(kit.torch, name, theirs, causal))
        return calls

    label = f"{way} d{d} S={length} {'causal' if causal else 'full'}" + (f" GQA {group}" if group > 1 else "")
    fast = Target(OF_CUDNN[d], "paired", CUDNN), Target(0.90, "alone", FA2)
    pairs = batch * heads * length * ((length + 1) // 2 if causal else length)
    size, kv_heads = itemsize("bfloat16") * batch * length * d, heads // group
    read, written = size * (3 * heads + 2 * kv_heads), size * (heads + 2 * kv_heads)
    return Row(
        "attention_backward", label, "attention_backward", shape, "bfloat16", read, written, make,
        *(fast if way == "fast" else ORDERED), flops=10 * d * pairs,
    )  # fmt: skip


def _changed(length: int, d: int, change: str) -> Row:
    """Causal, with scores that are changed, beside the same where they are not."""
    batch, heads, (options, operands) = TOKENS // length, WIDTH // d, CHANGES[change]
    shape = (batch, heads, length, d)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        q, k, v, grad = (kit.normal(shape, "bfloat16") for _ in range(4))
        made = {f"grad_{n}": kit.empty(shape, "bfloat16") for n in "qkv"}
        calls: Calls = {}
        for name, more, chosen in ((OURS, operands(kit, heads, length), options), ("unchanged", {}, {})):
            arrays = {**_attended(kit, q, k, v, more, causal=True, **chosen), "grad": grad, **made}
            desc = bp.AttentionBackwardDescriptor.of(**arrays, causal=True, **chosen)
            plan = bp.AttentionBackwardPlan.select(desc, bp.PlanPreference(deterministic=False))
            calls[name] = plan.bind(**arrays, **chosen)
        return calls

    size = itemsize("bfloat16") * batch * length * d * heads
    flops = 10 * d * batch * heads * length * ((length + 1) // 2)
    target = Target(1 / 1.35, "paired", "unchanged") if change == "softcap" else None
    return Row(
        "attention_backward", f"fast d{d} S={length} causal {change}", "attention_backward", shape, "bfloat16", 5 * size,
        3 * size, make, target, flops=flops,
    )  # fmt: skip


def _rows() -> Iterator[Row]:
    for way in ("fast", "deterministic"):
        for d in (64, 128, 256):
            for causal in (False, True):
                for length in LENGTHS:
                    yield _backward(length, d, causal, way)
        for causal in (False, True):
            yield _backward(4096, 128, causal, way, group=4)
    for d in (128, 256):
        for change in CHANGES:
            yield _changed(4096, d, change)


ATTENTION_BACKWARD_ROWS: tuple[Row, ...] = tuple(_rows())
