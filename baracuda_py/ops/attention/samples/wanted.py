"""Attention: splits of a short sequence that are left without keys, halves of the value columns, gradients of sinks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....samples.sample import Sample
from ....samples.wanted import Problems, bf16, f16, f32
from ....types import ElementKind
from .decode import pages_of
from .forward import qkv

problems = Problems()
rng, n, want = problems.rng, problems.normal, problems.want

# ---- whole sequences: maxima that grow from block to block of keys, statistics with strides, heads in sections, block masks


def growing(order: int) -> Sample:
    """Scores that grow with the key, or fall: sums and values so far are rescaled at every block of keys."""
    given: dict[str, Any] = qkv(rng, ElementKind.BF16, 1, (2, 1), 20, 300, 64)
    ramp = np.linspace(-6, 6, 300)[::order].reshape(1, 1, -1, 1)
    given["q"] = (np.abs(given["q"].astype(np.float32)) + 1).astype(bf16)
    given["k"] = (ramp + 0.1 * given["k"].astype(np.float32)).astype(bf16)
    return Sample(f"bf16 scores that {'grow' if order > 0 else 'fall'}", given, {"return_lse": True})


for variant in ("flash", "tc", "simt"):
    for order in (1, -1):
        want(f"attention-rescaled-{variant}-{order}", "attention", growing(order), variant)
    # Statistics in every other place of a wider array, and in a transposed one
    for lse in (n((1, 2, 140))[:, :, ::2], n((1, 70, 2)).transpose(0, 2, 1)):
        arrays = {**qkv(rng, ElementKind.F16, 1, (2, 2), 70, 70, 64), "lse": lse}
        want(f"attention-lse-{variant}-{lse.strides}", "attention", Sample(f"f16 lse {lse.strides}", arrays), variant)
mask = rng.integers(0, 2, (1, 1, 9, 9)).astype(bool)
mask[..., 0], mask[..., 8] = True, False  # no query sees the last, of 12 keys
ragged = Sample(
    "bf16 blocks of 16, 130 x 140", qkv(rng, ElementKind.BF16, 1, (2, 1), 130, 140, 64), {"block_size": (16, 16)}
)
ragged.operands["block_mask"] = mask  # type: ignore[index]
want("attention-block-mask-ragged", "attention", ragged, "flash")
# Bool entries in adjacent pairs, some beside rows and keys that are not visible, and pairs that begin anywhere
for rows, keys in ((160, 150), (70, 131)):
    masked = qkv(rng, ElementKind.BF16, 1, (2, 1), rows, keys, 64)
    masked["mask"] = rng.random((1, 1, rows, keys)) < 0.6
    want(f"attention-bool-mask-{rows}", "attention", Sample(f"bf16 bool mask {rows} x {keys}", masked), "flash")
# More heads than a section of L2 holds, and not a multiple of them
in_sections = Sample("bf16 7 heads", qkv(rng, ElementKind.BF16, 1, (7, 7), 100, 100, 64), {"causal": True})
want("attention-heads-in-sections", "attention", in_sections, "flash", sms=2)
want("attention-tc-heads-in-sections", "attention", in_sections, "tc", sms=2)


# ---- decoding: splits of a short sequence that are left without keys, and CTAs of a cluster with half of the values' columns
def decoded(keys: int, lengths: tuple[int, ...], heads: int, d: int, d_v: int) -> Sample:
    arrays = qkv(rng, ElementKind.BF16, len(lengths), (heads, 1), 1, keys, d, d_v)
    return Sample(f"bf16 {lengths} of {keys}", {**arrays, "lengths": np.array(lengths, np.int32)}, {"return_lse": True})


want(
    "decode-splits-without-keys",
    "attention_decode",
    decoded(300, (290, 3), 2, 64, 64),
    "split_keys",
    ("16x64 splits=2 stages=4",),
)
want(
    "latent-splits-without-keys",
    "attention_decode",
    decoded(200, (190, 3), 2, 576, 512),
    "latent_keys",
    ("64x64 splits=2", "64x64 splits=2 halved"),
)
want(
    "latent-wgmma-splits-without-keys",
    "attention_decode",
    decoded(200, (190, 3), 2, 576, 512),
    "latent_wgmma",
    ("64x64 splits=2",),
)
want(
    "decode-halves-of-values",
    "attention_decode",
    decoded(300, (290,), 2, 64, 64),
    "split_keys",
    ("16x32 splits=8 *",),
    sms=16,
)


# ---- pages: one that is missing where only a later warp looks
def missing_page(at: int, pages: int = 100) -> Sample:
    """One sequence of so many pages, of which one is not there; the status says so."""
    held = n((pages, 16, 1, 64), f16)
    table = np.arange(pages, dtype=np.int32)[None].copy()
    table[0, at] = -1
    lengths = np.array([pages * 16], np.int32)
    given = {
        "q": n((1, 1, 1, 64), f16),
        "k_pages": held,
        "v_pages": held.copy(),
        "page_table": table,
        "lengths": lengths,
    }
    return Sample(f"f16 page {at} of {pages} missing", given, {"return_status": True})


for at in (33, 70, 99):
    want(f"page-missing-{at}", "paged_attention", missing_page(at), "split_pages")


# ---- gradients of sinks, of more rows than a CTA has threads
def with_sinks(rows: int, keys: int, d: int) -> Sample:
    """One head of attention with a sink, and its results as they would have been saved."""
    q, k, v, grad = (n((1, 1, x, d), f32) for x in (rows, keys, keys, rows))
    scores, sink = q @ k.swapaxes(-1, -2) / np.sqrt(d), n((1,))
    lse = np.log(np.exp(scores).sum(-1) + np.exp(sink))
    out = (np.exp(scores - lse[..., None]) @ v).astype(f32)
    given = {"q": q, "k": k, "v": v, "sinks": sink, "grad": grad, "out": out, "lse": lse.astype(f32)}
    return Sample(f"f32 {rows} rows, a sink", given)


want("sinks-of-many-rows", "attention_backward", with_sinks(300, 9, 16))


# ---- gradients where a bool mask hides keys, some of the last rows and keys among them
def one_head(rows: int, keys: int, d: int, drawn: Callable[[], Any]) -> tuple[dict[str, Any], Any]:
    """One head of attention and its results as they would have been saved, and which keys count, drawn last."""
    q, k, v, grad = (n((1, 1, x, d), bf16).astype(f32) for x in (rows, keys, keys, rows))
    seen = drawn()
    scores = np.where(seen, q @ k.swapaxes(-1, -2) / np.sqrt(d), -np.inf)
    lse = np.log(np.exp(scores).sum(-1))
    out = np.exp(scores - lse[..., None]) @ v
    rounded = {name: x.astype(bf16) for name, x in {"q": q, "k": k, "v": v, "grad": grad, "out": out}.items()}
    return {**rounded, "lse": lse.astype(f32)}, seen


def with_mask(rows: int, keys: int, d: int) -> Sample:
    given, mask = one_head(rows, keys, d, lambda: rng.random((1, 1, rows, keys)) < 0.6)
    return Sample(f"bf16 {rows} x {keys}, bool mask", {**given, "mask": mask})


want("attention-backward-bool-mask", "attention_backward", with_mask(70, 75, 64), "fast")


# ---- whole sequences by wgmma: persistent CTAs that take several tiles in turn, two and three consumers, every head dim, bases
# that move, a negative scale
def whole(label: str, rows: int, keys: int, d: int, d_v: int | None = None, heads: int = 3, **options: Any) -> Sample:
    given = qkv(rng, ElementKind.BF16, 1, (heads, 1), rows, keys, d, d_v)
    return Sample(f"bf16 {label}, {rows} x {keys}", given, {"return_lse": True, **options})


def by_wgmma(name: str, sample: Sample, *configs: str) -> None:
    want(f"attention-wgmma-{name}", "attention", sample, "wgmma", configs, sms=2)


by_wgmma(
    "turns", whole("d128", 150, 400, 128, causal=True), "128x128 ping_pong dynamic ahead", "128x128 persistent ahead"
)
by_wgmma("one-block", whole("d128", 300, 100, 128, heads=2), "128x128 ping_pong persistent ahead")
by_wgmma("three-consumers", whole("d64", 210, 380, 64, causal=True), "192x128 ping_pong dynamic ahead")
by_wgmma("wide", whole("d256", 130, 180, 256, heads=2, scale=-0.05), "128x64 persistent")
by_wgmma("window", whole("d192 d_v128", 150, 390, 192, 128, heads=2, window=(50, 5)), "128x112 dynamic")
by_wgmma("nothing-seen", whole("d64", 500, 90, 64, heads=2, causal=True), "192x128 ping_pong persistent ahead")
by_wgmma("grows", growing(1), "*")
by_wgmma("falls", growing(-1), "*")


# ---- prompts against pages by wgmma: a page that is missing, boxes behind the last key, several tiles a CTA, sequences that are
# checked, a page a block of keys and several
def prompted(page_keys: int, d: int, missing: bool) -> Sample:
    """Two ragged prompts over pages; of the first one's, one is not there."""
    made = pages_of(rng, ElementKind.BF16, [190, 20], page_keys, 1, d)
    if missing:
        made["page_table"][0, 1] = -1
    starts = np.array([0, 70, 90], np.int32)
    given = {"q": n((90, 2, d), bf16), **made, "cu_seqlens_q": starts}
    return Sample(
        f"bf16 prompts over {page_keys} keys a page, d{d}", given, {"return_lse": True, "return_status": True}
    )


