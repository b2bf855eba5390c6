"""Elementwise functions, comparisons and casts, with NumPy's broadcasting and result types.

A table of rows over one kernel.
"""
