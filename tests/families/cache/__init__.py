"""Paged caches of keys and values: appended tokens and copies of pages."""

from __future__ import annotations

from typing import Any

import numpy as np

import baracuda_py as bp

from .. import Family, NoMeaning
from .independent import CHECKS

F32 = np.float32
PAGES, IDS = [np.zeros((3, 4, 1, 8), F32), np.zeros((3, 4, 1, 8), F32)], np.arange(2, dtype=np.int32)
TABLE = np.ones((9, 4), F32)


def pages(**more: Any) -> Any:
    new = [np.ones((1, 2, 1, 8), F32), np.ones((1, 2, 1, 8), F32)]
    return (*PAGES, *new, IDS[:1].reshape(1, 1), IDS[:1]), more


__all__ = ["FAMILY"]

FAMILY = Family(
    independent=CHECKS,
    always=("status", "layout"),
    no_meaning=(
        *(
            NoMeaning(
                "paged_kv_append", pages(**{name: np.ones(shape, F32)}), bp.InvalidProblemError, "stored as it is"
            )
            for part in "kv"
            for name, shape in ((f"{part}_scales", (3, 4, 1)), (f"{part}_scale", (1,)))
        ),
        NoMeaning(
            "copy_pages",
            ((*PAGES, IDS[:1], IDS[1:2]), {"k_scales": np.ones((3, 4, 1), F32)}),
            bp.InvalidProblemError,
            "both or neither",
        ),
        NoMeaning("paged_kv_append", pages(cu_seqlens=np.zeros(2, np.int32)), bp.InvalidProblemError, "k has shape"),
        *(
            NoMeaning(
                "paged_kv_append", pages(**{name: idle}), bp.InvalidProblemError, f"{name}.* was passed and no angles"
            )
            for name, idle in (
                ("style", "interleaved"),
                ("attention_factor", 2.0),
                ("positions", IDS[:1].reshape(1, 1)),
            )
        ),
        NoMeaning(
            "paged_kv_append",
            pages(inv_freq=TABLE[0], cos=TABLE, sin=TABLE),
            bp.InvalidProblemError,
            "by inv_freq and cos and sin",
        ),
    ),
    also={
        "paged_kv_append": ("f16 turned, given positions",),
    },
    cases={
        "paged_append_test.py::test_bounds_of_codes_notice_a_key_that_is_not_rotated": 0,
        "paged_cache_test.py::test_a_cache_with_rope_turns_keys_by_their_places": ("cpu",),
        "paged_cache_test.py::test_quantized_pages_are_copied_with_their_scales": 4,
        "paged_append_test.py::test_quantized_token_is_near_itself": 4,
        "paged_append_test.py::test_every_sample": 2,
        "paged_append_test.py::test_random_batches": 0,
        "paged_append_test.py::test_rotated_keys_match_rope_bit_for_bit": 0,
    },
)
