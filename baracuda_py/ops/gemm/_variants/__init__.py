"""Variants of matmul for every arch: `simt`, `gemv`, `mma`, `cublas`. What other products share with them is in ops/products."""