for page_keys, d, config in (
    (16, 128, "128x128 ping_pong dynamic ahead"), (128, 128, "128x128 persistent ahead"),
    (64, 64, "128x128 ping_pong persistent ahead"),
):  # fmt: skip
    sample = prompted(page_keys, d, missing=page_keys == 16)
    want(f"paged-wgmma-{page_keys}-{d}", "paged_attention", sample, "wgmma_pages", (config,), sms=2)


# ---- gradients by wgmma: several rounds of a CTA and one, the last block of keys short, in a window
def in_window(rows: int, keys: int, d: int, left: int) -> Sample:
    distance = np.arange(keys) - np.arange(keys - rows, keys)[:, None]
    given, _ = one_head(rows, keys, d, lambda: (distance <= 0) & (distance >= -left))
    return Sample(f"bf16 d{d} {rows} x {keys}, window", given, {"causal": True, "window": (left, 0)})


for d, rows, keys in ((128, 140, 300), (64, 150, 200)):
    for variant in ("wgmma", "wgmma_fast"):
        want(f"attention-backward-{variant}-{d}", "attention_backward", in_window(rows, keys, d, 120), variant, sms=2)


# ---- softcap, ALiBi and bool masks by wgmma: masks whose rows are read 16 entries at a time, and in other ways where they are
# not aligned or a block of keys is short; entries above 1; rows that see nothing
def hidden(label: str, rows: int, keys: int, d: int, pitch: int, heads: int = 2, **options: Any) -> Sample:
    sample = whole(f"{label}, mask in rows of {pitch}", rows, keys, d, heads=heads, **options)
    mask = (rng.integers(0, 3, (1, heads, rows, pitch)) * rng.integers(1, 100, (1, 1, 1, pitch))).astype(np.uint8)
    mask[:, :, rows // 2] = 0
    return replace(sample, operands={**sample.operands, "mask": mask.view(bool)[..., :keys]})


def sloped(sample: Sample, heads: int = 2) -> Sample:
    return replace(sample, operands={**sample.operands, "alibi_slopes": np.linspace(-0.25, 0.5, heads, dtype=f32)})


by_wgmma("mask", hidden("d128", 140, 300, 128, 304, causal=True), "128x128 ping_pong dynamic ahead")
by_wgmma("mask-by-entries", hidden("d64", 140, 200, 64, 201), "192x112 ping_pong dynamic ahead")
by_wgmma("mask-d192", hidden("d192", 140, 150, 192, 160, heads=1, softcap=3.0), "128x96 ping_pong dynamic")
by_wgmma("mask-alibi", sloped(hidden("d128", 140, 250, 128, 256)), "128x128 ping_pong dynamic ahead")
by_wgmma("alibi", sloped(whole("d64", 210, 230, 64, heads=2, causal=True)), "192x112 ping_pong dynamic ahead")
by_wgmma(
    "softcap",
    whole("d128", 150, 300, 128, heads=2, softcap=2.0, scale=4.0, window=(90, 20)),
    "128x128 ping_pong dynamic ahead",
)
by_wgmma("softcap-alibi", sloped(whole("d256", 70, 150, 256, heads=2, softcap=2.0, causal=True)), "128x64 dynamic")


# ---- short windows: heads of a group together, one block of keys a tile and several, a first tile that begins before the first
# query, ragged sequences of which one is empty
def together(label: str, rows: int, keys: int, d: int, heads: int, left: int, right: int = 0) -> Sample:
    return whole(f"{label} window ({left}, {right})", rows, keys, d, heads=heads, window=(left, right))


by_wgmma("heads-together", together("d64", 70, 170, 64, 8, 127), "128x144 heads=8 ping_pong dynamic ahead")
by_wgmma("two-heads-together", together("d128", 150, 333, 128, 2, 260, 7), "128x128 heads=2 ping_pong persistent ahead")
several = {name: n((rows, heads, 64), bf16) for name, rows, heads in (("q", 90, 4), ("k", 205, 1), ("v", 205, 1))}
several["cu_seqlens_q"] = np.array([0, 34, 34, 89, 90], np.int32)
several["cu_seqlens_k"] = np.array([0, 65, 70, 125, 205], np.int32)
by_wgmma(
    "ragged-heads-together",
    Sample("bf16 d64 ragged window", several, {"return_lse": True, "window": (60, 0), "layout": "THD"}),
    "128x96 heads=4 ping_pong dynamic ahead",
)

# ---- a mask for all queries, and gradients with masks by wgmma and by slices: tiles of bits at the end of queries and of keys
seen = {"mask": rng.random((1, 1, 1, 170)) < 0.5}
plain = whole("d256 mask of keys", 70, 170, 256, heads=2)
by_wgmma("mask-of-keys", replace(plain, operands={**plain.operands, **seen}), "128x80 dynamic")
for variant, d in (("wgmma", 128), ("wgmma_fast", 64), ("deterministic", 256)):
    want(f"attention-backward-{variant}-mask", "attention_backward", with_mask(150, 210, d), variant, sms=2)
