"""Samples of attention over a shared prefix: lengths on both sides, tokens, layouts, types, missing pages, features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ....samples.sample import Sample, values
from ....types import ElementKind
from .decode import in_bytes, pages_of
from .forward import cast

__all__ = ["cascade_attention", "cascaded"]

F16, BF16, F32 = ElementKind.F16, ElementKind.BF16, ElementKind.F32
E4M3, I8 = ElementKind.FP8_E4M3, ElementKind.I8


def cascaded(
    rng: np.random.Generator, element: ElementKind, prefix: int, lengths: list[int], page_keys: int = 16,
    heads: tuple[int, int] = (4, 2), tokens: int | tuple[int, ...] = 1, d: int = 64, *, on_device: bool = True, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """A problem whose prefix has so many keys. `on_device`: with prefix_length as an operand."""
    made = pages_of(rng, element, [prefix, *lengths], page_keys, heads[1], d, **more)
    lead = (len(lengths), tokens) if isinstance(tokens, int) else (sum(tokens),)
    table, of_all = made.pop("page_table"), made.pop("lengths")
    columns = max((-(-n // page_keys) for n in lengths), default=0) + 1
    given: dict[str, Any] = {"q": values(rng, (*lead, heads[0], d), element, 1.0), **made}
    given |= {"prefix_table": table[0].copy(), "page_table": table[1:, :columns].copy(), "lengths": of_all[1:].copy()}
    given |= {"prefix_length": np.array([prefix], np.int32)} if on_device else {}
    if not isinstance(tokens, int):
        given["cu_seqlens_q"] = np.cumsum([0, *tokens]).astype(np.int32)
    return given


def cascade_attention(fixed: Any, seed: int = 0, *, full: bool = False) -> Iterator[Sample]:  # noqa: ARG001
    """Lengths of the prefix and of sequences, tokens, layouts; what is not there; features; 8 bits; f32."""
    rng = np.random.default_rng(seed)
    both = {"return_lse": True, "return_status": True}
    yield Sample("bf16 decode", cascaded(rng, BF16, 70, [20, 0, 5]), {"return_lse": True})
    number = cascaded(rng, F16, 150, [33, 1], 64, (8, 2), d=128, layout="HND", on_device=False)
    yield Sample("f16 HND 64 d128, a number of keys", number, {"layout": "HND", "prefix_keys": 150})
    whole = cascaded(rng, BF16, 64, [9, 17], on_device=False)
    whole["prefix_table"] = whole["prefix_table"][:4]
    yield Sample("bf16 the whole table", whole, both)
    yield Sample("bf16 7 keys a page, three tokens", cascaded(rng, BF16, 50, [9, 3, 1], 7, tokens=3), both)
    yield Sample("bf16 several splits", cascaded(rng, BF16, 700, [300, 20], heads=(2, 1)), {"return_lse": True})
    yield Sample("bf16 no prefix", cascaded(rng, BF16, 0, [20, 33]), both)
    alone = cascaded(rng, BF16, 40, [0, 0])
    alone["page_table"] = alone["page_table"][:, :0]
    yield Sample("bf16 nothing but the prefix", alone, both)
    ragged = cascaded(rng, BF16, 90, [40, 3, 9], tokens=(25, 0, 9), d=128)
    yield Sample("bf16 d128 ragged", ragged, both)
    yield Sample("f16 many queries", cascaded(rng, F16, 1100, [40] * 3, 16, (2, 1), tokens=40), {"return_lse": True})
    wrong = cascaded(rng, BF16, 70, [40, 20, 9], 16)
    wrong["prefix_table"][2], wrong["page_table"][0, 1] = 999, -1
    wrong["lengths"][1] = -5
    yield Sample("bf16 pages and lengths that are not there", wrong, both)
    beyond = cascaded(rng, BF16, 70, [20, 9])
    beyond["prefix_length"][0], beyond["prefix_table"][-1] = 999, 0
    yield Sample("bf16 a prefix longer than its table", beyond, both)
    spread = cascaded(rng, BF16, 50, [20, 9])
    spread["prefix_table"] = np.repeat(spread["prefix_table"], 2)[::2]
    yield Sample("bf16 a table of every other id", spread, {"return_lse": True})
    sinks = {"sinks": cast(rng.standard_normal(4), BF16)}
    yield Sample("bf16 sinks, softcap, scale", cascaded(rng, BF16, 50, [20, 0]) | sinks,
                 {"softcap": 3.0, "scale": 0.3, "return_lse": True})  # fmt: skip
    narrow = in_bytes(rng, cascaded(rng, BF16, 60, [20, 7], tokens=2), E4M3, ("k_pages", "v_pages"))
    shape = narrow["k_pages"].shape[:-1]
    each = {f"{n}_scales": np.asarray(rng.uniform(0.1, 0.5, shape), np.float32) for n in "kv"}
    yield Sample("bf16 e4m3, a scale a key", narrow | each, {"return_lse": True})
    narrow = in_bytes(rng, cascaded(rng, F16, 60, [20, 7], 8, d=128), I8, ("k_pages", "v_pages"))
    yield Sample("f16 i8", narrow, {"k_scale": 0.02, "v_scale": 0.01})
    yield Sample("f32 d12", cascaded(rng, F32, 300, [20, 9], heads=(2, 1), tokens=2, d=12), both)
    yield Sample("bf16 d80 d_v72", cascaded(rng, BF16, 45, [10], 10, d=80, d_v=72), {"return_lse": True})
    if full:
        yield Sample("bf16 long", cascaded(rng, BF16, 5000, [300, 1, 70], heads=(8, 2), d=128), {"return_lse": True})
