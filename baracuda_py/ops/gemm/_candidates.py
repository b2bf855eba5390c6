"""The variants of matmul, in the order in which ties are settled."""

from __future__ import annotations

from typing import Any

from ...plan.candidate import Candidate
from ._cublas import Cublas
from ._gemv import Gemv
from ._mma import Tc, TcAsync
from ._padded import WgmmaPadded
from ._simt import Simt
from ._wgmma import Wgmma

__all__ = ["CANDIDATES"]

CANDIDATES: tuple[Candidate[Any], ...] = (Wgmma(), WgmmaPadded(), Gemv(), TcAsync(), Tc(), Simt(), Cublas())
