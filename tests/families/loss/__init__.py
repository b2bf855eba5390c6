"""Losses of rows of logits, and their gradients."""

from __future__ import annotations

from .. import Family
from . import independent, independent_elements

__all__ = ["FAMILY"]

FAMILY = Family(
    independent=independent.CHECKS | independent_elements.CHECKS,
    always=(
        "weight",
        "ignore_index",
        "label_smoothing",
        "reduction",
        "z_loss",
        "return_lse",
        "return_status",
        "lse",
        "status",
        "grad_logits",
        "grad_x",
        "beta",
        "delta",
        "log_target",
    ),
    also=dict.fromkeys(independent_elements.LOSSES, ("f32[6, 40] F none",))
    | {
        "cross_entropy": (
            "many rows float32[1500, 5] ignore_index",
            "streamed bfloat16[2, 40001] reduction label_smoothing",
        ),
        "cross_entropy_backward": ("wrong float32[9, 13] reduction return_status return_lse",),
    },
)
