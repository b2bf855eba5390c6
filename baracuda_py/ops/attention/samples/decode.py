"""Samples of decoding, dense and over pages: lengths, groups of heads, tokens, head dims, layouts, features, several splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, values
from ....types import ElementKind
from .forward import cast, qkv

__all__ = ["attention_decode", "in_bytes", "paged_attention", "pages_of"]

Array = np.ndarray[Any, Any]
F16, BF16, F32, F64 = ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64
E4M3, E5M2, I8 = ElementKind.FP8_E4M3, ElementKind.FP8_E5M2, ElementKind.I8


def attention_decode(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Sizes, types, head dims and layouts; features."""
    rng = np.random.default_rng(seed)

    def sample(label: str, operands: dict[str, Any], lengths: Any = None, **options: Any) -> Sample:
        made = {} if lengths is None else {"lengths": np.array(lengths, np.int32)}
        return Sample(label, {**operands, **made}, options)

    yield sample("bf16 d64, lengths", qkv(rng, BF16, 3, (4, 2), 1, 70, 64), [1, 70, 33])
    yield sample("f16 d128, whole caches", qkv(rng, F16, 2, (8, 2), 1, 90, 128), return_lse=True)
    yield sample(
        "bf16 four tokens, lengths beyond the cache",
        qkv(rng, BF16, 4, (6, 2), 4, 41, 64),
        [0, 2, -9, 999],
        return_lse=True,
    )
    yield sample("bf16 several splits", qkv(rng, BF16, 1, (2, 1), 1, 700, 64), [650], return_lse=True)
    yield sample("bf16 several splits, 9 tokens", qkv(rng, BF16, 1, (2, 1), 9, 400, 32))
    yield sample("f16 64 rows and more", qkv(rng, F16, 1, (10, 1), 7, 60, 64), [57])
    yield sample("bf16 no token", qkv(rng, BF16, 1, (2, 1), 0, 20, 64))
    yield sample("bf16 empty cache", qkv(rng, BF16, 1, (2, 1), 1, 0, 64), return_lse=True)
    yield sample(
        "bf16 BSHD", qkv(rng, BF16, 2, (4, 2), 2, 50, 64, layout="BSHD"), [50, 17], layout="BSHD", return_lse=True
    )
    for element, d, d_v in ((F16, 32, 96), (BF16, 80, 72), (BF16, 256, 256)):
        yield sample(f"{element} d{d} d_v{d_v}", qkv(rng, element, 1, (2, 1), 1, 40, d, d_v), [40])
    latent = qkv(rng, BF16, 1, (4, 1), 1, 50, 576, 512)
    yield sample("bf16 latent, values are the keys' first columns", {**latent, "v": latent["k"][..., :512]}, [45])
    wide = qkv(rng, BF16, 2, (2, 2), 1, 40, 72)
    yield sample("bf16 rows apart", {n: x[..., :64] for n, x in wide.items()}, [40, 3])
    yield from _features(rng)
    yield from _quantized(rng)
    yield from _without_tensor_cores(rng)
    if full:
        yield sample("bf16 long", qkv(rng, BF16, 2, (8, 2), 1, 5000, 128), [5000, 3111], return_lse=True)


def in_bytes(
    rng: np.random.Generator, given: dict[str, Any], element: ElementKind, names: tuple[str, str]
) -> dict[str, Any]:
    """The same caches in 8 bits: normal values, or integers of the whole range."""
    made = {}
    for name in names:
        shape = given[name].shape
        made[name] = values(rng, shape, I8) if element is I8 else (rng.standard_normal(shape) * 2).astype(element.dtype)
    return {**given, **made}


def _quantized(rng: np.random.Generator) -> Iterator[Sample]:
    def problem(
        element: ElementKind, of: ElementKind, tokens: int = 1, keys: int = 90, d: int = 64, **more: Any
    ) -> dict[str, Any]:
        given = qkv(rng, of, 2, (4, 2), tokens, keys, d, **more)
        return {**in_bytes(rng, given, element, ("k", "v")), "lengths": np.array([keys - 3, 20], np.int32)}

    def scales(*shape: int) -> Array:
        return np.asarray(rng.uniform(0.005, 0.02, shape), np.float32)

    yield Sample("bf16, caches of e4m3", problem(E4M3, BF16, 3), {"return_lse": True})
    yield Sample(
        "f16 d80 d_v48, caches of i8, numbers", problem(I8, F16, d=80, d_v=48), {"k_scale": -0.01, "v_scale": 0.02}
    )
    per_head = {"k_scales": scales(2), "v_scales": scales(2)}
    yield Sample(
        "bf16 d128, caches of i8, a scale a head", {**problem(I8, BF16, d=128), **per_head}, {"return_lse": True}
    )
    per_key = {"k_scales": scales(2, 90, 2), "v_scales": scales(2, 90, 2)}
    yield Sample(
        "bf16 BSHD, caches of i8, a scale a key", {**problem(I8, BF16, 2, layout="BSHD"), **per_key}, {"layout": "BSHD"}
    )
    per_key = {"k_scales": scales(2, 2, 500) * 100, "v_scales": scales(2)}
    options = {"window": (300, 0), "softcap": 4.0, "return_lse": True}
    yield Sample("f16 e4m3, scales of both kinds", {**problem(E4M3, F16, keys=500), **per_key}, options)
    per_key = {"v_scales": scales(2, 2, 90) * 100}
    yield Sample("bf16, caches of e5m2", problem(E5M2, BF16))
    yield Sample("f16, caches of e5m2", problem(E5M2, F16))
    yield Sample("f16 e4m3, values' scales alone", {**problem(E4M3, F16), **per_key}, {"k_scale": 0.5})


