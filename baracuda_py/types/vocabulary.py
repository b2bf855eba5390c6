"""The enumerations that name categories, kernels, back ends and layouts. Values are the lower-case names."""

from __future__ import annotations

import difflib
import enum
import itertools
from collections.abc import Sequence
from typing import Any, Self

from .errors import InvalidProblemError, shown

__all__ = [
    "Activation",
    "ArchSku",
    "BackendKind",
    "EpilogueKind",
    "Extensible",
    "LayoutSku",
    "MathPrecision",
    "Named",
]

LISTED = 320  # characters of a list in a message: two or three lines of a terminal


def unknown(name: Any, known: Sequence[str], what: str) -> InvalidProblemError:
    """The error for an unknown name: names with a similar spelling come first, then the first LISTED characters of all."""
    near = difflib.get_close_matches(name.lower(), known, n=3) if isinstance(name, str) else []
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    listed = [name for name, end in zip(known, itertools.accumulate(len(name) + 2 for name in known)) if end <= LISTED]
    rest = f" and {len(known) - len(listed)} more" if len(listed) < len(known) else ""
    return InvalidProblemError(f"{what}={shown(name)} is not known", f"{hint}one of {', '.join(listed)}{rest}")


class Named(enum.Enum):
    """An enum whose values are the members' lower-case names."""

    __hash__ = object.__hash__  # members are unique; Enum's own hash is written in Python

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name.lower()

    @classmethod
    def of(cls, like: Any, what: str = "") -> Self:
        """The member for `like`, a member or its name; otherwise raises InvalidProblemError with near matches."""
        if isinstance(like, cls):
            return like
        known: list[str] = [str(member.value) for member in cls]
        name = like.lower() if isinstance(like, str) else ""
        if name in known:
            return cls(name)
        raise unknown(like, known, what or cls.__name__)

    def __str__(self) -> str:
        return str(self.value)


class MathPrecision(Named):
    """The precision in which a kernel multiplies and accumulates, as opposed to how elements are stored."""

    F16 = enum.auto()
    BF16 = enum.auto()
    TF32 = enum.auto()
    F32 = enum.auto()
    F64 = enum.auto()
    INT8 = enum.auto()
    FP8 = enum.auto()  # products of fp8; partial sums of 128 of K are added in f32
    FP8_FAST = enum.auto()  # summed by the tensor cores alone, to 14 bits on Hopper
    EXACT = enum.auto()


class Extensible(Named):
    """An enum that takes further members while the program runs."""

    @classmethod
    def added(cls, value: str) -> Self:
        """The member of that value, which is made if there is none yet."""
        if value not in cls._value2member_map_:
            member = object.__new__(cls)
            member._name_, member._value_ = value.upper(), value
            type.__setattr__(cls, member.name, member)
            cls._member_names_.append(member.name)
            cls._member_map_[member.name] = cls._value2member_map_[value] = member
        return cls(value)


class BackendKind(Named):
    BESPOKE = enum.auto()
    MEMCPY = enum.auto()
    CUBLAS = enum.auto()
    CUBLASLT = enum.auto()
    CUDNN = enum.auto()
    CUFFT = enum.auto()
    CUSOLVER = enum.auto()
    CUSPARSE = enum.auto()
    CURAND = enum.auto()
    CUB = enum.auto()
    NCCL = enum.auto()
    REFERENCE = enum.auto()


class ArchSku(Named):
    """A tier of GPUs that share kernels: sm_86 and sm_87 belong to SM80, sm_103 to SM100A."""

    SM80 = enum.auto()
    SM89 = enum.auto()
    SM90A = enum.auto()
    SM100A = enum.auto()
    SM120 = enum.auto()
    HOST = enum.auto()


class LayoutSku(Named):
    """Row (R) or column (C) order of A, B and the result."""

    RRR = enum.auto()
    RCR = enum.auto()
    CRR = enum.auto()
    CCR = enum.auto()


class Activation(Named):
    """The activation function of a matmul's epilogue. GELU is exact (erf), GELU_TANH its tanh approximation."""

    IDENTITY = enum.auto()
    RELU = enum.auto()
    GELU = enum.auto()
    GELU_TANH = enum.auto()
    SILU = enum.auto()


class EpilogueKind(Named):
    IDENTITY = enum.auto()
    RELU = enum.auto()
    GELU = enum.auto()
    GELU_TANH = enum.auto()
    SILU = enum.auto()
    BIAS = enum.auto()
    BIAS_RELU = enum.auto()
    BIAS_GELU = enum.auto()
    BIAS_GELU_TANH = enum.auto()
    BIAS_SILU = enum.auto()
