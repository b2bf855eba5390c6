"""Matrix products of floats, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

F32 = np.float32


def product(**more: Any) -> Any:
    return (np.ones((3, 4), F32), np.ones((4, 5), F32)), more


__all__ = ["FAMILY"]

FAMILY = Family(
    emulated="matmul_tc",
    independent=CHECKS,
    always=("alpha", "c", "bias", "residual", "activation"),
    no_meaning=(
        NoMeaning("matmul", product(beta=0.5), bp.InvalidProblemError, "there is no c"),
        NoMeaning("matmul", product(scale_a=np.ones((1, 1), F32)), bp.OperandTypeError, "only fp8 is scaled"),
        NoMeaning("matmul", product(scale_b=np.ones((1, 5), F32)), bp.OperandTypeError, "only fp8 is scaled"),
        NoMeaning("matmul", product(math="fp8_fast"), bp.OperandTypeError, "f32 is not multiplied in fp8_fast"),
        NoMeaning(
            "matmul",
            product(out_dtype="f16", out=np.zeros((3, 5), F32)),
            bp.OperandTypeError,
            "out holds f32 and out_dtype is f16",
        ),
        NoMeaning(
            "matmul",
            product(pref=bp.PlanPreference(variant="wgmma")),
            bp.UnsupportedError,
            "not the preferred variant 'wgmma'",
        ),
    ),
    wanted=(
        "beta-0-paired-float16",
        "rows-that-do-not-follow-on",
        "simt-split-ragged",
        "gemv-ragged",
        "gemv-batch",
        "tc-async-split-batch",
        "tc-128",
        "wgmma-fp8-shared-b",
        "pad-blocks",
    ),
    also={
        "matmul_backward": ("bf16 (7,) @ (7, 5)",),
        "matmul_tc_async": ("f16 129x65x255",),
        "matmul_tc_bf16_async": ("bf16 129x65x255",),
    },
    variants={
        "matmul_backward": ("bf16 (17, 65) @ (65, 9)", "f32 (7,) @ (7, 5)"),
    },
    small={
        "matmul": ("bf16 cancelling gelu",),
        "matmul_backward": ("f16 (7,) @ (7, 5)",),
        "matmul_tc": ("f16 129x64x63",),
        "matmul_tc_async": ("f16 cancelling relu",),
        "matmul_tc_bf16": ("bf16 129x64x63",),
        "matmul_tc_bf16_async": ("bf16 129x64x63",),
    },
    cases={
        "matmul_probable_test.py::test_missing_work_shows_in_whole_numbers": 3,
        "matmul_fp8_test.py::test_scales_by_blocks_are_served_by_kernels_that_compile": ("bf16",),
        "matmul_backward_test.py::test_gradients_at_ragged_sizes": 12,
        "gemm_problem_test.py::test_result_shapes_and_refusals_match_numpy": 0,
        "gemm_problem_test.py::test_products_of_any_layout_match_numpy": 0,
        "gemm_problem_test.py::test_every_sample_walked_is_the_product": ("matmul_tc",),
        "matmul_probable_test.py::test_missing_work_shows_at_the_largest_k": 2,
        "wgmma_test.py::test_split_last_wave_covers_every_tile_once": (
            "2200-4488-batch0",
            "700-3000-batch2",
        ),
        "matmul_probable_test.py::test_what_accumulators_do_keeps_the_probable_bound": 8,
        "staged_copy_test.py::test_staged_copy_has_k_along_its_lines": 9,
        "staged_test.py::test_one_family_promises_batch_invariance": 0,
        "matmul_fp8_test.py::test_scales_of_vectors_and_batches_by_other_means": 0,
        "cublas_test.py::test_what_it_takes_is_computed": 20,
        "matmul_types_test.py::test_every_candidate_uses_the_kinds_of_addends_and_results": 2,
        "matmul_guarantee_test.py::test_a_result_that_cancels_keeps_the_bound": 6,
        "staged_copy_test.py::test_staged_copy_of_any_layout_holds_the_operand": 0,
    },
)