def _without_tensor_cores(rng: np.random.Generator) -> Iterator[Sample]:
    """Types that they do not multiply, and rows that begin anywhere."""
    lengths = {"lengths": np.array([390, 30], np.int32)}
    yield Sample("f32 several splits", {**qkv(rng, F32, 2, (2, 1), 2, 400, 12), **lengths}, {"return_lse": True})
    logits = {"sinks": np.array([0.5, -0.5], np.float32), "alibi_slopes": np.array([0.5, 0.25], np.float32)}
    options = {"window": (150, 0), "softcap": 3.0, "return_lse": True}
    yield Sample("f64 d33 d_v20, everything", {**qkv(rng, F64, 1, (2, 1), 2, 200, 33, 20), **logits}, options)
    wide = qkv(rng, BF16, 1, (2, 2), 1, 40, 23)
    yield Sample("bf16 d21, rows begin anywhere", {n: x[..., 1:22] for n, x in wide.items()}, {"scale": -0.2})
    given = in_bytes(rng, qkv(rng, F32, 1, (2, 1), 1, 40, 9), E5M2, ("k", "v"))
    scales = {f"{n}_scales": np.asarray(rng.uniform(0.1, 0.5, (1, 1, 40)), np.float32) for n in "kv"}
    yield Sample("f32 d9, caches of e5m2, a scale a key", {**given, **scales}, {"v_scale": 2.0})
    given = in_bytes(rng, qkv(rng, F16, 1, (2, 1), 1, 40, 20), E4M3, ("k", "v"))
    yield Sample("f16 d20, caches of e4m3", given, {"k_scale": 0.5})


