"""Angles by which pairs of columns turn: frequencies or tables, and how columns are paired. What every op that rotates has."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...plan.descriptor import Descriptor, Layout, Slot
from ...runtime.steps import Packed
from ...tensor import Tensor
from ...types import ElementKind, InvalidProblemError, OperandTypeError, Term
from ...types.keeping import complete
from .._rows import FLOATS, computed_in

__all__ = [
    "ANGLES",
    "OF_ANGLE",
    "OF_ENTRY",
    "STYLES",
    "Angled",
    "check_factor",
    "dense",
    "refuse_positions",
    "terms_of",
]

STYLES = ("half", "interleaved")
LARGEST = (2 - 2.0**-23) * 2.0**127  # number of f32
OF_ANGLE, OF_ENTRY = 30, 6  # machine instructions (sm_90a) of an angle, and of an entry of a table
ANGLES = (
    Slot("inv_freq", optional=True, takes=(ElementKind.F32,), strided=False),
    Slot("cos", optional=True, takes=FLOATS),
    Slot("sin", optional=True, takes=FLOATS),
)


class Angled(Descriptor):
    """A problem whose table of operands has `ANGLES`, and that has a `style`."""

    element: ElementKind
    style: str
    if TYPE_CHECKING:  # fields that the table puts in
        inv_freq_shape: tuple[int, ...] | None
        cos_shape: tuple[int, ...] | None
        sin_shape: tuple[int, ...] | None
        cos_element: ElementKind | None
        sin_element: ElementKind | None

    def _complete_angles(self, usual: Mapping[str, ElementKind]) -> None:
        """At construction: the style's name is a known one, and every optional operand that is there holds something."""
        for name, kind in {**usual, **dict.fromkeys(("inv_freq", "cos", "sin"), ElementKind.F32)}.items():
            if getattr(self, f"{name}_shape") is not None and getattr(self, f"{name}_element") is None:
                complete(self, **{f"{name}_element": kind})
        self._member(STYLES, "style")

    @property
    def half(self) -> int:
        """Pairs, which are half of the columns that turn; 0 where none do."""
        known = self.inv_freq_shape or self.cos_shape or (0,)
        return known[-1]

    @property
    def tables(self) -> bool:
        """Whether cosines and sines come from tables."""
        return self.cos_shape is not None

    def packed_angles(self, batch: int, token: int) -> Packed:
        """position::Places of kernels/include/position/angles.cuh; `batch` and `token` are the strides of the positions."""
        rows, row, column = 0, 0, 1
        if self.cos_shape is not None:
            rows, (row, column) = self.cos_shape[0], self.layout("cos").strides
        return Packed(struct.pack("<5q", batch, token, rows, row, column))

    @property
    def table_types(self) -> str:
        """The kernels' template arguments: what a table holds, whether there is one, whether pairs are neighbours."""
        table = self.cos_element.number if self.cos_element is not None else "float"
        return f"{table}, {str(self.tables).lower()}, {str(self.style == 'interleaved').lower()}"

    def check_angles(self, name: str, width: int) -> None:
        """There are frequencies or a pair of tables, of no more pairs than the heads of `name` have, of `width` columns."""
        op, cos, sin = self.op, self.cos_shape, self.sin_shape
        if (cos is None) == (self.inv_freq_shape is None) or (cos is None) != (sin is None):
            given = [n for n in ("inv_freq", "cos", "sin") if getattr(self, f"{n}_shape") is not None]
            raise InvalidProblemError(
                f"{op}: angles are given by {' and '.join(given) or 'nothing'}", "give inv_freq, or both cos and sin"
            )
        if self.inv_freq_shape is not None and len(self.inv_freq_shape) != 1:
            raise InvalidProblemError(f"{op}: inv_freq has shape {self.inv_freq_shape}", "give [rotary_dim / 2]")
        if cos is not None:
            self._check_tables()
        if not 0 < 2 * self.half <= width:
            raise InvalidProblemError(
                f"{op}: {self.half} pairs, and a head of {name} has {width} columns",
                f"give 1 to {width // 2} pairs, a frequency or a table's column each"
                + (" (a half of a table whose columns are there twice)" if self.half == width else ""),
            )

    def _check_tables(self) -> None:
        """Both alike."""
        op, cos, sin = self.op, self.cos_shape, self.sin_shape
        if cos is None or len(cos) != 2 or cos != sin:
            raise InvalidProblemError(
                f"{op}: cos has shape {cos} and sin {sin}", "give both as [positions, rotary_dim / 2]"
            )
        strides = [self.layout(name).strides for name in ("cos", "sin")]
        if any(a != b for n, a, b in zip(cos, *strides) if n > 1):
            raise InvalidProblemError(
                f"{op}: cos has strides {strides[0]} and sin {strides[1]}, and kernels read both by the same ones",
                "give both in the same layout: contiguize one of them",
            )
        if self.cos_element is not self.sin_element or self.cos_element not in (ElementKind.F32, self.element):
            raise OperandTypeError(
                f"{op}: cos holds {self.cos_element} and sin {self.sin_element}",
                f"cast both to f32, or to {self.element}",
            )


