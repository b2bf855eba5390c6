"""What cross entropy and its gradient have in common: operands of rows, what is refused, and launches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from ...plan.descriptor import Descriptor
from ...runtime.steps import Arg, Fill, Kernel, Launch, Ptr, Run, Step
from ...tensor import Tensor
from ...types import ElementKind, InvalidProblemError, OperandTypeError
from .._rows import RowConfig, Rows, computed_in, rows_of
from .._unaligned import unaligned_launch

__all__ = ["FIELDS", "LABELS", "STATUSES", "LogitsProblem"]

FILE = "loss/cross_entropy.cu"
LABELS = (ElementKind.I32, ElementKind.I64)
FIELDS = ("shape", "element", "labels_element", "reduction", "ignore_index", "label_smoothing", "z_loss")
REDUCTIONS = ("mean", "sum", "none")
PER_ROW = ("out", "grad", "lse", "labels")  # the kernels' operands of one value a row
TOTAL_THREADS = 512
STATUSES = {1: ("a label is neither a class nor ignore_index, the loss of its row NaN", "give 0 to C - 1")}


class LogitsProblem(Descriptor):
    """The fields of both descriptors: logits of `shape`, [N, C] or [C]."""

    shape: tuple[int, ...]
    element: ElementKind
    labels_element: ElementKind = ElementKind.I64
    reduction: str = "mean"
    ignore_index: int = -100
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    values: ClassVar[tuple[str, ...]] = ("ignore_index", "label_smoothing", "z_loss")
    kernel_operands: ClassVar[
        Mapping[str, str]
    ]  # in the kernel's order, and what they are here; absent ones have no name

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(REDUCTIONS, "reduction")

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[:-1]

    @property
    def classes_shape(self) -> tuple[int, ...]:
        return self.shape[-1:]

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.row_shape if self.reduction == "none" else ()

    @property
    def scalar_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def computed(self) -> ElementKind:
        return computed_in(self.element).element

    @property
    def count(self) -> int:
        return math.prod(self.row_shape)

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
        given = "x" if "x" in self.slot_of else "logits"
        if len(self.shape) not in (1, 2) or not self.shape[-1]:
            raise InvalidProblemError(
                f"{self.op}: {given} must have shape [N, C] or [C] of one class or more, got {self.shape}",
                f"reshape {given} to (-1, C), and labels to (-1,)",
            )
        if max(self.shape) >= 2**31:
            raise InvalidProblemError(
                f"{self.op}: {given} of {self.shape} have 2**31 rows or classes", "give fewer at a time"
            )
        for name, takes in (("weight", {self.element, self.computed}), ("lse", {self.computed})):
            if name in self.slot_of and self.has(name) and (kind := self.layout(name).element) not in takes:
                said = " or ".join(sorted(map(str, takes)))
                raise OperandTypeError(f"{self.op}: {name} must hold {said}, got {kind}", f"cast it to {self.computed}")

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        if not 0 <= values["label_smoothing"] <= 1:
            raise InvalidProblemError(f"{op}: label_smoothing={values['label_smoothing']}", "give a number from 0 to 1")
        if not math.isfinite(values["z_loss"]):
            raise InvalidProblemError(f"{op}: z_loss={values['z_loss']}", "give a finite number, such as 1e-4")

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if "status" in tensors:
            return
        labels, classes = np.atleast_1d(tensors["labels"].array()), self.shape[-1]
        wrong = np.flatnonzero(((labels < 0) | (labels >= classes)) & (labels != self.ignore_index))
        if wrong.size:
            raise InvalidProblemError(
                f"{self.op}: labels[{wrong[0]}] = {labels[wrong[0]]} is neither a class, 0 to {classes - 1}, nor "
                f"ignore_index={self.ignore_index}",
                "give a class, or pass status=, an int32 scalar that is then 1",
            )

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any], flags: Mapping[str, bool], **options: Any) -> Self:
        """The descriptor of arrays, with the further outputs that flags ask for."""
        tensors = cls.taken(str(cls.name), arrays)  # type: ignore[attr-defined]
        element = next(tensors[name].element for name in ("hidden", "logits", "x") if name in tensors)
        computed = computed_in(element).element
        kinds = {"lse": computed, "status": ElementKind.I32, "grad_hidden": element, "grad_weight": computed}
        asked = {f"{name}_element": kinds[name] for name, on in flags.items() if on and name not in tensors}
        return cls.of_tensors(tensors, **options, **asked)

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
        status = Ptr("status") if self.has("status") else np.uint64(0)
        clear = (Fill(Ptr("status"), 0, 4),) if self.has("status") else ()
        values = *runs, scratch, status
        if unaligned:
            return (*clear, unaligned_launch(self.rows(), FILE, f"{name}_unaligned", types, config, "", *values))
        return (*clear, self.rows().launch(FILE, name, types, config, "", *values))

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
