"""Norms over the last axes, and their gradients."""

from __future__ import annotations

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

__all__ = ["FAMILY"]

ROWS = np.ones((2, 96), np.float32)

FAMILY = Family(
    emulated="batch_norm_inference",
    independent=CHECKS,
    always=(
        "weight",
        "bias",
        "residual",
        "eps",
        "normalized_shape",
        "codes",
        "scales",
        "stats",
        "rstd",
        "mean",
        "grad_x",
        "grad_bias",
        "per",
        "needs",
        "momentum",
        "var",
        "axis",
        "grad_g",
    ),
    no_meaning=(
        NoMeaning(
            "rms_norm",
            ((np.ones((2, 3)),), {"residual_out": np.ones((2, 3))}),
            bp.InvalidProblemError,
            "pass residual too",
        ),
        NoMeaning(
            "rms_norm_backward",
            ((np.ones((2, 3)), np.ones((2, 3)), None, np.ones(2)), {"grad_weight": np.ones(3)}),
            bp.InvalidProblemError,
            "there is no grad_weight",
        ),
        *(
            NoMeaning(op, (arrays, more), bp.InvalidProblemError, says)
            for op, arrays in (("rms_norm_int8", (ROWS,)), ("layer_norm_fp8", (ROWS,)), ("silu_mul_int8", (ROWS, ROWS)))
            for more, says in (
                ({"group_size": 128}, "leave it out"),
                ({"per": "group"}, "give group_size=128"),
                ({"per": "group", "group_size": 48}, "give one of"),
                ({"per": "group", "group_size": 128}, "pad rows to 128"),
            )
        ),
        NoMeaning("weight_norm", ((ROWS, np.ones((2, 1), np.float64)), {}), bp.OperandTypeError, "cast it to f32"),
        NoMeaning("rms_norm_fp8", ((ROWS,), {"residual_out": ROWS}), bp.InvalidProblemError, "pass residual too"),
    ),
    wanted=(
        "kept-rms_norm-70003",
        "kept-layer_norm-33001",
        "cluster-rms_norm-70001",
        "cluster-rms_norm-70008",
        "cluster-layer_norm-34999",
        "cluster-layer_norm-35000",
        "long-gradient-9001-lanes=512",
        "long-gradient-33001-kept=2",
        "long-gradient-70003-kept=1",
        "long-gradient-70003-lanes=512 ctas=",
        "unaligned-rms_norm-2051",
        "unaligned-layer_norm-2051",
        "cluster-rms_norm-residual",
        "cluster-group_norm",
        "cluster-group_norm_backward",
        "cluster-rms_norm_int8-70008",
        "cluster-layer_norm_fp8-groups",
        "cluster-batch_norm_running",
        "cluster-normalize",
        "cluster-normalize_backward",
        "cluster-weight_norm",
        "cluster-weight_norm_backward",
        "unaligned-normalize-1001",
        "unaligned-weight_norm_backward-1001",
        "unaligned-normalize-20001",
        "unaligned-weight_norm_backward-20001",
        "unaligned-normalize-70003",
        "unaligned-weight_norm_backward-70003",
        "kept-normalize-33001",
        "kept-weight_norm_backward-33001",
        "columns-normalize",
        "columns-weight_norm_backward",
        "unaligned-normalize_backward-1001",
        "unaligned-normalize_backward-20001",
        "unaligned-normalize_backward-70003",
        "kept-normalize_backward-33001",
        "columns-normalize_backward",
        "unaligned-weight_norm-1001",
        "unaligned-weight_norm-20001",
        "unaligned-weight_norm-70003",
        "kept-weight_norm-33001",
        "columns-weight_norm",
        "resident-rms_norm-203",
        "resident-layer_norm-203",
        "resident-rms_norm-1001",
        "resident-layer_norm-1001",
    ),
    also={
        "normalize": ("f32[6, 33] along [0]",),
        "weight_norm": ("f32[6, 33] along [0]",),
        "normalize_backward": ("f32[6, 33] along [0]",),
        "weight_norm_backward": ("f32[6, 33] along [0]",),
    },
    two=("layer_norm_backward", "rms_norm_backward"),
    small={
        "layer_norm_backward": ("bf16[7, 136] C plain",),
        "rms_norm_backward": ("bf16[7, 136] C plain",),
    },
    cases={
        "unit_test.py::test_unit_in_place": 0,
        "unit_test.py::test_unit_bounds_at_the_ends_of_the_range": 3,
        "unit_test.py::test_unit_axes_in_memory_of_any_order": 0,
        "norm_test.py::test_in_place": 0,
        "quantized_test.py::test_quantized_rows_of_zeros_and_nan": 1,
        "channels_test.py::test_group_norm_bounds_at_the_ends_of_the_range": 1,
        "quantized_test.py::test_quantized_every_configuration": 0,
        "quantized_test.py::test_quantized_f32_equals_norm_then_quantize": 0,
        "norm_test.py::test_a_gradient_in_place_of_the_one_it_comes_from": 0,
        "norm_test.py::test_bounds_hold_at_the_ends_of_the_range": 1,
        "norm_test.py::test_every_configuration": 0,
        "norm_test.py::test_sums_over_rows_lie_in_c_order_however_rows_lie": 0,
        "channels_test.py::test_group_norm_layout_changes_no_weight": 0,
        "channels_test.py::test_batch_norm_is_instance_norm_of_one_item": 0,
        "channels_test.py::test_group_norm_in_place": 0,
        "quantized_test.py::test_quantized_residual_is_the_sum": 0,
        "norm_test.py::test_a_long_row_with_a_residual": ("rms_norm",),
        "channels_test.py::test_batch_norm_parts_of_a_batch_are_the_whole": 0,
        "channels_test.py::test_group_norm_backward_sums_by_channel": 0,
        "channels_test.py::test_group_norm_of_a_group_is_layer_norm": 1,
        "quantized_test.py::test_quantized_codes_multiply_as_matmul_takes_them": 0,
    },
)
