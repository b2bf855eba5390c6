"""Attention over a shared prefix by its definition, one token at a time, with `math.fsum`: no oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...gauntlet import Problem
from .forward import row_of

__all__ = ["CHECKS"]

Array = np.ndarray[Any, Any]


def _cascade(problem: Problem) -> None:
    given = {name: slot.host() for name, slot in problem.slots.items()}
    options, q, out = problem.sample.options, given["q"], np.asarray(problem.wide["out"])
    heads_last = options.get("layout", "NHD") == "NHD"
    pages = {name: _wide(given, name, options, heads_last) for name in "kv"}
    count, size, kv_heads = pages["k"].shape[:3]

    def keys_of(table: Array, number: int, head: int) -> list[tuple[Array, Array] | None]:
        """Keys and values in the pages that a table names; None of those that are not there."""
        found: list[tuple[Array, Array] | None] = []
        for j in range(number):
            page = int(table[j // size])
            there = 0 <= page < count
            found.append((pages["k"][page, j % size, head], pages["v"][page, j % size, head]) if there else None)
        return found

    capacity = len(given["prefix_table"]) * size
    number = (
        int(given["prefix_length"].reshape(-1)[0]) if "prefix_length" in given else options.get("prefix_keys", capacity)
    )
    starts, lengths = given.get("cu_seqlens_q"), np.clip(given["lengths"], 0, given["page_table"].shape[1] * size)
    for b, length in enumerate(lengths):
        tokens = (b,) if starts is None else (slice(starts[b], starts[b + 1]),)
        for h in sorted({0, q.shape[-2] - 1}):
            head = h * kv_heads // q.shape[-2]
            prefix = keys_of(given["prefix_table"], min(max(number, 0), capacity), head)
            own = keys_of(given["page_table"][b], length, head)
            rows, results = q[tokens][:, h], out[tokens][:, h]
            for i in sorted({0, len(rows) - 1}) if len(rows) else ():
                seen = [*prefix, *own[: max(length - len(rows) + i + 1, 0)]]
                k, v = (np.reshape([x[n] for x in seen if x], (-1, pages["kv"[n]].shape[-1])) for n in (0, 1))
                row, lse = row_of(rows, k, v, i, b, h, given, options, False)
                assert np.allclose(np.float64(results[i]), row, rtol=1e-9, atol=1e-12), (b, h, i)
                if "lse" in problem.wide:
                    one = float(problem.wide["lse"][(b, h, i) if starts is None else (h, starts[b] + i)])
                    assert (math.isinf(lse) and one == lse) or math.isclose(one, lse, abs_tol=1e-9)
    if "status" in problem.wide:
        wanted = [
            2 if length != asked else int(None in keys_of(given["page_table"][b], length, 0))
            for b, (length, asked) in enumerate(zip(lengths, given["lengths"]))
        ]
        shared = keys_of(given["prefix_table"], min(max(number, 0), capacity), 0)
        wrong = 5 if not 0 <= number <= capacity else 4 if None in shared else 0
        assert np.asarray(problem.wide["status"]).tolist() == [n or wrong for n in wanted]


def _wide(given: Any, name: str, options: Any, heads_last: bool) -> Array:
    """Pages [P, keys, heads, columns] in float64, multiplied with their scales."""
    x = np.float64(given[f"{name}_pages"]) * np.float64(np.float32(options.get(f"{name}_scale", 1.0)))
    scales = given.get(f"{name}_scales")
    if scales is not None:
        each = scales if scales.ndim == 3 else scales[:, None] if not heads_last else scales
        x = x * np.float64(each)[..., None]
    return x if heads_last else x.swapaxes(1, 2)


CHECKS: dict[str, Callable[[Problem], None]] = {"cascade_attention": _cascade}
