"""What all losses have in common: what their values are of, how these are reduced, labels, and a launch that adds up."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, TypeVar

import numpy as np

from ...numerics.expression import Expression
from ...numerics.guarantee import widely
from ...plan.descriptor import Descriptor, Slot
from ...plan.plan import Plan
from ...runtime.steps import Arg, Fill, Kernel, Launch, Ptr, Scratch, Step
from ...tensor import Tensor
from ...types import Componentwise, ElementKind, InvalidProblemError, OperandTypeError, PrecisionGuarantee, Term
from .._rows import computed_in
from ..elementwise.backward.formula import expression_of

__all__ = [
    "LABELS",
    "STATUS",
    "TOTAL",
    "WIDE",
    "Loss",
    "RowsLoss",
    "RowsLossPlan",
    "expression",
    "guarantee_of",
    "on_request",
]

LABELS = (ElementKind.I32, ElementKind.I64)
WIDE = (ElementKind.F32, ElementKind.F64)  # of results
TOTAL = "loss/total.cu:pointwise_total"
STATUS = Slot(
    "status", "out", optional=True, takes=(ElementKind.I32,), shape="scalar_shape", strided=False, aligned=False
)

L = TypeVar("L", bound="Loss")
expression: Callable[[str], Expression] = cache(expression_of)


class Loss(Descriptor):
    """Operands of `shape`, a value of each of `valued_shape`, and the reduction of these."""

    shape: tuple[int, ...]
    element: ElementKind
    reduction: str = "mean"
    reductions: ClassVar[tuple[str, ...]] = ("mean", "sum", "none")
    gradient: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(self.reductions, "reduction")

    @property
    def valued_shape(self) -> tuple[int, ...]:
        """The shape of the values that are reduced."""
        return self.shape

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.valued_shape if self.reduction == "none" else ()

    @property
    def scalar_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def computed(self) -> ElementKind:
        return computed_in(self.element).element

    @property
    def result(self) -> ElementKind:
        """The kind of what is computed of each value."""
        return self.element if self.gradient else self.computed

    @property
    def count(self) -> int:
        return math.prod(self.valued_shape)

    @property
    def divisor(self) -> int:
        """What the sum is divided by."""
        return self.count if self.reduction == "mean" else 1

    @property
    def reduced(self) -> bool:
        """Whether the result is one number of all values."""
        return not self.gradient and self.reduction != "none"

    @property
    def reports(self) -> bool:
        """Whether there is a status."""
        return "status" in self.slot_of and self.has("status")

    def in_kind(self, name: str, *takes: ElementKind, like: str = "") -> None:
        """Raises OperandTypeError where an operand of the problem holds another kind, which `like` holds."""
        if name in self.slot_of and self.has(name) and (kind := self.layout(name).element) not in takes:
            said = " or ".join(sorted({str(one) for one in takes})) + (f", as {like} does" if like else "")
            raise OperandTypeError(f"{self.op}: {name} must hold {said}, got {kind}", f"cast it to {takes[-1]}")

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        if not all(map(math.isfinite, values.values())):
            said = ", ".join(f"{name}={x}" for name, x in values.items())
            raise InvalidProblemError(f"{op}: {said}", "give finite numbers")

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values

    def total(self, kernel: str, values: Arg, count: int, threads: int, prelude: str = "") -> Launch:
        """The launch of one CTA that adds up so many values."""
        computed = computed_in(self.element)
        args = (np.uint32(count), np.dtype(computed.numpy).type(self.divisor), values, Ptr("out"))
        file, name = kernel.split(":")
        return Launch(Kernel(file, f"{name}<{computed.cuda}>", prelude), (1, 1, 1), (threads, 1, 1), args)


class RowsLoss(Loss):
    """Operands of `shape`, [N, C] or [C], a value of each row, and maybe `labels` of rows, which are columns."""

    labels_operand: ClassVar[str] = "labels"
    roundings: ClassVar[float] = 3.0  # of a row's loss in a sum, beside the additions
    source: ClassVar[str] = "Higham, Accuracy and Stability of Numerical Algorithms, sections 3 and 4.2"

    @property
    def results(self) -> tuple[str, ...]:
        """The outputs that are computed, which the status is not."""
        return (self.slots[0].name,)

    def guarantee(self, depth: int) -> PrecisionGuarantee:
        """That of a sum over rows of such a depth."""
        return guarantee_of(self, self.results, depth + self.roundings, self.source)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[:-1]

    @property
    def valued_shape(self) -> tuple[int, ...]:
        return self.row_shape

    @property
    def classes_shape(self) -> tuple[int, ...]:
        return self.shape[-1:]

    @property
    def status_arg(self) -> Arg:
        return Ptr("status") if self.reports else np.uint64(0)

    @property
    def status_cleared(self) -> tuple[Fill, ...]:
        """The step ahead of a launch that sets the status."""
        return (Fill(Ptr("status"), 0, 4),) if self.reports else ()

    @property
    def scale(self) -> Any:
        """What a gradient is multiplied by, in what is computed in."""
        return np.dtype(computed_in(self.element).numpy).type(1 / (self.divisor or math.inf))

    def row_step(self, name: str) -> np.int64:
        """Elements from the value of a row to the next."""
        return np.int64((*self.layout(name).strides, 0)[0])

    def valued(self, launch: Callable[[Arg, Arg, Arg], Launch], ctas: int, most_ctas: int) -> tuple[Step, ...]:
        """The steps of ``launch(out, step, partial)``, which writes the value of each row, `step` elements from one to the next,
        or each CTA's part of their sum; one CTA then adds up."""
        nothing = np.uint64(0)
        if not self.reduced:
            return *self.status_cleared, launch(Ptr("out"), self.row_step("out"), nothing)
        partial = Scratch.named("partial", self.computed.nbytes(ctas))
        total = self.total(TOTAL, partial, ctas, most_ctas)
        return *self.status_cleared, launch(nothing, np.int64(0), partial), total

    def check_rows(self, given: str) -> None:
        """Raises InvalidProblemError where `given` is no matrix of rows that the kernels can count."""
        if len(self.shape) not in (1, 2) or not self.shape[-1]:
            raise InvalidProblemError(
                f"{self.op}: {given} must have shape [N, C] or [C] of one column or more, got {self.shape}",
                f"reshape {given} to (-1, C), and what has one value per row to (-1,)",
            )
        if max(self.shape) >= 2**31:
            raise InvalidProblemError(
                f"{self.op}: {given} of {self.shape} has 2**31 rows or columns", "give fewer at a time"
            )

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if "status" not in self.slot_of or self.reports:
            return
        labels, classes = np.atleast_1d(tensors[self.labels_operand].array()), self.shape[-1]
        ignored = getattr(self, "ignore_index", None)
        wrong = np.flatnonzero(((labels < 0) | (labels >= classes)) & (ignored is None or labels != ignored))
        if wrong.size:
            known = f"no class, 0 to {classes - 1}"
            if ignored is not None:
                known = f"neither a class, 0 to {classes - 1}, nor ignore_index={ignored}"
            raise InvalidProblemError(
                f"{self.op}: {self.labels_operand}[{wrong[0]}] = {labels[wrong[0]]} is {known}",
                "give a class, or pass status=, an int32 scalar that is then 1",
            )


