"""The base of packed weights: their arrays, the checks of these, and their memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, ClassVar, cast

import numpy as np

from ..tensor import Tensor, intake
from ..tensor.axes import as_ints, c_strides, index_of
from ..types import ElementKind, InvalidProblemError, OperandTypeError
from ..types.errors import shown
from ..types.keeping import complete

__all__ = ["PackedWeight", "on_host", "refuse_packed"]


class PackedWeight:
    """The base of frozen dataclasses with a field for each of `arrays`, None if the weight lacks it.

    Its repr names kinds and shapes, because copying values from the device would synchronise.
    """

    arrays: ClassVar[tuple[str, ...]]
    needed: ClassVar[tuple[str, ...]]  # the arrays that every weight has
    multiplied_by: ClassVar[str]  # the function that takes it, which errors of other functions name

    shape: tuple[int, ...]

    @property
    def operands(self) -> Mapping[str, Any]:
        """The arrays that the weight has, by name."""
        return {name: x for name in self.arrays if (x := getattr(self, name)) is not None}

    @property
    def bits_per_weight(self) -> float:
        """Bits of memory per weight, including its share of scales, magnitudes and zero points."""
        held = [self._taken(name) for name in self.operands]
        return sum(math.prod(x.shape) * x.element.bits for x in held) / math.prod(self.shape)

    def __repr__(self) -> str:
        present = (f.name for f in fields(cast(Any, self)) if getattr(self, f.name) is not None)
        return f"{type(self).__name__}({', '.join(f'{name}={self._field_text(name)}' for name in present)})"

    def _field_text(self, name: str) -> str:
        if name in self.arrays:
            held = self._taken(name)
            return f"{held.element}{list(held.shape)}"
        value = getattr(self, name)
        return shown(str(value) if isinstance(value, Enum) else value)

    def _settle(self, said: str, size: str = "") -> None:
        """Converts `shape` to a tuple of ints and the field `size` to an int, or raises with a fix; checks that the needed
        arrays are given."""
        try:
            complete(self, shape=as_ints(self.shape))
            if size:
                complete(self, **{size: index_of(getattr(self, size))})
        except Exception:  # a foreign object's __index__ or __len__ may raise anything
            given = " and ".join(f"{name}={shown(getattr(self, name))}" for name in ("shape", size) if name)
            raise InvalidProblemError(f"{type(self).__name__}: {given}", said) from None
        for name in self.needed:
            if getattr(self, name) is None:
                raise InvalidProblemError(f"{type(self).__name__}: {name} is missing", f"pass {name}=...")

    def _taken(self, name: str) -> Tensor:
        return intake(getattr(self, name), what=f"{type(self).__name__}: {name}")

    def _check_shape(self, name: str, shape: tuple[int, ...], whole: str, said: str) -> None:
        """Raises InvalidProblemError if an array does not have the shape that a weight like `whole` has."""
        if (held := self._taken(name).shape) != shape:
            raise InvalidProblemError(f"{type(self).__name__}: {name} has shape {held}, and {whole} {shape}", said)

    def _check_order(self, name: str) -> None:
        """Raises InvalidProblemError if an array is not in C order."""
        held = self._taken(name)
        wanted = c_strides(held.shape)
        if any(n > 1 and s != w for n, s, w in zip(held.shape, held.strides, wanted)):
            said = f"{type(self).__name__}: {name} is not in C order: strides {held.strides} (elements), not {wanted}"
            raise InvalidProblemError(said, f"contiguize {name}")

    def _check_element(self, name: str, kinds: tuple[ElementKind, ...]) -> None:
        """Raises OperandTypeError if an array holds none of `kinds`."""
        if (held := self._taken(name).element) not in kinds:
            named = " or ".join(map(str, kinds))
            raise OperandTypeError(f"{type(self).__name__}: {name} must hold {named}, got {held}", f"pass {named}")


def refuse_packed(op: str, given: Any, own: str) -> None:
    """Raises OperandTypeError for a weight that is packed for products other than `own`."""
    if isinstance(given, PackedWeight) and given.multiplied_by != own:
        raise OperandTypeError(f"{op}: the weight is a {type(given).__name__}", f"{given.multiplied_by} multiplies it")


def on_host(x: Any) -> bool:
    """Whether it is a NumPy or PyTorch array in host memory, which can be read without synchronising."""
    return isinstance(x, np.ndarray) or getattr(getattr(x, "device", None), "type", None) == "cpu"
