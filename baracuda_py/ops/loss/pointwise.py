"""Losses of elements and their targets, and their gradients. A row of the table is two ops."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

from ...numerics.expression import Expression
from ...numerics.guarantee import widely
from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...runtime.steps import Arg, Kernel, Launch, Packed, Ptr, Run, Scratch, Step
from ...tensor.axes import collapse
from ...types import Componentwise, DeviceSpec, ElementKind, InvalidProblemError, PrecisionGuarantee, Term
from .._function import function_of
from .._launch import grid_of, index_scalar, index_type, pack_dims
from .._rows import FLOATS, computed_in
from ..elementwise.backward.formula import expression_of
from . import elements, elements_samples

__all__ = [
    "PointwiseBackwardDescriptor",
    "PointwiseBackwardPlan",
    "PointwiseDescriptor",
    "PointwisePlan",
    "bce",
    "bce_backward",
    "bce_with_logits",
    "bce_with_logits_backward",
    "huber_loss",
    "huber_loss_backward",
    "kl_div",
    "kl_div_backward",
    "l1_loss",
    "l1_loss_backward",
    "mse_loss",
    "mse_loss_backward",
    "smooth_l1_loss",
    "smooth_l1_loss_backward",
    "soft_margin_loss",
    "soft_margin_loss_backward",
]

FILE = "loss/pointwise.cu"
THREADS, MOST_CTAS, PER_THREAD = 256, 1024, 8
D = "(x - target)"


@dataclass(frozen=True)
class Row:
    """A loss and its derivative by x, in the notation of `numerics.expression`; with log_target, those of `logs`."""

    name: str
    torch: str
    loss: str
    slope: str
    param: str = ""
    takes: str = "any target"
    logs: tuple[str, str] = ("", "")
    reductions: tuple[str, ...] = ("mean", "sum", "none")
    unread: tuple[str, ...] = ()  # the operands that the derivative does not depend on


FIELDS = ("shape", "element", "name", "reduction", "log_target", "beta", "delta")
TABLE = {row.name: row for row in (
    Row("mse_loss", "mse_loss", f"{D} * {D}", f"2 * {D}"),
    Row("l1_loss", "l1_loss", f"abs{D}", f"sign{D}"),
    Row("smooth_l1_loss", "smooth_l1_loss", f"where(abs{D} < beta, 0.5 * {D} * {D} / beta, abs{D} - 0.5 * beta)",
        f"where(abs{D} < beta, {D} / beta, sign{D})", "beta"),
    Row("huber_loss", "huber_loss", f"where(abs{D} <= delta, 0.5 * {D} * {D}, delta * (abs{D} - 0.5 * delta))",
        f"where(abs{D} <= delta, {D}, delta * sign{D})", "delta"),
    Row("bce", "binary_cross_entropy", "-(target * maximum(log(x), -100) + (1 - target) * maximum(log1p(-x), -100))",
        "(x - target) / maximum(x * (1 - x), 1e-12)", takes="x and target from 0 to 1; NaN where x is beyond"),
    Row("bce_with_logits", "binary_cross_entropy_with_logits", "(maximum(x, 0) - x * target) + log1p(exp(-abs(x)))",
        "sigmoid(x) - target", takes="target from 0 to 1"),
    Row("kl_div", "kl_div", "where(target == 0, 0, target * log(target)) - target * x", "-target",
        takes="x of log-probabilities, target of probabilities, or of their logarithms with log_target=True",
        logs=("exp(target) * (target - x)", "-exp(target)"), reductions=("mean", "sum", "none", "batchmean"), unread=("x",)),
    Row("soft_margin_loss", "soft_margin_loss", "maximum(-(x * target), 0) + log1p(exp(-abs(x * target)))",
        "-(target * sigmoid(-(x * target)))", takes="target -1 or 1"),
)}  # fmt: skip
REDUCTIONS = ("mean", "sum", "none", "batchmean")


class Pointwise(Descriptor):
    """The fields of both descriptors: x and target of `shape`, and what becomes of their losses."""

    shape: tuple[int, ...]
    element: ElementKind
    name: str = "mse_loss"
    reduction: str = "mean"
    log_target: bool = False
    beta: float = 1.0
    delta: float = 1.0
    values: ClassVar[tuple[str, ...]] = ("beta", "delta")
    gradient: ClassVar[bool]

    def __post_init__(self) -> None:
        self._names_op(tuple(name + "_backward" * self.gradient for name in TABLE), "name")
        super().__post_init__()
        self._member(REDUCTIONS, "reduction")

    @property
    def row(self) -> Row:
        return TABLE[self.name.removesuffix("_backward")]

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.shape if self.reduction == "none" else ()

    @property
    def computed(self) -> ElementKind:
        return computed_in(self.element).element

    @property
    def result(self) -> ElementKind:
        """The kind of what is computed of an element."""
        return self.element if self.gradient else self.computed

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def divisor(self) -> int:
        """What the sum is divided by."""
        return {"mean": self.count, "batchmean": self.shape[0] if self.shape else 1}.get(self.reduction, 1)

    @property
    def text(self) -> str:
        """What is computed of each element, `grad` that of the result and `scale` one by the divisor."""
        loss, slope = self.row.logs if self.log_target else (self.row.loss, self.row.slope)
        return f"grad * scale * ({slope})" if self.gradient else loss

    @property
    def expression(self) -> Expression:
        return _expression(self.text)

    def check(self) -> None:
        if self.reduction not in self.row.reductions or (self.log_target and not self.row.logs[0]):
            said = f"reduction={self.reduction}" if self.reduction not in self.row.reductions else "log_target=True"
            raise InvalidProblemError(f"{self.op}: {said} is for kl_div alone", f"give one of {self.row.reductions}")

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        if not (values.get("beta", 1.0) >= 0 and 0 < values.get("delta", 1.0) < math.inf):
            said = ", ".join(f"{name}={x}" for name, x in values.items())
            raise InvalidProblemError(f"{op}: {said}", "give a beta of 0 or more, and a finite delta above 0")

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values

    def launch(self, kernel: str, out: Arg, grid: tuple[int, int, int], *, written: str = "") -> Launch:
        """A launch of a kernel that takes elements; `written` is the operand that has one for each, if any."""
        order = (written, "grad" if self.gradient else "", "x", "target")
        layouts = [self.layout(name) if name else None for name in order]
        flat = (0,) * len(self.shape)
        steps = [[s * x.natural for s in x.strides] if x and x.shape == self.shape else flat for x in layouts]
        extents, strides = collapse(self.shape, steps)
        index, computed = index_type(self.count), computed_in(self.element)
        kind = f"{self.layout(written).element.number}, " if written else ""
        types = f"{kind}{self.element.number}, {computed.cuda}, {self.result.digits}, {len(extents)}, {index}"
        args = (
            index_scalar(self.count, index), Run("beta", computed.numpy), Run("delta", computed.numpy),
            np.dtype(computed.numpy).type(1 / self.divisor if self.divisor else math.inf),
            Packed(pack_dims(extents, strides, index).data, 8), out, Ptr("grad") if self.gradient else np.uint64(0),
            Ptr("x"), Ptr("target"),
        )  # fmt: skip
        names = "C grad, C x, C target, C beta, C delta, C scale"
        body = f"static __device__ __forceinline__ C apply({names}) {{ {self.expression.cuda()} }}"
        includes = "".join(f'#include "{header}"\n' for header in self.expression.headers)
        prelude = f"{includes}struct Loss {{  // {self.text}\n  template <int digits, class C> {body}\n}};\n"
        return Launch(Kernel(FILE, f"{kernel}<{types}>", prelude), grid, (THREADS, 1, 1), args)


_expression: Callable[[str], Expression] = cache(expression_of)


@described(
    Slot("out", "out", takes=(ElementKind.F32, ElementKind.F64), shape="out_shape", element="computed"),
    Slot("x", takes=FLOATS),
    Slot("target", takes=FLOATS, element="element"),
    fields=FIELDS,
)
class PointwiseDescriptor(Pointwise):
    """x and target of `shape`, and the reduction of their losses."""

    gradient = False


@described(
    Slot("grad_x", "out", takes=FLOATS),
    Slot("grad", takes=(ElementKind.F32, ElementKind.F64), shape="out_shape", element="computed"),
    Slot("x", takes=FLOATS),
    Slot("target", takes=FLOATS, element="element"),
    fields=FIELDS,
)
class PointwiseBackwardDescriptor(Pointwise):
    """The gradient of the result, and the operands of the forward call."""

    name: str = "mse_loss_backward"
    gradient = True

    def in_place(self, written: str, read: str) -> bool:
        """A thread writes the element that it alone has read."""
        return written == "grad_x" and read in ("x", "target")


class Elements(Candidate[Pointwise]):
    """An element a thread; sums by CTAs, and one CTA that adds those up."""

    variant = "elements"
    launches = ("loss/pointwise.cu:pointwise", "loss/pointwise.cu:pointwise_sum", "loss/total.cu:pointwise_total")

    def ctas(self, desc: Pointwise) -> int:
        """CTAs of a sum, which the number of elements alone decides."""
        return max(1, min(MOST_CTAS, -(-desc.count // (THREADS * PER_THREAD))))

    def cost(self, desc: Pointwise, device: DeviceSpec, config: Any) -> Cost:
        spent = (desc.expression.instructions()[0] + 12.0) * desc.count
        cost = Cost.streaming(device, desc.nbytes, flops=int(spent), instructions=spent, efficiency=0.7)
        return replace(cost, seconds=cost.seconds + device.overhead * (not desc.gradient and desc.reduction != "none"))

    def guarantee(self, desc: Pointwise, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return guarantee(desc, -(-desc.count // (self.ctas(desc) * THREADS)) + 50)

    def lower(self, desc: Pointwise, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        if desc.gradient or desc.reduction == "none":
            written = "grad_x" if desc.gradient else "out"
            return (desc.launch("pointwise", Ptr(written), grid_of(desc.count, THREADS), written=written),)
        ctas, computed = self.ctas(desc), computed_in(desc.element)
        partial = Scratch.named("partial", desc.computed.nbytes(ctas))
        args = (np.uint32(ctas), np.dtype(computed.numpy).type(desc.divisor), partial, Ptr("out"))
        total = Launch(Kernel("loss/total.cu", f"pointwise_total<{computed.cuda}>"), (1, 1, 1), (MOST_CTAS, 1, 1), args)
        return desc.launch("pointwise_sum", partial, (ctas, 1, 1)), total


def guarantee(desc: Pointwise, depth: int) -> PrecisionGuarantee:
    """The rounding of each part, carried through the expression; of a sum, also its depth times its terms."""
    computed = computed_in(desc.element)
    terms = [Term(1.0, computed.element, "propagated")]
    if not desc.gradient and desc.reduction != "none":
        terms.append(Term(depth + 2.0, computed.element, "losses"))
    bound = Componentwise.rounded(terms, desc.result, "Higham, sections 3 and 4.2", "overflowing")
    alone = desc.gradient or desc.reduction == "none"
    return PrecisionGuarantee.fixed_order(computed.math, computed.element, bound, batch_invariant=alone)


def _reference_guarantee(desc: Pointwise) -> PrecisionGuarantee:
    return widely(guarantee(desc, 1), desc, 1 if desc.gradient or desc.reduction == "none" else desc.count)


PROBES = (
    {"shape": (3, 1030), "element": "f32"},
    {"shape": (7, 64), "element": "bf16", "target_strides": (1, 7), "reduction": "none"},
    {"shape": (7, 64), "element": "f64"},
)


class PointwisePlan(Plan[PointwiseDescriptor]):
    """A loss of elements: operands `x`, `target` and `out`."""

    descriptor = PointwiseDescriptor
    candidates = (Elements(),)
    measures = elements.MEASURES
    reference = elements.forward
    reference_guarantee = staticmethod(_reference_guarantee)
    probes = PROBES


class PointwiseBackwardPlan(Plan[PointwiseBackwardDescriptor]):
    """The gradient of a loss of elements: operands `grad`, `x`, `target` and `grad_x`."""

    descriptor = PointwiseBackwardDescriptor
    candidates = (Elements(),)
    measures = elements.MEASURES
    reference = elements.backward
    reference_guarantee = staticmethod(_reference_guarantee)
    probes = PROBES


# ---- functions -------------------------------------------------------------------------------------------------------


def _plain(x: Any, target: Any, /, *, reduction: str = "mean") -> Any: ...
def _plain_backward(grad: Any, x: Any, target: Any, /, *, reduction: str = "mean", grad_x: Any = None) -> Any: ...
def _beta(x: Any, target: Any, /, *, reduction: str = "mean", beta: float = 1.0) -> Any: ...
def _beta_backward(
    grad: Any, x: Any, target: Any, /, *, reduction: str = "mean", beta: float = 1.0, grad_x: Any = None
) -> Any: ...
def _delta(x: Any, target: Any, /, *, reduction: str = "mean", delta: float = 1.0) -> Any: ...
def _delta_backward(
    grad: Any, x: Any, target: Any, /, *, reduction: str = "mean", delta: float = 1.0, grad_x: Any = None
) -> Any: ...
def _log(x: Any, target: Any, /, *, reduction: str = "mean", log_target: bool = False) -> Any: ...
def _log_backward(
    grad: Any, x: Any, target: Any, /, *, reduction: str = "mean", log_target: bool = False, grad_x: Any = None
) -> Any: ...


TEMPLATES: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "": (_plain, _plain_backward), "beta": (_beta, _beta_backward), "delta": (_delta, _delta_backward),
    "log_target": (_log, _log_backward),
}  # fmt: skip
DOC = """{loss} of each element, as torch.nn.functional.{torch}.

