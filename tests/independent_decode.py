"""Decoding by its definition, one token at a time, with `math.fsum`: no oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .gauntlet import Problem
from .independent_attention import _row as row_of

__all__ = ["DECODING"]

PLACES = 3  # heads of a sequence that are checked


def _heads_first(x: Any, layout: str) -> Any:
    return x if layout == "BHSD" else x.transpose(0, 2, 1, 3)


def _decode(problem: Problem) -> None:
    given = {name: slot.host() for name, slot in problem.slots.items()}
    options = {**problem.sample.options, "causal": True}
    layout = options.get("layout", "BHSD")
    q, k, v = (_heads_first(given[n], layout) for n in "qkv")
    out = _heads_first(np.asarray(problem.wide["out"]), layout)
    lengths = given.get("lengths", np.full(len(q), k.shape[2]))
    for b, length in enumerate(np.clip(lengths, 0, k.shape[2])):
        for h in sorted({int(h) for h in np.linspace(0, q.shape[1] - 1, PLACES)}):
            kv = h * k.shape[1] // q.shape[1]
            check_head(problem, q[b, h], k[b, kv, :length], v[b, kv, :length], out[b, h], (b, h), given, options)


def check_head(problem: Problem, q: Any, k: Any, v: Any, out: Any, at: Any, given: Any, options: Any) -> None:
    """The first and the last token of a head."""
    for i in sorted({0, len(q) - 1}) if len(q) else ():
        row, lse = row_of(q, k, v, i, *at, given, options)
        assert np.allclose(np.float64(out[i]), row, rtol=1e-9, atol=1e-12), (at, i)
        if "lse" in problem.wide:
            one = float(problem.wide["lse"][(*at, i)])
            assert (math.isinf(lse) and one == lse) or math.isclose(one, lse, abs_tol=1e-9)


DECODING: dict[str, Callable[[Problem], None]] = {"attention_decode": _decode}
