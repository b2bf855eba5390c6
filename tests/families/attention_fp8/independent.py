"""Attention of e4m3 operands by its definition, one query at a time, with `math.fsum`: no oracle code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...gauntlet import Problem
from ..attention.forward import row_of

__all__ = ["CHECKS"]

PLACES = 6  # queries of a head that are checked, evenly over it


def _scale(given: Any, name: str, b: int, h: int, options: Any) -> float:
    scales = given.get(f"{name}_scales")
    each = 1.0 if scales is None else float(scales[h] if scales.ndim == 1 else scales[b, h])
    return each * float(options.get(f"{name}_scale", 1.0))


def _attention(problem: Problem) -> None:
    given: dict[str, Any] = {name: slot.host() for name, slot in problem.slots.items()}
    options, out = problem.sample.options, np.asarray(problem.wide["out"])
    layout = options.get("layout", "BHSD") if given["q"].ndim > 2 else "SD"
    starts: list[Any] = [given.get(f"cu_seqlens_{side}") for side in "qk"]
    assert out.shape == (*given["q"].shape[:-1], given["v"].shape[-1])

    def lines(x: Any, b: int, h: int, side: int) -> Any:
        if layout == "THD":
            return x[starts[side][b] : starts[side][b + 1], h]
        return {"SD": lambda: x, "BHSD": lambda: x[b, h], "BSHD": lambda: x[b, :, h]}[layout]()

    batch = len(starts[0]) - 1 if starts[0] is not None else 1 if layout == "SD" else given["q"].shape[0]
    hq, hkv = (1, 1) if layout == "SD" else (given[n].shape[2 if layout == "BSHD" else 1] for n in "qk")
    for b in range(batch):
        for h in range(hq):
            kv = h * hkv // hq
            q = lines(given["q"], b, h, 0).astype(np.float64) * _scale(given, "q", b, h, options)
            k, v = (lines(given[n], b, kv, 1).astype(np.float64) * _scale(given, n, b, kv, options) for n in "kv")
            o = lines(out, b, h, 0)
            for i in sorted({int(i) for i in np.linspace(0, len(q) - 1, PLACES)}) if len(q) else ():
                row, lse = row_of(q, k, v, i, b, h, given, options, bool(options.get("causal")))
                assert np.allclose(np.float64(o[i]), row, rtol=1e-9, atol=1e-12), (b, h, i)
                if "lse" in problem.wide:
                    of: Any = problem.wide["lse"]
                    one = of[i] if layout == "SD" else of[h, starts[0][b] + i] if layout == "THD" else of[b, h, i]
                    assert (math.isinf(lse) and float(one) == lse) or math.isclose(float(one), lse, abs_tol=1e-9)


CHECKS: dict[str, Callable[[Problem], None]] = {"attention_fp8": _attention}
