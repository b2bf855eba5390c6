"""The variants of matmul, in the order in which ties are settled."""

from __future__ import annotations

from typing import Any

from ...plan.candidate import Candidate
from ._variants.cublas import Cublas
from ._variants.gemv import Gemv
from ._variants.mma import Tc, TcAsync
from ._variants.simt import Simt
from ._wgmma.staged import WgmmaPadded
from ._wgmma.wgmma import Wgmma

__all__ = ["CANDIDATES"]

CANDIDATES: tuple[Candidate[Any], ...] = (Wgmma(), WgmmaPadded(), Gemv(), TcAsync(), Tc(), Simt(), Cublas())
