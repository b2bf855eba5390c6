"""Problems beside the ops' own samples, chosen to reach what a kernel can do: tails, vectors at edges, stage buffers that wrap,
persistent CTAs that take several tiles, ragged tiles, K in parts, a CTA's second row, head, section or page.

`verify` runs them on any device and the emulated gauntlet without one.
"""

from . import attention, copies, elementwise, products, quantized, rows, turns, wgmma
from .problem import WANTED, Wanted

__all__ = ["WANTED", "Wanted"]

del attention, copies, elementwise, products, quantized, rows, turns, wgmma
