"""Counts: several CTAs that stride, one copy of the counters, bins in L2, elements that are not contiguous."""

from __future__ import annotations

import numpy as np

from ....samples.sample import Sample
from ....samples.wanted import Problems

problems = Problems()
rng, want = problems.rng, problems.want

many = rng.integers(-3, 60, 40_003).astype(np.int16)
want(
    "bincount-strides", "bincount", Sample("i16 40003", {"x": many}, {"length": 50, "mode": "status"}), "shared", sms=1
)
few = rng.integers(0, 12_288, 6001)
want("bincount-one-copy", "bincount", Sample("i64 6001 of 12288", {"x": few}, {"length": 12_288}), "shared")
want(
    "bincount-in-l2",
    "bincount",
    Sample("i64 6001 of 50", {"x": few}, {"length": 50, "mode": "status"}),
    "global",
    sms=1,
)
view = problems.normal((60, 200))[::2, ::3]
interval = {"bins": 9, "low": -2.0, "high": 2.0}
want("histogram-of-a-view", "histogram", Sample("f32 view", {"x": view}, interval), "shared", sms=1)
