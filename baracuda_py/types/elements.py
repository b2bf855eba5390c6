"""How an element is stored: :class:`ElementKind`, its width, dtype, DLPack code and CUDA type."""

from __future__ import annotations

import enum
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from .errors import OperandTypeError, shown

__all__ = ["ElementKind", "ElementLike"]


class _Traits(NamedTuple):
    bits: int
    dtype: str  # NumPy's or ml_dtypes' name; the storage dtype for packed kinds
    dlpack: int  # DLDataTypeCode
    cuda: str  # the type in kernels/include/core/dtype.cuh that moves its bytes
    digits: int = 0  # significand bits, the hidden one included (floats only)


_TRAITS = {
    "f16": _Traits(16, "float16", 2, "f16", 11),
    "bf16": _Traits(16, "bfloat16", 4, "bf16", 8),
    "f32": _Traits(32, "float32", 2, "float", 24),
    "f64": _Traits(64, "float64", 2, "double", 53),
    "i8": _Traits(8, "int8", 0, "i8"),
    "i16": _Traits(16, "int16", 0, "i16"),
    "i32": _Traits(32, "int32", 0, "i32"),
    "i64": _Traits(64, "int64", 0, "i64"),
    "u8": _Traits(8, "uint8", 1, "u8"),
    "u16": _Traits(16, "uint16", 1, "u16"),
    "u32": _Traits(32, "uint32", 1, "u32"),
    "u64": _Traits(64, "uint64", 1, "u64"),
    "bool": _Traits(8, "bool", 6, "bool"),
    "s4": _Traits(4, "uint8", 0, "u8"),
    "u4": _Traits(4, "uint8", 1, "u8"),
    "fp8_e4m3": _Traits(8, "float8_e4m3fn", 10, "u8", 4),
    "fp8_e5m2": _Traits(8, "float8_e5m2", 12, "u8", 3),
    "complex64": _Traits(64, "complex64", 5, "complex64", 24),
    "complex128": _Traits(128, "complex128", 5, "complex128", 53),
    "bin": _Traits(1, "uint8", 1, "u8"),
}


class ElementKind(enum.Enum):
    """How one element is stored. Values are the lower-case names.

    Wherever a kind is expected, a NumPy or ml_dtypes dtype or its name (``"bfloat16"``, ``"bf16"``) is accepted. ``FP8_E4M3``
    is ``float8_e4m3fn`` (max 448). S4, U4 and BIN are packed along the last axis into bytes, the even element (bit 0) in the
    low nibble (bit), every row starting on a byte.
    """

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    BOOL = "bool"
    S4 = "s4"
    U4 = "u4"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"
    BIN = "bin"

    # Plain attributes, not properties: they are read on every call.
    bits: int
    dtype: np.dtype[Any]
    dlpack: tuple[int, int]
    cuda: str
    packed: bool
    per_byte: int
    digits: int  # significand bits of a floating kind, the hidden one included; 0 for the others
    is_float: bool
    is_complex: bool
    is_integer: bool

    def __init__(self, value: str) -> None:
        traits = _TRAITS[value]
        self.bits = traits.bits
        self.dtype = np.dtype(getattr(ml_dtypes, traits.dtype, traits.dtype))
        self.dlpack = (traits.dlpack, traits.bits)
        self.cuda = traits.cuda
        self.packed = traits.bits < 8
        self.per_byte = 8 // traits.bits if traits.bits < 8 else 1
        self.digits = traits.digits
        self.is_complex = value.startswith("complex")
        self.is_float = traits.digits > 0 and not self.is_complex
        self.is_integer = value[0] in "isu" and value[1:].isdigit()

    __hash__ = (
        object.__hash__
    )  # members are unique, and kinds are looked up on every call; Enum's own hash is written in Python

    @property
    def number(self) -> str:
        """The CUDA type for kernels that compute with the element's value; `cuda` is the type that moves its bytes. Raises
        OperandTypeError for a kind without one, whose bytes would be read as integers."""
        if self.packed or self.is_complex or (self.bits == 8 and not self.is_integer):
            raise OperandTypeError(f"{self} is stored as {self.cuda}: no kernel computes with it", "cast it")
        return self.cuda

    @property
    def unit_roundoff(self) -> float:
        """Half the distance from 1 to the next larger number, 2**-digits; 0 for exact kinds."""
        return 2.0**-self.digits if self.digits else 0.0

    @property
    def smallest_normal(self) -> float:
        """The smallest normal number of a floating kind: below it the spacing of numbers is 2 * unit_roundoff times this."""
        return float(ml_dtypes.finfo(self.dtype).smallest_normal)

    @property
    def largest(self) -> float:
        """The largest finite number of a floating kind."""
        return float(ml_dtypes.finfo(self.dtype).max)

    def nbytes(self, count: int) -> int:
        """The bytes of `count` consecutive elements of one row."""
        return (count * self.bits + 7) // 8

    @staticmethod
    def of(like: ElementLike) -> ElementKind:
        """The kind that `like` (a kind, dtype, scalar type or name) stands for."""
        if isinstance(like, ElementKind):
            return like
        try:
            return _kind_of(like)
        except OperandTypeError:
            raise
        except Exception:  # unhashable, or one of many errors of NumPy
            raise OperandTypeError(_unknown(like)) from None

    def __str__(self) -> str:
        return str(self._value_)

    def __repr__(self) -> str:
        return f"bp.{self.name}"


ElementLike: TypeAlias = "ElementKind | np.dtype[Any] | type | str"


def _unknown(like: Any) -> str:
    known = ", ".join(k.value for k in ElementKind)
    return f"{shown(like)} is not an element kind: give a NumPy, ml_dtypes or torch dtype, its name, or one of {known}"


@lru_cache(maxsize=256)
def _kind_of(like: Any) -> ElementKind:
    name: Any = str(like) if type(like).__module__ == "torch" else like  # NumPy does not know torch's dtypes
    if isinstance(name, str):
        name = name.lower().removeprefix("torch.").removeprefix("bp.")
        if name in _TRAITS:
            return ElementKind(name)
        name = getattr(ml_dtypes, name, name)
    if name is None:  # NumPy takes None for float64
        raise OperandTypeError(_unknown(like))
    dtype = np.dtype(name)
    kind = _BY_DTYPE.get(dtype)
    if kind is None:
        hint = f": {dtype} holds one element a byte; view packed bytes with bp.GpuBuffer.view(x_u8, bp.S4)"
        raise OperandTypeError(_unknown(like) + (hint if dtype.name in ("int4", "uint4") else ""))
    return kind


_BY_DTYPE = {k.dtype: k for k in ElementKind if not k.packed}
