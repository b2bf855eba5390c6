"""The greatest elements of each row, and the places of values in sorted ones."""

from __future__ import annotations

from .. import Family
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
    ),
    wanted=(
        "topk-aligned-parts",
        "topk-nan-among-many",
        "topk-held-nan-700-9",
        "kth-in-parts",
        "median-nan-in-several-vectors",
    ),
    cases={
        "topk_test.py::test_short_rows_and_one_element": 8,
        "topk_test.py::test_short_rows_of_a_view": 0,
        "topk_test.py::test_a_row_does_not_depend_on_others": 0,
        "topk_test.py::test_the_order_of_equal_elements_in_parts": 0,
    },
)