x, target: arrays of one shape and dtype (f16, bf16, f32, f64), any strides; {takes}.
reduction: {reductions}; "none" gives each element's loss. Sums have a fixed order; "mean" of no elements is NaN.
out: f32 (f64 for f64), for 16-bit operands too, of which PyTorch's is 16 bits wide. Returns out.
"""
DOC_BACKWARD = """The gradient of `{name}` with respect to x: grad times {slope}, divided as its reduction divides.

grad: the gradient of the result, f32 (f64 for f64). x, target and the options: those of the forward call.
grad_x: like x, or x itself; allocated if not given. Returns grad_x. There is no gradient of target.
"""


def _published(row: Row) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The functions of a row, which are registered."""
    name, (template, backward) = row.name, TEMPLATES[row.param or ("log_target" if row.logs[0] else "")]
    loss, slope = (re.sub(r"\s+", " ", text) for text in (row.loss, row.slope))
    reductions = ", ".join(f'"{one}"' for one in row.reductions)
    doc = DOC.format(loss=loss, torch=row.torch, takes=row.takes, reductions=reductions)
    forward = function_of(PointwisePlan, called=name, doc=doc, name=name)(template)
    back = f"{name}_backward"
    doc = DOC_BACKWARD.format(name=name, slope=slope)
    pulled = function_of(PointwiseBackwardPlan, called=back, doc=doc, name=back)(backward)
    gradient = Gradient(back, ("x", "target"), {"x": "grad_x"}, shapes=row.unread)
    samples = partial(elements_samples.forward, row.name)
    register(Op(name, PointwisePlan, forward, samples, {"name": name}, gradient, {"torch": row.torch}))
    samples = partial(elements_samples.backward, row.name)
    register(Op(back, PointwiseBackwardPlan, pulled, samples, {"name": back}))
    return forward, pulled


mse_loss, mse_loss_backward = _published(TABLE["mse_loss"])
l1_loss, l1_loss_backward = _published(TABLE["l1_loss"])
smooth_l1_loss, smooth_l1_loss_backward = _published(TABLE["smooth_l1_loss"])
huber_loss, huber_loss_backward = _published(TABLE["huber_loss"])
bce, bce_backward = _published(TABLE["bce"])
bce_with_logits, bce_with_logits_backward = _published(TABLE["bce_with_logits"])
kl_div, kl_div_backward = _published(TABLE["kl_div"])
soft_margin_loss, soft_margin_loss_backward = _published(TABLE["soft_margin_loss"])
