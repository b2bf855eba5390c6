"""segment_softmax: the softmax along each segment of rows, and its gradient."""

from __future__ import annotations

from typing import Any

from ...numerics.guarantee import widely
from ...plan.candidate import Cost
from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...runtime.steps import Ptr, Scratch, Step
from ...types import Componentwise, DeviceSpec, ElementKind, PrecisionGuarantee, Term
from .._function import function_of
from .._reported import REPORTED, STATUS
from .._rows import FLOATS, computed_in
from . import oracle, samples
from ._candidates import OnSegments, Pieces, checked, cost, maxima, segments_of, spread
from ._launches import Group, additions, reduced
from ._problem import FIELDS, OFFSETS, STATUSES, Columns, SegmentProblem

__all__ = [
    "SegmentSoftmaxBackwardDescriptor",
    "SegmentSoftmaxBackwardPlan",
    "SegmentSoftmaxDescriptor",
    "SegmentSoftmaxPlan",
    "segment_softmax",
    "segment_softmax_backward",
]

SOURCE = "Higham, section 4.2"


@described(
    Slot("out", "out", takes=FLOATS, shape="x_shape", strided=False), STATUS, Slot("x", takes=FLOATS), OFFSETS,
    fields=FIELDS[:-1],
)  # fmt: skip
class SegmentSoftmaxDescriptor(SegmentProblem):
    """x of `x_shape` and the offsets of segments of its rows."""

    name = "segment_softmax"


@described(
    Slot("grad_x", "out", takes=FLOATS, shape="x_shape", strided=False),
    Slot("grad", takes=FLOATS, shape="x_shape"),
    Slot("y", takes=FLOATS, shape="x_shape"),
    OFFSETS,
    fields=FIELDS[:-1],
)
class SegmentSoftmaxBackwardDescriptor(SegmentProblem):
    """The gradient of the result of `segment_softmax`, that result, and the offsets of its call."""

    name, result = "segment_softmax_backward", "grad_x"


