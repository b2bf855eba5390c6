"""Rotations: heads in rounds, written elsewhere than they are read."""

from __future__ import annotations

import numpy as np

from ...samples.sample import Sample
from ...samples.wanted import Problems, bf16, f32

problems = Problems()
n, want = problems.normal, problems.want

heads = {"x": n((2, 9, 5, 64), bf16), "inv_freq": (10000.0 ** (-np.arange(32) / 32)).astype(f32)}
spaced = Sample("bf16 every other head of out", {**heads, "out": n((2, 18, 5, 64), bf16)[:, ::2]})
want("rope-rounds-into-spaced-heads", "rope", spaced, "pairs", ("*heads=2 rounds=2*", "*rounds=4*"))
