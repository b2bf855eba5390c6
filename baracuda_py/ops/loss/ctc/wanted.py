"""The CTC loss: more states than a CTA has threads."""

from __future__ import annotations

import numpy as np

from ....samples.sample import Sample
from ....samples.wanted import Problems, f32

problems = Problems()

long = {
    "log_probs": problems.normal((142, 1, 5), f32), "targets": np.arange(140)[None] % 4 + 1,
    "input_lengths": np.array([141]), "target_lengths": np.array([140]),
}  # fmt: skip
grad = {"grad": np.full((), 0.75, np.float32)}
problems.want("long-ctc_loss", "ctc_loss", Sample("140 labels", long), "alpha")
problems.want("long-ctc_loss_backward", "ctc_loss_backward", Sample("140 labels", grad | long), "posteriors")
