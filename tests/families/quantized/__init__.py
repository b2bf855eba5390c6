"""Quantized weights and activations: int8 and fp8, int4, NF4, GGUF, and projections by them."""

from __future__ import annotations

from typing import Any

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from . import gguf, int4, int8, nf4

F32 = np.float32
IDS = np.arange(2, dtype=np.int32)
INT4 = bp.PackedInt4("plain", (32, 4), 32, np.zeros((32, 4), np.uint8), np.ones((1, 4), np.float16))
NF4 = bp.PackedNf4((4, 64), np.zeros((4, 32), np.uint8), np.ones(4, F32))
GGUF = bp.PackedGguf(np.zeros((4, 144), np.uint8), "Q4_K", (4, 256))


def codes(**more: Any) -> Any:
    return (np.ones((3, 8), np.int8), np.ones((8, 4), np.int8)), more


def halves(**more: Any) -> Any:
    return (np.ones((3, 8), np.float16), *[np.ones((8, 4), np.int8)] * 3, *[np.ones(4, F32)] * 3), more


def by(weight: Any, **more: Any) -> Any:
    k = weight.shape[0] if weight is INT4 else weight.shape[1]
    return (np.ones((3, k), np.float16), weight), more


def three(**more: Any) -> Any:
    return (np.ones((3, 32), np.float16), INT4, INT4, INT4), more


__all__ = ["FAMILY"]