class Softmax(OnSegments):
    """The maxima and the sums of exponentials of segments, in pieces, then the softmax of each row."""

    variant = "pieces"
    launches = (*Pieces.launches, "segment/spread.cu:spread_rows")

    def cost(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> Cost:
        return cost(desc, device, desc.element.nbytes(desc.length * (4 * desc.rows + 4 * desc.segments)), 6)

    def guarantee(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> PrecisionGuarantee:
        return bound(desc, additions(desc.rows, config))

    def columns(self, desc: SegmentProblem) -> Columns:
        return desc.columns(desc.layout("x").strides, None, ("out", "x"))

    def lower(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> tuple[Step, ...]:
        if 0 in desc.x_shape:
            return checked(desc)
        columns, most, sums = self.columns(desc), maxima(desc), _stats(desc)
        these = segments_of(desc, columns)
        return (
            *checked(desc),
            *reduced(these, "Max", most),
            *reduced(these, "Softmax", sums, y=most),
            spread(desc, "Softmax", columns, "out", x=Ptr("x"), y=most, stats=sums),
        )


class SoftmaxGradient(OnSegments):
    """The sums of grad * y of segments, in pieces, then the gradient of each row."""

    variant = "pieces"
    launches = Softmax.launches

    def cost(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> Cost:
        return cost(desc, device, desc.element.nbytes(desc.length * (5 * desc.rows + 2 * desc.segments)), 4)

    def guarantee(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> PrecisionGuarantee:
        return gradient_bound(desc, additions(desc.rows, config))

    def columns(self, desc: SegmentProblem) -> Columns:
        return desc.columns(desc.layout("y").strides, desc.layout("grad").strides, ("grad_x", "grad", "y"))

    def lower(self, desc: SegmentProblem, device: DeviceSpec, config: Group) -> tuple[Step, ...]:
        if 0 in desc.x_shape:
            return ()
        columns, sums, op = self.columns(desc), _stats(desc), "SoftmaxGradient"
        these = segments_of(desc, columns)._replace(x=Ptr("y"))
        return (
            *checked(desc),
            *reduced(these, op, sums, second=Ptr("grad")),
            spread(desc, op, columns, "grad_x", Ptr("grad"), Ptr("y"), stats=sums),
        )


def _stats(desc: SegmentProblem) -> Scratch:
    """Where sums of segments are, in what is computed in."""
    return Scratch.named("sums", computed_in(desc.element).element.nbytes(desc.length * max(desc.segments, 1)))


def bound(desc: SegmentProblem, added: float) -> PrecisionGuarantee:
    """As of softmax: see ops/softmax/_guarantee.py."""
    u = computed_in(desc.element).element
    terms = Term(3.0, u, "shifted"), Term(3.0, u, "expected"), Term(added + 12.0, u, "abs_result")
    made = _promised(desc, terms)
    if not desc.has_status:
        return made
    return PrecisionGuarantee.by_output(out=made, status=PrecisionGuarantee.exact(ElementKind.I32))


def gradient_bound(desc: SegmentProblem, added: float) -> PrecisionGuarantee:
    """Products take a rounding each, and the difference one."""
    u = computed_in(desc.element).element
    return _promised(desc, (Term(added + 4.0, u, "y_sum"), Term(3.0, u, "y_grad")))


def _promised(desc: SegmentProblem, terms: tuple[Term, ...]) -> PrecisionGuarantee:
    computed = computed_in(desc.element)
    lost = Term(4.0, computed.element, "computed_smallest_normal")
    made = Componentwise.rounded((*terms, lost), desc.element, SOURCE)
    return PrecisionGuarantee.fixed_order(computed.math, computed.element, made)


PROBES = tuple(
    {"x_shape": shape, "offsets_shape": (9,), "element": element}
    for shape in ((40, 64), (5000, 3), (300,)) for element in ("bf16", "f32", "f64")
)  # fmt: skip


class SegmentSoftmaxPlan(Plan[SegmentSoftmaxDescriptor]):
    """The softmax of segments of rows: operands `x`, `offsets`, `out`, and with ``mode="status"`` `status`."""

    descriptor = SegmentSoftmaxDescriptor
    candidates = (Softmax(),)
    measures = oracle.MEASURES
    statuses = STATUSES
    reference = oracle.softmax
    probes = PROBES

    @staticmethod
    def reference_guarantee(desc: SegmentSoftmaxDescriptor) -> PrecisionGuarantee:
        return widely(bound(desc, 1.0), desc, max(desc.rows, 1))


class SegmentSoftmaxBackwardPlan(Plan[SegmentSoftmaxBackwardDescriptor]):
    """The gradient of a softmax of segments: operands `grad`, `y`, `offsets` and `grad_x`."""

    descriptor = SegmentSoftmaxBackwardDescriptor
    candidates = (SoftmaxGradient(),)
    measures = oracle.MEASURES
    reference = oracle.softmax_backward
    probes = PROBES

    @staticmethod
    def reference_guarantee(desc: SegmentSoftmaxBackwardDescriptor) -> PrecisionGuarantee:
        return widely(gradient_bound(desc, 1.0), desc, max(desc.rows, 1))


@function_of(SegmentSoftmaxPlan, rules=REPORTED)
def segment_softmax(x: Any, offsets: Any, *, mode: str = "drop", status: Any = None) -> Any:
    """Softmax along segments of rows: out[i, ...] = exp(x[i, ...]) / the sum of exp(x[j, ...]) over the rows j of i's segment.

    x: f16, bf16, f32 or f64 of rank 1 or more, any strides; such as the scores of a graph's edges, sorted by target. offsets,
    mode and status: as in `segment_sum`; rows of no segment, and with refused offsets all rows, are 0.
    The maximum of each segment is subtracted first. Computed in f32 (f64 for f64) and rounded once; the order of a sum follows
    from a segment's length and from how rows are laid out: the same bits at every call. Of a NaN or inf, and of -inf alone, a
    segment's column is NaN, as in torch.softmax.
    out: of x's shape and dtype, in C order; allocated if not given. Returns (out, status) with ``mode="status"``, else out alone.
    """


@function_of(SegmentSoftmaxBackwardPlan)
def segment_softmax_backward(grad: Any, y: Any, offsets: Any, *, mode: str = "drop", grad_x: Any = None) -> Any:
    """The gradient of `segment_softmax`: y * (grad - the sum of grad * y over the segment), and 0 for a row of no segment.

    grad: the gradient of the result; y: the result; of one shape and dtype (f16, bf16, f32, f64), any strides. offsets, mode:
    those of the forward call. Computed in f32 (f64 for f64) and rounded once; the same bits at every call.
    grad_x: of y's shape, in C order; allocated if not given. Returns grad_x.
    """


_gradient = Gradient("segment_softmax_backward", ("out", "offsets"), {"x": "grad_x"}, renames={"out": "y"})
register(Op("segment_softmax", SegmentSoftmaxPlan, segment_softmax, samples.reduce, gradient=_gradient))
register(Op("segment_softmax_backward", SegmentSoftmaxBackwardPlan, segment_softmax_backward, samples.softmax_backward))
