"""Losses of elements and their targets, and their gradients. A row of the table is two ops."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ...numerics.guarantee import widely
from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...runtime.steps import Ptr, Scratch, Step
from ...types import DeviceSpec, ElementKind, PrecisionGuarantee
from .._function import SignatureRules, function_of
from .._launch import grid_of
from .._rows import FLOATS
from . import elements, elements_samples
from ._loss import WIDE, guarantee_of, on_request
from ._pointwise import FIELDS, THIRDS, THREADS, Pointwise
from ._table import TABLE, Row

__all__ = [
    "PointwiseBackwardDescriptor",
    "PointwiseBackwardPlan",
    "PointwiseDescriptor",
    "PointwisePlan",
    "bce",
    "bce_backward",
    "bce_with_logits",
    "bce_with_logits_backward",
    "gaussian_nll_loss",
    "gaussian_nll_loss_backward",
    "hinge_embedding_loss",
    "hinge_embedding_loss_backward",
    "huber_loss",
    "huber_loss_backward",
    "kl_div",
    "kl_div_backward",
    "l1_loss",
    "l1_loss_backward",
    "margin_ranking_loss",
    "margin_ranking_loss_backward",
    "mse_loss",
    "mse_loss_backward",
    "poisson_nll_loss",
    "poisson_nll_loss_backward",
    "smooth_l1_loss",
    "smooth_l1_loss_backward",
    "soft_margin_loss",
    "soft_margin_loss_backward",
]

MOST_CTAS, PER_THREAD = 1024, 8


@described(
    Slot("out", "out", takes=WIDE, shape="out_shape", element="computed"),
    Slot("x", takes=FLOATS),
    Slot("target", takes=FLOATS, element="element"),
    *(Slot(name, optional=True, takes=FLOATS, shape="shape") for name in THIRDS),
    fields=FIELDS,
)
class PointwiseDescriptor(Pointwise):
    """x and target of `shape`, and the reduction of their losses."""

    gradient = False


@on_request(return_grad_target=("grad_target",))
@described(
    Slot("grad_x", "out", takes=FLOATS),
    *(Slot(f"grad_{name}", "out", optional=True, takes=FLOATS, shape="shape") for name in (*THIRDS, "target")),
    Slot("grad", takes=WIDE, shape="out_shape", element="computed"),
    Slot("x", takes=FLOATS),
    Slot("target", takes=FLOATS, element="element"),
    *(Slot(name, optional=True, takes=FLOATS, shape="shape") for name in THIRDS),
    fields=FIELDS,
)
class PointwiseBackwardDescriptor(Pointwise):
    """The gradient of the result, and the operands of the forward call."""

    name: str = "mse_loss_backward"
    gradient = True

    @property
    def grad_other_element(self) -> ElementKind | None:
        return self.element_of("other")

    @property
    def grad_var_element(self) -> ElementKind | None:
        return self.element_of("var")

    def in_place(self, written: str, read: str) -> bool:
        """A thread writes the elements that it alone has read, in one launch."""
        return not self.row.third and written in ("grad_x", "grad_target") and read in ("x", "target")


class Elements(Candidate[Pointwise]):
    """An element a thread; sums by CTAs, and one CTA that adds those up."""

    variant = "elements"
    launches = ("loss/pointwise.cu:pointwise", "loss/pointwise.cu:pointwise_sum", "loss/total.cu:pointwise_total")

    def ctas(self, desc: Pointwise) -> int:
        """CTAs of a sum, which the number of elements alone decides."""
        return max(1, min(MOST_CTAS, -(-desc.count // (THREADS * PER_THREAD))))

    def cost(self, desc: Pointwise, device: DeviceSpec, config: Any) -> Cost:
        spent = (sum(one.instructions()[0] for one in desc.expressions.values()) + 12.0) * desc.count
        again, read = len(self.pairs(desc)) - 1, [desc.layout(o.name) for o in desc.operands if not o.written]
        moved = desc.nbytes + again * sum(x.element.nbytes(math.prod(x.shape)) for x in read)
        cost = Cost.streaming(device, moved, flops=int(spent), instructions=spent, efficiency=0.7)
        return replace(cost, seconds=cost.seconds + device.overhead * (again + desc.reduced))

    def pairs(self, desc: Pointwise) -> list[tuple[str, ...]]:
        """The outputs of each launch over elements, two at most."""
        outputs = tuple(desc.texts)
        return [outputs[i : i + 2] for i in range(0, len(outputs), 2)]

    def guarantee(self, desc: Pointwise, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return guarantee(desc, -(-desc.count // (self.ctas(desc) * THREADS)) + 50)

    def lower(self, desc: Pointwise, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        if not desc.reduced:
            grid = grid_of(desc.count, THREADS)
            return tuple(desc.launch("pointwise", Ptr(pair[0]), grid, pair) for pair in self.pairs(desc))
        ctas = self.ctas(desc)
        partial = Scratch.named("partial", desc.computed.nbytes(ctas))
        total = desc.total("loss/total.cu:pointwise_total", partial, ctas, MOST_CTAS)
        return desc.launch("pointwise_sum", partial, (ctas, 1, 1), ("out",), each=False), total


def guarantee(desc: Pointwise, depth: int) -> PrecisionGuarantee:
    """That of sums of such a depth."""
    return guarantee_of(desc, tuple(desc.texts), depth + 2.0, "Higham, sections 3 and 4.2")


PROBES = (
    {"shape": (3, 1030), "element": "f32"},
    {"shape": (7, 64), "element": "bf16", "target_strides": (1, 7), "reduction": "none"},
    {"shape": (7, 64), "element": "f64"},
    *({"shape": (7, 64), "element": "f32", f"{third}_element": "f32"} for third in THIRDS),  # of losses that have one
)


class ElementsPlan(Plan[Any]):
    """What the plans of losses of elements have in common."""

    candidates = (Elements(),)
    measures = elements.MEASURES
    reference = elements.evaluate
    probes = PROBES

    @staticmethod
    def reference_guarantee(desc: Pointwise) -> PrecisionGuarantee:
        return widely(guarantee(desc, 1), desc, desc.count if desc.reduced else 1)


class PointwisePlan(ElementsPlan):
    """A loss of elements: operands `x`, `target` and `out`."""

    descriptor = PointwiseDescriptor


class PointwiseBackwardPlan(ElementsPlan):
    """The gradient of a loss of elements: operands `grad`, `x`, `target` and `grad_x`, and on request `grad_target`."""

    descriptor = PointwiseBackwardDescriptor


# ---- functions -------------------------------------------------------------------------------------------------------


def _plain(x: Any, target: Any, /, *, reduction: str = "mean") -> Any: ...
def _plain_backward(
    grad: Any, x: Any, target: Any, /, *, reduction: str = "mean", return_grad_target: bool = False, grad_x: Any = None,
    grad_target: Any = None,
) -> Any: ...  # fmt: skip
def _signs_backward(grad: Any, x: Any, target: Any, /, *, reduction: str = "mean", grad_x: Any = None) -> Any: ...
def _beta(x: Any, target: Any, /, *, reduction: str = "mean", beta: float = 1.0) -> Any: ...
def _beta_backward(
    grad: Any, x: Any, target: Any, /, *, reduction: str = "mean", beta: float = 1.0, return_grad_target: bool = False,
    grad_x: Any = None, grad_target: Any = None,
) -> Any: ...  # fmt: skip
def _delta(x: Any, target: Any, /, *, reduction: str = "mean", delta: float = 1.0) -> Any: ...
def _delta_backward(
    grad: Any, x: Any, target: Any, /, *, reduction: str = "mean", delta: float = 1.0, return_grad_target: bool = False,
    grad_x: Any = None, grad_target: Any = None,
) -> Any: ...  # fmt: skip
def _log(x: Any, target: Any, /, *, reduction: str = "mean", log_target: bool = False) -> Any: ...
def _log_backward(
    grad: Any, x: Any, target: Any, /, *, reduction: str = "mean", log_target: bool = False,
    return_grad_target: bool = False, grad_x: Any = None, grad_target: Any = None,
) -> Any: ...  # fmt: skip
def _poisson(
    x: Any, target: Any, /, *, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Any: ...
def _poisson_backward(
    grad: Any, x: Any, target: Any, /, *, log_input: bool = True, full: bool = False, eps: float = 1e-8,
    reduction: str = "mean", return_grad_target: bool = False, grad_x: Any = None, grad_target: Any = None,
) -> Any: ...  # fmt: skip
def _hinge(x: Any, target: Any, /, *, margin: float = 1.0, reduction: str = "mean") -> Any: ...
def _hinge_backward(
    grad: Any, x: Any, target: Any, /, *, margin: float = 1.0, reduction: str = "mean", grad_x: Any = None
) -> Any: ...
def _gaussian(
    x: Any, target: Any, var: Any, /, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Any: ...
def _gaussian_backward(
    grad: Any, x: Any, target: Any, var: Any, /, *, eps: float = 1e-6, reduction: str = "mean",
    return_grad_target: bool = False, grad_x: Any = None, grad_var: Any = None, grad_target: Any = None,
) -> Any: ...  # fmt: skip
def _ranking(x: Any, other: Any, target: Any, /, *, margin: float = 0.0, reduction: str = "mean") -> Any: ...
def _ranking_backward(
    grad: Any, x: Any, other: Any, target: Any, /, *, margin: float = 0.0, reduction: str = "mean",
    return_grad_target: bool = False, grad_x: Any = None, grad_other: Any = None, grad_target: Any = None,
) -> Any: ...  # fmt: skip


TEMPLATES: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "smooth_l1_loss": (_beta, _beta_backward), "huber_loss": (_delta, _delta_backward), "kl_div": (_log, _log_backward),
    "poisson_nll_loss": (_poisson, _poisson_backward), "hinge_embedding_loss": (_hinge, _hinge_backward),
    "gaussian_nll_loss": (_gaussian, _gaussian_backward), "margin_ranking_loss": (_ranking, _ranking_backward),
    "soft_margin_loss": (_plain, _signs_backward),
}  # fmt: skip
DOC = """{loss} of each element, as torch.nn.functional.{torch}.

