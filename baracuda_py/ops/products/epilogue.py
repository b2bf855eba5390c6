"""The epilogue as kernels take it: the C++ type and the packed struct. Mirrors kernels/include/products/epilogue.cuh."""

from __future__ import annotations

import struct
from typing import overload

import numpy as np

from ...runtime.steps import Arg, Packed, Ptr, Run, Struct
from ...types import Activation, ElementKind
from .gemm import ADDENDS, BATCH_RANK, Gemm, Matrix
from .scales import SCALES

__all__ = ["batch_struct", "epilogue_args", "epilogue_type", "packed_strides", "settled"]

_NOWHERE = Matrix("", ElementKind.U8, 0, 0, (), 16)


def packed_strides(matrix: Matrix) -> Packed:
    """The struct OperandStrides: strides in elements; batch axes last, padded in front to a fixed number."""
    batch = (0,) * (BATCH_RANK - len(matrix.batch)) + matrix.batch
    return Packed(struct.pack("<5q", matrix.row, matrix.col, *batch), 8)


def batch_struct(gemm: Gemm) -> Packed:
    """The struct Batch: the two inner extents of the batch."""
    extents = (1,) * (BATCH_RANK - len(gemm.batch)) + gemm.batch
    return Packed(struct.pack("<2I", *extents[1:]), 4)


def paired(gemm: Gemm) -> bool:
    """Whether two neighbours, the first in an even column, are one access in every operand of the epilogue."""
    return all(x.col == 1 and x.aligned(2 * x.itemsize, along=1) for x in (gemm.out, *gemm.addends.values()))


def epilogue_type(gemm: Gemm, activation: Activation) -> str:
    """The C++ type Epilogue<Out, C, Bias, Residual, ACTIVATION, PAIRED, Acc>, with scales of lines Scaled<that, A, B>.

    OperandTypeError for an operand whose storage type has no arithmetic. All variants rely on this check.
    """
    kinds = [gemm.addends[name].element.number if name in gemm.addends else "Absent" for name in ADDENDS]
    pairs = "true" if paired(gemm) else "false"
    types = ", ".join((gemm.out.element.number, *kinds))
    plain = f"Epilogue<{types}, {activation.name}, {pairs}, {accumulator(gemm).number}>"
    return f"Scaled<{plain}, {', '.join(_kind(gemm, name) for name in SCALES)}>" if _by_lines(gemm) else plain


def _by_lines(gemm: Gemm) -> bool:
    return bool(gemm.scales) and not gemm.blocked


def _kind(gemm: Gemm, name: str) -> str:
    if name not in gemm.scales:
        return "UNSCALED"
    scale = gemm.scales[name]
    return "OF_LINES" if (scale.row if name == "scale_a" else scale.col) else "OF_TENSOR"


def accumulator(gemm: Gemm) -> ElementKind:
    """What products are summed in: f64 for f64, else f32."""
    return ElementKind.F64 if gemm.a.element is ElementKind.F64 else ElementKind.F32


def epilogue_args(gemm: Gemm) -> Struct:
    """The struct's fields, in order."""
    scalar = "float64" if accumulator(gemm) is ElementKind.F64 else "float32"
    present = [gemm.addends.get(name) for name in ADDENDS]
    pointers = [Ptr(gemm.out.operand), *(Ptr(x.operand) if x else Packed(bytes(8)) for x in present)]
    all_strides = [packed_strides(x or _NOWHERE) for x in (gemm.out, *present)]
    scales = _scale_args(gemm) if _by_lines(gemm) else ()
    return Struct((*pointers, Run("alpha", scalar), Run("beta", scalar), *all_strides, *scales))


@overload
def settled(arg: Struct) -> Struct: ...
@overload
def settled(arg: Arg) -> Arg: ...
def settled(arg: Arg) -> Arg:
    """An epilogue's struct with alpha 1 and beta 0, of products that have neither at run time; other arguments unchanged."""
    if not isinstance(arg, Struct):
        return arg
    return Struct(tuple(np.float32(f.name == "alpha") if isinstance(f, Run) else f for f in arg.fields))


def _scale_args(gemm: Gemm) -> tuple[Ptr | Packed, ...]:
    """Pointers and walks of both scales, null where one is absent."""
    present = [gemm.scales.get(name) for name in SCALES]
    return (
        *(Ptr(x.operand) if x else Packed(bytes(8)) for x in present),
        *(packed_strides(x or _NOWHERE) for x in present),
    )
