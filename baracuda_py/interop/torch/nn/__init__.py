"""torch modules on this library's kernels: linear layers whose weights have few bits, `RMSNorm` and `Attention`."""

from __future__ import annotations

from .float_layers import Attention, RMSNorm
from .gguf import GgufLinear
from .int4 import Int4Linear
from .int8 import Int8Linear
from .nf4 import Nf4Linear
from .quantize import quantize
from .quantized import QuantizedLinear

__all__ = [
    "Attention", "GgufLinear", "Int4Linear", "Int8Linear", "Nf4Linear", "QuantizedLinear", "RMSNorm", "quantize",
]  # fmt: skip
