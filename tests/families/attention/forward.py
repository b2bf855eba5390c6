"""Attention by its definition, one query at a time, with `math.fsum`: no oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...gauntlet import Problem

__all__ = ["CHECKS", "row_of"]

PLACES = 6  # queries of a head that are checked, evenly over it


def _attention(problem: Problem) -> None:
    given = {name: slot.host() for name, slot in problem.slots.items()}
    causal = problem.sample.options.get("causal") or problem.op.name.endswith("causal")
    options, out = problem.sample.options, np.asarray(problem.wide["out"])
    starts = [given.get(f"cu_seqlens_{side}") for side in "qk"]
    layout = options.get("layout", "BHSD") if given["q"].ndim > 2 else "SD"
    assert out.shape == (*given["q"].shape[:-1], given["v"].shape[-1])

    def lines(x: Any, b: int, h: int, side: int) -> Any:
        if layout == "THD":
            return x[starts[side][b] : starts[side][b + 1], h]
        return {"SD": lambda: x, "BHSD": lambda: x[b, h], "BSHD": lambda: x[b, :, h]}[layout]()

    batch = len(starts[0]) - 1 if starts[0] is not None else 1 if layout == "SD" else given["q"].shape[0]
    hq, hkv = (1, 1) if layout == "SD" else (given[n].shape[1 if layout != "BSHD" else 2] for n in "qk")
    for b in range(batch):
        for h in range(hq):
            q, o = lines(given["q"], b, h, 0), lines(out, b, h, 0)
            k, v = (lines(given[n], b, h * hkv // hq, 1) for n in "kv")
            for i in sorted({int(i) for i in np.linspace(0, len(q) - 1, PLACES)}) if len(q) else ():
                row, lse = row_of(q, k, v, i, b, h, given, options, causal)
                assert np.allclose(np.float64(o[i]), row, rtol=1e-9, atol=1e-12), (b, h, i)
                if "lse" in problem.wide:
                    of = problem.wide["lse"]
                    one = of[i] if layout == "SD" else of[h, starts[0][b] + i] if layout == "THD" else of[b, h, i]
                    assert (math.isinf(lse) and float(one) == lse) or math.isclose(float(one), lse, abs_tol=1e-9)


def row_of(
    q: Any, k: Any, v: Any, i: int, b: int, h: int, given: Any, options: Any, causal: bool
) -> tuple[list[float], float]:
    """One query's result and lse."""
    scale = options.get("scale", len(q[i]) ** -0.5)
    stands = i + (options["offset"] if "offset" in options else len(k) - len(q))
    left, right = options.get("window") or (None, None)
    terms: list[tuple[float, int]] = []
    for j in range(len(k)):
        if (causal and j > stands) or (left not in (None, -1) and j < stands - left):
            continue
        if right not in (None, -1) and j > stands + right:
            continue
        if "block_mask" in given:
            m, n = options["block_size"]
            blocks = given["block_mask"]
            if not blocks[b % blocks.shape[0], h % blocks.shape[1], i // m, j // n]:
                continue
        score = scale * math.fsum(float(x) * float(y) for x, y in zip(q[i], k[j]))
        if "softcap" in options:
            score = options["softcap"] * math.tanh(score / options["softcap"])
        if "alibi_slopes" in given:
            slopes = given["alibi_slopes"]
            score += float(slopes[h] if slopes.ndim == 1 else slopes[b, h]) * (j - stands)
        if "mask" in given:
            mask = given["mask"].reshape((1,) * (4 - given["mask"].ndim) + given["mask"].shape)
            one = mask[tuple(at % n for at, n in zip((b, h, i, j), mask.shape))]
            if mask.dtype == bool and not one:
                continue
            score += 0 if mask.dtype == bool else float(one)
        terms.append((score, j))
    logits = [s for s, _ in terms] + ([float(given["sinks"][h])] if "sinks" in given else [])
    top = max(logits, default=-math.inf)
    if math.isinf(top):
        return [0.0] * v.shape[1], -math.inf
    whole = math.fsum(math.exp(s - top) for s in logits)
    weights = [(math.exp(s - top) / whole, j) for s, j in terms]
    return [math.fsum(w * float(v[j, c]) for w, j in weights) for c in range(v.shape[1])], top + math.log(whole)


CHECKS: dict[str, Callable[[Problem], None]] = dict.fromkeys(
    ("attention", "attention_tc", "attention_tc_causal", "attention_flash", "attention_flash_causal"), _attention
)
