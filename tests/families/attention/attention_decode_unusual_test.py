"""Decoding what is not usual: offsets and scales that make no sense, caches without room, values without columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import ElementKind, PlanPreference

from .attention_decode_test import BF16, F32, caches, held, ints, paged_like


@pytest.mark.parametrize("device", ["ptx", "cpu"])
def test_offsets_that_make_no_sense_have_a_status(device: str) -> None:
    given = paged_like(caches(3, 2, 40), 16, "NHD")
    given["q"] = given["q"].reshape(-1, *given["q"].shape[2:])
    for starts, wanted in (
        ((0, 2, 4, 6), 0), ((1, 2, 2, 5), 0), ((0, 0, 0, 7), 3), ((-1, 2, 4, 6), 3), ((6, 4, 2, 0), 3), ((0, 6, 4, 4), 3)
    ):  # fmt: skip
        _, status = bp.paged_attention(
            **given, lengths=ints(40, 9, 33), cu_seqlens_q=ints(*starts), return_status=True, device=device
        )
        assert status.tolist() == [wanted] * 3, starts


@pytest.mark.parametrize("device", ["ptx", "cpu"])
def test_a_scale_that_is_nan_is_not_lost(device: str) -> None:
    given = caches(1, 1, 40)
    given |= {n: given[n].astype(ElementKind.FP8_E4M3.dtype) for n in "kv"}
    given["k_scales"] = np.array([np.nan, 1], np.float32)
    out, lse = bp.attention_decode(**given, return_lse=True, device=device)
    assert np.isnan(np.float32(out[:, :2])).all() and np.isnan(lse[:, :2]).all()
    assert np.isfinite(np.float32(out[:, 2:])).all() and np.isfinite(lse[:, 2:]).all()


def test_caches_without_capacity_and_values_without_columns() -> None:
    given = paged_like(caches(3, 1, 40), 16, "NHD") | {"page_table": np.zeros((3, 0), np.int32)}
    made = bp.paged_attention(**given, lengths=ints(0, 0, 2), return_lse=True, return_status=True, device="ptx")
    assert not np.float32(made.out).any() and np.isneginf(made.lse).all() and made.status.tolist() == [0, 0, 2]
    given = caches(1, 1, 0)
    assert not np.float32(bp.attention_decode(**given, lengths=ints(3), device="ptx")).any()
    given = caches(1, 1, 40)
    with pytest.raises(bp.UnsupportedError, match="columns"):
        bp.attention_decode(given["q"], given["k"], given["v"][..., :0], return_lse=True, device="ptx")


@pytest.mark.parametrize(("element", "out"), [(BF16, BF16), (BF16, F32), (F32, F32)])
def test_parts_are_merged_into_unaligned_rows(element: ElementKind, out: ElementKind) -> None:
    """Plain multiply-adds take an out at any address, and so does what merges their splits."""
    given = {**caches(1, 1, 300, element, d=40), "lengths": ints(290)}
    memory = np.zeros((1, 4, 1, 43), out.dtype)
    there = memory[..., 1:41]
    plan = bp.DecodeAttentionPlan.select(
        bp.DecodeAttentionDescriptor.of(**given, out=there), PlanPreference(variant="simt_keys"), device="ptx"
    )
    assert len(plan.selection.launches) == 2
    held(plan, plan.run(**given, out=there), given)
    assert not memory[..., 0].any() and not memory[..., 41:].any()


@pytest.mark.parametrize("device", ["ptx", "cpu"])
def test_no_sequences_and_no_heads(device: str) -> None:
    none, one = ints().reshape(0, 2), ints(0, 0).reshape(1, 2)
    pages = np.ones((3, 4, 2, 8), BF16.dtype)
    options: dict[str, Any] = {"return_lse": True, "return_status": True, "device": device}
    made = bp.paged_attention(pages[0, :3], pages, pages, none, ints(), cu_seqlens_q=ints(0), **options)
    assert made.out.shape == (3, 2, 8) and made.lse.shape == (2, 3) and made.status.shape == (0,)
    shapes = {
        "q_shape": (3, 2, 8),
        "k_pages_shape": (3, 4, 2, 8),
        "v_pages_shape": (3, 4, 2, 8),
        "page_table_shape": (0, 2),
    }
    desc = bp.PagedAttentionDescriptor(
        **shapes, element=BF16, order="THD", cu_seqlens_q_shape=(1,), status_element="i32"
    )
    assert bp.PagedAttentionPlan.select(desc, device=device).precision_guarantee.of("status")
    made = bp.paged_attention(pages[:0, :1], pages, pages, none, ints(), **options)
    assert made.out.shape == (0, 1, 2, 8) and made.lse.shape == (0, 2, 1) and made.status.shape == (0,)
    made = bp.paged_attention(pages[:1, :1, :0], pages, pages, one, ints(9), **options)
    assert made.out.shape == (1, 1, 0, 8) and made.lse.shape == (1, 0, 1) and made.status.tolist() == [2]


def test_scales_of_pages_that_are_not_there_are_never_read() -> None:
    given = paged_like(caches(2, 1, 40), 16, "NHD")
    for part in "kv":
        pages = given[f"{part}_pages"]
        given |= {
            f"{part}_pages": np.ones(pages.shape, np.int8),
            f"{part}_scales": np.full(pages.shape[:-1], 0.5, F32.dtype),
        }
    given["page_table"] = given["page_table"].copy()
    given["page_table"][0, 0], given["page_table"][1, 1] = -1, len(given["k_pages"])
    results = [bp.paged_attention(**given, lengths=ints(40, 33), device=device) for device in ("ptx", "cpu")]
    assert np.allclose(*(np.float32(out) for out in results), atol=0.01)
