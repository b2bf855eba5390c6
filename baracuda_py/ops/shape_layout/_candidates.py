"""The copy candidates, in the order that settles ties."""

from __future__ import annotations

from typing import Any

from ...plan.candidate import Candidate
from ._copy import ContiguousChunk, Pitched
from ._elements import Elements, Nibble
from ._runs import Vectorised
from ._slots import ShortRuns
from ._transpose import Transpose, TransposeTile

__all__ = ["COPY_CANDIDATES"]

COPY_CANDIDATES: tuple[Candidate[Any], ...] = (
    ContiguousChunk(), Pitched(), Vectorised(), ShortRuns(), Transpose(), TransposeTile(), Elements(), Nibble(),
)  # fmt: skip
