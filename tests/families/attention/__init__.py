"""Attention, its gradients, decoding, and partial results that are merged."""

from __future__ import annotations

from typing import Any

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from . import backward, cascade, decode, forward

F32 = np.float32


def heads(**more: Any) -> Any:
    return tuple(np.ones((1, 2, 9, 16), F32) for _ in "qkv"), more


def cached(**more: Any) -> Any:
    return (np.ones((1, 2, 1, 16), F32), *[np.ones((1, 2, 9, 16), F32)] * 2, np.ones(1, np.int32)), more


def cascaded(**more: Any) -> Any:
    pages, ids = np.ones((2, 8, 2, 16), F32), np.zeros(1, np.int32)
    return (np.ones((1, 1, 2, 16), F32), pages, pages, ids, ids[None], ids + 1), more


__all__ = ["FAMILY"]

FAMILY = Family(
    emulated="merge_attention",
    independent=forward.CHECKS | backward.CHECKS | decode.CHECKS | cascade.CHECKS,
    always=(
        "causal",
        "scale",
        "window",
        "softcap",
        "alibi_slopes",
        "mask",
        "sinks",
        "offset",
        "layout",
        "lengths",
        "return_lse",
        "lse",
        "return_status",
        "status",
        "k_scale",
        "v_scale",
        "needs",
        "grad_q",
        "grad_k",
        "grad_v",
        "grad_mask",
        "grad_alibi_slopes",
    ),
    no_meaning=(
        NoMeaning("attention", heads(block_size=(16, 16)), bp.InvalidProblemError, "block_size without block_mask"),
        NoMeaning(
            "attention",
            heads(block_mask=np.ones((1, 1, 1, 1), bool)),
            bp.InvalidProblemError,
            "block_mask with block_size=None",
        ),
        NoMeaning("attention", heads(max_seqlen_q=5), bp.InvalidProblemError, "max_seqlen_q=5"),
        NoMeaning("attention", heads(max_seqlen_k=5), bp.InvalidProblemError, "max_seqlen_k=5"),
        NoMeaning(
            "attention", heads(cu_seqlens_q=np.zeros(2, np.int32)), bp.InvalidProblemError, "cu_seqlens_q is given"
        ),
        NoMeaning(
            "attention", heads(cu_seqlens_k=np.zeros(2, np.int32)), bp.InvalidProblemError, "cu_seqlens_k is given"
        ),
        NoMeaning("attention", heads(math="fp8_fast"), bp.InvalidProblemError, "is not for f32"),
        *(
            NoMeaning(
                "attention_decode", cached(**{name: np.ones((1, 2, 9), F32)}), bp.InvalidProblemError, "caches of f32"
            )
            for name in ("k_scales", "v_scales")
        ),
        NoMeaning(
            "cascade_attention", cascaded(prefix_length=5, prefix_keys=5), bp.InvalidProblemError, "prefix_keys=5"
        ),
        NoMeaning(
            "attention_backward",
            ((*(np.ones((1, 2, 9, 16), F32),) * 5, np.ones((1, 2, 9), F32)), {"grad_sinks": np.ones(2, F32)}),
            bp.InvalidProblemError,
            "operand 'sinks' is missing",
        ),
    ),
    wanted=(
        "decode-halves-of-values",
        "attention-wgmma-one-block",
        "attention-wgmma-mask-by-entries",
        "paged-wgmma-128-128",
    ),
    two=("attention_backward",),
    also={
        "attention_decode": ("bf16 several splits",),
        "cascade_attention": ("f16 HND 64 d128, a number of keys", "bf16 d128 ragged", "f32 d12"),
        "paged_attention": ("f16 HND 64, d128",),
    },
    variants={
        "attention": ("bf16 bool mask, block mask",),
        "attention_backward": ("bf16 sinks of its type, window", "bf16 capped, bool mask"),
        "attention_decode": ("bf16 latent, values are the keys' first columns", "bf16 several splits"),
        "attention_flash": ("bf16 GQA, mask",),
        "attention_flash_causal": ("bf16 GQA, mask",),
        "paged_attention": ("bf16 latent", "f16 ragged, several splits"),
    },
    small={
        "attention": ("bf16 rows apart",),
        "attention_backward": ("f16 d80 d_v96 GQA",),
        "attention_decode": ("f16 d32 d_v96",),
        "attention_flash": ("f16 rank 2",),
        "attention_flash_causal": ("f16 rank 2",),
        "paged_attention": ("bf16 7 keys a page, four tokens",),
    },
    cases={
        "attention_test.py::test_starts_of_sequences_are_never_followed_outside": 0,
        "attention_decode_unusual_test.py::test_offsets_that_make_no_sense_have_a_status": ("cpu",),
        "attention_decode_unusual_test.py::test_a_scale_that_is_nan_is_not_lost": ("cpu",),
        "attention_decode_test.py::test_nothing_behind_the_last_row_is_read": 0,
        "attention_decode_test.py::test_ragged_tokens_give_the_bits_of_padded_ones": 0,
        "paged_wgmma_test.py::test_pages_that_tma_does_not_copy_are_refused": 0,
        "attention_latent_test.py::test_keys_that_no_token_sees_are_not_met": 0,
        "attention_wgmma_test.py::test_heads_that_share_memory_are_stepped_once": 0,
        "attention_backward_test.py::test_unseen_queries_and_keys_get_zero_gradients": 0,
        "paged_wgmma_test.py::test_prompts_without_ragged_tokens": 0,
        "paged_wgmma_test.py::test_pages_of_other_strides": 0,
        "paged_prompt_test.py::test_flash_pages_read_no_key_that_is_not_seen": 0,
        "paged_prompt_test.py::test_flash_pages_numbers_of_keys_and_values": 0,
        "attention_wgmma_test.py::test_nothing_seen_is_nothing": 0,
        "attention_latent_test.py::test_latent_sinks_count_once_and_scales_are_separate": 0,
        "attention_decode_test.py::test_new_lengths_and_numbers_are_no_new_plan": 0,
        "attention_backward_test.py::test_causal_heads_are_interleaved": 0,
        "attention_range_test.py::test_far_scores_give_the_mean_of_the_highest": 0,
        "attention_range_test.py::test_weights_of_gradients_are_held_to_one": 0,
        "attention_range_test.py::test_gradients_of_a_cache_whose_end_was_never_written": 0,
        "attention_range_test.py::test_gradients_beside_sinks_far_above_the_scores": 0,
        "attention_range_test.py::test_gradients_bound_where_score_sums_round_alike": 0,
        "attention_range_test.py::test_attention_bound_where_score_sums_round_alike": 0,
        "attention_range_test.py::test_attention_bound_where_tf32_rounds_differently": 0,
        "attention_range_test.py::test_bounds_of_gradients_hold_at_the_ends_of_f32": 0,
        "attention_range_test.py::test_scales_near_zero_count_where_products_are_large": 0,
        "attention_range_test.py::test_slopes_alone_make_far_scores": 0,
        "host_promise_test.py::test_attention_of_the_host": 2,
        "host_promise_test.py::test_attention_backward_of_the_host": 1,
        "host_promise_test.py::test_decoding_of_the_host": 2,
        "host_promise_test.py::test_rope_of_the_host": 2,
        "attention_backward_test.py::test_block_mask_skips_blocks_of_longer_sequences": 0,
        "attention_backward_test.py::test_blocks_of_keys_add_in_turn": 0,
        "attention_backward_test.py::test_equal_weights_spread_the_gradient_evenly": 1,
        "attention_backward_test.py::test_the_bound_notices_a_lost_block": 1,
        "attention_backward_test.py::test_the_gradients_of_a_whole_attention": (
            "{'causal': True, 'softcap': 2.0, 'window': (9, 4), 'scale': 0.7}-ptx",
        ),
        "attention_backward_test.py::test_the_order_of_slices_is_fixed": 0,
        "attention_backward_test.py::test_warps_that_share_keys_do_different_things": 0,
        "paged_wgmma_test.py::test_configurations_agree_and_hold_the_bound": 0,
        "paged_wgmma_test.py::test_numbers_of_keys_and_values": 0,
        "paged_wgmma_test.py::test_pages_give_the_bits_of_keys_in_a_row": 0,
        "paged_prompt_test.py::test_flash_pages_any_page_size": 0,
        "paged_prompt_test.py::test_flash_pages_every_configuration": 0,
        "paged_prompt_test.py::test_missing_pages_are_masked": 0,
        "paged_prompt_test.py::test_ragged_tiles_find_their_sequence": ("1-flash",),
        "paged_prompt_test.py::test_ragged_tiles_of_a_thousand_sequences": 0,
        "paged_prompt_test.py::test_scales_of_values_below_256_stay_in_f16": 0,
        "attention_decode_test.py::test_a_token_does_not_depend_on_how_many_come_at_once": 0,
        "attention_decode_test.py::test_every_code_is_widened_exactly": 0,
        "attention_decode_test.py::test_every_kind_of_configuration": 0,
        "attention_decode_test.py::test_pages_give_the_bits_of_dense_caches": 0,
        "attention_decode_test.py::test_starts_of_sequences_are_never_followed_outside": 0,
        "attention_range_test.py::test_bounds_hold_at_the_ends_of_f32": 1,
        "attention_latent_test.py::test_latent_sequence_is_independent_of_batch_and_pages": 0,
        "attention_latent_test.py::test_other_columns_are_filled_up": 0,
        "attention_latent_test.py::test_splits_tiles_and_rows_in_part": 0,
        "attention_tc_test.py::test_every_tile_gives_the_same_bits": 0,
        "attention_test.py::test_columns_that_two_warps_share": 0,
        "attention_test.py::test_equal_scores_give_the_mean_of_whole_numbers": 1,
        "attention_test.py::test_growing_scores_are_rescaled": 0,
        "attention_test.py::test_masks_may_add_any_negative_number": 0,
        "attention_test.py::test_sinks_may_be_any_number": 0,
        "attention_test.py::test_the_bound_notices_a_lost_block_of_keys": 1,
        "attention_test.py::test_windows_and_blocks_may_be_larger_than_any_problem": 0,
        "attention_backward_wgmma_test.py::test_rounds_of_a_cta": 0,
        "attention_backward_wgmma_test.py::test_the_bound_holds": 0,
        "attention_backward_wgmma_test.py::test_whole_numbers_are_exact": 0,
        "attention_backward_wgmma_test.py::test_uninitialized_tail_of_a_cache_is_not_met": 0,
        "attention_backward_wgmma_test.py::test_heads_that_share_memory_are_stepped_once": 0,
        "attention_decode_test.py::test_a_sequence_does_not_depend_on_the_others": 0,
        "attention_latent_test.py::test_values_are_read_with_keys_or_beside_them": 0,
        "attention_decode_test.py::test_a_score_far_above_the_others_gives_its_value": 0,
        "attention_decode_test.py::test_tiles_fit_every_arch": 1,
        "attention_latent_test.py::test_missing_pages_are_reported_and_masked": 0,
        "attention_latent_test.py::test_splits_and_rows_in_part_of_warpgroups": 0,
        "attention_decode_unusual_test.py::test_parts_are_merged_into_unaligned_rows": 0,
        "attention_decode_test.py::test_results_go_where_they_are_wanted": 0,
        "attention_backward_test.py::test_starts_of_sequences_are_never_followed_outside": 0,
        "attention_decode_test.py::test_new_scales_are_no_new_plan": 0,
        "attention_backward_test.py::test_grad_k_and_grad_v_do_not_depend_on_the_order_of_sums": 0,
        "attention_decode_unusual_test.py::test_scales_of_pages_that_are_not_there_are_never_read": 0,
        "attention_decode_test.py::test_decode_is_invariant_to_splits_and_merged_rows": 0,
        "attention_backward_test.py::test_new_numbers_are_no_new_plan": 0,
        "attention_latent_test.py::test_sums_follow_scores_that_rise": 0,
        "attention_decode_test.py::test_pages_before_the_window_may_be_gone": ("1-ptx", "1-cpu"),
        "attention_decode_test.py::test_missing_pages_are_reported_and_never_read": 0,
        "attention_wgmma_test.py::test_configurations_agree_to_the_bit": 0,
        "attention_wgmma_test.py::test_uninitialized_tail_of_a_cache_is_not_met": 0,
        "attention_wgmma_test.py::test_whole_numbers_are_exact": 0,
        "attention_wgmma_test.py::test_a_row_has_the_same_bits_alone": 0,
        "attention_wgmma_test.py::test_neighbours_of_a_sequence_are_not_met": 0,
        "attention_test.py::test_a_sequence_does_not_depend_on_the_others": 0,
        "attention_range_test.py::test_a_cache_whose_end_was_never_written": ("flash", "cpu"),
        "attention_range_test.py::test_softcap_errs_by_little_of_the_cap": 0,
    },
)
