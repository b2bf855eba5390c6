"""Rows of attention forward, beside PyTorch's FlashAttention-2 and cuDNN backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .harness import OURS
from .operands import Kit, TorchCall, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["ATTENTION_ROWS", "BACKENDS", "CHANGES", "CUDNN", "FA2", "Changes", "banded", "peer"]

FA2, CUDNN = "torch FA2", "torch cuDNN"
FREE = "own"  # ours, whose bits depend on the batch
WITH_MAX_SEQLEN = "max_seqlen"  # ours, with the longest sequence's length
BACKENDS = {FA2: "FLASH_ATTENTION", CUDNN: "CUDNN_ATTENTION"}
TOKENS = 16384  # of all sequences together
WIDTH = 2048  # columns of all heads together
TARGETS = Target(0.95, "paired", FA2), Target(0.95, "alone", FA2)
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
    return Row(
        "attention", label, "attention", shape, "bfloat16", size * (heads + 2 * heads // group), size * heads, make,
        *TARGETS, flops=4 * d * pairs,
    )  # fmt: skip


def banded(torch: Any, q: Any, k: Any, v: Any, window: int | None) -> Callable[[], Any]:
    """FlashAttention-2 where a query sees itself and the `window` - 1 keys before it (None: all of them), and the last query the
    last key, which its caller has no word for."""
    attend = torch.ops.aten._flash_attention_forward
    lengths, given = (q.shape[2], k.shape[2]), [x.transpose(1, 2) for x in (q, k, v)]
    sides = {"window_size_left": (window or 0) - 1, "window_size_right": 0}
    return lambda: attend(*given, None, None, *lengths, 0.0, True, False, **sides)


def _windowed(length: int, d: int, window: int) -> Row:
    """Causal, and no further back than `window` keys."""
    batch, heads = TOKENS // length, WIDTH // d
    shape = (batch, heads, length, d)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        q, k, v = (kit.normal(shape, "bfloat16") for _ in "qkv")
        given = {"q": q, "k": k, "v": v, "out": kit.empty(shape, "bfloat16")}
        desc = bp.AttentionDescriptor.of(**given, causal=True, window=(window - 1, 0))
        calls: Calls = {OURS: bp.AttentionPlan.select(desc).bind(**given)}
        if kit.torch is not None:
            calls[FA2] = TorchCall(banded(kit.torch, *map(kit.as_torch, (q, k, v)), window))
        return calls

    reach = min(length, window)
    pairs = batch * heads * (reach * (reach + 1) // 2 + (length - reach) * reach)
    size = itemsize("bfloat16") * batch * length * d * heads
    return Row(
        "attention", f"d{d} S={length} causal window {window}", "attention", shape, "bfloat16", 3 * size, size, make,
        *TARGETS, flops=4 * d * pairs,
    )  # fmt: skip


def _invariant(length: int, d: int) -> Row:
    """What it costs that a sequence's bits do not depend on the batch."""
    batch, heads = TOKENS // length, WIDTH // d
    shape = (batch, heads, length, d)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        given = {name: kit.normal(shape, "bfloat16") for name in "qkv"} | {"out": kit.empty(shape, "bfloat16")}
        desc = bp.AttentionDescriptor.of(**given, causal=True)
        asked = ((OURS, bp.PlanPreference(batch_invariant=True)), (FREE, bp.PlanPreference()))
        return {name: bp.AttentionPlan.select(desc, pref).bind(**given) for name, pref in asked}

    size = itemsize("bfloat16") * batch * length * d * heads
    flops = 4 * d * batch * heads * length * ((length + 1) // 2)
    name = f"batch-invariant d{d} S={length} causal"
    return Row("attention", name, "attention", shape, "bfloat16", 3 * size, size, make, flops=flops)


def _ragged(sequences: int, length: int) -> Row:
    """Sequences one behind the other, without the longest one's length and with it."""
    heads, kv_heads, d = 32, 8, 128
    shape, of_keys = (sequences * length, heads, d), (sequences * length, kv_heads, d)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        starts = kit.xp.arange(0, (sequences + 1) * length, length, dtype="int32")
        q, k, v = (kit.normal(s, "bfloat16") for s in (shape, of_keys, of_keys))
        given = {
            "q": q,
            "k": k,
            "v": v,
            "cu_seqlens_q": starts,
            "cu_seqlens_k": starts,
            "out": kit.empty(shape, "bfloat16"),
        }
        calls: Calls = {}
        for name, longest in ((OURS, None), (WITH_MAX_SEQLEN, length)):
            desc = bp.AttentionDescriptor.of(
                **given, layout="THD", causal=True, max_seqlen_q=longest, max_seqlen_k=longest
            )
            calls[name] = bp.AttentionPlan.select(desc).bind(**given)
        if kit.torch is not None:
            tensors = [kit.as_torch(x) for x in (q, k, v, starts)]
            calls[FA2] = TorchCall(_varlen(kit.torch, *tensors, length))
        return calls

    pairs = sequences * heads * length * (length + 1) // 2
    size = itemsize("bfloat16") * sequences * length * d
    return Row(
        "attention", f"ragged {sequences}x{length} {heads}/{kv_heads} d{d} causal", "attention", shape, "bfloat16",
        size * (heads + 2 * kv_heads), size * heads, make, Target(0.95, "paired", WITH_MAX_SEQLEN), flops=4 * d * pairs,
    )  # fmt: skip


def _varlen(torch: Any, q: Any, k: Any, v: Any, starts: Any, length: int) -> Callable[[], Any]:
    """FlashAttention-2 of ragged sequences."""
    attend = torch.ops.aten._flash_attention_forward
    return lambda: attend(q, k, v, starts, starts, length, length, 0.0, True, False)


class Changes(NamedTuple):
    """What changes scores of a row: arguments of the function, and how operands are made, [heads, length]."""

    options: dict[str, Any]
    operands: Callable[[Kit, int, int], dict[str, Any]] = lambda kit, heads, length: {}


def _slopes(kit: Kit, heads: int, _: int) -> dict[str, Any]:
    return {"alibi_slopes": 2.0 ** -kit.xp.linspace(0.5, 8, heads, dtype="float32")}


def _half(kit: Kit, _: int, length: int) -> dict[str, Any]:
    return {"mask": kit.normal((length, length), "float32") > 0}


CHANGES = {
    "softcap": Changes({"softcap": 50.0}), "ALiBi": Changes({}, _slopes), "bool mask": Changes({}, _half),
}  # fmt: skip
PLAIN = "unchanged"


def _changed(length: int, d: int, change: str) -> Row:
    """Causal, with scores that are changed, beside the same where they are not."""
    batch, heads, (options, operands) = TOKENS // length, WIDTH // d, CHANGES[change]
    shape = (batch, heads, length, d)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        given = {name: kit.normal(shape, "bfloat16") for name in "qkv"} | {"out": kit.empty(shape, "bfloat16")}
        more = operands(kit, heads, length)
        calls: Calls = {}
        for name, arrays, chosen in ((OURS, given | more, options), (PLAIN, given, {})):
            plan = bp.AttentionPlan.select(bp.AttentionDescriptor.of(**arrays, causal=True, **chosen))
            calls[name] = plan.bind(**arrays, **chosen)
        return calls

    size = itemsize("bfloat16") * batch * length * d * heads
    flops = 4 * d * batch * heads * length * ((length + 1) // 2)
    target = Target(1 / 1.35, "paired", PLAIN) if change == "softcap" else None
    label = f"d{d} S={length} causal {change}"
    return Row("attention", label, "attention", shape, "bfloat16", 3 * size, size, make, target, flops=flops)


def _rows() -> Iterator[Row]:
    for d in (64, 128, 256):
        for causal in (False, True):
            for length in LENGTHS:
                yield _attention(length, d, causal)
    for causal in (False, True):
        yield _attention(4096, 128, causal, group=4)
    for d in (64, 128, 256):
        for length in (4096, 16384):
            yield _windowed(length, d, 1024)
        yield _invariant(4096, d)
    yield _ragged(256, 512)
    for d in (128, 256):
        for change in CHANGES:
            yield _changed(4096, d, change)


ATTENTION_ROWS: tuple[Row, ...] = tuple(_rows())