def terms_of(desc: Angled, size: str) -> tuple[Term, ...]:
    """a cos - b sin, of magnitude `size` (a measure). Where cosine and sine are computed they err by 4 u of themselves (2 of
    the reduced angle, 2 of the series), and by 2**-62 of 1, which is the oracle's part and more than the reduction's; when
    multiplied by the factor, by 2 u; two roundings come with the sum; then comes the result's own."""
    terms = (
        Term(4.1 if desc.tables else 8.1, computed_in(desc.element).element, "abs_products"),
        Term(1.0, desc.element, size),
        Term(4.0, desc.element, "smallest_normal"),
    )
    return terms if desc.tables else (*terms, Term(2.0**-9, ElementKind.F64, "abs_pair"))


def dense(layout: Layout, vector: int) -> bool:
    """Whether rows are made of such vectors."""
    *outer, column = layout.strides
    steps = [s for n, s in zip(layout.shape, outer) if n > 1]
    return column == 1 and layout.align >= vector * layout.natural and all(s % vector == 0 for s in steps)


def refuse_positions(desc: Any, tensors: Mapping[str, Tensor], offset: int = 0) -> None:
    """Raises where a position plus the offset (both in host memory) is no row of the tables and no `status` was passed. `desc`
    is a problem with positions of shape `desc.tokens`."""
    if desc.cos_shape is None or "status" in tensors:
        return
    own = tensors["positions"].array() if "positions" in tensors else np.arange(desc.tokens[-1])
    rows, at = desc.cos_shape[0], own.astype(np.int64) + np.int64(offset)  # wraps, as on a GPU
    wrong = np.argwhere((at < 0) | (at >= rows))
    if not len(wrong):
        return
    place = tuple(map(int, wrong[0]))
    found = f"token {place[-1]} is at position {int(at[place])}, which is"
    if "positions" in tensors:
        plus = f" plus offset {offset} is" if offset else " is"
        found = f"positions[{', '.join(map(str, place))}] = {int(own[place])}{plus}"
    raise InvalidProblemError(
        f"{desc.op}: {found} out of range: the tables cos and sin have {rows} rows",
        (f"give positions of 0 to {rows - 1}, or " if rows else "give ")
        + f"tables with more rows, or pass status=, an int32 array of shape {own.shape} that is then 1 for such a token",
    )


def check_factor(op: str, values: Mapping[str, float]) -> None:
    """A run-time value."""
    factor = values.get("attention_factor", 1.0)
    if not math.isfinite(factor):
        raise InvalidProblemError(f"{op}: attention_factor={factor}", "give a finite number")
    if abs(factor) > LARGEST:
        raise InvalidProblemError(f"{op}: attention_factor={factor}", "give a number that f32 holds")
