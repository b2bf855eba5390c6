"""Reductions of segments of rows."""

from __future__ import annotations

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

__all__ = ["FAMILY"]

LONG = ("one segment", "long and short ones", "more pieces than shares")
FAMILY = Family(
    independent=CHECKS,
    always=("grad_x",),
    also=dict.fromkeys(CHECKS, LONG),
    no_meaning=tuple(
        NoMeaning(
            op,
            ((np.zeros(3), np.array([0, 3])), {"mode": "drop", "status": np.array(7, np.int32)}),
            bp.InvalidProblemError,
            "no operand 'status'",
        )
        for op in ("segment_sum", "segment_mean", "segment_max", "segment_min")
    ),
)