def _features(rng: np.random.Generator) -> Iterator[Sample]:
    def problem(element: ElementKind = BF16, tokens: int = 3, keys: int = 200) -> dict[str, Any]:
        return {**qkv(rng, element, 2, (4, 2), tokens, keys, 64), "lengths": np.array([keys - 3, 60], np.int32)}

    def logits(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    yield Sample("bf16 window", problem(), {"window": (70, 0), "return_lse": True})
    yield Sample("f16 window of one key", problem(F16), {"window": (0, 0)})
    yield Sample("f16 softcap, negative scale", problem(F16), {"softcap": 5.0, "scale": -0.2})
    yield Sample("bf16 negative scale", problem(), {"scale": -0.2})
    yield Sample("bf16 alibi", {**problem(), "alibi_slopes": slopes}, {"return_lse": True})
    yield Sample("f16 alibi a sequence", {**problem(F16), "alibi_slopes": np.stack([slopes, -slopes])}, {})
    yield Sample("bf16 sinks", {**problem(), "sinks": logits(4)}, {"return_lse": True})
    none = {**problem(), "lengths": np.array([0, 1], np.int32), "sinks": cast(logits(4), BF16)}
    yield Sample("bf16 sinks of its type, nothing seen", none, {"return_lse": True})
    yield Sample(
        "bf16 everything",
        {**problem(keys=500), "sinks": logits(4), "alibi_slopes": slopes},
        {"window": (300, None), "softcap": 3.0, "scale": 0.3, "return_lse": True},
    )


def pages_of(
    rng: np.random.Generator, element: ElementKind, lengths: list[int], page_keys: int, heads: int, d: int,
    layout: str = "NHD", d_v: int | None = None, spare: int = 3,
) -> dict[str, Array]:  # fmt: skip
    """Pages of normal values, of which each sequence has as many as it needs, in no order; the others in its row of the table are
    not there, and `spare` belong to no sequence."""
    needed = [-(-n // page_keys) for n in lengths]
    pages, capacity = sum(needed) + spare, max(needed) + 1
    order = rng.permutation(pages)
    table = np.full((len(lengths), capacity), -1, np.int32)
    for row, n, first in zip(table, needed, np.cumsum([0, *needed])):
        row[:n] = order[first : first + n]
    shape = (pages, page_keys, heads) if layout == "NHD" else (pages, heads, page_keys)
    made = {f"{n}_pages": values(rng, (*shape, c), element, 1.0) for n, c in (("k", d), ("v", d_v or d))}
    return {**made, "page_table": table, "lengths": np.array(lengths, np.int32)}


def paged_attention(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Layouts, page sizes, tokens; pages and lengths that are not there; ragged tokens; features."""
    rng = np.random.default_rng(seed)

    def sample(
        label: str, element: ElementKind, lengths: list[int], page_keys: int, heads: tuple[int, int] = (4, 2),
        tokens: int | tuple[int, ...] = 1, d: int = 64, **options: Any,
    ) -> Sample:  # fmt: skip
        more = {n: options.pop(n) for n in ("d_v",) if n in options}
        pages = pages_of(rng, element, lengths, page_keys, heads[1], d, options.get("layout", "NHD"), **more)
        lead = (len(lengths), tokens) if isinstance(tokens, int) else (sum(tokens),)
        q = values(rng, (*lead, heads[0], d), element, 1.0)
        starts = {} if isinstance(tokens, int) else {"cu_seqlens_q": np.cumsum([0, *tokens]).astype(np.int32)}
        return Sample(label, {"q": q, **pages, **starts}, options)

    yield sample("bf16 NHD 16", BF16, [70, 1, 33], 16, return_lse=True, return_status=True)
    yield sample("f16 HND 64, d128", F16, [150, 65], 64, (8, 2), d=128, layout="HND")
    yield sample("bf16 one key a page", BF16, [19, 40], 1, return_status=True)
    yield sample("bf16 7 keys a page, four tokens", BF16, [50, 3], 7, tokens=4, layout="HND", return_lse=True)
    yield sample("f16 several splits", F16, [700], 16, return_lse=True, return_status=True)
    yield sample("bf16 d80 d_v72", BF16, [45], 10, d=80, d_v=72)
    latent = sample("bf16 latent", BF16, [40, 70], 64, (4, 1), d=576, d_v=512)
    latent.operands["page_table"][1, 0] = -1
    yield latent
    wrong = sample(
        "bf16 pages and lengths that are not there", BF16, [70, 40, 20, 9], 16, return_lse=True, return_status=True
    )
    wrong.operands["page_table"][0, 2], wrong.operands["page_table"][1, 0] = 999, -1
    wrong.operands["lengths"][2:] = -5, 999
    yield wrong
    both = sample("bf16 keys and values side by side", BF16, [33, 20], 16)
    joined = np.stack([both.operands["k_pages"], both.operands["v_pages"]], axis=1)
    yield Sample(both.label, {**both.operands, "k_pages": joined[:, 0], "v_pages": joined[:, 1]}, both.options)
    yield sample("bf16 ragged", BF16, [60, 30, 9], 16, tokens=(25, 0, 9), return_lse=True, return_status=True)
    yield sample("f16 ragged, several splits", F16, [500, 30], 16, tokens=(1, 2), max_seqlen_q=2, return_lse=True)
    yield sample("bf16 ragged, window", BF16, [90, 33], 8, (6, 2), (40, 3), max_seqlen_q=40, window=(20, 0))
    prompt = sample(
        "bf16 d128, ragged prompts", BF16, [150, 90], 16, (4, 2), (70, 20), 128, return_lse=True, return_status=True
    )
    prompt.operands["page_table"][0, 5] = -1
    yield prompt
    yield sample(
        "f16 HND d256, prompt, softcap", F16, [90], 7, (2, 1), 40, 256, layout="HND", softcap=4.0, return_lse=True
    )
    freed = sample("f16 window, pages before it are gone", F16, [90, 70], 8, window=(20, 0), return_status=True)
    freed.operands["page_table"][:, :4] = -1
    yield freed
    yield sample("bf16 softcap, window, scale", BF16, [90, 33], 16, tokens=2, window=(30, 0), softcap=4.0, scale=0.2)
    slopes = {"alibi_slopes": np.array([0.5, 0.25, 0.125, 0.0625], np.float32)}
    given = sample("f16 alibi, sinks", F16, [90, 33], 16, return_lse=True)
    yield Sample(given.label, {**given.operands, **slopes, "sinks": values(rng, (4,), F16, 1.0)}, given.options)
    given = sample("bf16 NHD, e4m3, a scale a key", BF16, [90, 33], 16, (4, 2), 2, return_lse=True, return_status=True)
    shape = given.operands["k_pages"].shape[:-1]
    each = {f"{n}_scales": np.asarray(rng.uniform(0.1, 0.5, shape), np.float32) for n in "kv"}
    operands = {**in_bytes(rng, dict(given.operands), E4M3, ("k_pages", "v_pages")), **each}
    yield Sample(given.label, operands, given.options)
    given = sample(
        "f16 HND, i8, ragged", F16, [60, 30], 8, (4, 2), (20, 3), d=128, layout="HND", k_scale=0.02, v_scale=0.01
    )
    yield Sample(given.label, in_bytes(rng, dict(given.operands), I8, ("k_pages", "v_pages")), given.options)
    yield sample(
        "f32 ragged, several splits", F32, [300, 9], 16, (2, 1), (2, 3), d=12, return_lse=True, return_status=True
    )
    given = sample("f16 i8 d20", F16, [40, 17], 8, (2, 1), 2, d=20, layout="HND", k_scale=0.02, v_scale=0.01)
    given.operands["page_table"][0, 1] = 99
    yield Sample(given.label, in_bytes(rng, dict(given.operands), I8, ("k_pages", "v_pages")), given.options)
    if full:
        yield sample("bf16 long", BF16, [5000, 3111], 16, (8, 2), d=128, return_lse=True)
