"""Running sums."""

from __future__ import annotations

from .. import Family
from .independent import CHECKS

__all__ = ["FAMILY"]

FAMILY = Family(
    independent=CHECKS,
    always=("axis", "reverse", "exclusive", "grad_x"),
    wanted=("scan-chunks-of-columns",),
    also={
        "cumsum": ("f16 reversed",),
        "cumprod": ("f32 exclusive", "u8[2, 130] columns"),
        "cumsum_backward": ("f32 exclusive", "f64[2, 130] columns"),
        **dict.fromkeys(("cummax", "cummin"), ("f16[2, 130] columns", "f32 stepped, axis 0")),
        "logcumsumexp": ("f32 exclusive of one", "f16[2, 130] columns", "f32 reversed, axis 1"),
        "cummax_backward": ("f32[33, 40] columns",),
        "cumprod_backward": ("f32 exclusive of one",),
        "logcumsumexp_backward": ("f32[33, 40] columns", "f32 exclusive of one"),
        "cummin_backward": ("bf16 long row",),
    },
    cases={
        "scan_gradient_test.py::test_scan_gradient_in_place": ("cummin",),
        "scan_test.py::test_an_infinity_changes_nothing_before_it": 0,
        "running_test.py::test_scans_of_any_length": ("shape0-1-cumprod-False", "shape4-1-cummin-True"),
        "scan_test.py::test_columns_of_any_extent": ("1", "33"),
        "scan_test.py::test_cumsum_of_integers_matches_numpy": ("i1", "i8"),
        "scan_test.py::test_more_chunks_than_a_tile_has_elements": 0,
        "scan_test.py::test_rows_of_any_length": ("1", "513"),
        "scan_gradient_test.py::test_scan_gradient_in_chunks_of_columns": 0,
        "running_test.py::test_scans_of_integers_are_exact": 0,
        "scan_gradient_test.py::test_scan_gradient_of_a_line_in_any_batch": 0,
        "running_test.py::test_scans_in_place_and_from_two_threads": ("cumprod-False",),
        "running_test.py::test_corners_of_scans": ("cumprod-False-cpu", "cumprod-False-ptx"),
        "scan_test.py::test_a_row_does_not_depend_on_the_others": 0,
        "scan_gradient_test.py::test_scan_gradient_from_two_threads": ("cummin",),
        "scan_test.py::test_in_place": 0,
    },
)