{operands}: arrays of one shape and dtype (f16, bf16, f32, f64), any strides; {takes}.{full}
reduction: {reductions}; "none" gives each element's loss. Sums have a fixed order; "mean" of no elements is NaN.
out: f32 (f64 for f64), for 16-bit operands too, of which PyTorch's is 16 bits wide. Returns out.
"""
FULL = "\nfull: whether to add {full}."
DOC_BACKWARD = """The gradient of `{name}` with respect to {inputs}: grad times {slope}, divided as its reduction divides.

grad: the gradient of the result, f32 (f64 for f64). {operands} and the options: those of the forward call.
{gradients}; allocated if not given. Returns {returns}.{of_target}
"""
OF_TARGET = """
return_grad_target: whether the last output is grad_target, like x, which is there too where it is given:
grad times {slope}, divided likewise.{ends}
"""
AT_THE_ENDS = {
    "bce": "\nIts logarithms end at -100, as those of the loss: it is 100 or -100 where x is 0 or 1, and PyTorch's is infinite.",
    "kl_div": "\nWithout log_target it is -inf where target is 0, and PyTorch's NaN.",
    "poisson_nll_loss": "\nWith full=True it has the derivative of what is added: log(target) + 0.5 / target where target > 1.",
}


def _published(row: Row) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The functions of a row, which are registered."""
    name, (template, backward) = row.name, TEMPLATES.get(row.name, (_plain, _plain_backward))
    third, back = row.third, f"{row.name}_backward"
    operands = ", ".join({"other": ("x", "other", "target"), "var": ("x", "target", "var")}.get(third, ("x", "target")))
    words = {
        "name": name, "torch": row.torch, "takes": row.takes, "operands": operands,
        "loss": row.loss + "".join(f", or {loss} with {on}=True," for on, (loss, *_) in row.switches.items()),
        "slope": (f"{row.slope}, and {row.third_slope}" if third else row.slope)
        + "".join(f", or {slope} with {on}=True" for on, (_, slope, _) in row.switches.items()),
        "reductions": ", ".join(f'"{one}"' for one in row.reductions),
        "full": FULL.format(full=row.full) if row.full else "", "inputs": f"x and {third}" if third else "x",
        "gradients": f"grad_x, grad_{third}: like x" if third else "grad_x: like x, or x itself",
        "returns": f"(grad_x, grad_{third})" if third else "grad_x",
    }  # fmt: skip
    if row.target_slope:
        slope = row.target_slope + "".join(f", or {text} with {on}=True" for on, (*_, text) in row.switches.items())
        words["of_target"] = OF_TARGET.format(slope=slope, ends=AT_THE_ENDS.get(name, "")).rstrip()
    else:
        words["of_target"] = " There is no gradient of target."
    words = {what: re.sub(r" +", " ", text) for what, text in words.items()}
    forward = function_of(PointwisePlan, called=name, doc=DOC.format(**words), name=name)(template)
    doc, rules = DOC_BACKWARD.format(**words), SignatureRules(wanted={f"grad_{third}": third} if third else {})
    pulled = function_of(PointwiseBackwardPlan, called=back, doc=doc, rules=rules, name=back)(backward)
    inputs = ("x", *filter(None, (third,)))
    slopes = {one: f"grad_{one}" for one in (*inputs, *(("target",) if row.target_slope else ()))}
    gradient = Gradient(back, (*inputs, "target"), slopes)
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
poisson_nll_loss, poisson_nll_loss_backward = _published(TABLE["poisson_nll_loss"])
hinge_embedding_loss, hinge_embedding_loss_backward = _published(TABLE["hinge_embedding_loss"])
gaussian_nll_loss, gaussian_nll_loss_backward = _published(TABLE["gaussian_nll_loss"])
margin_ranking_loss, margin_ranking_loss_backward = _published(TABLE["margin_ranking_loss"])
