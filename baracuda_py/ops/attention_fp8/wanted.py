"""Attention of e4m3 operands by wgmma: persistent CTAs that take several tiles in turn, every head dim, a negative scale."""

from __future__ import annotations

from typing import Any

from ...samples.sample import Sample
from ...samples.wanted import Problems
from .samples import qkv, scales

problems = Problems()
rng = problems.rng


def whole(label: str, rows: int, keys: int, d: int, d_v: int | None = None, heads: int = 3, **options: Any) -> Sample:
    given = {**qkv(rng, 1, (heads, 1), rows, keys, d, d_v), "q_scales": scales(rng, heads)}
    return Sample(f"{label}, {rows} x {keys}", given, {"return_lse": True, **options})


def by_wgmma(name: str, sample: Sample, *configs: str) -> None:
    problems.want(f"attention-fp8-{name}", "attention_fp8", sample, "wgmma", configs, sms=2)


turns = whole("d128", 150, 400, 128, causal=True)
by_wgmma("turns", turns, "192 dynamic", "192 persistent")
by_wgmma("one-block", whole("d128", 300, 100, 128, heads=2), "192 persistent")
by_wgmma("short-rows", whole("d64", 210, 380, 64, causal=True), "224 dynamic")
by_wgmma("wide", whole("d256", 130, 180, 256, heads=2, scale=-0.05), "96 persistent")
by_wgmma("window", whole("d192 d_v128", 150, 390, 192, 128, heads=2, window=(50, 5)), "96 dynamic")
by_wgmma("nothing-seen", whole("d64", 500, 90, 64, heads=2, causal=True), "224 persistent")
