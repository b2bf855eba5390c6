"""What ctc_loss and its gradient have in common: operands, what is refused, and launches."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np

from ....plan.descriptor import Slot
from ....plan.fields import flag
from ....runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Scratch
from ....tensor import Tensor
from ....types import ElementKind, InvalidProblemError
from ....types.keeping import complete
from ..._rows import FLOATS, computed_in
from .._loss import LABELS, RowsLoss

__all__ = ["FIELDS", "FILE", "MOST_CTAS", "OPERANDS", "THREADS", "CtcProblem"]

FILE, THREADS, MOST_CTAS = "loss/ctc.cu", 256, 1024
HELD = 2048  # states of a row in shared memory
FIELDS = (
    "shape", "element", "targets_shape", "targets_element", "lengths_element", "reduction", "blank", "zero_infinity",
)  # fmt: skip
OPERANDS = (
    Slot("log_probs", takes=FLOATS),
    Slot("targets", takes=LABELS),
    Slot("input_lengths", takes=LABELS, shape="row_shape", element="lengths_element"),
    Slot("target_lengths", takes=LABELS, shape="row_shape", element="lengths_element"),
)


class CtcProblem(RowsLoss):
    """The fields of both descriptors: log_probs of `shape`, [T, N, C], and targets of `targets_shape`, [N, S]."""

    targets_shape: tuple[int, ...]
    targets_element: ElementKind = ElementKind.I64
    lengths_element: ElementKind = ElementKind.I64
    blank: int = 0
    zero_infinity: bool = False

    roundings = 4.0
    source = "the errors of log-sum-exp, carried from step to step (loss/ctc/oracle.py)"

    def __post_init__(self) -> None:
        super().__post_init__()
        complete(self, zero_infinity=flag(self.zero_infinity, f"{self.op}: zero_infinity"))

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[1:2]

    @property
    def states(self) -> int:
        """Labels at most, and the blanks around them."""
        return 2 * self.targets_shape[-1] + 1

    @property
    def ctas(self) -> int:
        return max(1, min(MOST_CTAS, self.count))

    # ---- what is refused ------------------------------------------------------------------------------------------

    def check(self) -> None:
        if len(self.shape) != 3 or not self.shape[-1]:
            raise InvalidProblemError(
                f"{self.op}: log_probs must have shape [T, N, C] of one class or more, got {self.shape}",
                "pass log_probs[:, None] for one sequence",
            )
        if len(self.targets_shape) != 2 or self.targets_shape[0] != self.shape[1]:
            raise InvalidProblemError(
                f"{self.op}: targets must have shape [N, S], N = {self.shape[1]} as in log_probs, got {self.targets_shape}",
                "pad the labels of each sequence to one length",
            )
        steps, count, classes = self.shape
        if max(steps * count, classes, self.states) >= 2**31:
            raise InvalidProblemError(
                f"{self.op}: log_probs of {self.shape} and targets of {self.targets_shape} have 2**31 steps, classes or states",
                "give fewer at a time",
            )
        if not 0 <= self.blank < classes:
            raise InvalidProblemError(f"{self.op}: blank={self.blank} is no class", f"give 0 to {classes - 1}")

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if self.reports:
            return
        limits = {"input_lengths": self.shape[0], "target_lengths": self.targets_shape[-1]}
        for name, most in limits.items():
            lengths = tensors[name].array()
            wrong = np.flatnonzero((lengths < 0) | (lengths > most))
            if wrong.size:
                raise InvalidProblemError(
                    f"{self.op}: {name}[{wrong[0]}] = {lengths[wrong[0]]} is no length, 0 to {most}",
                    "give a length, or pass status=, an int32 scalar that is then 1",
                )
        targets, classes = tensors["targets"].array(), self.shape[-1]
        held = np.arange(targets.shape[-1]) < tensors["target_lengths"].array()[:, None]
        places = np.argwhere(held & ((targets < 0) | (targets >= classes)))
        if places.size:
            n, j = places[0].tolist()
            raise InvalidProblemError(
                f"{self.op}: targets[{n}, {j}] = {targets[n, j]} is no class, 0 to {classes - 1}",
                "give a class, or pass status=, an int32 scalar that is then 1",
            )

    # ---- launches -------------------------------------------------------------------------------------------------

    def launch(self, name: str, ctas: int, *args: Arg) -> Launch:
        """A launch, `args` what it takes after the batch."""
        strides = [self.layout(slot.name).strides for slot in OPERANDS]
        sizes = (self.shape[1], self.shape[0], self.shape[2], self.targets_shape[-1])
        batch = struct.pack("<4I8q", *sizes, self.blank, *(step for each in strides for step in each))
        computed = computed_in(self.element)
        kinds = f"{self.element.number}, {computed.cuda}, {self.targets_element.number}, {self.lengths_element.number}"
        operands = (Ptr(slot.name) for slot in OPERANDS)
        return Launch(
            Kernel(FILE, f"{name}<{kinds}>"), (ctas, 1, 1), (THREADS, 1, 1), (Packed(batch), *operands, *args)
        )

    @property
    def rows(self) -> Arg:
        """Two rows of states for each CTA, where shared memory does not hold them."""
        if self.states <= HELD:
            return np.uint64(0)
        return Scratch.named("rows", self.computed.nbytes(2 * self.states * self.ctas))