class RowsLossPlan(Plan[Any]):
    """What plans of losses of rows have in common, and of their gradients."""

    @staticmethod
    def reference_guarantee(desc: RowsLoss) -> PrecisionGuarantee:
        return widely(desc.guarantee(1), desc, max(desc.count, 1) if desc.reduced else 1)


def guarantee_of(desc: Any, outputs: tuple[str, ...], depth: float, source: str) -> PrecisionGuarantee:
    """The rounding of each part, carried through sums and expressions; of a sum of values also its `depth` times their sizes."""
    computed = computed_in(desc.element)
    terms = [Term(1.0, computed.element, "propagated")]
    if desc.reduced:
        terms.append(Term(depth, computed.element, "losses"))
    bound = Componentwise.rounded(terms, desc.result, source, "overflowing")
    each = PrecisionGuarantee.fixed_order(computed.math, computed.element, bound, batch_invariant=not desc.reduced)
    parts = dict.fromkeys(outputs, each)
    if desc.reports:
        parts["status"] = PrecisionGuarantee.exact(ElementKind.I32)
    return PrecisionGuarantee.by_output(**parts) if len(parts) > 1 else each


def on_request(**flags: tuple[str, ...]) -> Callable[[type[L]], type[L]]:
    """Makes `of` of a descriptor take flags that ask for further outputs, whose ``<name>_element`` says that they are there."""

    def made(cls: type[L]) -> type[L]:
        plain: Any = cls.of
        signature = inspect.signature(plain.__func__)
        more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False) for name in flags]

        def of(cls: Any, *arrays: Any, **given: Any) -> Any:
            wanted = [name for flag, names in flags.items() if given.pop(flag, False) for name in names]
            bound = signature.bind(cls, *arrays, **given).arguments
            options = {name: x for name, x in bound.items() if name != "cls" and name not in cls.slot_of}
            tensors = cls.taken(bound.get("name", cls.name), {name: bound.get(name) for name in cls.slot_of})
            element = next(tensors[s.name].element for s in cls.slots if s.role == "in" and s.element == "element")
            computed = computed_in(element).element
            kinds = {"lse": computed, "status": ElementKind.I32, "grad_hidden": element, "grad_weight": computed}
            kinds["grad_target"] = element
            asked = {f"{name}_element": kinds[name] for name in wanted if name not in tensors}
            return cls.of_tensors(tensors, **options, **asked)

        of.__doc__ = "The descriptor of arrays with their layouts."
        of.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *more])  # type: ignore[attr-defined]
        cls.of = classmethod(of)  # type: ignore[assignment]
        return cls

    return made
