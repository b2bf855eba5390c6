"""Reductions."""

from __future__ import annotations

from .. import Family
from .independent import CHECKS

__all__ = ["FAMILY"]

FAMILY = Family(
    independent=CHECKS,
    always=(
        "axis",
        "axis1",
        "axis2",
        "keepdims",
        "correction",
        "offset",
        "p",
        "grad_x",
        "min",
        "max",
        "var",
        "mean",
    ),
    two=("argmax", "max", "min"),
    also={
        **dict.fromkeys(("sum_backward", "mean_backward", "logsumexp_backward"), ("bf16[2, 3, 72] rows",)),
        **dict.fromkeys(("max_backward", "min_backward"), ("bf16 long columns",)),
        "var_backward": ("f16[2, 130] columns", "bf16 long row"),
        "logsumexp": ("f32[2, 130] columns",),
        "mean": ("f32[2, 130] columns",),
        "sum": ("bf16 C",),
        "var": ("bf16 axes 1", "f32 long rows"),
        **dict.fromkeys(("any", "all", "count_nonzero"), ("i32[2, 130] columns", "bf16 long row")),
        **dict.fromkeys(("argmin", "nanmax", "nanmin"), ("bf16 long columns",)),
        **dict.fromkeys(("nansum", "nanmean"), ("f32[2, 130] columns",)),
        "norm": ("bf16[2, 130] columns", "f32[40003] p=0.3333333333333333"),
        "nansum_backward": ("bf16[2, 3, 72] rows",),
        "norm_backward": ("bf16[5, 1024] rows", "f32 long rows", "bf16 axes 1"),
        **dict.fromkeys(("prod_backward", "nanmax_backward", "nanmin_backward"), ("bf16 long columns",)),
        "nanmean_backward": ("f16[2, 130] columns", "bf16 long row"),
        "std_backward": ("f16[2, 130] columns", "bf16 long row"),
        "prod": ("bf16 C",),
        "std": ("bf16 axes 1", "f32 long rows"),
        "aminmax": ("bf16 C", "bf16 long columns"),
        "var_mean": ("bf16 axes 1", "f32 long rows"),
        "aminmax_backward": ("bf16 long columns",),
        "reduce_to": ("f32 repeated",),
        "reduce_to_backward": ("f32 to [6, 5, 8]",),
        "var_mean_backward": ("f16[2, 130] columns", "bf16 long row"),
    },
    cases={
        "reducers_test.py::test_chunks_of_the_further_reducers": 3,
        "reducers_test.py::test_reducers_from_two_threads": 4,
        "reduce_test.py::test_argmax_takes_the_first_of_several_nan": 0,
        "reduce_test.py::test_columns_of_few_unaligned_rows": 0,
        "reduce_test.py::test_a_column_does_not_depend_on_how_many_there_are": 0,
        "reduce_test.py::test_a_row_does_not_depend_on_the_others": 1,
        "reduce_test.py::test_exponentials_that_all_vanish": 0,
        "reduce_test.py::test_long_rows_come_in_chunks": 1,
        "reduce_test.py::test_results_of_an_unaligned_view": ("sum",),
        "gradient_test.py::test_gradient_from_two_threads": ("mean", "logsumexp"),
        "gradient_test.py::test_gradient_in_place_of_x": 3,
        "reduce_test.py::test_where_a_row_starts_changes_no_bit": 0,
        "pairs_test.py::test_pairs_are_the_results_of_two_ops": 3,
        "reduce_test.py::test_sums_of_short_rows": ("641",),
        "gradient_test.py::test_equal_terms_are_counted_over_chunks": 1,
        "reduce_test.py::test_softmax_in_place": 0,
        "reduce_test.py::test_the_sum_of_an_infinite_exponential": ("cpu",),
        "reducers_test.py::test_corners_are_those_of_numpy": ("prod-cpu", "prod-ptx", "argmin-cpu", "std-cpu"),
    },
)
