"""Elements and lines picked by index, sums by index, and the indices of elements that are not zero."""

from __future__ import annotations

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

__all__ = ["FAMILY"]

FAMILY = Family(
    independent=CHECKS,
    always=("axis", "trim", "count", "grad_x", "grad_weight", "reduce", "return_status", "padding_idx"),
    also=dict.fromkeys(("index_add", "index_copy"), ("x padded", "x stepped")),
    no_meaning=(
        NoMeaning(
            "take_along_axis",
            ((np.zeros(3), np.zeros(2, np.int64)), {"mode": "clip", "status": np.array(7, np.int32)}),
            bp.InvalidProblemError,
            "no operand 'status'",
        ),
    ),
)
