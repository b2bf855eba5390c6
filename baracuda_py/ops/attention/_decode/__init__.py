"""Kernels of few queries against caches, one module per candidate; splits of keys and their merge."""
