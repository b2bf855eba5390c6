"""Kernels of the gradients, one module per candidate, with their struct and error bounds."""
