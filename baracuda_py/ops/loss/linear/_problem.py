"""What linear cross entropy and its gradient have in common: operands, chunks of rows, and the problems of their parts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ....tensor.axes import alignment_of
from ....types import ElementKind, InvalidProblemError, OperandTypeError
from ...gemm.matmul import MatmulDescriptor
from .._problem import LogitsProblem
from ..cross_entropy import CrossEntropyBackwardDescriptor, CrossEntropyDescriptor

__all__ = ["FIELDS", "LinearProblem"]

FIELDS = ("hidden_shape", "weight_shape", "element", "labels_element", "reduction", "ignore_index", "label_smoothing",
          "z_loss")  # fmt: skip
CHUNK_BYTES = 256 << 20  # of logits, where a fifth of the outputs is less
CHUNK_OF_OUTPUTS = 5
ROWS, TILE_ROWS = 16, 128  # chunks but the last have a multiple of so many rows; those of several tiles, whole tiles


class LinearProblem(LogitsProblem):
    """The fields of both descriptors: hidden [N, H] and weight [V, H], whose logits hidden @ weight.T have `shape`."""

    hidden_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return (*self.hidden_shape[:-1], *self.weight_shape[:1])

    @property
    def gradients(self) -> tuple[str, ...]:
        """The gradients that are outputs."""
        return tuple(name for name in ("grad_hidden", "grad_weight") if self.has(name))

    @property
    def given(self) -> bool:
        """Whether the gradient of the result is an operand; else it is 1."""
        return "grad" in self.slot_of

    def check(self) -> None:
        h, w = self.hidden_shape, self.weight_shape
        if len(h) != 2 or len(w) != 2 or h[1] != w[1] or not w[0]:
            raise InvalidProblemError(
                f"{self.op}: hidden must have shape [N, H] and weight [V, H] of one class or more, got {h} and {w}",
                "reshape hidden to (-1, H), and pass the weight of a linear layer, V rows of H",
            )
        super().check()
        for name, kind in (("grad_hidden", self.element), ("grad_weight", self.computed)):
            if self.has(name) and (got := self.layout(name).element) is not kind:
                raise OperandTypeError(f"{self.op}: {name} must hold {kind}, got {got}", f"pass an array of {kind}")

    # ---- chunks ---------------------------------------------------------------------------------------------------

    @property
    def pitch(self) -> int:
        """Elements from a row of a chunk's logits to the next: rows start on multiples of 16 bytes."""
        word = 128 // self.element.bits
        return -(-self.shape[1] // word) * word

    def logits_bytes(self, rows: int) -> int:
        return self.element.nbytes(rows * self.pitch)

    def chunk_rows(self) -> Iterator[int]:
        """Rows of a chunk: as many as its scratch may hold, half as many, and a quarter."""
        outputs = sum(
            x.element.nbytes(math.prod(x.shape)) for x in (self.layout(o.name) for o in self.operands if o.written)
        )
        most = max(outputs // CHUNK_OF_OUTPUTS, CHUNK_BYTES) // self.logits_bytes(1)
        step = TILE_ROWS if min(most, self.count) >= 4 * TILE_ROWS else ROWS
        most = self.count if self.count <= most else max(most // step * step, 1)
        yield most
        for part in (2, 4):
            if (rows := -(-most // (part * step)) * step) < most:
                yield rows

    def pieces(self, rows: int) -> Iterator[tuple[int, int]]:
        """The first row of every chunk, and how many it has."""
        return ((start, min(rows, self.count - start)) for start in range(0, self.count, max(rows, 1)))

    def row_bytes(self, name: str) -> int:
        """Bytes from a row of an operand to the next."""
        x = self.layout(name)
        return x.strides[0] * x.natural if x.shape else 0

    # ---- parts ----------------------------------------------------------------------------------------------------

    def product(self, name: str, rows: int, chunk: int, *, first: bool) -> MatmulDescriptor:
        """The product of `rows` rows for `logits` or a gradient; that of the weight adds to what the `first` has written."""
        columns, pitch, weight = self.shape[1], self.pitch, self.layout("weight")
        rows_of = {"element": self.element, "align": 16}
        logits = {**rows_of, "shape": (rows, columns), "strides": (pitch, 1)}
        hidden = self._rows_of("hidden", rows, chunk)
        matrix = {"shape": weight.shape, "strides": weight.strides, "element": weight.element, "align": weight.align}
        if name == "logits":
            return _product(hidden, _transposed(matrix), logits)
        if name == "grad_hidden":
            return _product(logits, matrix, self._rows_of(name, rows, chunk))
        out = self.layout(name)
        total = {"shape": out.shape, "strides": out.strides, "element": out.element, "align": out.align}
        return _product(_transposed(logits), hidden, total, adds=not first)

    def _rows_of(self, name: str, rows: int, chunk: int) -> dict[str, Any]:
        """The layout of any chunk's rows of an operand."""
        x = self.layout(name)
        align = x.align if self.count <= chunk else min(x.align, alignment_of(abs(chunk * self.row_bytes(name))))
        return {"shape": (rows, *x.shape[1:]), "strides": x.strides, "element": x.element, "align": align}

    def losses(self, rows: int, *, lse: bool = False, chunk: bool = True) -> CrossEntropyDescriptor:
        """The loss of each row of a chunk, or of all with their reduction."""
        fields = self._of_rows(rows, "none" if chunk else self.reduction, status=chunk)
        fields |= {"lse_element": self.computed if lse else None}
        if chunk and "out" in self.slot_of and self.reduction == "none":
            fields["out_strides"] = self._strides("out")
        return CrossEntropyDescriptor(**fields)

    def slopes(self, rows: int) -> CrossEntropyBackwardDescriptor:
        """The gradients of the logits of a chunk, which overwrite these."""
        each = self.given and self.reduction == "none"
        reduction = "none" if each else "mean" if self.reduction == "mean" else "sum"
        fields = self._of_rows(rows, reduction, status=self.given)
        fields |= {"grad_logits_strides": (self.pitch, 1), "grad_strides": self._strides("grad") if each else None}
        return CrossEntropyBackwardDescriptor(**fields)

    def _of_rows(self, rows: int, reduction: str, *, status: bool) -> dict[str, Any]:
        """The fields that both problems of cross entropy have."""
        return {
            "shape": (rows, self.shape[1]), "element": self.element, "labels_element": self.labels_element,
            "reduction": reduction, "logits_strides": (self.pitch, 1), "labels_strides": self._strides("labels"),
            "lse_strides": self._strides("lse"),
            "status_element": ElementKind.I32 if status and self.has("status") else None,
        }  # fmt: skip

    def _strides(self, name: str) -> tuple[int, ...] | None:
        return self.layout(name).strides if name in self.slot_of and self.has(name) else None


def _transposed(x: dict[str, Any]) -> dict[str, Any]:
    return {**x, "shape": x["shape"][::-1], "strides": x["strides"][::-1]}


def _product(a: dict[str, Any], b: dict[str, Any], out: dict[str, Any], *, adds: bool = False) -> MatmulDescriptor:
    """The problem of a @ b, which is added to `out` if it `adds`."""
    named = {"a": a, "b": b, "out": out} | ({"c": out} if adds else {})
    fields = {f"{name}_{what}": x for name, one in named.items() for what, x in one.items()}
    del fields["out_shape"]
    return MatmulDescriptor(**fields)
