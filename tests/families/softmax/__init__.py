"""Softmax, its logarithm, and their gradients."""

from __future__ import annotations

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

__all__ = ["FAMILY"]

FAMILY = Family(
    emulated="sparsemax",
    independent=CHECKS,
    always=("axis", "grad_x", "mask", "scale", "causal"),
    no_meaning=(
        NoMeaning(
            "masked_softmax",
            ((np.ones((2, 3)),), {"offset": 1}),
            bp.InvalidProblemError,
            "offset=1 without causal=True",
        ),
    ),
    wanted=(
        "kept-softmax_backward-70003",
        "kept-softmax-70003",
        "cluster-softmax-columns",
        "kept-log_softmax-33001",
        "kept-log_softmax_backward-70008",
        "cluster-softmax-70001",
        "cluster-softmax-70008",
        "cluster-log_softmax-35011",
        "cluster-softmax_backward-70001",
        "cluster-softmax_backward-70008",
        "cluster-log_softmax_backward-140008",
        "unaligned-softmax-2051",
        "unaligned-log_softmax-2051",
        "unaligned-softmax_backward-2051",
        "unaligned-log_softmax_backward-2051",
        "resident-softmax-203",
        "resident-log_softmax-203",
        "resident-softmax_backward-203",
        "resident-log_softmax_backward-203",
        "resident-softmax-1001",
        "resident-log_softmax-1001",
        "resident-softmax_backward-1001",
        "resident-log_softmax_backward-1001",
    ),
    also={
        "log_softmax": ("f32 axis 0",),
        "softmax": ("f32 axis 0",),
        "masked_softmax_backward": ("f32 odd rows, streamed",),
    },
    variants={"masked_softmax_backward": ("f32 odd rows, streamed",)},
    small={
        "log_softmax": ("f32 axis 0",),
        "softmax": ("f32 axis 0",),
    },
    cases={
        "masked_test.py::test_masked_softmax_causal_equals_its_mask": ("2147483647-reversed", "-1-swapped"),
        "masked_test.py::test_masked_softmax_every_configuration": 0,
    },
)
