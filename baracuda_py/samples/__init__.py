"""Problems for every op: seeded host arrays of awkward shapes, strides and values, shared by tests, benches, verify and demo.

A sample's operands are NumPy arrays whose strides are part of the problem. Packed kinds come as a `Packed`.
"""

from .elementwise import binary, unary
from .gemm import matmul, matmul_backward
from .indexing import nonzero, take_along_axis
from .sample import Packed, Sample, strided_like
from .shape_layout import contiguize, kv_append, write_slice
from .sort import topk

__all__ = [
    "Packed",
    "Sample",
    "binary",
    "contiguize",
    "kv_append",
    "matmul",
    "matmul_backward",
    "nonzero",
    "strided_like",
    "take_along_axis",
    "topk",
    "unary",
    "write_slice",
]
