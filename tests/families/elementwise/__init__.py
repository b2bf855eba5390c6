"""Elementwise functions: rows of a table, and casts."""

from __future__ import annotations

import numpy as np

import baracuda_py as bp
from baracuda_py.ops.elementwise._row import ROWS

from .. import Family, NoMeaning
from .independent import CHECKS

__all__ = ["FAMILY"]

# Gradients with two outputs, or with one where an argument is a number; each of the two has kernels of its own.
ONE_OUTPUT_OR_TWO = tuple(
    f"{name}_backward"
    for name, row in ROWS.items()
    if len(row.arguments) == len(row.gradient) == 2 and name not in ("add", "subtract")
)

FAMILY = Family(
    independent=CHECKS,
    no_meaning=(
        NoMeaning(
            "add", ((np.ones(3), np.ones(3)), {"pref": bp.PlanPreference(math="tf32")}), bp.UnsupportedError, "not tf32"
        ),
        NoMeaning(
            "glu", ((np.ones(4), np.ones(4)), {"axis": 0}), bp.OperandTypeError, "axis=0 is given beside x and y"
        ),
        NoMeaning("neg", ((np.ones(3),), {"pref": bp.PlanPreference(backend="cublas")}), bp.UnsupportedError, "cublas"),  # type: ignore[arg-type]
    ),
    # Outputs of gradients, which may be given like out=, the absent bound of clamp, and the numbers of rows.
    always=(
        *("grad_x", "grad_x1", "grad_x2", "grad_y", "grad_x3", "grad_weight", "grad_min", "grad_max", "min", "max"),
        *("grad_start", "grad_end", "grad_tensor1", "grad_tensor2"),
        *dict.fromkeys(param for row in ROWS.values() for param in row.params),
    ),
    wanted=("map-two-a-thread",),
    two=tuple(name for name, row in ROWS.items() if len(row.arguments) == 2 and name != "add"),
    also={
        **dict.fromkeys(ONE_OUTPUT_OR_TWO, ("f32 with 0.1",)),
        "scaled_cast": ("bf16 to fp8_e4m3 by 2.5",),
        **dict.fromkeys(("lerp_backward", "addcmul_backward", "addcdiv_backward"), ("f16 0.3 -0.3",)),
    },
    variants=dict.fromkeys(ONE_OUTPUT_OR_TWO, ("f32[1023][1023]", "f32 with 0.1")),
    cases={
        "elementwise_test.py::test_integer_powers_wrap_and_truncate": 0,
        "weak_test.py::test_numbers_beside_masks_and_alone": ("cpu",),
        "fused_constants_test.py::test_fused_constants_of_another_type_are_not_one": ("cpu",),
        "fused_gradient_test.py::test_gradient_arguments_and_broadcasts": ("cpu",),
        "fused_rows_test.py::test_rows_of_several_axes_and_all": ("cpu",),
        "fused_rows_test.py::test_rows_layouts_and_in_place": ("cpu",),
        "elementwise_test.py::test_maximum_and_minimum_carry_nan": 0,
        "row_gradients_test.py::test_row_gradient_is_in_its_help": 20,
        "row_gradients_test.py::test_row_gradient_is_that_of_the_oracle": 40,
        "elementwise_test.py::test_special_values_match_numpy": 20,
        "elementwise_test.py::test_pairs_of_special_values_match_numpy_bits": 20,
        "special_values_test.py::test_nextafter_of_all_codes_is_the_next_code": ("bf16",),
        "special_values_test.py::test_fused_functions_take_them": 0,
        "row_gradients_test.py::test_a_wrong_row_gradient_is_noticed": 20,
        "halves_test.py::test_halves_give_the_bits_of_two_arrays": 2,
        "fused_test.py::test_fused_kinds_meet_as_in_numpy": ("cpu",),
        "fused_rows_test.py::test_rows_are_shared_out_in_every_way": 0,
        "fused_recording_test.py::test_fused_recording_writes_what_later_calls_read": 0,
        "elementwise_test.py::test_random_broadcasts_match_numpy": 0,
        "fused_test.py::test_fused_takes_every_row": 8,
        "fused_test.py::test_fused_graphs_on_the_oracle": 1,
        "fused_test.py::test_fused_graphs_emulated": 1,
        "fused_rows_test.py::test_row_gradients_by_differences": ("one column",),
        "fused_gradient_test.py::test_gradient_of_every_row": 10,
        "fused_gradient_test.py::test_gradient_kernels_hold_their_bound": ("f16",),
        "fused_recording_test.py::test_fused_recording_gives_what_separate_calls_give": 1,
        "circular_test.py::test_circular_functions_of_angles_that_are_hard": 0,
        "circular_test.py::test_circular_functions_of_zeros_and_infinities": 0,
        "special_values_test.py::test_functions_beyond_their_domains_and_at_their_poles": 0,
        "special_values_test.py::test_functions_where_they_are_hard_against_mpmath": 1,
        "weak_test.py::test_isclose_of_integers_is_that_of_numpy": 1,
        "elementwise_test.py::test_pow_of_large_exponents_keeps_its_sign": 2,
        "fused_rows_test.py::test_rows_against_numpy": ("f32-cpu",),
        "weak_test.py::test_casts_of_every_short_float_match_ml_dtypes": 2,
        "weak_test.py::test_comparisons_are_exact": 1,
        "weak_test.py::test_numbers_are_weak": 1,
        "elementwise_test.py::test_result_kinds_of_two_arrays_match_numpy": 2,
        "fused_recording_test.py::test_fused_recording_stops_at_other_ops": 0,
        "fused_recording_test.py::test_fused_recording_rounds_once": 0,
        "elementwise_test.py::test_result_kinds_of_one_array_match_numpy": 20,
        "elementwise_test.py::test_values_against_mpmath": 20,
        "elementwise_test.py::test_kinds_that_are_not_taken_are_refused": 20,
        "elementwise_test.py::test_16_bit_guarantee_is_that_of_f32_and_a_rounding": 20,
    },
)
