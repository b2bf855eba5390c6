"""The multi-label margin loss: a second row of each group of threads, rows whose bits take several rounds, a wrong wide row."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....samples.sample import Sample
from ....samples.wanted import Problems, f32

problems = Problems()


def operands(rows: int, classes: int, first: int) -> dict[str, Any]:
    """One target per row, that of the first row given."""
    target: Any = np.full((rows, classes), -1)
    target[:, 0] = np.arange(rows) % classes
    target[0, 0] = first
    return {"x": problems.normal((rows, classes), f32), "target": target}


grad: dict[str, Any] = {"grad": np.full((), 0.75, np.float32)}
status: dict[str, Any] = {"return_status": True}
for rows, classes, first in ((8200, 2, 0), (1026, 257, 0), (1, 86_400, 86_399), (2, 200, 200)):
    name, given = f"{rows}x{classes}", operands(rows, classes, first)
    options = status if first >= classes else {}
    for op, more, variant in (
        ("multilabel_margin_loss", {}, "pairs"),
        ("multilabel_margin_loss_backward", grad, "counts"),
    ):
        problems.want(f"{name}-{op}", op, Sample(name, more | given, options), variant)
