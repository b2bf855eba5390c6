"""Weights in blocks of a GGUF format: quantized, dequantized and multiplied."""
