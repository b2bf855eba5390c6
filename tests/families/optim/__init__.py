"""Steps of optimizers."""

from __future__ import annotations

from .. import Family
from .independent import CHECKS

__all__ = ["FAMILY"]

FAMILY = Family(
    independent=CHECKS,
    always=(
        "max_exp_avg_sq", "master", "lr", "beta1", "beta2", "eps", "weight_decay", "maximize", "learning_rate", "grad_scale",
        "found_inf", "table", "stochastic", "seed", "momentum_buffer", "momentum", "dampening", "nesterov", "square_avg",
        "grad_avg", "alpha", "lr_decay", "trust_coefficient", "max_norm", "norm", "scale",
        "exp_avg_absmax", "exp_avg_sq_absmax", "momentum_buffer_absmax", "square_avg_absmax", "state_sum_absmax",
        "beta2_decay", "eps1", "eps2", "d", "row_var", "col_var", "variance", "ns_coefficients", "ns_steps", "adjust_lr_fn",
    ),
    also={
        "adamw_update": ("parts unaligned f16[361]", "skipped f32[130]", "by chance bf16[301]"),
        "adamw8bit_update": ("parts f32[2830]", "parts unaligned f16[2812]", "by chance bf16[301]"),
        "sgd8bit_update": ("double f64[300]",),
        "sgd_update": ("later bf16[517]", "parts unaligned f16[361]"),
        "rmsprop_update": ("both f64[133]",),
        "lamb_update": ("parts f32[367]", "parts unaligned f16[361]", "by chance bf16[301]"),
        "muon_update": ("one f16[16, 24]", "tall bf16[33, 12]", "two f32[9, 17]", "double f64[6, 5]"),
        "lars_update": ("parts f32[367]", "parts unaligned f16[361]", "Nesterov f64[133]"),
    },
    cases={
        "lists_test.py::test_lists_are_updated_as_their_arrays": ("cpu",),
        "normed_test.py::test_normed_rules_take_their_papers_steps": 0,
        "normed_test.py::test_normed_lists_are_updated_as_their_arrays": 1,
        "lists_test.py::test_norm_of_a_list_clips_a_step_without_writing": ("cpu",),
        "torch_test.py::test_torch_optimizers_take_the_same_200_steps": 1,
        "captured_tables_test.py::test_table_of_a_captured_step_lives_as_long_as_its_graph": 0,
        "captured_tables_test.py::test_a_captured_first_call_copies_its_table_at_each_replay": 0,
    },
)  # fmt: skip
