"""Losses of rows: rows that are streamed by vectors, with a last part that is shorter, and a label in it."""

from __future__ import annotations

import numpy as np

from ....samples.sample import Sample
from ....samples.wanted import Problems, bf16, f16

problems = Problems()

triplet = {name: problems.normal((2, 40_008), bf16) for name in ("anchor", "positive", "negative")}
margin = {"x": problems.normal((2, 40_008), f16), "target": np.array([40_007, 3])}
grad = {"grad": np.full((), 0.75, np.float32)}
for loss, operands in (("triplet_margin_loss", triplet), ("multi_margin_loss", margin)):
    problems.want(f"streamed-{loss}", loss, Sample("2x40008", operands), "rows")
    problems.want(f"streamed-{loss}_backward", f"{loss}_backward", Sample("2x40008", grad | operands), "rows")
