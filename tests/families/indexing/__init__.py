"""Elements and lines picked by index, sums by index, and the indices of elements that are not zero."""

from __future__ import annotations

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from . import masked
from .independent import CHECKS

__all__ = ["FAMILY"]

X, I = np.zeros(3), np.zeros(2, np.int64)
FAMILY = Family(
    independent=CHECKS | masked.CHECKS,
    always=(
        "axis",
        "trim",
        "count",
        "grad_x",
        "grad_weight",
        "grad_src",
        "reduce",
        "padding_idx",
        "x",
        "src",
        "y",
        "grad_source",
        "size",
    ),
    also={
        **dict.fromkeys(("index_add", "index_copy"), ("x padded", "x stepped")),
        "scatter_backward": (
            "grad reversed, add",
            "f64[33, 7][40, 5] axis 0 status, mean",
            "NaN and infinities, prod",
            "long runs, prod",
        ),
    },
    no_meaning=tuple(
        NoMeaning(
            op,
            (arrays, {"mode": "clip", "status": np.array(7, np.int32)}),
            bp.InvalidProblemError,
            "no operand 'status'",
        )
        for op, arrays in {
            "take_along_axis": (X, I),
            "index_select": (X, I),
            "embedding": (X[:, None], I),
            "index_add": (X, I, X[:2]),
            "index_copy": (X, I, X[:2]),
            "scatter": (X, I, X[:2]),
        }.items()
    ),
    cases={
        "indexing_test.py::test_more_tiles_than_the_scan_has_threads": 0,
        "scatter_test.py::test_status_reports_and_check_raises": ("cpu",),
        "scatter_test.py::test_refusals": 12,
        "scatter_test.py::test_sort_more_tiles_than_threads": 0,
        "scatter_test.py::test_sums_of_lines_at_odd_addresses_and_of_odd_widths": 0,
        "scatter_test.py::test_indices_out_of_range_sort_behind_the_last_line": 0,
        "scatter_test.py::test_padding_is_the_row_that_an_id_names": ("clip-cpu", "wrap-ptx"),
        "indexing_test.py::test_what_is_not_zero": 1,
        "indexing_test.py::test_counts_of_64_bits": 0,
    },
)
