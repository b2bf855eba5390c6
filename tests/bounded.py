"""The bounded suite: what a run of all the tests takes unless it is asked for more.

It has every op's oracle, every kernel and every variant, on few of their samples: emulated, unless a record knows the run.
What follows from a template (`templates` of tests/families) is asked of one of its ops, refusals among it. Of a property it
has a few cases (`MOST`), and none where these take half a second and other tests run the same kernels. ``--full`` takes all that
is here, and so does a run in which files or tests are named. What is left out is a fixed choice, so that a bounded run is the
same wherever it is: each family of ops declares its own part in `tests/families`. Device tests are never left out where there
is a device; where there is none, the first case of each is skipped for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from .costs import op_of
from .families import by_op, joined, templates
from .gauntlet import spread, spread_by_op

__all__ = ["ALSO", "CASES", "MOST", "SMALL", "TWO", "VARIANTS", "Each", "choose", "is_bounded"]


@dataclass(frozen=True)
class Each:
    """Of a test of every op the cases of so many ops of each template, other ones in each test: what is asked follows from the
    template, or from what all ops share."""

    ops: int = 1

    def of(self, test: str) -> frozenset[str]:
        return frozenset(op for ops in templates() for op in spread_by_op(ops, self.ops, test))


Some: TypeAlias = int | tuple[str, ...] | Each

# What the families declare, of all of them (`tests.families.Family` says what each is).
WANTED = joined(lambda family: family.wanted)
TWO = joined(lambda family: family.two)
ALSO = by_op(lambda family: family.also)
VARIANTS = by_op(lambda family: family.variants)
SMALL = by_op(lambda family: family.small)

# Cases of a test of no op that the bounded suite takes, spread over all of them, unless `CASES` says otherwise.
MOST = 6

# Ops of unlike families, whose gradients it checks.
DIFFERENTIATED = (
    "softmax", "rms_norm", "layer_norm", "matmul", "sum", "var", "exp", "gelu", "cumsum", "where", "embedding", "mse_loss",
)  # fmt: skip

# Cases of a test that the bounded suite takes, by name or so many, spread over all of them; 0: the full suite alone. Here are
# tests whose cases cost more than a second or two together, and that are of no one family: a family's own tests are in its
# declaration. Those of the gauntlet say themselves how many samples they take.
CASES: dict[str, Some] = by_op(lambda family: family.cases) | {
    "walked_test.py::test_walked_dynamic_windows_match_the_oracle": 0,
    "fit_test.py::test_fit_leaves_what_no_time_depends_on": 0,
    "judges_test.py::test_judges_reach_what_all_oracles_share": 0,
    "judges_test.py::test_judges_reach_the_checks_of_results": 0,
    "judges_test.py::test_judges_reach_all_of_the_emulator": 0,
    "judges_test.py::test_judges_reach_the_row_of_an_op_and_of_its_gradient": 0,
    "judges_test.py::test_judges_leave_out_a_function_that_is_added": 0,
    "in_flight_test.py::test_rows_are_loaded_before_anything_waits": 6,
    "held_out_test.py::test_held_out_peer_computes_the_same": 8,
    "benchmarks_test.py::test_a_torch_peer_is_one_kernel": 8,
    "shared_bytes_test.py::test_overlap_is_exact_on_the_bytes_touched": 0,
    "walked_test.py::test_walked_appends_match_the_oracle": 0,
    "gradients_test.py::test_a_copy_of_the_oracle_without_an_error_is_right": (
        "softmax_backward",
        "matmul_backward",
        "rms_norm_backward",
    ),
    "fit_test.py::test_fit_stays_within_its_bound": 0,
    "judges_test.py::test_judges_leave_out_comments_and_docstrings": 0,
    "mutants_test.py::test_what_is_asked_of_a_mutant_exists": 0,
    "mutants_test.py::test_every_mutant_applies_and_reads_as_code": 0,
    "screen_test.py::test_a_star_import_shadows_nothing": 0,
    "emulation_options_test.py::test_naming_it_imports_no_engine_and_no_numpy": 0,
    "index_test.py::test_a_kind_and_a_function_are_resolved_on_first_use": 0,
    "ptx_cache_test.py::test_another_process_in_another_folder_reads_it": 0,
    "cache_test.py::test_every_process_writes_the_same_cubin": 0,
    "emulator_opcodes_test.py::test_an_instruction_computes_what_the_isa_says": 3,
    "naming_test.py::test_names_are_short_and_without_apostrophes": 0,
    "advice_test.py::test_fix_admits_its_candidate_in_one_step": 0,
    "cli_test.py::test_compile_then_cached": 0,
    "cli_test.py::test_no_command_line_ends_in_a_traceback": 0,
    "words_test.py::test_words_table_is_kept_by_kernels": 0,
    "words_test.py::test_words_table_is_kept": 0,
    "saved_plan_test.py::test_no_tampering_gets_past_the_checks_of_select": 0,
    "own_kernel_test.py::test_own_kernel_folder_must_exist_and_be_new": 0,
    "own_kernel_test.py::test_own_kernel_is_an_op_like_others": 0,
    "wanted_test.py::test_a_look_up_of_an_op_makes_no_problems": 0,
    "gradients_test.py::test_every_differentiated_operand_is_tried": DIFFERENTIATED,
    "bounded_test.py::test_every_kernel_and_every_variant_is_emulated": 0,
    # Kernels without a GPU, beyond the gauntlet.
    "overlap_test.py::test_pdl_kernels_wait_before_they_touch_memory": 3,
    "emulated_run_test.py::test_orders_agree": 0,
    "emulated_gauntlet_test.py::test_other_arches": 3,
    "emulated_gauntlet_test.py::test_random_orders": 2,
    "emulated_gauntlet_test.py::test_each_sort_of_configuration": 0,
    "emulated_gauntlet_test.py::test_wanted": WANTED,
    "emulated_run_test.py::test_products_take_their_scalars_at_every_call": 0,
    "invariance_test.py::test_invariance_of_a_layer_in_bits": 0,
    "batches_test.py::test_lines_have_the_same_bits_in_any_batch": 1,
    "row_menu_test.py::test_row_menu": ("softmax-float16-C-1023-1",),
    "unaligned_test.py::test_in_place_of_what_is_read": 1,
    "unaligned_test.py::test_unaligned_rows": 0,
    "unaligned_test.py::test_weights_and_statistics": 0,
    "unaligned_test.py::test_where_a_row_starts_changes_no_bit": 0,
    "pages_test.py::test_pages_examples_run_emulated": ("gelu", "quantize_fp8"),
    "pages_test.py::test_pages_examples_run_on_the_oracle": 20,
    "passed_test.py::test_passed_tests_are_left_out": 0,
    "settled_test.py::test_settled_inputs_hold_what_tests_execute": 0,
    "nodes_test.py::test_onnx_node_cases_hold_in_kernels": ("Concat", "Pad"),
    "nodes_test.py::test_onnx_node_cases_hold_for_oracles": ("LayerNormalization", "ReduceSum", "Slice"),
    "nodes_test.py::test_onnx_every_refused_pattern_names_a_case": 0,
    "without_cupy_device_test.py::test_torch_alone_runs_emulated": 0,
    "soak_test.py::test_soak_command_writes_a_record": 0,
    "soak_test.py::test_soak_of_right_calls_finds_nothing": 0,
    "soak_test.py::test_soak_notices_memory_that_grows": 0,
    "soak_test.py::test_soak_shrinks_in_another_process": 0,
    "examples_test.py::test_examples_run_as_programs": ("llama",),
    "examples_test.py::test_llama_emulated_logits_agree": 0,
    # The emulator itself.
    "emulator_tensor_core_test.py::test_addresses_of_a_tile": 8,
    "emulator_barriers_test.py::test_named_barriers": 6,
    "emulator_races_test.py::test_between_launches_that_overlap": 5,
    "emulator_conversions_test.py::test_eight_bit_floats": ("e4m3",),
    "emulator_floats_test.py::test_relu_clamps_to_zero_and_keeps_nan": ("f16",),
    "emulator_floats_test.py::test_ftz_takes_and_gives_zeros_for_subnormal_numbers": ("f16",),
    "emulator_conversions_test.py::test_a_float_becomes_the_clamped_integer": 16,
    "emulator_conversions_test.py::test_a_float_is_rounded_once": 4,
    "emulator_conversions_test.py::test_an_integer_is_rounded_once": 16,
    "emulator_edges_test.py::test_a_profile_counts_what_a_gpu_would_move": 0,
    "emulator_floats_test.py::test_a_16_bit_result_is_rounded_once": ("add-f16",),
    "emulator_floats_test.py::test_a_result_is_rounded_once_in_each_direction": ("add-f32",),
    "emulator_planted_test.py::test_a_product_made_wrong": 1,
    "emulator_planted_test.py::test_as_they_are_they_are_right": 0,
    "emulator_access_test.py::test_atomic_operations_are_done_one_after_another": 12,
    "emulator_access_test.py::test_what_is_stored_is_loaded": 12,
    "emulator_async_test.py::test_boxes_into_shared_memory": 7,
    "emulator_async_test.py::test_boxes_out_of_shared_memory": 5,
    "emulator_async_test.py::test_copies_by_threads": 9,
    "emulator_barriers_test.py::test_mbarriers": 6,
    "emulator_divergence_test.py::test_a_mask_names_who_comes": 5,
    "emulator_products_test.py::test_one_thing_left_out": 9,
    "emulator_races_test.py::test_between_the_ctas_of_a_cluster": 6,
    "emulator_races_test.py::test_between_the_lanes_of_a_warp": 5,
    "emulator_races_test.py::test_between_the_warps_of_a_cta": 6,
    "emulator_unknown_test.py::test_shared_memory": 6,
    "emulator_unknown_test.py::test_what_only_a_comparison_sees": 4,
    "emulator_tensor_core_test.py::test_a_warpgroup_accumulates": 4,
    # What is asked of every op: of one of each template.
    "asked_test.py::test_asked_bind_computes_what_the_function_does": Each(),
    "asked_test.py::test_asked_functions_have_the_signature_of_the_op": Each(),
    "asked_test.py::test_asked_plan_is_the_one_of_the_descriptor": Each(),
    "arguments_test.py::test_every_argument_that_may_have_no_meaning_is_tried": Each(),
    "canonical_test.py::test_a_canonical_descriptor_is_the_one_that_its_fields_make": Each(),
    "plan_test.py::test_a_signature_names_the_operands": Each(),
    "registry_test.py::test_an_op_has_an_independent_implementation": Each(),
    "registry_test.py::test_an_op_is_documented_and_public": Each(),
    "fuzz_test.py::test_descriptors": 20,
    "fuzz_test.py::test_operands": 20,
    "operand_order_test.py::test_every_function_gathers_in_descriptor_order": Each(),
    "recorded_test.py::test_recorded_call_is_replayed": Each(),
    "registry_test.py::test_gauntlet_refusals": Each(),
    "repeated_calls_test.py::test_further_calls_give_kernels_the_same": 100,
    "with_torch_test.py::test_torch_gpu_drives_the_driver_as_cupy_does": 40,
    # Of some ops of each family.
    "compile_test.py::test_gemv_kernels_do_not_spill_for_any_pitch": ("sm_90a",),
    "compile_test.py::test_kernels_of_long_rows_do_not_spill": 0,
    "align_test.py::test_odd_addresses": ("cpu-matmul_tc", "cpu-dequantize_gguf", "cpu-asin_backward"),
    "cli_run_test.py::test_operands_suit_the_problem_that_they_are_made_for": (
        "matmul_tc",
        "dequantize_gguf",
        "digamma",
    ),
    "compile_test.py::test_every_kernel_compiles_for_every_arch_without_a_spill": 5,
    "compile_test.py::test_resources_are_not_stale": 5,
    "gradients_test.py::test_gradient_is_that_of_the_forward_oracle": DIFFERENTIATED,
    "gradients_test.py::test_a_wrong_operand_is_noticed": DIFFERENTIATED[:6],
    "gradients_test.py::test_a_wrong_result_is_noticed": DIFFERENTIATED[:6],
    "gradients_test.py::test_an_error_in_the_oracle_is_noticed": 6,
    "expression_test.py::test_gradient_bound_notices_a_wrong_expression": 8,
    "plan_test.py::test_a_plan_explains_itself_and_its_repr_never_raises": ("softmax", "matmul"),
    "plan_test.py::test_every_admitted_variant_can_be_preferred": ("softmax",),
    "plan_test.py::test_plans_hash_compare_pickle_and_go_through_json": ("softmax", "matmul"),
    "plan_test.py::test_select_needs_no_gpu": 22,
    "plan_test.py::test_the_chosen_candidate_is_the_cheapest_admitted": 8,
    "registry_test.py::test_every_sample_selects_or_is_refused": 4,
    "registry_test.py::test_the_oracle_agrees_with_an_independent_implementation": 60,
    # The host side.
    "with_torch_test.py::test_a_pool_keeps_the_memory_of_its_capture": 0,
    "invariance_test.py::test_invariance_of_a_layer_at_real_sizes": 1,
    "autotune_test.py::test_verify_without_arrays_runs_the_samples": 2,
    "walked_test.py::test_walked_elementwise_launches_match_numpy": 0,
    "record_test.py::test_record_replays_with_new_inputs": ("cpu",),
    "align_test.py::test_select_admits_only_unaligned_kernels_at_odd_addresses": 0,
    "align_test.py::test_products_access_only_what_addresses_and_strides_allow": 0,
    "benchmarks_test.py::test_rows_of_other_kernels_are_marked": 0,
    "benchmarks_test.py::test_served_rows_are_series_of_tokens": 0,
    "copies_sweep_test.py::test_losses_are_reported_and_drawn": 0,
    "reach_test.py::test_every_definition_is_in_the_digest_of_an_op": 0,
    "emulated_size_test.py::test_a_large_problem_is_refused_at_once": 0,
    "ledger_test.py::test_a_broken_host_side_is_unverified": 0,
    "ptx_cache_test.py::test_damaged_ptx_entry_is_rebuilt": 5,
    "definitions_test.py::test_what_a_kernel_does_not_reach_does_not_count": 2,
    "beyond_samples_test.py::test_zeros_keep_their_sign_in_kernels": 1,
    "definitions_test.py::test_what_a_kernel_reaches_counts": 3,
    "torch_opinfo_test.py::test_opinfo_of_an_op_has_a_row": 0,
    "torch_opinfo_test.py::test_opinfo_samples_give_what_torch_gives": 0,
    "torch_compile_test.py::test_compile_adds_few_guards": 1,
    "new_extent_test.py::test_select_chooses_what_the_full_assessment_chooses": 0,
    "reach_test.py::test_a_function_that_is_edited_voids_what_it_reaches_alone": 0,
    "reach_test.py::test_new_functions_in_headers_leave_every_record": 0,
    "reach_test.py::test_edit_that_keeps_a_digest_keeps_the_ptx": 0,
    # Processes of their own, and what reads all of the sources.
    "ranges_test.py::test_log_shows_choices_from_its_level_on": 0,
    "words_test.py::test_words_table_is_kept_by_tests_and_benchmarks": 0,
    "ledger_test.py::test_an_op_is_verified_once_its_gauntlet_has_passed": 0,
    "own_kernel_test.py::test_own_kernel_broken_entry_point_is_skipped_with_a_warning": 0,
    "own_kernel_test.py::test_own_kernel_entry_point_is_loaded_on_first_use": 0,
    "own_kernel_test.py::test_own_kernel_example_runs_emulated": 0,
    "invariance_test.py::test_invariance_costs_what_the_page_says": 0,
    "emulated_runs_test.py::test_every_oracle_is_among_the_judges": 0,
    "generated_test.py::test_patterns_over_generated_code_match": 0,
    "emulated_device_test.py::test_no_device_of_cupy_is_asked_for": 0,
    "screen_test.py::test_ops_is_a_line_an_op": 0,
    "adding_test.py::test_adding_families_are_linted_and_typed": 0,
    "adding_test.py::test_adding_families_pass_the_tests_of_the_house": 0,
    "adding_test.py::test_adding_families_pass_the_tests_of_their_ops": 0,
    "adding_test.py::test_adding_new_writes_a_package_of_its_own": 0,
    "adding_test.py::test_a_row_makes_an_op_and_voids_nothing": 0,
    "concerns_test.py::test_concerns_takes_each_sort_of_test_of_an_op": 0,
    "cli_test.py::test_a_reader_that_leaves_and_an_output_that_is_closed": 0,
    "cli_verify_test.py::test_what_cannot_be_done_is_refused_readably": 3,
    "cli_test.py::test_ops_json": 0,
    "cli_test.py::test_demo_fails_where_asserts_are_not_run": 0,
    "fit_test.py::test_fit_command_says_how_far_tables_are": 0,
    "fit_test.py::test_fit_finds_constants_that_made_the_times": 0,
    "foreign_test.py::test_compiled_functions_trace_calls_and_break_at_plans": 0,
    "judges_test.py::test_judges_reach_all_that_is_executed": ("gelu-f32 corners",),
    "index_test.py::test_generated_files_are_fresh": 0,
    "ledger_test.py::test_a_digest_is_the_same_in_every_process": 0,
    "messages_test.py::test_every_name_in_a_message_is_there": 0,
    "odd_arguments_test.py::test_descriptor_of_finds_its_row_in_a_fresh_process": 0,
    "skipped_test.py::test_missing_package_fails_where_all_are_demanded": 0,
    "run_time_values_test.py::test_scalars_that_follow_from_values_are_declared": 20,
    "scope_test.py::test_device_of_the_environment": 0,
    "runtime_test.py::test_a_damaged_entry_is_rebuilt": 8,
    "runtime_test.py::test_processes_hammer_one_cache_while_it_is_damaged": 0,
    "runtime_test.py::test_threads_hammer_one_cache": 0,
    "structure_test.py::test_imports_point_down": 0,
    "structure_test.py::test_no_module_uses_what_is_private_to_another": 0,
    "structure_test.py::test_no_modules_import_one_another": 0,
    "structure_test.py::test_no_modules_import_one_another_for_types": 0,
    "tuned_test.py::test_processes_that_tune_at_once_lose_no_winner": 0,
    # Models of other libraries.
    "transformers_attention_test.py::test_transformers_logits_and_tokens_match_eager": (
        "llama",
        "gemma2",
        "gemma3",
        "gpt_oss",
        "deepseek_v3",
        "qwen2",
        "gpt2",
    ),
    "transformers_compile_test.py::test_compile_whole_model": 0,
    "torch_nn_test.py::test_nn_linear_is_compiled_with_a_dynamic_batch": 2,
    "torch_packed_test.py::test_compile_takes_packed_weights": 3,
    "transformers_swap_test.py::test_swap_keeps_logits": ("llama", "gemma2", "gpt_oss", "glm4"),
}


def is_bounded(config: pytest.Config) -> bool:
    """Whether a run is of the whole suite, and not asked for all of it. Workers learn it from the process that starts them."""
    if hasattr(config, "workerinput"):
        return bool(config.workerinput["bounded"])
    option = config.option
    named = config.args_source is pytest.Config.ArgsSource.ARGS
    more = ("full", "all", "op", "sample", "keyword", "lf")
    return not named and not any(getattr(option, name, False) for name in more)


def choose(items: Sequence[pytest.Item], *, device: bool) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """(the tests that the bounded suite takes, the others), in their order. `device`: whether there is one."""
    cases, of_device = defaultdict[str, list[pytest.Item]](list), defaultdict[str, list[pytest.Item]](list)
    for item in items:
        (of_device if item.get_closest_marker("gpu") else cases)[name_of(item)].append(item)
    left = set[int]()
    for name, same in cases.items():
        some = CASES.get(name, len(same) if any(map(op_of, same)) else MOST)
        left |= {id(item) for item in same} - {id(item) for item in taken(same, some, name)}
    if not device:
        left |= {id(item) for same in of_device.values() for item in same[1:]}
    return [x for x in items if id(x) not in left], [x for x in items if id(x) in left]


def taken(cases: Sequence[pytest.Item], some: Some, test: str = "") -> list[pytest.Item]:
    """Some cases of a test: so many, those of these names, or those of some ops of each template."""
    if isinstance(some, Each):
        ops = some.of(test)
        return [x for x in cases if op_of(x) in ops]
    if isinstance(some, int):
        return spread(cases, some)
    return [x for x in cases if x.callspec.id in some]  # type: ignore[attr-defined]


def name_of(item: pytest.Item) -> str:
    """A test without its case: ``file_test.py::test``, as in `CASES`."""
    return f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
