"""Projected queries and keys rotated back by plain formulas, so that what is left is a product."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...gauntlet.problem import Problem

__all__ = ["rotated_back"]

Array = np.ndarray[Any, Any]


def rotated_back(problem: Problem, part: str) -> Array:
    """An output before its rotation, [..., N], at positions that tables have."""
    desc, slots = problem.desc, problem.slots
    wide = np.array(problem.wide[part], np.float64)
    if part == "v" or desc.head_dim is None:
        return wide
    rows, tokens = wide.reshape(-1, wide.shape[-1]), desc.x_shape[-2]
    positions = slots["positions"].host().reshape(-1).tolist() if "positions" in slots else list(range(tokens))
    for row, line in enumerate(rows):
        at = positions[row % len(positions)]
        if "cos" in slots:
            each = [(float(c), float(s)) for c, s in zip(slots["cos"].host()[at], slots["sin"].host()[at])]
        else:
            each = [(math.cos(at * float(f)), math.sin(at * float(f))) for f in slots["inv_freq"].host()]
        for head in range(0, len(line), desc.head_dim):
            for i, (c, s) in enumerate(each):
                first, second = (2 * i, 2 * i + 1) if desc.style == "interleaved" else (i, i + len(each))
                a, b, norm = line[head + first], line[head + second], desc.attention_factor * (c * c + s * s)
                line[head + first], line[head + second] = (a * c + b * s) / norm, (b * c - a * s) / norm
    if "cos" in slots:
        assert not np.any(problem.wide["status"])
    return wide