FAMILY = Family(
    emulated="dequantize_int8",
    independent=int8.CHECKS | int4.CHECKS | gguf.CHECKS | nf4.CHECKS,
    always=(
        "bias",
        "activation",
        "scale_b",
        "scale_q",
        "scale_k",
        "scale_v",
        "bias_q",
        "bias_k",
        "bias_v",
        "q",
        "k",
        "v",
        "pad",
        "symmetric",
        "scales_dtype",
        "gather",
        "to",
        "out_scales",
        "zero_points",
        "double_quant",
    ),
    no_meaning=(
        NoMeaning("matmul_int4", by(INT4, group_size=64), bp.InvalidProblemError, "leave group_size out"),
        NoMeaning("matmul_int4", by(INT4, layout="gptq"), bp.InvalidProblemError, "leave layout out"),
        *(
            NoMeaning("matmul_int4", by(INT4, **{name: x}), bp.InvalidProblemError, f"{name} was passed beside")
            for name, x in {**INT4.operands, "zeros": INT4.codes, "order": IDS, "shape": (32, 4)}.items()
            if name != "codes"
        ),
        NoMeaning("matmul_nf4", by(NF4, block_size=128), bp.InvalidProblemError, "leave block_size out"),
        *(
            NoMeaning("matmul_nf4", by(NF4, **{name: NF4.absmax}), bp.InvalidProblemError, f"{name} was passed beside")
            for name in ("absmax", "scales", "offset")
        ),
        *(
            NoMeaning(
                "qkv_project_int4",
                three(**{f"{name}_{part}": IDS}),
                bp.InvalidProblemError,
                f"{name} was passed beside",
            )
            for name in ("scales", "zeros", "order")
            for part in "qkv"
        ),
        NoMeaning("qkv_project_int4", three(widths=(4, 4, 8)), bp.InvalidProblemError, "leave widths out"),
        *(
            NoMeaning("qkv_project_int4", three(**{name: x}), bp.InvalidProblemError, f"{name} was given and no angles")
            for name, x in {"head_dim": 4, "positions": IDS, "style": "interleaved", "attention_factor": 2.0}.items()
        ),
        NoMeaning("qkv_project_int4", three(status=IDS[:1]), bp.InvalidProblemError, "no operand 'status'"),
        NoMeaning("matmul_gguf", by(GGUF, format="Q4_0"), bp.InvalidProblemError, "leave format out"),
        NoMeaning("matmul_gguf", by(GGUF, math="tf32"), bp.OperandTypeError, "f16 is not multiplied in tf32"),
        NoMeaning("dequantize_gguf", ((GGUF,), {"shape": (4, 256)}), bp.InvalidProblemError, "leave shape out"),
        NoMeaning(
            "quantize_int4",
            ((np.ones((32, 4), F32),), {"group_size": 32, "least_zero": 1}),
            bp.InvalidProblemError,
            "least_zero was given",
        ),
        NoMeaning(
            "relayout_int4",
            (
                tuple(INT4.operands.values()),
                {"layout": "plain", "group_size": 32, "out_zeros": np.zeros((1, 16), np.uint8)},
            ),
            bp.InvalidProblemError,
            "out_zeros without zeros",
        ),
        NoMeaning("matmul_int8", codes(dynamic=True), bp.OperandTypeError, "quantised already"),
        NoMeaning("matmul_int8", codes(zero_b=np.ones(4, F32)), bp.OperandTypeError, "a zero point is a code"),
        NoMeaning("matmul_int8", codes(zero_a=np.ones(4, np.int8)), bp.InvalidProblemError, "no zero point"),
        NoMeaning(
            "matmul_int8", codes(scale_a=np.ones(3, F32), out_dtype="i32"), bp.InvalidProblemError, "a scale was given"
        ),
        NoMeaning("qkv_project_int8", halves(scale_x=np.ones(3, F32)), bp.InvalidProblemError, "not quantised"),
        NoMeaning(
            "qkv_project_int8",
            halves(head_dim=4, inv_freq=np.ones(2, F32), cos=np.ones((3, 2), F32), sin=np.ones((3, 2), F32)),
            bp.InvalidProblemError,
            "by inv_freq and cos and sin",
        ),
        *(
            NoMeaning("quantize_int8", ((np.ones((3, 4), F32),), more), error, says)
            for more, error, says in (
                ({"group_size": 2}, bp.InvalidProblemError, "group_size=2"),
                ({"per": "channel"}, bp.InvalidProblemError, "row"),
                ({"zeros": np.ones(3, np.uint8)}, bp.InvalidProblemError, "a zero point is a code"),
                ({"dtype": "i16"}, bp.OperandTypeError, "codes must hold"),
                ({"scales": np.ones(4, F32)}, bp.InvalidProblemError, "scales"),
                ({"codes": np.ones((4, 3), np.int8)}, bp.InvalidProblemError, "codes"),
            )
        ),
    ),
    wanted=(
        "int4-mma-ring-wraps",
        "gguf-staged-activations",
        "int4-uneven-rows",
        "int4-f32-weights",
        "w8a16-f32-weights",
        "w8a16-tiles",
        "nf4-f32-weights",
        "gguf-f32-weights",
        "gguf-q8-in-order",
    ),
    two=("matmul_int8", "qkv_project_int8"),
    also={
        "dequantize_int4": ("tiled in columns",),
        "matmul_int4": ("bf16 2x2x13 tiled group=13",),
        "matmul_int8": ("66 everything", "u8 65x13x31 CS+3", "f16 70x24x64 RC"),
        "matmul_nf4": ("bf16 6x18x192 block=128 double batch",),
        "qkv_project_int4": (
            "f16 3x16+16+16x64 tiled order",
            "bf16 2x24+8+8x64 gptq zeros",
            "bf16 3x16+8+6x64 tiled turned",
        ),
        "qkv_project_int8": ("bf16 65x32+8+8x64",),
        "quantize_fp8": ("f32 [6, 64] tensor fp8_e4m3",),
        "quantize_int8": ("f32 [6, 64] tensor u8",),
        "quantize_nf4": ("bf16 double 3",),
    },
    variants={
        "matmul_gguf": (
            "q5_k f16[1, 512] N=18",
            "q4_k f16[34, 256] N=66",
            "q5_1 bf16[2, 4, 256] N=30 math=int8",
            "q3_k f32[2, 256] N=14 math=int8 out_dtype=bf16",
        ),
        "matmul_q4k": ("q4_k bf16[1, 256] N=18", "q4_k f32[8, 256] N=13 math=int8"),
        "matmul_int4": ("bf16 2x2x13 tiled group=13", "bf16 6x18x192 tiled group=64 zeros batch"),
        "qkv_project_int8": ("dynamic",),
    },
    small={
        "dequantize_fp8": ("fp8_e4m3 [37, 24] column to f32",),
        "dequantize_int8": ("u8 [37, 24] column to f32",),
        "matmul_gguf": ("q4_0 f16[5, 160] N=18",),
        "matmul_int4": ("bf16 2x2x13 tiled group=13",),
        "matmul_int8": ("f16 3x18x100 RC",),
        "matmul_nf4": ("bf16 6x18x192 block=128 double batch",),
        "matmul_q4k": ("q4_k bf16[1, 256] N=18",),
        "qkv_project_int4": ("bf16 3x16+8+6x64 tiled turned",),
        "qkv_project_int8": ("turned",),
        "quantize_fp8": ("f32 [37, 24] column fp8_e4m3",),
        "quantize_int8": ("f32 [37, 24] column u8",),
    },
    cases={
        "qkv_test.py::test_outputs_may_lie_side_by_side": 0,
        "gguf_test.py::test_refused": 8,
        "quantized_corners_test.py::test_rows_that_end_between_eights_are_filled": ("gemv",),
        "quantized_corners_test.py::test_an_infinite_scale_is_outside_the_bound_and_alone": 0,
        "qkv_test.py::test_positions_are_of_all_leading_axes_or_of_the_last": 0,
        "nf4_test.py::test_staged_tokens_and_parts_of_k_do_not_meet_in_scratch": 0,
        "gguf_test.py::test_the_default_rounds_no_activation": 0,
        "gguf_test.py::test_a_row_of_nothing_finite_leaves_others_alone": 0,
        "weights_preference_test.py::test_a_row_has_the_same_bits_among_any_others": 0,
        "weights_preference_test.py::test_every_configuration_that_promises_it_adds_alike": 0,
        "weights_preference_test.py::test_exact_weights_are_not_rounded": ("1-int4",),
        "weights_preference_test.py::test_no_number_of_tokens_is_refused": 0,
        "gguf_panels_test.py::test_sums_of_integers_are_exact": 0,
        "gguf_panels_test.py::test_weights_are_those_of_dequantize_gguf": 0,
        "gguf_test.py::test_a_cta_goes_on_to_further_rows": 0,
        "gguf_test.py::test_dequantised_products": 0,
        "gguf_test.py::test_emulated_weights_are_the_oracles_bit_for_bit": 3,
        "gguf_test.py::test_larger_chunks": 0,
        "gguf_test.py::test_many_tiles": 0,
        "gguf_test.py::test_sums_of_integers_are_exact": 1,
        "gguf_test.py::test_what_a_block_holds_is_made_again": 2,
        "int4_test.py::test_rows_of_the_tables": 0,
        "int4_test.py::test_there_and_back_is_the_identity": ("plain-cpu",),
        "int4_test.py::test_three_projections_are_three_products": 1,
        "int4_test.py::test_unit_tokens_read_single_weights": 0,
        "int8_test.py::test_dynamic_is_quantising_first": 0,
        "int8_test.py::test_ragged_products_are_exact": 0,
        "int8_test.py::test_stripes_of_several_rounds": 0,
        "qkv_test.py::test_rotated_output_is_projected_and_then_rotated": 0,
        "quantized_corners_test.py::test_scales_of_nothing_are_one": 4,
        "gguf_test.py::test_the_table_agrees_with_the_formats_written_out": 2,
        "packed_test.py::test_a_product_is_described_by_its_packed_weight": ("int4",),
        "int4_test.py::test_more_tokens_than_a_launch_stages_are_staged_by_several": 0,
        "quantized_corners_test.py::test_what_rounding_costs_hides_no_lost_group": 0,
        "int4_test.py::test_int4_order_outside_of_k_makes_nan": 0,
        "quantized_corners_test.py::test_zero_points_are_any_byte": ("gemv-bfloat16",),
        "quantized_corners_test.py::test_parts_of_k_meet_with_their_zero_points": 0,
        "int4_test.py::test_an_order_of_other_numbers_than_there_are_is_refused": ("gptq--1",),
        "int4_test.py::test_last_k_of_each_block_warp_and_split_counts": 0,
        "nf4_test.py::test_unit_tokens_read_single_weights": 0,
        "nf4_test.py::test_there_and_back": ("64", "1024"),
        "gguf_weight_test.py::test_a_packed_weight_is_its_blocks": 0,
        "gguf_test.py::test_codes_from_shared_memory": 0,
        "quantized_corners_test.py::test_signed_codes_as_halves": 0,
        "gguf_test.py::test_f32_activations_count_with_all_their_bits": 0,
        "int4_test.py::test_a_bound_names_what_bf16_loses_among_subnormals": ("gemv",),
        "nf4_test.py::test_nf4_infinite_magnitude_affects_the_bound_of_its_columns": 0,
        "int8_test.py::test_rounds_follow_each_other": 1,
        "weights_preference_test.py::test_weights_beyond_f16_are_served_at_any_number_of_rows": 1,
        "quantized_corners_test.py::test_bytes_of_extents_of_one_and_none": (
            "None-1-1-33",
            "None-0-5-33",
            "staged-1-1-33",
            "staged-0-5-33",
        ),
        "nf4_test.py::test_last_k_of_each_block_warp_and_split_counts": 0,
        "int8_test.py::test_each_of_the_256_weights_is_itself": ("float16",),
        "nf4_test.py::test_codes_at_any_address": 1,
        "int4_test.py::test_staged_tokens_and_parts_of_k_do_not_meet_in_scratch": 0,
        "int8_test.py::test_splits_and_tiles_change_nothing": 0,
        "nf4_test.py::test_rows_of_the_table": 0,
        "qkv_test.py::test_qkv_bound_excludes_overflow_before_rotation": 0,
        "int8_test.py::test_every_slot_counts_once": 0,
    },
)
