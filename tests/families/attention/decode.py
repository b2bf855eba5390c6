"""Decoding by its definition, one token at a time, with `math.fsum`: no oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...gauntlet import Problem
from .forward import row_of

__all__ = ["CHECKS"]

PLACES = 3  # heads of a sequence that are checked


def _heads_first(x: Any, layout: str) -> Any:
    return x if layout == "BHSD" else x.transpose(0, 2, 1, 3)


def _times_scales(given: Any, name: str, cache: str, options: Any, heads_first: bool) -> Any:
    """A cache multiplied with its scales."""
    x, scales = (
        np.float64(given[cache]) * np.float64(np.float32(options.get(f"{name}_scale", 1.0))),
        given.get(f"{name}_scales"),
    )
    if scales is None:
        return x
    each = scales[..., None] if scales.ndim == 3 else scales[:, None, None] if heads_first else scales[:, None]
    return x * each


def _decode(problem: Problem) -> None:
    given = {name: slot.host() for name, slot in problem.slots.items()}
    options = problem.sample.options
    layout = options.get("layout", "BHSD")
    given |= {n: _times_scales(given, n, n, options, layout == "BHSD") for n in "kv"}
    q, k, v = (_heads_first(given[n], layout) for n in "qkv")
    out = _heads_first(np.asarray(problem.wide["out"]), layout)
    lengths = given.get("lengths", np.full(len(q), k.shape[2]))
    for b, length in enumerate(np.clip(lengths, 0, k.shape[2])):
        for h in sorted({int(h) for h in np.linspace(0, q.shape[1] - 1, PLACES)}):
            kv = h * k.shape[1] // q.shape[1]
            check_head(problem, q[b, h], k[b, kv, :length], v[b, kv, :length], out[b, h], (b, h), given, options)


def check_head(
    problem: Problem, q: Any, k: Any, v: Any, out: Any, at: tuple[int, int], given: Any, options: Any,
    first: tuple[int, int] | None = None,
) -> None:  # fmt: skip
    """The first and the last token of head `at`; where ragged, the lse of the former is at `first`."""
    for i in sorted({0, len(q) - 1}) if len(q) else ():
        row, lse = row_of(q, k, v, i, *at, given, options, True)
        assert np.allclose(np.float64(out[i]), row, rtol=1e-9, atol=1e-12), (at, i)
        if "lse" in problem.wide:
            one = float(problem.wide["lse"][(*at, i) if problem.wide["lse"].ndim == 3 else (first[0], first[1] + i)])  # type: ignore[index]
            assert (math.isinf(lse) and one == lse) or math.isclose(one, lse, abs_tol=1e-9)


def _paged(problem: Problem) -> None:
    given = {name: slot.host() for name, slot in problem.slots.items()}
    options, table = problem.sample.options, given["page_table"]
    heads_last = options.get("layout", "NHD") == "NHD"
    given |= {f"{n}_pages": _times_scales(given, n, f"{n}_pages", options, not heads_last) for n in "kv"}
    pages = len(given["k_pages"])
    keys = given["k_pages"].shape[1 if heads_last else 2]
    lengths = np.clip(given["lengths"], 0, table.shape[1] * keys)

    def key(name: str, b: int, kv: int, j: int) -> Any:
        pages, page = given[name], int(table[b, j // keys])
        if not 0 <= page < len(pages):
            return np.zeros(pages.shape[-1])
        return pages[page, j % keys, kv] if heads_last else pages[page, kv, j % keys]

    q, out = given["q"], np.asarray(problem.wide["out"])
    starts = given.get("cu_seqlens_q")
    kv_heads = given["k_pages"].shape[2 if heads_last else 1]
    for b, length in enumerate(lengths):
        tokens = (b,) if starts is None else (slice(starts[b], starts[b + 1]),)
        for h in sorted({0, q.shape[-2] - 1}):
            k, v = ([key(n, b, h * kv_heads // q.shape[-2], j) for j in range(length)] for n in ("k_pages", "v_pages"))
            columns = given["v_pages"].shape[-1]
            at = (b, h) if starts is None else (h, int(starts[b]))
            k, v = np.reshape(k, (length, q.shape[-1])), np.reshape(v, (length, columns))
            there = [0 <= table[b, j // keys] < pages for j in range(length)]
            masked = given if all(there) else {**given, "mask": np.array(there)}
            check_head(
                problem, q[tokens][:, h], k, v, out[tokens][:, h], (b, h), masked, options, at,
            )  # fmt: skip
    if "status" in problem.wide:
        sizes = np.diff(starts) if starts is not None else np.full(len(table), q.shape[1])
        left = (options.get("window") or (None,))[0]
        first = [0 if left is None else max(n - t - left, 0) // keys for n, t in zip(lengths, sizes)]
        used = [row[begin : -(-n // keys)] for row, n, begin in zip(table, lengths, first)]
        fine = [all(0 <= p < len(given["k_pages"]) for p in row) for row in used]
        wanted = [2 if n != m else int(not f) for n, m, f in zip(given["lengths"], lengths, fine)]
        assert np.asarray(problem.wide["status"]).tolist() == wanted


def _merge(problem: Problem) -> None:
    given = {name: slot.host() for name, slot in problem.slots.items()}
    layout = problem.sample.options.get("layout", "BHSD")
    outs, out = given["outs"], np.asarray(problem.wide["out"])
    if layout != "BHSD":
        outs, out = np.swapaxes(outs, -2, -3), np.swapaxes(out, -2, -3)
    for at in np.ndindex(given["lses"].shape[1:]):
        lses = [float(x) for x in given["lses"][(slice(None), *at)]]
        top = max(lses)
        if math.isinf(top):
            assert not out[at].any() and float(problem.wide["lse"][at]) == -math.inf
            continue
        weights = [math.exp(x - top) for x in lses]
        lse = top + math.log(math.fsum(weights))
        assert math.isclose(float(problem.wide["lse"][at]), lse, abs_tol=1e-9)
        for c in (0, out.shape[-1] - 1):
            terms = [w * float(outs[(i, *at, c)]) for i, w in enumerate(weights) if w]
            assert math.isclose(
                float(out[(*at, c)]), math.fsum(terms) / math.fsum(weights), rel_tol=1e-9, abs_tol=1e-12
            )


CHECKS: dict[str, Callable[[Problem], None]] = {
    "attention_decode": _decode,
    "paged_attention": _paged,
    "merge_attention": _merge,
}
