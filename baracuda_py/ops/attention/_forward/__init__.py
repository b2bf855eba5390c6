"""Kernels of whole sequences, one module per candidate."""
