"""Rows of decoding, dense and over pages, beside PyTorch's scaled dot product attention by each of its backends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .attention_rows import CUDNN, FA2, banded, peer
from .harness import OURS
from .operands import Kit, TorchCall, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["DECODE_ROWS", "peers"]

DENSE = "dense"  # our own, the same keys one behind the other
FREE = "own"  # ours, whose bits depend on the batch
BACKENDS = {
    FA2: "FLASH_ATTENTION",
    CUDNN: "CUDNN_ATTENTION",
    "torch efficient": "EFFICIENT_ATTENTION",
}
SPLIT = "split_pages"  # ours, by the kernel of few tokens
D = 128
PAGE = 64


class Decode(NamedTuple):
    """One token a sequence, whose caches are full."""

    batch: int
    keys: int
    heads: int = 32
    kv_heads: int = 8

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, self.heads, 1, D)

    @property
    def caches(self) -> tuple[int, ...]:
        return (self.batch, self.kv_heads, self.keys, D)

    @property
    def label(self) -> str:
        return f"B{self.batch} S={self.keys} {self.heads}/{self.kv_heads} d{D}"

    def bytes(self, element: str) -> int:
        """Of keys and values."""
        return 2 * int(np.prod(self.caches)) * itemsize(element)


# Batches, lengths and heads as servers have them. Nothing was fitted to them; one of them chose between values alike otherwise.
SERVING = (
    Decode(1, 101, 32, 8), Decode(1, 129_973, 64, 8), Decode(2, 65_537, 8, 1), Decode(3, 1_013, 64, 4),
    Decode(5, 30_011, 32, 4), Decode(7, 259, 8, 1), Decode(11, 9_001, 64, 8), Decode(16, 4_999, 32, 1),
    Decode(23, 2_003, 8, 8), Decode(32, 517, 32, 8), Decode(48, 1_531, 64, 8), Decode(64, 3_001, 32, 4),
)  # fmt: skip


def peers(kit: Kit, q: Any, k: Any, v: Any) -> Calls:
    """The backends that take the problem."""
    torch, calls = kit.torch, Calls()
    if torch is None:
        return calls
    given = [kit.as_torch(x) for x in (q, k, v)]
    for name, backend in BACKENDS.items():
        call = TorchCall(_peer(torch, backend, *given))
        try:
            call()
        except RuntimeError:  # no kernel of it for grouped heads, or for so few queries
            continue
        calls[name] = call
    return calls


def _peer(torch: Any, backend: str, q: Any, k: Any, v: Any) -> Callable[[], Any]:
    kernel, whose = torch.nn.attention.sdpa_kernel, getattr(torch.nn.attention.SDPBackend, backend)
    attend, grouped = torch.nn.functional.scaled_dot_product_attention, q.shape[1] != k.shape[1]

    def call() -> Any:
        with kernel(whose):
            return attend(q, k, v, enable_gqa=grouped)

    return call


def _dense(kit: Kit, decode: Decode, *, invariant: bool = False) -> tuple[Calls, tuple[Any, Any, Any]]:
    import baracuda_py as bp

    q, k, v = (kit.normal(s, "bfloat16") for s in (decode.shape, decode.caches, decode.caches))
    lengths, out = _full(kit, decode), kit.empty(decode.shape, "bfloat16")
    desc, pref = (
        bp.DecodeAttentionDescriptor.of(q, k, v, lengths, out=out),
        bp.PlanPreference(batch_invariant=invariant),
    )
    plan = bp.DecodeAttentionPlan.select(desc, pref)
    return {OURS: plan.bind(q=q, k=k, v=v, lengths=lengths, out=out)}, (q, k, v)


def _full(kit: Kit, decode: Decode) -> Any:
    return kit.xp.full(decode.batch, decode.keys, np.int32)


def _row(group: str, decode: Decode, target: Target, also: Target | None = None) -> Row:
    def make(kit: Kit) -> Calls:
        calls, given = _dense(kit, decode)
        return calls | peers(kit, *given)

    read, written = decode.bytes("bfloat16"), int(np.prod(decode.shape)) * itemsize("bfloat16")
    return Row(
        group, decode.label, "attention_decode", decode.caches, "bfloat16", read + written, written, make, target, also
    )


def _invariant(decode: Decode) -> Row:
    """What it costs that a sequence's bits do not depend on the batch."""

    def make(kit: Kit) -> Calls:
        return _dense(kit, decode, invariant=True)[0] | {FREE: _dense(kit, decode)[0][OURS]}

    read, written = decode.bytes("bfloat16"), int(np.prod(decode.shape)) * itemsize("bfloat16")
    label = f"batch-invariant {decode.label}"
    return Row("decode", label, "attention_decode", decode.caches, "bfloat16", read + written, written, make)


