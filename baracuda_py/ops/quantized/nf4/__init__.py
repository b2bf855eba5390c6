"""NF4 weights: quantized, dequantized and multiplied."""
