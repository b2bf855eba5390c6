"""The CTC loss: more states than a CTA has threads, labels and classes for several of its rounds, a CTA's second sequence."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....samples.sample import Sample
from ....samples.wanted import Problems, f32

problems = Problems()


def operands(shape: tuple[int, int, int], labels: int) -> dict[str, Any]:
    """Sequences of all steps, and all labels."""
    steps, count, classes = shape
    return {
        "log_probs": problems.normal(shape, f32), "targets": np.arange(count * labels).reshape(count, -1) % (classes - 1) + 1,
        "input_lengths": np.full(count, steps), "target_lengths": np.full(count, labels),
    }  # fmt: skip


long, short, many = operands((262, 1, 5), 260), operands((3, 1, 1100), 1030), operands((2, 1026, 3), 1)
grad = {"grad": np.full((), 0.75, np.float32)}
for name, given in (("260 labels", long), ("no alignment", short), ("1026 sequences", many)):
    problems.want(f"{name}-ctc_loss", "ctc_loss", Sample(name, given), "alpha")
    problems.want(f"{name}-ctc_loss_backward", "ctc_loss_backward", Sample(name, grad | given), "posteriors")
