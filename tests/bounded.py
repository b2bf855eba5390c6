"""The bounded suite: what a run of all the tests takes unless it is asked for more.

It has every kernel and every variant, each refusal and each property, on a few of their samples: minutes on two cores. ``--full``
takes all that is here, and so does a run in which files or tests are named. What is left out is a fixed choice, so that a bounded
run is the same wherever it is. Device tests are never left out where there is a device; where there is none, the first case of
each is skipped for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest

from .gauntlet import spread

__all__ = ["ALSO", "CASES", "SMALL", "TWO", "VARIANTS", "choose", "is_bounded"]

# Of the problems for what no sample reaches (the families' `wanted`) some of each sort, those that take little time.
WANTED = (
    "map-two-a-thread", "runs-to-an-aligned-end", "transpose-ragged-float32", "beta-0-paired-float16",
    "rows-that-do-not-follow-on", "simt-split-ragged", "gemv-ragged", "gemv-batch", "tc-async-split-batch", "tc-128",
    "wgmma-fp8-shared-b", "pad-blocks", "topk-aligned-parts", "topk-nan-among-many", "scan-chunks-of-columns",
    "int4-mma-ring-wraps", "decode-halves-of-values", "gguf-staged-activations", "int4-uneven-rows", "int4-f32-weights",
    "w8a16-f32-weights", "w8a16-tiles", "nf4-f32-weights", "gguf-f32-weights", "gguf-q8-in-order",
    "cluster-softmax-70001", "cluster-softmax-70008", "cluster-log_softmax-35011", "cluster-softmax_backward-70001",
    "cluster-softmax_backward-70008", "cluster-log_softmax_backward-140008", "cluster-rms_norm-70001",
    "cluster-rms_norm-70008", "cluster-layer_norm-34999", "cluster-layer_norm-35000", "anywhere-softmax-2051",
    "anywhere-log_softmax-2051", "anywhere-softmax_backward-2051", "anywhere-log_softmax_backward-2051",
    "anywhere-rms_norm-2051", "anywhere-layer_norm-2051", "cluster-rms_norm-residual",
    "kept-softmax-70003", "kept-softmax_backward-70003", "kept-rms_norm-70003",
)  # fmt: skip

# Cases of a test that the bounded suite takes, by name or so many, spread over all of them; 0: the full suite alone. Here are
# tests whose cases cost more than a second or two together. Those of the gauntlet say themselves how many samples they take.
CASES: dict[str, int | tuple[str, ...]] = {
    "bounded_test.py::test_every_kernel_and_every_variant_is_emulated": 0,
    "weights_preference_test.py::test_a_row_has_the_same_bits_among_any_others": ("invariant-int4", "invariant-nf4"),
    "weights_preference_test.py::test_every_configuration_that_promises_it_adds_alike": 0,
    "weights_preference_test.py::test_exact_weights_are_not_rounded": 6,
    "weights_preference_test.py::test_no_number_of_tokens_is_refused": 4,
    # Kernels without a GPU, beyond the gauntlet.
    "emulated_gauntlet_test.py::test_other_arches": 6,
    "emulated_gauntlet_test.py::test_random_orders": 4,
    "emulated_gauntlet_test.py::test_each_sort_of_configuration": 0,
    "emulated_gauntlet_test.py::test_wanted": WANTED,
    "emulated_run_test.py::test_products_take_their_scalars_at_every_call": 2,
    "row_menu_test.py::test_row_menu": 9,
    "anywhere_test.py::test_in_place_of_what_is_read": 2,
    "anywhere_test.py::test_rows_that_start_anywhere": 3,
    "anywhere_test.py::test_weights_and_statistics": 3,
    "anywhere_test.py::test_where_a_row_starts_changes_no_bit": 2,
    "attention_backward_test.py::test_causal_heads_are_interleaved": 1,
    "attention_range_test.py::test_far_scores_give_the_mean_of_the_highest": 6,
    "attention_range_test.py::test_weights_of_gradients_are_held_to_one": 4,
    "passed_test.py::test_passed_tests_are_left_out": 1,
    "reduce_test.py::test_argmax_takes_the_first_of_several_nan": 2,
    "reduce_test.py::test_columns_of_few_rows_anywhere": 8,
    "attention_backward_test.py::test_a_block_mask_skips_blocks_and_sequences_may_be_longer_than_was_said": 0,
    "attention_backward_test.py::test_blocks_of_keys_add_in_turn": 0,
    "attention_backward_test.py::test_equal_weights_spread_the_gradient_evenly": 1,
    "attention_backward_test.py::test_the_bound_notices_a_lost_block": 1,
    "attention_backward_test.py::test_the_gradients_of_a_whole_attention": (
        "{'causal': True, 'softcap': 2.0, 'window': (9, 4), 'scale': 0.7}-ptx",
    ),
    "attention_backward_test.py::test_the_order_of_slices_is_fixed": 0,
    "attention_backward_test.py::test_warps_that_share_keys_do_different_things": 1,
    "paged_prompt_test.py::test_flash_pages_any_page_size": 1,
    "paged_prompt_test.py::test_flash_pages_every_configuration": 0,
    "paged_prompt_test.py::test_missing_pages_are_masked": 3,
    "paged_prompt_test.py::test_ragged_tiles_find_their_sequence": 2,
    "paged_prompt_test.py::test_ragged_tiles_of_a_thousand_sequences": 0,
    "paged_prompt_test.py::test_scales_of_values_below_256_stay_in_f16": 1,
    "attention_decode_test.py::test_a_token_does_not_depend_on_how_many_come_at_once": 0,
    "attention_decode_test.py::test_every_code_is_widened_exactly": 1,
    "attention_decode_test.py::test_every_kind_of_configuration": 0,
    "attention_decode_test.py::test_pages_give_the_bits_of_dense_caches": 1,
    "attention_decode_test.py::test_starts_of_sequences_are_never_followed_outside": 1,
    "attention_range_test.py::test_bounds_hold_at_the_ends_of_f32": 8,
    "attention_latent_test.py::test_a_sequence_depends_neither_on_others_nor_on_pages_nor_on_tokens": 0,
    "attention_latent_test.py::test_other_columns_are_filled_up": 0,
    "attention_latent_test.py::test_splits_tiles_and_rows_in_part": 0,
    "attention_tc_test.py::test_every_tile_gives_the_same_bits": 1,
    "attention_test.py::test_columns_that_two_warps_share": 1,
    "attention_test.py::test_equal_scores_give_the_mean_of_whole_numbers": 2,
    "attention_test.py::test_growing_scores_are_rescaled": 1,
    "attention_test.py::test_masks_may_add_any_negative_number": 1,
    "attention_test.py::test_sinks_may_be_any_number": 1,
    "attention_test.py::test_the_bound_notices_a_lost_block_of_keys": 2,
    "attention_test.py::test_windows_and_blocks_may_be_larger_than_any_problem": 1,
    "gguf_panels_test.py::test_sums_of_integers_are_exact": ("Q8_0-20-13-9",),
    "gguf_panels_test.py::test_weights_are_those_of_dequantize_gguf": 1,
    "gguf_test.py::test_a_cta_goes_on_to_further_rows": 1,
    "gguf_test.py::test_dequantised_products": 1,
    "gguf_test.py::test_emulated_weights_are_the_oracles_bit_for_bit": 6,
    "gguf_test.py::test_larger_chunks": 1,
    "gguf_test.py::test_many_tiles": 1,
    "gguf_test.py::test_sums_of_integers_are_exact": 2,
    "gguf_test.py::test_what_a_block_holds_is_made_again": 3,
    "int4_test.py::test_rows_of_the_tables": 1,
    "int4_test.py::test_there_and_back_is_the_identity": 3,
    "int4_test.py::test_three_projections_are_three_products": 1,
    "int4_test.py::test_unit_tokens_read_single_weights": 1,
    "int8_test.py::test_dynamic_is_quantising_first": 1,
    "int8_test.py::test_ragged_products_are_exact": 1,
    "int8_test.py::test_stripes_of_several_rounds": 1,
    "matmul_backward_test.py::test_its_kernels_give_both_gradients": 1,
    "norm_test.py::test_a_gradient_in_place_of_the_one_it_comes_from": 0,
    "norm_test.py::test_bounds_hold_at_the_ends_of_the_range": 3,
    "norm_test.py::test_every_configuration": 0,
    "norm_test.py::test_sums_over_rows_lie_in_c_order_however_rows_lie": 0,
    "paged_append_test.py::test_every_sample": 4,
    "paged_append_test.py::test_random_batches": 0,
    "paged_append_test.py::test_turned_keys_are_those_of_rope_bit_for_bit": 1,
    "qkv_test.py::test_turned_is_projected_and_then_turned": 3,
    "reduce_test.py::test_a_column_does_not_depend_on_how_many_there_are": 1,
    "reduce_test.py::test_a_row_does_not_depend_on_the_others": 1,
    "reduce_test.py::test_exponentials_that_all_vanish": 1,
    "reduce_test.py::test_long_rows_come_in_chunks": 3,
    "reduce_test.py::test_results_of_a_view_that_starts_anywhere": 3,
    "reduce_test.py::test_where_a_row_starts_changes_no_bit": 1,
    "rope_test.py::test_every_configuration": 1,
    "rope_test.py::test_layouts_agree": 3,
    "scan_test.py::test_columns_of_any_extent": 4,
    "scan_test.py::test_integers_are_numpy_s": 6,
    "scan_test.py::test_more_chunks_than_a_tile_has_elements": 0,
    "scan_test.py::test_rows_of_any_length": 4,
    "soak_test.py::test_soak_command_writes_a_record": 0,
    "soak_test.py::test_soak_notices_memory_that_grows": 0,
    "soak_test.py::test_soak_shrinks_in_another_process": 0,
    "topk_test.py::test_a_row_does_not_depend_on_others": 0,
    "topk_test.py::test_the_order_of_equal_elements_in_parts": 0,
    "weak_test.py::test_casts_of_every_short_float_are_ml_dtypes_s": 4,
    "weak_test.py::test_comparisons_are_exact": 1,
    "weak_test.py::test_numbers_are_weak": 2,
    "wgmma_test.py::test_a_last_wave_of_its_own_leaves_no_tile_out_and_does_none_twice": (
        "2200-4488-batch0",
        "700-3000-batch2",
    ),
    # The emulator itself.
    "emulator_conversions_test.py::test_a_float_becomes_the_clamped_integer": 16,
    "emulator_conversions_test.py::test_a_float_is_rounded_once": 4,
    "emulator_conversions_test.py::test_an_integer_is_rounded_once": 16,
    "emulator_edges_test.py::test_a_profile_counts_what_a_gpu_would_move": 0,
    "emulator_floats_test.py::test_a_16_bit_result_is_rounded_once": 2,
    "emulator_floats_test.py::test_a_result_is_rounded_once_in_each_direction": 3,
    "emulator_planted_test.py::test_a_product_made_wrong": 2,
    "emulator_planted_test.py::test_as_they_are_they_are_right": 0,
    "emulator_access_test.py::test_atomic_operations_are_done_one_after_another": 12,
    "emulator_access_test.py::test_what_is_stored_is_loaded": 12,
    "emulator_async_test.py::test_boxes_into_shared_memory": 14,
    "emulator_async_test.py::test_boxes_out_of_shared_memory": 5,
    "emulator_async_test.py::test_copies_by_threads": 9,
    "emulator_barriers_test.py::test_mbarriers": 6,
    "emulator_divergence_test.py::test_a_mask_names_who_comes": 5,
    "emulator_products_test.py::test_one_thing_left_out": 9,
    "emulator_races_test.py::test_between_the_ctas_of_a_cluster": 11,
    "emulator_races_test.py::test_between_the_lanes_of_a_warp": 5,
    "emulator_races_test.py::test_between_the_warps_of_a_cta": 10,
    "emulator_unknown_test.py::test_shared_memory": 10,
    "emulator_unknown_test.py::test_what_only_a_comparison_sees": 20,
    "emulator_tensor_core_test.py::test_a_warpgroup_accumulates": 8,
    # What is asked of every op: of some ops of each family.
    "align_test.py::test_odd_addresses": 8,
    "cli_run_test.py::test_operands_suit_the_problem_that_they_are_made_for": 15,
    "compile_test.py::test_every_kernel_compiles_for_every_arch_without_a_spill": 10,
    "compile_test.py::test_resources_are_not_stale": 10,
    "plan_test.py::test_a_plan_explains_itself_and_its_repr_never_raises": 15,
    "plan_test.py::test_every_admitted_variant_can_be_preferred": 8,
    "plan_test.py::test_plans_hash_compare_pickle_and_go_through_json": 15,
    "plan_test.py::test_select_needs_no_gpu": 46,
    "plan_test.py::test_the_chosen_candidate_is_the_cheapest_admitted": 30,
    "registry_test.py::test_every_sample_selects_or_is_refused": 15,
    "registry_test.py::test_the_oracle_agrees_with_an_independent_implementation": 60,
    # The host side.
    "elementwise_test.py::test_result_types_of_two_arrays_are_numpy_s": 8,
    "matmul_probable_test.py::test_what_accumulators_do_keeps_the_probable_bound": 23,
    "staged_copy_test.py::test_a_copy_of_what_is_multiplied_along_k_alone_has_k_along_its_lines": 18,
    "staged_test.py::test_one_family_promises_batch_invariance": 1,
    "matmul_fp8_test.py::test_scales_of_vectors_and_batches_by_other_means": 2,
    "quantized_corners_test.py::test_scales_of_nothing_are_one": 4,
    "benchmarks_test.py::test_rows_of_other_kernels_are_marked": 0,
    "benchmarks_test.py::test_served_rows_are_series_of_tokens": 0,
    "copies_sweep_test.py::test_losses_are_told_and_drawn": 0,
    "cublas_test.py::test_what_it_takes_is_computed": 60,
    "reach_test.py::test_every_definition_is_in_some_op_s_digest": 0,
    "emulated_size_test.py::test_a_large_problem_is_refused_at_once": 0,
    "ledger_test.py::test_a_broken_host_side_is_unverified": 2,
    "ptx_cache_test.py::test_a_damaged_entry_is_built_anew": 5,
    "definitions_test.py::test_what_a_kernel_does_not_reach_does_not_count": 5,
    "beyond_samples_test.py::test_zeros_keep_their_sign_in_kernels": 3,
    "matmul_types_test.py::test_every_candidate_reads_addends_and_writes_results_as_what_they_are": 4,
    "gguf_test.py::test_the_table_agrees_with_the_formats_written_out": 6,
    "definitions_test.py::test_what_a_kernel_reaches_counts": 12,
    "matmul_guarantee_test.py::test_a_result_that_cancels_keeps_the_bound": 16,
    "new_extent_test.py::test_select_chooses_what_the_full_assessment_chooses": 0,
    "reach_test.py::test_a_function_that_is_edited_voids_what_it_reaches_alone": 0,
    "reach_test.py::test_new_functions_in_headers_leave_every_record": 0,
    "reach_test.py::test_an_edit_that_leaves_a_kernel_s_digest_leaves_its_ptx": 0,
    "write_slice_test.py::test_a_decode_loop_of_8192_appends_makes_one_plan": 0,
    # Processes of their own, and what reads all of the sources.
    "adding_test.py::test_a_family_with_its_gradient_and_a_composite": 0,
    "adding_test.py::test_a_row_makes_an_op_and_voids_nothing": 0,
    "cli_test.py::test_a_reader_that_leaves_and_an_output_that_is_closed": 0,
    "cli_test.py::test_demo_fails_where_asserts_are_not_run": 0,
    "foreign_test.py::test_a_compiled_function_breaks_its_graph_at_a_call": 0,
    "ledger_test.py::test_a_digest_is_the_same_in_every_process": 0,
    "messages_test.py::test_every_name_in_a_message_is_there": 0,
    "runtime_test.py::test_a_damaged_entry_is_rebuilt": 8,
    "runtime_test.py::test_processes_hammer_one_cache_while_it_is_damaged": 0,
    "runtime_test.py::test_threads_hammer_one_cache": 0,
    "structure_test.py::test_imports_point_down": 0,
    "structure_test.py::test_no_module_uses_what_is_private_to_another": 0,
    "structure_test.py::test_no_modules_import_one_another": 0,
    "tuned_test.py::test_processes_that_tune_at_once_lose_no_winner": 0,
}

# Ops of which two samples are emulated, in place of the first alone: it does not reach what others do.
TWO = (
    "argmax", "attention_backward", "contiguize", "copysign", "divide", "equal", "greater", "greater_equal",
    "layer_norm_backward", "less", "less_equal", "matmul_int8", "max", "maximum", "min", "minimum", "multiply", "not_equal",
    "pow", "qkv_project_int8", "rms_norm_backward", "silu_mul", "subtract", "write_slice",
)  # fmt: skip

# Samples that are emulated beside those spread over an op's, since they alone reach some kernel or variant.
ALSO: dict[str, tuple[str, ...]] = {
    "attention_decode": ("bf16 several splits",),
    "contiguize": ("complex128 C", "u8 64x64 transposed"),
    "dequantize_int4": ("tiled in columns",),
    "log_softmax": ("f32 axis 0",),
    "logsumexp": ("f32[2, 130] columns",),
    "matmul_backward": ("bf16 (7,) @ (7, 5)",),
    "matmul_int4": ("bf16 2x2x13 tiled group=13",),
    "matmul_int8": ("66 everything", "u8 65x13x31 CS+3", "f16 70x24x64 RC"),
    "matmul_nf4": ("bf16 6x18x192 block=128 double batch",),
    "matmul_tc_async": ("f16 129x65x255",),
    "matmul_tc_bf16_async": ("bf16 129x65x255",),
    "mean": ("f32[2, 130] columns",),
    "paged_attention": ("f16 HND 64, d128",),
    "paged_kv_append": ("f16 turned, given positions",),
    "qkv_project_int4": (
        "f16 3x16+16+16x64 tiled order",
        "bf16 2x24+8+8x64 gptq zeros",
        "bf16 3x16+8+6x64 tiled turned",
    ),
    "qkv_project_int8": ("bf16 65x32+8+8x64",),
    "quantize_fp8": ("f32 [6, 64] tensor fp8_e4m3",),
    "quantize_int8": ("f32 [6, 64] tensor u8",),
    "quantize_nf4": ("bf16 double 3",),
    "softmax": ("f32 axis 0",),
    "sum": ("bf16 C",),
    "var": ("bf16 axes 1", "f32 long rows"),
    "write_slice": ("f32[16, 20][(4, 9), (8, 15)]", "s4 columns 5 to 6 of 16", "bf16[12, 8][(0, 12), (0, 8)]"),
}

# Samples of which every variant is emulated, where it is not the op's first alone: another reaches more, or as much in less time.
VARIANTS: dict[str, tuple[str, ...]] = {
    "attention": ("bf16 bool mask, block mask",),
    "attention_backward": ("bf16 sinks of its type, window",),
    "attention_decode": ("bf16 latent, values are the keys' first columns", "bf16 several splits"),
    "contiguize": ("complex128 C", "u8 64x64 transposed"),
    "matmul_backward": ("bf16 (17, 65) @ (65, 9)", "f32 (7,) @ (7, 5)"),
    "matmul_gguf": (
        "q5_k f16[1, 512] N=18",
        "q4_k f16[34, 256] N=66",
        "q5_1 bf16[2, 4, 256] N=30 math=int8",
        "q3_k f32[2, 256] N=14 math=int8 out_dtype=bf16",
    ),
    "matmul_q4k": ("q4_k bf16[1, 256] N=18", "q4_k f32[8, 256] N=13 math=int8"),
    "matmul_int4": ("bf16 2x2x13 tiled group=13", "bf16 6x18x192 tiled group=64 zeros batch"),
    "paged_attention": ("bf16 latent", "f16 ragged, several splits"),
    "qkv_project_int8": ("dynamic",),
    "write_slice": ("f32[16, 20][(4, 9), (8, 15)]",),
}

# Samples for which a device of few SMs, little L2 and little shared memory launches other than the usual one: of each op that has
# any, what takes least time.
SMALL: dict[str, tuple[str, ...]] = {
    "attention": ("bf16 rows apart",),
    "attention_backward": ("f16 d80 d_v96 GQA",),
    "attention_decode": ("f16 d32 d_v96",),
    "attention_flash": ("f16 rank 2",),
    "attention_flash_causal": ("f16 rank 2",),
    "dequantize_fp8": ("fp8_e4m3 [37, 24] column to f32",),
    "dequantize_int8": ("u8 [37, 24] column to f32",),
    "layer_norm_backward": ("bf16[7, 136] C plain",),
    "log_softmax": ("f32 axis 0",),
    "matmul": ("bf16 cancelling gelu",),
    "matmul_backward": ("f16 (7,) @ (7, 5)",),
    "matmul_gguf": ("q4_0 f16[5, 160] N=18",),
    "matmul_int4": ("bf16 2x2x13 tiled group=13",),
    "matmul_int8": ("f16 3x18x100 RC",),
    "matmul_nf4": ("bf16 6x18x192 block=128 double batch",),
    "matmul_q4k": ("q4_k bf16[1, 256] N=18",),
    "matmul_tc": ("f16 129x64x63",),
    "matmul_tc_async": ("f16 cancelling relu",),
    "matmul_tc_bf16": ("bf16 129x64x63",),
    "matmul_tc_bf16_async": ("bf16 129x64x63",),
    "paged_attention": ("bf16 7 keys a page, four tokens",),
    "qkv_project_int4": ("bf16 3x16+8+6x64 tiled turned",),
    "qkv_project_int8": ("turned",),
    "quantize_fp8": ("f32 [37, 24] column fp8_e4m3",),
    "quantize_int8": ("f32 [37, 24] column u8",),
    "rms_norm_backward": ("bf16[7, 136] C plain",),
    "rope": ("gpt-j bf16",),
    "rope_backward": ("gpt-j bf16",),
    "softmax": ("f32 axis 0",),
    "write_slice": ("u8[9, 130][(1, 8), (1, 128)]",),
}


def is_bounded(config: pytest.Config) -> bool:
    """Whether a run is of the whole suite, and not asked for all of it. Workers are told by the process that starts them."""
    if hasattr(config, "workerinput"):
        return bool(config.workerinput["bounded"])
    option = config.option
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    more = ("full", "all", "sample", "keyword", "lf")
    return not named and not any(getattr(option, name, False) for name in more)


def choose(items: Sequence[pytest.Item], *, device: bool) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """(the tests that the bounded suite takes, the others), in their order. `device`: whether there is one."""
    cases, of_device = defaultdict[str, list[pytest.Item]](list), defaultdict[str, list[pytest.Item]](list)
    for item in items:
        (of_device if item.get_closest_marker("gpu") else cases)[name_of(item)].append(item)
    left = {id(item) for name in CASES for item in cases[name]} - {
        id(item) for name, some in CASES.items() for item in taken(cases[name], some)
    }
    if not device:
        left |= {id(item) for same in of_device.values() for item in same[1:]}
    return [x for x in items if id(x) not in left], [x for x in items if id(x) in left]


def taken(cases: Sequence[pytest.Item], some: int | tuple[str, ...]) -> list[pytest.Item]:
    """Some cases of a test: so many, or those of these names."""
    return spread(cases, some) if isinstance(some, int) else [x for x in cases if x.callspec.id in some]  # type: ignore[attr-defined]


def name_of(item: pytest.Item) -> str:
    """A test without its case: ``file_test.py::test``, as in `CASES`."""
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
