"""The gradients of attention by PyTorch's automatic differentiation in float64: no formula of a gradient is spelled here but one.

With p = exp(score - lse) for the given lse, the gradient of sum(p constant) is that of attention where the constant is grad v^T -
delta, for d p = p d score; and grad_v is that of sum((p v) grad).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ...gauntlet import Problem

__all__ = ["CHECKS", "scores"]


def scores(q: Any, k: Any, b: int, h: int, given: Any, options: Any, added: Any = 0.0, slope: Any = 0.0) -> Any:
    """[rows, keys], -inf where one does not count; q and k are one head's, torch tensors. `added` and `slope` are zeros, by which
    to differentiate."""
    import torch

    rows, keys = len(q), len(k)
    s = (q @ k.T) * options.get("scale", q.shape[1] ** -0.5)
    if "softcap" in options:
        s = options["softcap"] * torch.tanh(s / options["softcap"])
    stands = torch.arange(rows)[:, None] + options.get("offset", keys - rows)
    j = torch.arange(keys)[None, :]
    left, right = (n if n not in (None, -1) else math.inf for n in options.get("window") or (None, None))
    s = s + added + slope * (j - stands)
    hidden = (j < stands - left) | (j > stands + right) | (bool(options.get("causal")) & (j > stands))
    if "alibi_slopes" in given:
        slopes = given["alibi_slopes"]
        s = s + float(slopes[h] if slopes.ndim == 1 else slopes[b, h]) * (j - stands)
    if "mask" in given:
        mask = np.asarray(given["mask"]).reshape((1,) * (4 - given["mask"].ndim) + given["mask"].shape)
        one = mask[b % mask.shape[0], h % mask.shape[1]]
        if one.dtype == bool:
            hidden = hidden | ~torch.from_numpy(np.ascontiguousarray(one))
        else:
            s = s + torch.from_numpy(np.float64(one))
    if "block_mask" in given:
        m, n = options["block_size"]
        blocks = given["block_mask"][b % len(given["block_mask"]), h % given["block_mask"].shape[1]]
        hidden = hidden | ~torch.from_numpy(blocks)[torch.arange(rows)[:, None] // m, j // n]
    return s.masked_fill(hidden, -math.inf)


def _gradients(problem: Problem) -> None:
    torch = pytest.importorskip("torch")
    given = {name: slot.host() for name, slot in problem.slots.items() if name not in problem.written}
    options = problem.sample.options
    starts = [given.get(f"cu_seqlens_{side}") for side in "qk"]
    layout = options.get("layout", "BHSD") if given["q"].ndim > 2 else "SD"
    batch = len(starts[0]) - 1 if starts[0] is not None else 1 if layout == "SD" else given["q"].shape[0]
    hq, hkv = (1, 1) if layout == "SD" else (given[n].shape[2 if layout == "BSHD" else 1] for n in "qk")

    def lines(x: Any, b: int, h: int, side: int) -> Any:
        if layout == "THD":
            return x[starts[side][b] : starts[side][b + 1], h]
        return {"SD": lambda: x, "BHSD": lambda: x[b, h], "BSHD": lambda: x[b, :, h]}[layout]()

    def spread(to: Any, part: Any, b: int, h: int) -> None:
        """Every element of a head's part to what it was broadcast from, one after the other."""
        whole = to.reshape((1,) * (2 + part.ndim - to.ndim) + to.shape)
        for at, x in np.ndenumerate(part):
            whole[tuple(i % n for i, n in zip((b, h, *at), whole.shape))] += x

    def leaf(x: Any) -> Any:
        return torch.tensor(np.float64(x), requires_grad=True)

    wanted = {n: np.zeros(np.shape(problem.wide[n])) for n in problem.written}
    for b in range(batch):
        for h in range(hq):
            q, k, v = (leaf(lines(given[n], b, h if n == "q" else h * hkv // hq, n != "q")) for n in "qkv")
            grad, out = (torch.tensor(np.float64(lines(given[n], b, h, 0))) for n in ("grad", "out"))
            lse = given["lse"]
            if layout != "SD":
                lse = lse[h, starts[0][b] : starts[0][b + 1]] if layout == "THD" else lse[b, h]
            lse = torch.tensor(np.float64(lse))[:, None]
            delta = (grad * out).sum(1, keepdim=True)
            added, slope = leaf(np.zeros((len(q), len(k)))), leaf(0.0)
            s = scores(q, k, b, h, given, options, added, slope)
            p = torch.exp(torch.where(torch.isinf(lse) | torch.isinf(s), -math.inf, s - lse))
            ((p * (grad @ v.T - delta).detach()).sum() + ((p.detach() @ v) * grad).sum()).backward()
            for name, of, kv in (("grad_q", q, 0), ("grad_k", k, 1), ("grad_v", v, 1)):
                lines(wanted[name], b, h * hkv // hq if kv else h, kv)[...] += of.grad.numpy()
            for name, of in (("grad_mask", added), ("grad_alibi_slopes", slope)):
                if name in wanted:
                    spread(wanted[name], of.grad.numpy(), b, h)
            if "sinks" in given:
                share = torch.where(torch.isinf(lse), 0.0, torch.exp(float(given["sinks"][h]) - lse))
                wanted["grad_sinks"][h] -= float((share * delta).sum())
    for name, one in wanted.items():
        assert np.allclose(np.float64(problem.wide[name]), one, rtol=1e-9, atol=1e-11), name


CHECKS: dict[str, Callable[[Problem], None]] = {"attention_backward": _gradients}
