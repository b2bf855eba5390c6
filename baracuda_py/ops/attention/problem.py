"""The problem of attention and its struct in kernels, tiles and their places, for families of attention beside this one."""

from ._forward.flash import ends_s, exponentials, placed, within
from ._forward.simt import MOST_CTAS, SimtConfig
from ._forward.simt import Costs as SimtCosts
from ._forward.wgmma import WgmmaCosts, stepped
from ._problem.attended import F32_MAX, Attended
from ._problem.struct import problem_struct

__all__ = [
    "F32_MAX",
    "MOST_CTAS",
    "Attended",
    "SimtConfig",
    "SimtCosts",
    "WgmmaCosts",
    "ends_s",
    "exponentials",
    "placed",
    "problem_struct",
    "stepped",
    "within",
]
