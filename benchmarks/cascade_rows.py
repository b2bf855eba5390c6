"""Rows of sequences that share a prefix: cascade_attention beside our own paged_attention over the same pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .harness import OURS
from .operands import Kit, itemsize
from .row import Calls, Row
from .target import Target

__all__ = ["CASCADE_ROWS"]

PAGED = "paged_attention"  # our own: it reads the prefix once per sequence
INVARIANT = "batch-invariant"  # ours, by the preference
BF16 = "bfloat16"
D, PAGE = 128, 64


class Shared(NamedTuple):
    """One token of each of `batch` sequences, with `prefix` keys that all share and `own` keys behind them."""

    batch: int
    prefix: int
    own: int
    heads: int = 32
    kv_heads: int = 8

    @property
    def label(self) -> str:
        return (
            f"cascade B{self.batch} prefix {self.prefix} own {self.own} {self.heads}/{self.kv_heads} d{D} page {PAGE}"
        )

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.batch, 1, self.heads, D)

    @property
    def pages(self) -> tuple[int, int]:
        """Those of the prefix, and of each sequence behind it."""
        return -(-self.prefix // PAGE), -(-self.own // PAGE)


def _calls(kit: Kit, shared: Shared) -> Calls:
    import baracuda_py as bp

    (of_prefix, each), batch = shared.pages, shared.batch
    count = of_prefix + batch * each
    order = np.random.default_rng(0).permutation(count).astype(np.int32)
    own = order[of_prefix:].reshape(batch, each)
    whole = np.concatenate([np.tile(order[:of_prefix], (batch, 1)), own], axis=1)
    pages = [kit.normal((count, PAGE, shared.kv_heads, D), BF16) for _ in "kv"]
    xp = kit.xp
    common: dict[str, Any] = {
        "q": kit.normal(shared.shape, BF16), "k_pages": pages[0], "v_pages": pages[1], "out": kit.empty(shared.shape, BF16),
    }  # fmt: skip
    cascade = common | {
        "prefix_table": xp.asarray(order[:of_prefix]), "prefix_length": xp.full(1, shared.prefix, np.int32),
        "page_table": xp.asarray(own), "lengths": xp.full(batch, shared.own, np.int32),
    }  # fmt: skip
    paged = common | {
        "page_table": xp.asarray(whole), "lengths": xp.full(batch, shared.prefix + shared.own, np.int32),
    }  # fmt: skip
    desc = bp.CascadeAttentionDescriptor.of(**cascade)
    invariant = bp.CascadeAttentionPlan.select(desc, bp.PlanPreference(batch_invariant=True))
    return {
        OURS: bp.CascadeAttentionPlan.select(desc).bind(**cascade),
        PAGED: bp.PagedAttentionPlan.select(bp.PagedAttentionDescriptor.of(**paged)).bind(**paged),
        INVARIANT: invariant.bind(**cascade),
    }


def _row(shared: Shared, target: Target | None) -> Row:
    def make(kit: Kit) -> Calls:
        return _calls(kit, shared)

    element = itemsize(BF16)
    keys = shared.prefix + shared.batch * shared.own
    of_q, read = element * int(np.prod(shared.shape)), 2 * element * keys * shared.kv_heads * D
    flops = 4 * D * shared.batch * shared.heads * (shared.prefix + shared.own)
    return Row(
        "paged", shared.label, "cascade_attention", shared.shape, BF16, read + of_q, of_q, make, target, flops=flops
    )


def _rows() -> Iterator[Row]:
    yield _row(Shared(64, 16_384, 128), Target(3.0, "paired", PAGED))
    yield _row(Shared(16, 16_384, 128), Target(2.0, "paired", PAGED))
    yield _row(Shared(64, 2_048, 128), Target(2.0, "paired", PAGED))
    yield _row(Shared(8, 131_072, 1_024), Target(3.0, "paired", PAGED))


CASCADE_ROWS: tuple[Row, ...] = tuple(_rows())
