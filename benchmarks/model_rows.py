"""Rows of models that are served: a prompt's attention, a token's over pages, and the append of keys that turn on the way."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from baracuda_py.samples.models import MODELS, Model

from .attention_decode import peers
from .attention_rows import BACKENDS, CUDNN, FA2, peer
from .harness import OURS
from .operands import Kit, TorchCall, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["MODEL_ROWS"]

BF16 = "bfloat16"
SIZE = itemsize(BF16)
PROMPT = 8192  # tokens, beyond every window
BATCH, KEYS, PAGE = 16, 8192, 64  # of a decode step
CHUNK = 512  # tokens of a latent prompt
FLASH_MLA = 660e12  # flops a second, published


def _sinks(kit: Kit, model: Model) -> dict[str, Any]:
    return {"sinks": kit.xp.linspace(-1, 3, model.heads, dtype="float32")} if model.sinks else {}


def _prompt(name: str, model: Model) -> Row:
    """One causal sequence, [1, H, S, D]. Beside PyTorch where that has what the model asks for."""
    shapes = [
        (1, heads, PROMPT, columns)
        for heads, columns in (
            (model.heads, model.head_dim), (model.kv_heads, model.head_dim), (model.kv_heads, model.v_head_dim),
            (model.heads, model.v_head_dim),
        )
    ]  # fmt: skip

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        q, k, v = (kit.normal(shape, BF16) for shape in shapes[:3])
        given = {"q": q, "k": k, "v": v, "out": kit.empty(shapes[3], BF16), **_sinks(kit, model)}
        plan = bp.AttentionPlan.select(bp.AttentionDescriptor.of(**given, causal=True, **model.options))
        calls: Calls = {OURS: plan.bind(**given)}
        if kit.torch is not None and model.plain:
            tensors = [kit.as_torch(x) for x in (q, k, v)]
            for known, backend in BACKENDS.items():
                calls[known] = TorchCall(peer(kit.torch, backend, *tensors, True))
        return calls

    reach = min(PROMPT, model.window or PROMPT)
    pairs = model.heads * (reach * (reach + 1) // 2 + (PROMPT - reach) * reach)
    read = SIZE * sum(map(prod, shapes[:3]))
    target = Target(0.95, "paired", FA2) if model.plain else None
    flops = 2 * (model.head_dim + model.v_head_dim) * pairs
    return Row(
        "models",
        f"{name} prompt",
        "attention",
        shapes[0],
        BF16,
        read,
        SIZE * prod(shapes[3]),
        make,
        target,
        flops=flops,
    )


def _pages(kit: Kit, model: Model, batch: int, keys: int) -> dict[str, Any]:
    """Pages in no order; latent values are columns of the keys."""
    each = keys // PAGE
    k_pages = kit.normal((batch * each, PAGE, model.kv_heads, model.head_dim), BF16)
    v_pages = (
        k_pages[..., : model.v_head_dim] if model.latent else kit.normal((*k_pages.shape[:3], model.v_head_dim), BF16)
    )
    order = np.random.default_rng(0).permutation(batch * each).reshape(batch, each)
    return {"k_pages": k_pages, "v_pages": v_pages, "page_table": kit.xp.asarray(order, np.int32)}


def _token(
    label: str, model: Model, batch: int = BATCH, keys: int = KEYS, tokens: int = 1, target: Target | None = None
) -> Row:
    """The last tokens of each sequence over its pages."""
    shape = (batch, tokens, model.heads, model.head_dim)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        given = {
            "q": kit.normal(shape, BF16), **_pages(kit, model, batch, keys), "lengths": kit.xp.full(batch, keys, np.int32),
            "out": kit.empty((*shape[:3], model.v_head_dim), BF16), **_sinks(kit, model),
        }  # fmt: skip
        plan = bp.PagedAttentionPlan.select(bp.PagedAttentionDescriptor.of(**given, **model.options))
        calls: Calls = {OURS: plan.bind(**given)}
        if model.plain:
            caches = (batch, model.kv_heads, keys, model.head_dim)
            q = kit.normal((batch, model.heads, 1, model.head_dim), BF16)
            calls |= peers(kit, q, kit.normal(caches, BF16), kit.normal(caches, BF16))
        return calls

    columns = model.head_dim + (0 if model.latent else model.v_head_dim)
    seen = min(keys, model.window or keys)
    written = SIZE * prod(shape[:3]) * model.v_head_dim
    read = SIZE * (batch * seen * model.kv_heads * columns + prod(shape))
    target = Target(1.00, "paired", CUDNN) if model.plain else target
    # Of many tokens the work is counted, which is more than reading
    pairs = batch * model.heads * (tokens * keys - tokens * (tokens - 1) // 2) if tokens > 1 else 0
    flops = 2 * (model.head_dim + model.v_head_dim) * pairs
    return Row("models", label, "paged_attention", shape, BF16, read, written, make, target, flops=flops)


def _latent(name: str, model: Model) -> Iterator[Row]:
    """A step of many sequences, and a chunk of a prompt, whose speed is that which FlashMLA has published for an H800."""
    yield _token(f"{name} token 64x4096", model, 64, 4096, target=Target(1.35))
    pairs = model.heads * (CHUNK * KEYS - CHUNK * (CHUNK - 1) // 2)
    limit = 2 * (model.head_dim + model.v_head_dim) * pairs / (0.90 * FLASH_MLA) * 1e6
    yield _token(f"{name} chunk {CHUNK} over {KEYS}", model, 1, KEYS, CHUNK, Target(round(limit, 1), "absolute"))


def _append(name: str, model: Model, requests: int, tokens: int, *, rotated: bool, target: Target | None) -> Row:
    """New tokens into pages, unchanged or rotated on the way. The peer rotates them by a launch of its own."""
    shape = (requests, tokens, model.kv_heads, model.head_dim)
    v_shape = (*shape[:3], model.v_head_dim)

    def make(kit: Kit) -> Calls:
        import baracuda_py as bp

        each = -(-(tokens + PAGE) // PAGE)
        k, v = (kit.normal(s, BF16) for s in (shape, v_shape))
        pages = {
            f"{part}_pages": kit.empty((requests * each, PAGE, model.kv_heads, s[3]), BF16)
            for part, s in (("k", shape), ("v", v_shape))
        }
        inv_freq = (model.base ** (-kit.xp.arange(model.rotated // 2) * 2 / model.rotated)).astype("float32")
        given = {
            **pages, "k": k, "v": v, "lengths": kit.xp.full(requests, 17, np.int32), "status": kit.xp.zeros(requests, np.int32),
            "page_table": kit.xp.random.permutation(requests * each).reshape(requests, each).astype(np.int32),
        }  # fmt: skip
        more = {"inv_freq": inv_freq} if rotated else {}
        described = {n: x for n, x in (given | more).items() if n != "status"}
        desc = bp.PagedKvAppendDescriptor.of(**described, style=model.style)
        return {OURS: bp.PagedKvAppendPlan.select(desc).bind(**given, **more)}

    moved = SIZE * (prod(shape) + prod(v_shape))
    label = f"{name} append {requests}x{tokens}" + (" turned" if rotated else "")
    return Row("models", label, "paged_kv_append", shape, BF16, moved, moved, make, target)


def _rows() -> Iterator[Row]:
    for name, model in MODELS.items():
        if not model.latent:
            yield _prompt(name, model)
        yield _token(f"{name} token", model)
        if model.latent:
            yield from _latent(name, model)
    llama = MODELS["Llama-3 8B"]
    for rotated in (False, True):
        yield _append("Llama-3 8B", llama, 16, 1024, rotated=rotated, target=Target(1.06))
        yield _append("Llama-3 8B", llama, 64, 1, rotated=rotated, target=None)


MODEL_ROWS: tuple[Row, ...] = tuple(_rows())
