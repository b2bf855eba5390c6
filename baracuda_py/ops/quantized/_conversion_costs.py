"""The bandwidth of kernels that quantize, dequantize or rearrange a weight."""

from __future__ import annotations

from .._fitted import Fitted

__all__ = ["ConversionCosts"]


class ConversionCosts(Fitted, table="quantized.conversions"):
    gguf_dequantize_efficiency: float
    gguf_quantize_efficiency: float
    nf4_dequantize_efficiency: float
    nf4_quantize_efficiency: float
    int4_dequantize_efficiency: tuple[float, ...]
    int4_quantize_efficiency: float
    int4_relayout_efficiency: float
