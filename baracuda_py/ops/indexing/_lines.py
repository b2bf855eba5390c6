"""What indices name along one axis of an array: whole lines, by an index along any axis or by the id of a row; or elements."""

from __future__ import annotations

from typing import ClassVar

from ...types import ElementKind, InvalidProblemError
from ._indexed import IndexedProblem

__all__ = [
    "ByIndices",
    "ElementsByIndex",
    "GradientElementsByIndex",
    "GradientsByIndex",
    "IndexedLines",
    "LinesByIndex",
    "RowsById",
]


class IndexedLines(IndexedProblem):
    """A problem in which each index names a line of `lines`."""

    @property
    def picked_shape(self) -> tuple[int, ...]:
        """The shape of the lines that the indices name: that of the indices in place of the axis."""
        return (*self.lines_shape[: self.along], *self.places_shape, *self.lines_shape[self.along + 1 :])

    def over_places(self, name: str) -> tuple[int, ...]:
        """The strides of an operand of `picked_shape` over the axes of the indices."""
        return self.layout(name).strides[self.along : self.along + len(self.places_shape)]

    def over_others(self, name: str, *, picked: bool) -> tuple[int, ...]:
        """The strides of an operand, of `picked_shape` or of `lines_shape`, over all other axes."""
        strides, width = self.layout(name).strides, len(self.places_shape) if picked else 1
        return (*strides[: self.along], *strides[self.along + width :])


class ByIndex(IndexedLines):
    """Lines along any axis, by `index`."""

    index_shape: tuple[int, ...]
    element: ElementKind
    index_element: ElementKind = ElementKind.I64
    axis: int = 0


class LinesByIndex(ByIndex):
    """Lines of `x`."""

    FIELDS: ClassVar[tuple[str, ...]] = ("x_shape", "index_shape", "element", "index_element", "axis", "mode")
    x_shape: tuple[int, ...]


class GradientsByIndex(ByIndex):
    """Lines of `grad`, the gradient of a result that was indexed."""

    FIELDS: ClassVar[tuple[str, ...]] = ("grad_shape", "index_shape", "element", "index_element", "axis", "mode")
    grad_shape: tuple[int, ...]
    lines = "grad"


class RowsById(IndexedLines):
    """Rows of `weight` by `ids`; `padding_idx` is the id of a row that has no gradient."""

    FIELDS: ClassVar[tuple[str, ...]] = (
        "weight_shape", "ids_shape", "element", "ids_element", "padding_idx", "mode",
    )  # fmt: skip
    weight_shape: tuple[int, ...]
    ids_shape: tuple[int, ...]
    element: ElementKind
    ids_element: ElementKind = ElementKind.I64
    padding_idx: int | None = None

    lines, index = "weight", "ids"
    axis: ClassVar[int] = 0

    def check(self) -> None:
        if len(self.weight_shape) != 2:
            raise InvalidProblemError(
                f"{self.op}: weight must have shape [N, D], got {self.weight_shape}", "pass a matrix of one row per id"
            )
        super().check()
        if self.padding_idx is not None and not -self.extent <= self.padding_idx < self.extent:
            raise InvalidProblemError(
                f"{self.op}: padding_idx={self.padding_idx}, and weight has {self.extent} rows",
                f"give one of {-self.extent} to {self.extent - 1}" if self.extent else "leave padding_idx out",
            )


class ByIndices(IndexedProblem):
    """Elements by `indices` of as many axes."""

    indices_shape: tuple[int, ...]
    element: ElementKind
    indices_element: ElementKind = ElementKind.I64
    axis: int = -1

    index = "indices"

    @property
    def picked_shape(self) -> tuple[int, ...]:
        if len(self.lines_shape) != len(self.indices_shape):
            raise InvalidProblemError(
                f"{self.op}: indices has shape {self.indices_shape} and {self.lines} {self.lines_shape}",
                f"pass indices of rank {len(self.lines_shape)}",
            )
        return self.indices_shape

    def refuse_longer_indices(self) -> None:
        """Raises InvalidProblemError where an axis of the indices, other than `axis`, is longer than that of the elements."""
        indices, own = self.picked_shape, self.lines_shape
        if any(m > n for a, (m, n) in enumerate(zip(indices, own)) if a != self.along):
            raise InvalidProblemError(
                f"{self.op}: indices of shape {indices} exceed {self.lines} of shape {own} beside axis {self.along}",
                f"give every other axis {self.lines}'s extent at most",
            )


class ElementsByIndex(ByIndices):
    """Elements of `x`, of `x_shape`."""

    FIELDS: ClassVar[tuple[str, ...]] = ("x_shape", "indices_shape", "element", "indices_element", "axis", "mode")
    x_shape: tuple[int, ...]


class GradientElementsByIndex(ByIndices):
    """Elements of `grad`, the gradient of a result into which elements were sent."""

    FIELDS: ClassVar[tuple[str, ...]] = ("grad_shape", "indices_shape", "element", "indices_element", "axis", "mode")
    grad_shape: tuple[int, ...]
    lines = "grad"
