"""Reductions of segments of rows, which sorted offsets give, and their gradients."""
