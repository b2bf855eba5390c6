"""Int4 weights: quantized, packed, converted between layouts, dequantized and multiplied."""
