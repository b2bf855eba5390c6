"""Losses of rows of logits, and their gradients."""

from __future__ import annotations

from .. import Family
from . import (
    independent,
    independent_ctc,
    independent_elements,
    independent_linear,
    independent_multilabel,
    independent_nll,
    independent_rows,
)

__all__ = ["FAMILY"]

_SUM = "sum f32[5, 9, 13] C reduction label_smoothing z_loss return_gradients return_status"
_ODD = "odd bfloat16[3, 2051] reduction label_smoothing z_loss return_lse"
FAMILY = Family(
    emulated="mse_loss",
    independent=independent.CHECKS
    | independent_ctc.CHECKS
    | independent_elements.CHECKS
    | independent_linear.CHECKS
    | independent_multilabel.CHECKS
    | independent_nll.CHECKS
    | independent_rows.CHECKS,
    always=(
        "weight",
        "ignore_index",
        "label_smoothing",
        "reduction",
        "z_loss",
        "return_lse",
        "return_status",
        "return_gradients",
        "grad_hidden",
        "grad_weight",
        "lse",
        "status",
        "grad_logits",
        "grad_x",
        "beta",
        "delta",
        "log_target",
        "log_input",
        "full",
        "margin",
        "eps",
        "grad_other",
        "grad_var",
        "grad_target",
        "return_grad_target",
        "p",
        "swap",
        "grad_x1",
        "grad_x2",
        "grad_anchor",
        "grad_positive",
        "grad_negative",
        "blank",
        "zero_infinity",
        "grad_log_probs",
    ),
    also=dict.fromkeys(independent_elements.LOSSES, ("f32[6, 40] F none",))
    | {
        "cross_entropy": (
            "many rows float32[1500, 5] ignore_index",
            "streamed bfloat16[2, 40001] reduction label_smoothing",
            _ODD,
            "stepped float32[5, 33] label_smoothing",
        ),
        "linear_cross_entropy": (_SUM,),
        "linear_cross_entropy_backward": (_SUM, "no rows f32[0, 8, 5] C return_gradients"),
        "cross_entropy_backward": ("wrong float32[9, 13] reduction return_status return_lse", _ODD),
    },
    wanted=("streamed-multi_margin_loss_backward",),
    cases={
        "multilabel_test.py::test_multilabel_margin_counts_duplicates": ("cpu",),
        "ctc_test.py::test_ctc_of_impossible_classes": ("cpu",),
        "multilabel_test.py::test_multilabel_margin_sums_many_rows": 0,
        "linear_test.py::test_linear_wrong_label": 0,
        "ctc_test.py::test_ctc_out_of_range": ("targets-cpu",),
        "ctc_test.py::test_ctc_longer_than_a_float_holds": ("cpu",),
        "ctc_test.py::test_ctc_is_the_sum_of_alignments": ("cpu",),
        "linear_test.py::test_linear_chunks_take_each_row_once": 0,
        "cross_entropy_test.py::test_cross_entropy_streams_long_rows": 0,
        "elements_test.py::test_elements_losses_are_those_of_torch": 8,
        "linear_test.py::test_linear_is_that_of_torch": 2,
        "linear_test.py::test_linear_is_differentiated_by_torch": 1,
        "linear_test.py::test_linear_chunks_keep_the_bound": 0,
        "nll_test.py::test_nll_is_that_of_torch": 3,
        "rows_test.py::test_row_losses_are_those_of_torch": 8,
        "linear_test.py::test_linear_from_threads_has_the_same_bits": 0,
        "linear_test.py::test_linear_gradients_alone_and_into_views": 0,
    },
)
