"""What the samples of all families share. Samples are seeded host arrays of awkward shapes, strides and values, for tests,
benchmarks, verify and demo.

A sample's operands are NumPy arrays whose strides are part of the problem. Packed kinds come as a `Packed`. The samples are with
their ops: each family in `ops/` has a module or a folder of them.
"""

from .sample import Packed, Sample, strided_like

__all__ = ["Packed", "Sample", "strided_like"]
