"""Weights in few bits: arrays with a description of their layout."""

from .gguf import PackedGguf
from .int4 import Int4Layout, PackedInt4
from .nf4 import PackedNf4

__all__ = ["Int4Layout", "PackedGguf", "PackedInt4", "PackedNf4"]
