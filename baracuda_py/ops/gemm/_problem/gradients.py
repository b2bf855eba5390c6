"""Which views of grad, a and b are multiplied for the gradients of ``a @ b``: dA = G·Bᵀ and dB = Aᵀ·G. Arithmetic on layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....plan.descriptor import Layout
from ....tensor.axes import merge_axes
from ....types import ElementKind, UnsupportedError
from ...products.gemm import as_matrices

__all__ = ["Product", "View", "products"]


@dataclass(frozen=True)
class View:
    """An operand as a batch of matrices, [..., rows, columns], strides in elements. `taken` is how one comes to that view of an
    array: by shapes to give it, and None where the last two axes change places."""

    name: str
    layout: Layout
    taken: tuple[tuple[int, ...] | None, ...]

    def of(self, x: Any) -> Any:
        """That view of an array."""
        for shape in self.taken:
            x = x.swapaxes(-1, -2) if shape is None else x.reshape(shape)
        return x

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def batch(self) -> tuple[int, ...]:
        return self.shape[:-2]

    @property
    def mT(self) -> View:
        (*lead, rows, columns), (*steps, row, column) = self.shape, self.layout.strides
        is_transposed = self.layout._replace(shape=(*lead, columns, rows), strides=(*steps, column, row))
        return View(self.name, is_transposed, (*self.taken, None))

    def tall(self) -> View | None:
        """The batch as one tall matrix; None where rows are not evenly spaced from matrix to matrix."""
        *lead, columns = self.shape
        extents, (steps,) = merge_axes(lead, [self.layout.strides[:-1]])
        if 0 not in lead and len(extents) > 1:
            return None
        shape = math.prod(lead), columns
        strides = steps[0] if extents else columns, self.layout.strides[-1]
        return View(self.name, self.layout._replace(shape=shape, strides=strides), (*self.taken, shape))


@dataclass(frozen=True)
class Product:
    """The gradient of one operand: ``first @ second``, with its elements in the operand's order."""

    first: View
    second: View


def products(op: str, layouts: Mapping[str, Layout]) -> dict[str, Product]:
    """The product for each gradient by name, from the layouts of grad, a and b. UnsupportedError for a sum over a batch that no
    view of the operands can turn into a longer K."""
    named = {"out" if name == "grad" else name: layout for name, layout in layouts.items()}
    lying = as_matrices(named)
    g, a, b = (_view(name, lying["out" if name == "grad" else name]) for name in ("grad", "a", "b"))
    return {"grad_a": _product(op, a, g, b.mT), "grad_b": _product(op, b, a.mT, g)}


def _view(name: str, layout: Layout) -> View:
    return View(name, layout, (layout.shape,))


def _product(op: str, mine: View, first: View, second: View) -> Product:
    """``first @ second``, summed over the batch that `mine` lacks."""
    whole = np.broadcast_shapes(first.batch, second.batch, mine.batch)

    def padded(batch: tuple[int, ...]) -> tuple[int, ...]:
        return (1,) * (len(whole) - len(batch)) + batch

    own = padded(mine.batch)
    if own == whole:
        return Product(first, second)
    fix = _by_hand(mine, tuple(axis for axis, (n, all_of_it) in enumerate(zip(own, whole)) if n != all_of_it))
    left, right = first.mT, second
    if math.prod(own) != 1 or padded(left.batch) != whole or padded(right.batch) != whole:
        raise UnsupportedError(f"{op}: {mine.name} of batch {mine.batch} is broadcast to {whole}", fix)
    talls = left.tall(), right.tall()
    if talls[0] is None or talls[1] is None:
        scattered = " and ".join(x.name for x, tall in zip((left, right), talls) if tall is None)
        raise UnsupportedError(
            f"{op}: the batch {whole} shares {mine.name}, and in {scattered} the rows of its matrices do not follow on",
            f"contiguize {scattered} where that makes them, or {fix}",
        )
    return Product(talls[0].mT, talls[1])


def _by_hand(mine: View, axes: tuple[int, ...]) -> str:
    """A workaround in words: the same sum by a larger intermediate."""
    product = "matmul(grad, b.swapaxes(-1, -2)" if mine.name == "a" else "matmul(a.swapaxes(-1, -2), grad"
    kind = "f64" if mine.layout.element is ElementKind.F64 else "f32"
    return f"sum {product}, out_dtype={kind!r}) over the axes {axes}"
