"""The variants of matmul, in the order in which ties are settled."""

from __future__ import annotations

from typing import Any

from ...plan.candidate import Candidate
from ._gemv import Gemv
from ._simt import Simt

__all__ = ["CANDIDATES"]

CANDIDATES: tuple[Candidate[Any], ...] = (Gemv(), Simt())
