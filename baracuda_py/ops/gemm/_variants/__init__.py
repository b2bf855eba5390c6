"""Variants of matmul for every arch, `simt`, `gemv`, `mma` and `cublas`, and what all variants share.

Shared: `checks` (what is served), `table` (prices), `guarantee` (bounds), `epilogue`, `split` (K in two passes), `vector`.
"""
