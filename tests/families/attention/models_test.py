"""Attention of models that are served, at their heads and columns: a prompt, then a token over pages, against a plain formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.samples.models import MODELS, Model

COVERS = ("attention", "paged_attention", "attention_decode", "rope", "paged_kv_append")
TOKENS, SHORT = 13, 5  # of a prompt, and the window that stands for the model's
Array = np.ndarray[Any, Any]


def shortened(model: Model) -> Model:
    """With a window that a prompt of a few tokens reaches beyond."""
    return model._replace(window=model.window and SHORT)


def rotated_exactly(model: Model, x: Array, first: int) -> Array:
    """[tokens, heads, columns] by complex numbers."""
    columns = x[..., -model.rotated :] if model.latent else x[..., : model.rotated]
    pairs = columns.reshape(*columns.shape[:-1], -1, 2)
    if model.style == "half":
        pairs = np.stack(np.split(columns, 2, axis=-1), axis=-1)
    frequency = (model.base ** -(np.arange(0, model.rotated, 2) / model.rotated)).astype(np.float32)
    angle = np.arange(first, first + len(x))[:, None, None] * frequency.astype(np.float64)
    both = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angle)
    made = np.stack([both.real, both.imag], axis=-1)
    own = made.reshape(columns.shape) if model.style != "half" else np.concatenate([both.real, both.imag], axis=-1)
    rest = x[..., : -model.rotated] if model.latent else x[..., model.rotated :]
    return np.concatenate([rest, own] if model.latent else [own, rest], axis=-1)


def by_hand(model: Model, q: Array, k: Array, v: Array, sinks: Array | None) -> Array:
    """The last tokens over all keys, row by row: [tokens, heads, columns]."""
    group, out = model.heads // model.kv_heads, np.zeros((*q.shape[:2], v.shape[-1]))
    for i, h in np.ndindex(*q.shape[:2]):
        last = len(k) - len(q) + i
        seen = slice(max(0, last + 1 - model.window) if model.window else 0, last + 1)
        s = k[seen, h // group] @ q[i, h] * (model.scale or q.shape[-1] ** -0.5)
        s = s if model.softcap is None else model.softcap * np.tanh(s / model.softcap)
        own = [] if sinks is None else [sinks[h]]
        weights = np.exp(s - max([*s, *own]))
        total = weights.sum() + sum(np.exp(x - max([*s, *own])) for x in own)
        out[i, h] = weights / total @ v[seen, h // group]
    return out


def activations(model: Model, tokens: int, seed: int) -> tuple[Array, Array, Array]:
    """q, k and v of f32, [tokens, heads, columns]; latent values are the keys' first columns."""
    rng = np.random.default_rng(seed)
    q, k = (rng.standard_normal((tokens, n, model.head_dim)).astype(np.float32) for n in (model.heads, model.kv_heads))
    v = rng.standard_normal((tokens, model.kv_heads, model.v_head_dim)).astype(np.float32)
    return q, k, k[..., : model.v_head_dim] if model.latent else v


def rotated(model: Model, x: Array, first: int, device: str) -> Any:
    """By `rope`; of latent heads the last columns."""
    x = x.copy()
    part = x[..., -model.rotated :] if model.latent else x
    bp.rope(
        part, base=model.base, rotary_dim=model.rotated, style=model.style, layout="THD", offset=first, out=part,
        device=device,
    )  # fmt: skip
    return x


@pytest.mark.parametrize("name", MODELS)
def test_a_prompt_and_a_token(name: str) -> None:
    """The prompt by `attention`, in f32; then one more token, behind the prompt in a paged cache of f16."""
    model, device = shortened(MODELS[name]), "cpu"
    sinks = np.linspace(-1, 3, model.heads, dtype=np.float32) if model.sinks else None
    q, k, v = activations(model, TOKENS + 1, 7)
    rotated_q, rotated_k = (rotated(model, x, 0, device) for x in (q, k))
    wide = [rotated_exactly(model, x.astype(np.float64), 0) for x in (q, k)]
    np.testing.assert_allclose(rotated_q, wide[0], atol=2e-5)

    heads_first = [np.ascontiguousarray(x[:TOKENS].swapaxes(0, 1)[None]) for x in (rotated_q, rotated_k, v)]
    got = bp.attention(*heads_first, causal=True, sinks=sinks, device=device, **model.options)
    wanted = by_hand(model, wide[0][:TOKENS], wide[1][:TOKENS], v[:TOKENS].astype(np.float64), sinks)
    np.testing.assert_allclose(got[0].swapaxes(0, 1), wanted, atol=3e-5)

    spec = bp.KVCacheSpec(1, model.kv_heads, model.head_dim, model.v_head_dim, page_size=4, element="f16")
    scaling = None if model.latent else bp.RopeScaling.plain(model.rotated, model.base)
    style = "half" if model.latent else model.style  # the cache rotates where it knows the angles
    cache = bp.PagedKVCache(spec, 8, max_batch=1, device=device, rope=scaling, style=style)
    sequence = cache.allocate(TOKENS)
    for first, count in ((0, TOKENS), (TOKENS, 1)):
        cache.stage([sequence])
        new = (rotated_k if model.latent else k)[first : first + count]
        assert not cache.append(0, new.astype(np.float16), v[first : first + count].astype(np.float16)).any()
        cache.advance([sequence])
        if first == 0:
            cache.extend({sequence: 1})
    last = rotated_q[None, TOKENS:].astype(np.float16)
    pages = {part: cache.layer(0)[part] for part in ("k_pages", "v_pages")}
    got = bp.paged_attention(
        last, **pages, page_table=cache.page_table, lengths=cache.lengths_after, sinks=sinks, device=device,
        **model.options,
    )  # fmt: skip
    k16 = (
        rotated_exactly(model, k.astype(np.float16).astype(np.float64), 0)
        if not model.latent
        else rotated_k.astype(np.float16)
    )
    v16 = v.astype(np.float16).astype(np.float64)
    wanted = by_hand(model, last[0].astype(np.float64), k16.astype(np.float64), v16, sinks)
    np.testing.assert_allclose(got[0].astype(np.float64), wanted, atol=4e-3)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("device", ["h200", "sm_80"])
def test_kernels_are_chosen_at_lengths_that_are_served(name: str, device: str) -> None:
    model = MODELS[name]
    fields: dict[str, Any] = {"window": model.options.get("window"), "softcapped": model.softcap is not None}
    if model.sinks:
        fields["sinks_element"] = "f32"
    pages = [(1024, 64, model.kv_heads, columns) for columns in (model.head_dim, model.v_head_dim)]
    paged = bp.PagedAttentionDescriptor((16, 1, model.heads, model.head_dim), *pages, (16, 64), "bf16", **fields)
    assert bp.PagedAttentionPlan.select(paged, device=device).kernels
    angles: dict[str, Any] = {"inv_freq_shape": (model.rotated // 2,)}
    rope = bp.RopeDescriptor((4096, model.heads, model.rotated), "bf16", model.style, "THD", **angles)
    assert bp.RopePlan.select(rope, device=device).kernels
