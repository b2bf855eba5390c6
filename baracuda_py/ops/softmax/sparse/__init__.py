"""Softmax whose results may be 0: sparsemax, entmax15, and their gradients."""
