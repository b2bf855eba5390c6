"""Copies: to C order, into a slice, into caches."""

from __future__ import annotations

from typing import Any

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

F32 = np.float32


def window(**more: Any) -> Any:
    return (np.zeros(4, F32), np.ones(1, F32), [(0, 1)]), more


__all__ = ["FAMILY"]

FAMILY = Family(
    emulated="kv_append",
    independent=CHECKS,
    always=("layout", "wrap"),
    no_meaning=(
        NoMeaning(
            "write_slice", window(start=np.array(3)), bp.InvalidProblemError, "start was given and no dynamic_axis"
        ),
        NoMeaning(
            "write_slice",
            window(status=np.array(7, np.int32)),
            bp.InvalidProblemError,
            "status was given and no dynamic_axis",
        ),
        NoMeaning("write_slice", window(dynamic_axis=0), bp.InvalidProblemError, "operand 'start' is missing"),
    ),
    wanted=("runs-to-an-aligned-end", "transpose-ragged-float32"),
    two=("contiguize", "write_slice"),
    also={
        "contiguize": ("complex128 C", "u8 64x64 transposed"),
        "write_slice": ("f32[16, 20][(4, 9), (8, 15)]", "s4 columns 5 to 6 of 16", "bf16[12, 8][(0, 12), (0, 8)]"),
        "kv_append": ("bf16 BHSD 3 tokens, wrapped",),
    },
    variants={
        "contiguize": ("complex128 C", "u8 64x64 transposed"),
        "write_slice": ("f32[16, 20][(4, 9), (8, 15)]",),
    },
    small={
        "write_slice": ("u8[9, 130][(1, 8), (1, 128)]",),
    },
    cases={
        "kv_append_test.py::test_random_shapes": 0,
        "write_slice_test.py::test_functions_and_descriptors_begin_alike": 0,
        "contiguize_test.py::test_a_view_beyond_32_bits_is_selected": 0,
        "contiguize_test.py::test_random_views_match_numpy": 0,
        "write_slice_test.py::test_a_decode_loop_of_8192_appends_makes_one_plan": 0,
        "kv_append_test.py::test_kv_append_wraps_positions": 10,
        "write_slice_test.py::test_random_windows_match_numpy": 0,
        "copy_lowering_test.py::test_every_kernel_of_a_copy_gets_what_it_needs": 0,
    },
)
