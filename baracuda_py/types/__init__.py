"""The vocabulary: pure Python values that every other layer speaks in. Nothing here names CuPy or CUDA's libraries."""

from .device import DeviceSpec, known_devices
from .elements import ElementKind, ElementLike
from .errors import (
    BaracudaError,
    BufferTooSmallError,
    CompileError,
    DeviceMismatchError,
    DriverError,
    InvalidProblemError,
    MisalignedOperandError,
    OperandTypeError,
    OverlapError,
    UnsupportedError,
    WorkspaceTooSmallError,
)
from .precision import Bound, Componentwise, Exact, PrecisionGuarantee, Term, Ulp, ulp_of
from .sku import KernelSku, PlanPreference
from .vocabulary import (
    Activation,
    ArchSku,
    BackendKind,
    BinaryKind,
    EpilogueKind,
    LayoutSku,
    MathPrecision,
    OpCategory,
    ShapeLayoutKind,
    UnaryKind,
)

__all__ = [
    "Activation",
    "ArchSku",
    "BackendKind",
    "BaracudaError",
    "BinaryKind",
    "Bound",
    "BufferTooSmallError",
    "CompileError",
    "Componentwise",
    "DeviceMismatchError",
    "DeviceSpec",
    "DriverError",
    "ElementKind",
    "ElementLike",
    "EpilogueKind",
    "Exact",
    "InvalidProblemError",
    "KernelSku",
    "LayoutSku",
    "MathPrecision",
    "MisalignedOperandError",
    "OpCategory",
    "OperandTypeError",
    "OverlapError",
    "PlanPreference",
    "PrecisionGuarantee",
    "ShapeLayoutKind",
    "Term",
    "Ulp",
    "UnaryKind",
    "UnsupportedError",
    "WorkspaceTooSmallError",
    "known_devices",
    "ulp_of",
]
