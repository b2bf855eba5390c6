"""The greatest elements of each row, and the places of values in sorted ones."""

from __future__ import annotations

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

__all__ = ["FAMILY"]

FAMILY = Family(
    independent=CHECKS,
    always=(
        "axis",
        "largest",
        "sorted",
        "values",
        "indices",
        "right",
        "descending",
        "stable",
        "index_dtype",
        "keepdims",
        "grad_x",
        "mode",
        "low",
        "high",
        "trim",
        "count",
        "size",
        "fill_value",
        "equal_nan",
        "return_inverse",
        "return_counts",
        "return_index",
        "invert",
    ),
    also={
        "isin": ("elements stepped float32[6, 40][9, 8]", "test_elements padded float32[6, 40][9, 8] invert"),
        "unique": ("int16[6, 70] padded", "int16[6, 70] stepped", "int16[6, 70] F"),
    },
    no_meaning=(
        NoMeaning(
            "bincount",
            ((np.zeros(3, np.int32), 4), {"status": np.array(7, np.int32)}),
            bp.InvalidProblemError,
            "no operand 'status'",
        ),
        *(
            NoMeaning(op, ((np.zeros(3),), {name: np.full(3, 7)}), bp.InvalidProblemError, f"no operand '{name}'")
            for op in ("unique", "unique_consecutive")
            for name in ("inverse", "counts", "index")
        ),
    ),
    wanted=(
        "topk-aligned-parts",
        "topk-nan-among-many",
        "topk-held-nan-700-9",
        "kth-in-parts",
        "median-nan-in-several-vectors",
        "bincount-strides",
        "bincount-in-l2",
    ),
    cases={
        "sort_test.py::test_sort_writes_strided_results": 0,
        "kth_test.py::test_median_of_integers_at_their_ends": 0,
        "unique_test.py::test_unique_runs_across_tiles": 0,
        "kth_test.py::test_median_of_rows_with_nan": 2,
        "kth_test.py::test_kth_of_a_view_along_another_axis": 0,
        "kth_test.py::test_kth_by_every_variant": 0,
        "counts_test.py::test_histogram_is_that_of_numpy": 6,
        "counts_test.py::test_bincount_of_equal_elements_in_every_part": 0,
        "counts_test.py::test_bincount_is_that_of_numpy": 4,
        "topk_test.py::test_short_rows_and_one_element": 8,
        "topk_test.py::test_short_rows_of_a_view": 0,
        "topk_test.py::test_a_row_does_not_depend_on_others": 0,
        "topk_test.py::test_the_order_of_equal_elements_in_parts": 0,
        "sort_test.py::test_sort_by_every_variant": 0,
        "sort_test.py::test_sort_of_a_view_along_another_axis": 0,
    },
)
