"""Encodes TMA tensor maps through cuda.bindings, once for each address of the tensor."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from ..types import DriverError
from .gpu.bindings import bindings
from .steps import TensorMap

__all__ = ["BYTES", "FLAGS", "MapEncoder"]

BYTES = 128
_MAX_ENCODINGS = 32  # addresses for which a map keeps its encoding

_DTYPES = {
    "uint8": "UINT8", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "tfloat32": "TFLOAT32", "float32": "FLOAT32",
    "float64": "FLOAT64",
}  # fmt: skip

# These are the same in every map. L2 promotion is off: fetching lines outside a box cost up to 4 % in products that read
# weights once.
FLAGS = ("INTERLEAVE_NONE", "L2_PROMOTION_NONE", "FLOAT_OOB_FILL_NONE")


class MapEncoder:
    """The 128 bytes of one tensor map, by the address of its tensor."""

    def __init__(self, tensor_map: TensorMap) -> None:
        self._map = tensor_map
        self._known: OrderedDict[int, bytes] = OrderedDict()

    def at(self, address: int) -> bytes:
        """The map of a tensor at `address`, which must be a multiple of 16."""
        known = self._known.get(address)
        if known is None:
            known = self._known[address] = self._encode(address)
            while len(self._known) > _MAX_ENCODINGS:
                self._known.popitem(last=False)
        return known

    def _encode(self, address: int) -> bytes:
        d, m = bindings(), self._map
        big, small = d.cuuint64_t, d.cuuint32_t
        swizzle = f"CU_TENSOR_MAP_SWIZZLE_{m.swizzle}B" if m.swizzle else "CU_TENSOR_MAP_SWIZZLE_NONE"
        interleave, promotion, fill = (f"CU_TENSOR_MAP_{flag}" for flag in FLAGS)
        error, encoded = d.cuTensorMapEncodeTiled(
            getattr(d.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_DTYPES[m.dtype]}"),
            len(m.shape),
            address,
            [big(n) for n in m.shape],
            [big(n) for n in m.strides],
            [small(n) for n in m.box],
            [small(1)] * len(m.box),
            getattr(d.CUtensorMapInterleave, interleave),
            getattr(d.CUtensorMapSwizzle, swizzle),
            getattr(d.CUtensorMapL2promotion, promotion),
            getattr(d.CUtensorMapFloatOOBfill, fill),
        )
        if int(error) != 0:
            raise DriverError(f"encoding {m} at {address:#x}: {error.name}", int(error), error.name)
        return np.array([int(word) for word in encoded.opaque], dtype=np.uint64).tobytes()
