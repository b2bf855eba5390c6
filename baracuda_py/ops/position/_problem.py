"""What `rope` and its gradient have in common: operands, and layouts of heads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from ...tensor import Tensor
from ...types import ElementKind, InvalidProblemError, OperandTypeError
from .angles import Angled, check_factor, refuse_positions

__all__ = ["LAYOUTS", "Roped"]

# Where batch, tokens and heads are, by layout and rank; an axis that is missing is None.
AXES: Mapping[tuple[str, int], tuple[int | None, int, int | None]] = {
    ("BHSD", 4): (0, 2, 1), ("BHSD", 3): (None, 1, 0), ("BHSD", 2): (None, 0, None),
    ("BSHD", 4): (0, 1, 2), ("BSHD", 3): (None, 0, 1),
    ("THD", 3): (None, 0, 1),
}  # fmt: skip
LAYOUTS = ("BHSD", "BSHD", "THD")
WHOLE = 2.0**53  # offsets below are whole numbers that a float holds


@dataclass(frozen=True)
class Roped(Angled):
    """`names` has what is rotated by what comes of it: the first is always there, the second has a head count of its own."""

    shape: tuple[int, ...]
    element: ElementKind
    style: str = "half"
    head_layout: str = "BHSD"
    offset: float = 0.0
    attention_factor: float = 1.0
    if TYPE_CHECKING:  # a field that the table puts in
        positions_shape: tuple[int, ...] | None = None

    values: ClassVar[tuple[str, ...]] = ("offset", "attention_factor")
    inverse: ClassVar[bool] = False
    needed: ClassVar[tuple[str, ...]] = ("inv_freq_shape",)  # an example says how many pairs there are
    names: ClassVar[Mapping[str, str]] = {}  # output: what is rotated

    def __post_init__(self) -> None:
        """The names of style and layout are known ones, and every operand that is there holds something."""
        super().__post_init__()
        usual = dict.fromkeys([*self.names.values()][1:], self.element)
        self._complete_angles({"positions": ElementKind.I64, **usual})
        self._member(LAYOUTS, "head_layout", upper=True)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any], **options: Any) -> Self:
        """The descriptor of operands by name, None for those that are not there."""
        op = str(getattr(cls, "name", ""))
        for out, read in cls.names.items():
            if arrays[out] is not None and arrays[read] is None:
                raise InvalidProblemError(
                    f"{op}: {out} was given and no {read}", f"pass {read}=..., or leave {out} out"
                )
        return cls.of_tensors(cls.taken(op, arrays), **options)

    # ---- operands ---------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        if name == "status":
            return self.cos_shape is not None
        if name in self.names:
            return super().has(self.names[name])
        return super().has(name)

    @property
    def rotated_into(self) -> dict[str, str]:
        """Each output of this problem that is rotated, and what it is made of."""
        return {out: name for out, name in self.names.items() if self.has(name)}

    @property
    def rotated_inputs(self) -> tuple[str, ...]:
        return tuple(self.rotated_into.values())

    def in_place(self, written: str, read: str) -> bool:
        """Each output may be what it is made of: a thread writes the columns that it alone has read."""
        return self.names.get(written) == read

    # ---- what they mean ---------------------------------------------------------------------------------------------

    @property
    def axes(self) -> tuple[int | None, int, int | None]:
        """Where batch, tokens and heads are."""
        return AXES[self.head_layout, len(self.shape)]

    def sizes(self, shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Extents of batch, tokens and heads, 1 for an axis that is missing."""
        batch, token, head = (1 if axis is None else shape[axis] for axis in self.axes)
        return batch, token, head

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.sizes(self.shape)

    @property
    def width(self) -> int:
        """Columns of a head."""
        return self.shape[-1]

    @property
    def batched(self) -> bool:
        """Whether each batch has positions of its own."""
        return self.positions_shape is not None and len(self.positions_shape) == 2

    @property
    def tokens(self) -> tuple[int, ...]:
        """The positions' shape."""
        return self.positions_shape or (self.extents[1],)

    def view(self, x: Any) -> Any:
        """A view of an array of x's layout as [batch, tokens, heads, width]."""
        batch, token, head = self.axes
        order = [axis for axis in (batch, token, head) if axis is not None]
        made = np.transpose(x, (*order, x.ndim - 1))
        for place, axis in enumerate((batch, token, head)):
            made = np.expand_dims(made, place) if axis is None else made
        return made

    # ---- validity ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        op, x = self.op, next(iter(self.names.values()))
        if (self.head_layout, len(self.shape)) not in AXES:
            ranks = " or ".join(str(rank) for name, rank in AXES if name == self.head_layout)
            raise InvalidProblemError(
                f"{op}: {x} has shape {self.shape} in layout {self.head_layout}",
                f"pass {ranks} axes, or another layout",
            )
        for name in self.rotated_inputs[1:]:
            self._alongside(x, name)
        self.check_angles(x, self.width)
        batch, tokens, _ = self.extents
        if self.positions_shape not in (None, (tokens,), *([(batch, tokens)] if self.axes[0] is not None else [])):
            wanted = f"({tokens},)" + (f" or ({batch}, {tokens})" if self.axes[0] is not None else "")
            raise InvalidProblemError(
                f"{op}: positions has shape {self.positions_shape}", f"pass one a token: shape {wanted}"
            )
        self.check_values(op, {"offset": self.offset, "attention_factor": self.attention_factor}, {})

    def _alongside(self, x: str, name: str) -> None:
        """The second operand is like the first but for its heads."""
        shape, kind = getattr(self, f"{name}_shape"), getattr(self, f"{name}_element")
        head = self.axes[2]
        alike = len(shape) == len(self.shape) and all(
            a == b for axis, (a, b) in enumerate(zip(shape, self.shape)) if axis != head
        )
        if not alike:
            raise InvalidProblemError(
                f"{self.op}: {name} has shape {shape} and {x} {self.shape}", "only their head counts may differ"
            )
        if kind is not self.element:
            raise OperandTypeError(
                f"{self.op}: {name} must hold {self.element}, got {kind}", f"cast it to {self.element}"
            )

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        offset = values["offset"]
        if not (offset == math.floor(offset) and abs(offset) < WHOLE if math.isfinite(offset) else False):
            raise InvalidProblemError(f"{op}: offset={offset}", "give a whole number below 2**53")
        check_factor(op, values)

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        refuse_positions(self, tensors, int(self.offset))

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values
