"""Bags of ids of a table's rows, by offsets or of equal width, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ....plan.descriptor import Slot
from ....plan.fields import flag
from ....tensor import Tensor
from ....types import ElementKind, InvalidProblemError, OperandTypeError
from ..._reported import ReportedProblem
from ..._rows import FLOATS
from .._problem import INDICES, refuse_offsets

__all__ = ["FIELDS", "OPERANDS", "REDUCTIONS", "BagProblem", "BagReduction"]

FIELDS = (
    "input_shape", "weight_shape", "element", "input_element", "reduce", "include_last_offset", "padding_idx", "mode",
)  # fmt: skip
OPERANDS = (
    Slot("input", takes=INDICES, strided=False),
    Slot("weight", takes=FLOATS, element="element"),
    Slot("offsets", optional=True, takes=INDICES, shape="offsets_shape", strided=False),
    Slot("per_sample_weights", optional=True, takes=FLOATS, shape="input_shape", strided=False),
)


class BagReduction(NamedTuple):
    """A reduction: its struct in kernels/include/segment/reductions.cuh, and whether it depends on how many entries there are."""

    cuda: str
    counted: bool


REDUCTIONS = {
    "sum": BagReduction("Sum", False),
    "mean": BagReduction("Mean", True),
    "max": BagReduction("MaxOrZero", True),
}


class BagProblem(ReportedProblem):
    """Ids `input` of rows of weight, [N, D]: [B, L], a bag per row, or [n] with the offsets of bags."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    element: ElementKind
    input_element: ElementKind = ElementKind.I64
    reduce: str = "mean"
    include_last_offset: bool = False
    padding_idx: int | None = None

    needed: ClassVar[tuple[str, ...]] = ("offsets_shape",)  # of ids of rank 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("include_last_offset",), flag)
        self._member(tuple(REDUCTIONS), "reduce")

    @property
    def reduction(self) -> BagReduction:
        return REDUCTIONS[self.reduce]

    @property
    def weighted(self) -> bool:
        return self.has("per_sample_weights")

    @property
    def offsets_shape_or_none(self) -> tuple[int, ...] | None:
        return self.layout("offsets").shape if self.has("offsets") else None

    @property
    def count(self) -> int:
        """Entries of all bags."""
        return math.prod(self.input_shape)

    @property
    def bags(self) -> int:
        given = self.offsets_shape_or_none
        if given is None:
            return self.input_shape[0] if self.input_shape else 0
        return max(math.prod(given) - self.include_last_offset, 0)

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return self.weight_shape[0] if self.weight_shape else 0

    @property
    def length(self) -> int:
        return math.prod(self.weight_shape[1:])

    @property
    def ignored(self) -> int:
        """The row that no bag reduces, or -1."""
        return -1 if self.padding_idx is None else self.padding_idx % self.rows

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.bags, *self.weight_shape[1:])

    def default_element(self, name: str) -> ElementKind:
        return ElementKind.I64 if name == "offsets" else self.element

    def check(self) -> None:
        op, given = self.op, self.offsets_shape_or_none
        if len(self.weight_shape) != 2:
            raise InvalidProblemError(
                f"{op}: weight must have shape [N, D], got {self.weight_shape}", "pass a matrix of one row per id"
            )
        if len(self.input_shape) != (2 if given is None else 1):
            raise InvalidProblemError(
                f"{op}: input has shape {self.input_shape} and offsets {'is missing' if given is None else given}",
                "pass an input of shape [B, L] alone, or one of shape [n] with the first entry of each bag as offsets",
            )
        if given is not None and (len(given) != 1 or given[0] < self.include_last_offset):
            wanted = "[B + 1]" if self.include_last_offset else "[B]"
            raise InvalidProblemError(
                f"{op}: offsets must have shape {wanted}, got {given}", "pass the first entry of each bag"
            )
        if given is None and self.include_last_offset:
            raise InvalidProblemError(
                f"{op}: include_last_offset is true, and there are no offsets", "pass offsets, or leave it out"
            )
        if self.weighted and self.reduce != "sum":
            raise InvalidProblemError(
                f"{op}: per_sample_weights with reduce={self.reduce!r}", 'give reduce="sum", or leave them out'
            )
        kind = self.layout("per_sample_weights").element if self.weighted else self.element
        if kind is not self.element:
            raise OperandTypeError(f"{op}: per_sample_weights holds {kind} and weight {self.element}", "cast it")
        if self.padding_idx is not None and not -self.rows <= self.padding_idx < self.rows:
            raise InvalidProblemError(
                f"{op}: padding_idx={self.padding_idx}, and weight has {self.rows} rows",
                f"give one of {-self.rows} to {self.rows - 1}" if self.rows else "leave padding_idx out",
            )

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if self.mode != "raise":
            return
        ids = tensors["input"].array()
        wrong = (ids < 0) | (ids >= self.rows)
        if wrong.any():
            at = tuple(map(int, np.argwhere(wrong)[0]))
            raise InvalidProblemError(
                f"{self.op}: input[{', '.join(map(str, at))}] = {int(ids[at])} is out of range: weight has {self.rows} rows",
                f'give 0 to {self.rows - 1}, or mode="drop" or "status"',
            )
        if "offsets" in tensors:
            refuse_offsets(self.op, tensors["offsets"].array(), self.count, f"input has {self.count} entries")

    def neutral(self) -> dict[str, Any]:
        return super().neutral() | ({} if self.padding_idx is None else {"padding_idx": self.ignored})
