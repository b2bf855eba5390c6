"""Norms along rows of any length, and their gradients; a residual added first, statistics as outputs, results as 8-bit codes."""
