"""Matrices of one byte per element, int8 and fp8: quantized, dequantized and multiplied."""
