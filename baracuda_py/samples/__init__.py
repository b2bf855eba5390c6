"""Problems for every op: seeded host arrays of awkward shapes, strides and values, shared by tests, benches, verify and demo.

A sample's operands are NumPy arrays whose strides are part of the problem. Packed kinds come as a `Packed`. A module a category.
"""

from .sample import Packed, Sample, strided_like

__all__ = ["Packed", "Sample", "strided_like"]
