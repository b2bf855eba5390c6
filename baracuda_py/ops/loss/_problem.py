"""What losses of logits and labels have in common: operands of rows, what is refused, and launches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ...runtime.steps import Arg, Kernel, Launch, Ptr, Run, Step
from ...types import ElementKind, InvalidProblemError
from .._rows import RowConfig, Rows, computed_in, rows_of
from .._unaligned import unaligned_launch
from ._loss import RowsLoss

__all__ = ["FIELDS", "STATUSES", "TOTAL_THREADS", "LogitsProblem"]

FILE = "loss/cross_entropy.cu"
FIELDS = ("shape", "element", "labels_element", "reduction", "ignore_index", "label_smoothing", "z_loss")
PER_ROW = ("out", "grad", "lse", "labels")  # the kernels' operands of one value a row
TOTAL_THREADS = 512
STATUSES = {1: ("a label is neither a class nor ignore_index, the loss of its row NaN", "give 0 to C - 1")}


class LogitsProblem(RowsLoss):
    """The fields of all descriptors: logits of `shape`, [N, C] or [C]."""

    labels_element: ElementKind = ElementKind.I64
    ignore_index: int = -100
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    values: ClassVar[tuple[str, ...]] = ("ignore_index", "label_smoothing", "z_loss")
    kernel_operands: ClassVar[
        Mapping[str, str]
    ]  # in the kernel's order, and what they are here; absent ones have no name

    @property
    def weight_kind(self) -> ElementKind:
        return self.layout("weight").element if self.has("weight") else self.computed

    def rows(self) -> Rows:
        strides: dict[str, tuple[int, ...] | None] = {}
        for kernel, own in self.kernel_operands.items():
            known = self.layout(own).strides if own and self.has(own) else None
            if known is not None and own == "out" and self.reduction != "none":
                known = None  # is written by the second launch
            elif known is not None and kernel in PER_ROW:
                known = (*(known or (0,) * len(self.row_shape)), 0)
            elif known is not None and kernel == "weight":
                known = (*(0,) * len(self.row_shape), *known)
            strides[own or kernel] = known
        per_row = [self.kernel_operands[name] or name for name in PER_ROW]
        return rows_of(self, self.shape, (len(self.shape) - 1,), strides, per_row, ordered=True)

    def check(self) -> None:
        self.check_rows("x" if "x" in self.slot_of else "logits")
        self.in_kind("weight", self.element, self.computed)
        self.in_kind("lse", self.computed)

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        if not 0 <= values["label_smoothing"] <= 1:
            raise InvalidProblemError(f"{op}: label_smoothing={values['label_smoothing']}", "give a number from 0 to 1")
        if not math.isfinite(values["z_loss"]):
            raise InvalidProblemError(f"{op}: z_loss={values['z_loss']}", "give a finite number, such as 1e-4")

    # ---- launches -------------------------------------------------------------------------------------------------

    def types(self, *, total: bool = False) -> str:
        """Template arguments of the kernels: of the operands, and of what is computed in."""
        kinds = f"{self.weight_kind.number}, {computed_in(self.element).cuda}, {self.labels_element.number}"
        return kinds if total else f"{self.element.number}, {kinds}, {self.element.digits}"

    def rows_launch(
        self, name: str, types: str, config: RowConfig, scratch: Arg, *, unaligned: bool
    ) -> tuple[Step, ...]:
        """The launch over rows, and ahead of it the status that it sets."""
        number = computed_in(self.element).numpy
        runs = Run("ignore_index", "int64"), Run("label_smoothing", number), Run("z_loss", number)
        values = *runs, scratch, self.status_arg
        if unaligned:
            return (
                *self.status_cleared,
                unaligned_launch(self.rows(), FILE, f"{name}_unaligned", types, config, "", *values),
            )
        return (*self.status_cleared, self.rows().launch(FILE, name, types, config, "", *values))

    def total_launch(self, losses: Arg, out: Arg) -> Launch:
        """The launch of one CTA that adds up losses and weights."""
        mean = str(self.reduction == "mean").lower()
        weight = (Ptr("weight"), self.layout("weight").strides[0]) if self.has("weight") else (np.uint64(0), 0)
        step = (*self.layout("labels").strides, 0)[0]
        args = (
            np.uint32(self.count), np.uint32(self.shape[-1]), Run("ignore_index", "int64"), losses, Ptr("labels"),
            np.int64(step), weight[0], np.int64(weight[1]), out,
        )  # fmt: skip
        kernel = Kernel(FILE, f"cross_entropy_total<{self.types(total=True)}, {mean}>")
        return Launch(kernel, (1, 1, 1), (TOTAL_THREADS, 1, 1), args)
