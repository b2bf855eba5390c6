"""Steps of optimizers."""

from __future__ import annotations

from .. import Family
from .independent import CHECKS

__all__ = ["FAMILY"]

FAMILY = Family(
    independent=CHECKS,
    always=(
        "max_exp_avg_sq", "master", "lr", "beta1", "beta2", "eps", "weight_decay", "maximize", "learning_rate", "grad_scale",
        "found_inf", "table",
    ),
    also=dict.fromkeys(("adamw_update", "adam_update"), ("parts unaligned f16[361]", "skipped f32[130]")),
)  # fmt: skip