def _paged(decode: Decode, layout: str, page_keys: int, element: str, target: Target | None) -> Row:
    """Pages in no order. Beside our own dense caches, where both hold the same."""

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        each = -(-decode.keys // page_keys)
        inner = (page_keys, decode.kv_heads) if layout == "NHD" else (decode.kv_heads, page_keys)
        pages = [kit.normal((decode.batch * each, *inner, D), element) for _ in "kv"]
        if element == "float8_e4m3fn":
            pages = [bp.GpuBuffer.view(x, element) for x in pages]
        order = np.random.default_rng(0).permutation(decode.batch * each).reshape(decode.batch, each)
        given = {
            "q": kit.normal((decode.batch, 1, decode.heads, D), "bfloat16"), "k_pages": pages[0], "v_pages": pages[1],
            "page_table": kit.xp.asarray(order, np.int32), "lengths": _full(kit, decode),
            "out": kit.empty((decode.batch, 1, decode.heads, D), "bfloat16"),
        }  # fmt: skip
        plan = bp.PagedAttentionPlan.select(bp.PagedAttentionDescriptor.of(**given, layout=layout))
        calls: Calls = {OURS: plan.bind(**given)}
        return calls | ({DENSE: _dense(kit, decode)[0][OURS]} if element == "bfloat16" else {})

    written = int(np.prod(decode.shape)) * itemsize("bfloat16")
    label = f"{layout} page {page_keys} {decode.label}" + ("" if element == "bfloat16" else f" {element}")
    return Row(
        "paged",
        label,
        "paged_attention",
        decode.caches,
        element,
        decode.bytes(element) + written,
        written,
        make,
        target,
    )


def _prompt(batch: int, tokens: int, keys: int, target: Target | None) -> Row:
    """New tokens of prompts, the last ones of `keys`, in pages of 64 in no order. Beside dense attention, our own and PyTorch's;
    cuDNN's sees keys from the top left, which is the same where there are as many tokens as keys."""
    heads, kv_heads, each = 32, 8, keys // PAGE
    shape, caches = (batch, heads, tokens, D), (batch, kv_heads, keys, D)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        order = np.random.default_rng(0).permutation(batch * each).reshape(batch, each)
        pages = [kit.normal((batch * each, PAGE, kv_heads, D), "bfloat16") for _ in "kv"]
        q, out = kit.normal((batch, tokens, heads, D), "bfloat16"), kit.empty((batch, tokens, heads, D), "bfloat16")
        given = {
            "q": q, "k_pages": pages[0], "v_pages": pages[1], "page_table": kit.xp.asarray(order, np.int32),
            "lengths": kit.xp.full(batch, keys, np.int32), "out": out,
        }  # fmt: skip
        asked = {OURS: bp.PlanPreference(), SPLIT: bp.PlanPreference(variant="split_pages")}
        desc = bp.PagedAttentionDescriptor.of(**given)
        calls: Calls = {name: bp.PagedAttentionPlan.select(desc, pref).bind(**given) for name, pref in asked.items()}
        q, k, v = (kit.normal(s, "bfloat16") for s in (shape, caches, caches))
        dense = {"q": q, "k": k, "v": v, "out": kit.empty(shape, "bfloat16")}
        calls[DENSE] = bp.AttentionPlan.select(bp.AttentionDescriptor.of(**dense, causal=True)).bind(**dense)
        if kit.torch is not None:
            tensors = [kit.as_torch(x) for x in (q, k, v)]
            calls[FA2] = TorchCall(banded(kit.torch, *tensors, None))
            if tokens == keys:
                calls[CUDNN] = TorchCall(peer(kit.torch, BACKENDS[CUDNN], *tensors, True))
        return calls

    pairs = batch * heads * (tokens * (keys - tokens) + tokens * (tokens + 1) // 2)
    of_q, read = itemsize("bfloat16") * int(np.prod(shape)), 2 * itemsize("bfloat16") * int(np.prod(caches))
    return Row(
        "paged", f"prefill B{batch} T={tokens} S={keys} {heads}/{kv_heads} d{D}", "paged_attention", caches, "bfloat16",
        read + of_q, of_q, make, target, flops=4 * D * pairs,
    )  # fmt: skip


def _rows() -> Iterator[Row]:
    cudnn = Target(1.00, "paired", "torch cuDNN")
    for decode in (Decode(16, 8192), Decode(64, 4096), Decode(1, 131_072)):
        yield _row("decode", decode, Target(1.03), cudnn)
    yield _row("decode", Decode(1, 8192), Target(1.40), Target(1.15, "paired", "torch cuDNN"))
    for decode in (Decode(16, 8192), Decode(64, 4096), Decode(1, 8192), Decode(16, 4_999, 32, 1)):
        yield _invariant(decode)
    for decode in SERVING:
        yield _row("serving", decode, cudnn)
    for decode in (Decode(16, 8192), Decode(64, 4096)):
        yield _paged(decode, "HND", 16, "bfloat16", Target(0.95, "paired", DENSE))
        yield _paged(decode, "NHD", 16, "bfloat16", Target(0.90, "paired", DENSE))
        yield _paged(decode, "NHD", 64, "bfloat16", Target(0.90, "paired", DENSE))
        yield _paged(decode, "HND", 64, "float8_e4m3fn", None)
    for batch, tokens, keys in ((4, 2048, 8192), (1, 2048, 2048), (16, 512, 4096)):
        yield _prompt(batch, tokens, keys, Target(0.91, "paired", DENSE))


DECODE_ROWS: tuple[Row, ...] = tuple(_rows())
