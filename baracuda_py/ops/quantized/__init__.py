"""Weights and activations of few bits (int8, fp8, int4, NF4, GGUF): quantized, dequantized, multiplied, projected."""
