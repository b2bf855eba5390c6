"""The leading pages that sequences share, and the pages of each one behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .sequence import PagedSequence

__all__ = ["SharedPrefix", "shared_prefix_of"]


class SharedPrefix(NamedTuple):
    """Arguments of `cascade_attention`, on the host: the pages that all sequences begin with and how many keys these hold, and
    each one's pages and keys behind; -1 in `page_table` where a sequence has fewer pages than another."""

    prefix_table: np.ndarray[Any, Any]
    prefix_length: int
    page_table: np.ndarray[Any, Any]
    lengths: np.ndarray[Any, Any]


def shared_prefix_of(sequences: Sequence[PagedSequence], page_size: int) -> SharedPrefix:
    """That of sequences of a cache. Pages with slots for pending tokens are not shared: a token does not see those behind it."""
    whole = min((sequence.written // page_size for sequence in sequences), default=0)
    tables = [sequence.pages[:whole] for sequence in sequences]
    count = next((n for n, pages in enumerate(zip(*tables)) if len(set(pages)) > 1), whole)
    own = [sequence.pages[count:] for sequence in sequences]
    table = np.full((len(own), max(map(len, own), default=0)), -1, np.int32)
    for row, pages in zip(table, own):
        row[: len(pages)] = pages
    keys = count * page_size
    lengths = np.array([sequence.length - keys for sequence in sequences], np.int32)
    return SharedPrefix(np.array(tables[0][:count] if tables else [], np.int32), keys, table, lengths)
