"""What shares a scale: a tensor, a row, a column, or a group of neighbours along the last axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....plan.descriptor import Descriptor
from ....types import ElementKind, InvalidProblemError, OperandTypeError
from ..._rows import Rows, rows_of

__all__ = ["BYTES", "FLOATS", "INTEGERS", "Scheme"]

FLOATS = (ElementKind.F32, ElementKind.F16, ElementKind.BF16)
INTEGERS = (ElementKind.I8, ElementKind.U8)
BYTES = {"int8": INTEGERS, "fp8": (ElementKind.FP8_E4M3,)}  # what ops of that name make codes of
PER = ("tensor", "row", "column", "group")
OPERANDS = ("codes", "scales", "zeros", "x")  # as kernels take them


class Scheme(Descriptor):
    """Codes of `shape` and their scales. `per` says what has a scale of its own: the tensor, scales []; a row along the last
    axis, [...]; a column, all that has the same last index, [K]; `group_size` neighbours of a row, [..., K / group_size]."""

    shape: tuple[int, ...]
    per: str
    group_size: int | None
    codes_element: ElementKind
    name: str
    floats: str  # the operand of floats

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(PER, "per")

    @property
    def scales_shape(self) -> tuple[int, ...]:
        if self.per == "tensor":
            return ()
        if self.per == "column":
            return self.shape[-1:]
        return (
            self.shape[:-1] if self.per == "row" else (*self.shape[:-1], -(-self.shape[-1] // (self.group_size or 1)))
        )

    def check(self) -> None:
        known = BYTES[self.name.rpartition("_")[2]]
        if self.codes_element not in known:
            named, other = (
                " or ".join(map(str, known)),
                [name for name, kinds in BYTES.items() if self.codes_element in kinds],
            )
            fix = f"call {self.name.rpartition('_')[0]}_{other[0]}" if other else f"pass {named}"
            if other and self.floats == "out":
                fix += f", or view the bytes as {named} where that is what they are"
            raise OperandTypeError(f"{self.op}: codes must hold {named}, got {self.codes_element}", fix)
        if not self.shape:
            raise InvalidProblemError(f"{self.op}: a number has no rows", "pass an array of rank 1 or more")
        if (self.group_size is not None) != (self.per == "group"):
            fix = "give group_size, such as 128" if self.per == "group" else 'leave it out, or per="group"'
            raise InvalidProblemError(f"{self.op}: per={self.per!r} and group_size={self.group_size}", fix)
        if self.group_size is not None and (self.group_size < 1 or self.shape[-1] % self.group_size):
            whole = -(-self.shape[-1] // max(1, self.group_size)) * max(1, self.group_size)
            raise InvalidProblemError(
                f"{self.op}: group_size={self.group_size} does not divide rows of {self.shape[-1]}",
                f"pad rows to {whole}" if self.group_size > 0 else "give 1 or more",
            )

    def rows(self) -> Rows:
        """A row is what has one scale, where rows or groups do; else the last axis."""
        shape, grouped = self.shape, self.per == "group"
        if grouped:
            size = self.group_size or 1
            shape = (*shape[:-1], shape[-1] // size, size)

        def split(strides: Sequence[int]) -> tuple[int, ...]:
            return (*strides[:-1], strides[-1] * shape[-1], strides[-1]) if grouped else tuple(strides)

        def spread(strides: Sequence[int]) -> tuple[int, ...]:
            if self.per in ("row", "group"):
                return (*strides, 0)
            return (0,) * (len(shape) - len(strides)) + (0,) * len(strides)

        steps: dict[str, tuple[int, ...] | None] = {}
        for name in OPERANDS:
            own = self.floats if name == "x" else name
            strides = self.layout(own).strides if self.has(own) else None
            steps[own] = strides and (spread(strides) if name in ("scales", "zeros") else split(strides))
            if strides == ():
                steps[own] = (0,) * len(shape)
        return rows_of(self, shape, (len(shape) - 1,), steps, ("scales", "zeros"), ordered=True)

    @property
    def moved(self) -> int:
        """Bytes of codes and floats."""
        return math.prod(self.shape) * (1 + self.layout(self.floats).element.bits // 8)

    def named(self, **given: Any) -> dict[str, Any]:
        """The operands that there are."""
        return {name: x for name, x in given.items() if x is not None}
