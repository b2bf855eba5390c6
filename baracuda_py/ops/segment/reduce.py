"""segment_sum, segment_mean, segment_max, segment_min, segment_prod and segment_logsumexp: a row of the table is an op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...numerics.guarantee import widely
from ...plan.descriptor import described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import PrecisionGuarantee
from .._function import function_of
from .._reported import REPORTED, STATUS
from . import oracle, samples
from ._candidates import Pieces, bound
from ._problem import FIELDS, STATUSES, TABLE, SegmentProblem, slots_of

__all__ = [
    "SegmentDescriptor", "SegmentPlan", "segment_logsumexp", "segment_max", "segment_mean", "segment_min", "segment_prod",
    "segment_sum",
]  # fmt: skip


@described(*slots_of(status=STATUS), fields=FIELDS)
class SegmentDescriptor(SegmentProblem):
    """x of `x_shape` and the offsets of segments of its rows; `name` says how these are reduced."""

    name: str = "segment_sum"

    def __post_init__(self) -> None:
        self._names_op(tuple(TABLE), "name")
        super().__post_init__()


class SegmentPlan(Plan[SegmentDescriptor]):
    """A reduction of segments of rows: operands `x`, `offsets`, `out`, and with ``mode="status"`` `status`."""

    descriptor = SegmentDescriptor
    candidates = (Pieces(),)
    measures = oracle.MEASURES
    statuses = STATUSES
    reference = oracle.reduce
    probes = tuple(
        {"x_shape": shape, "offsets_shape": (9,), "element": element, "name": name}
        for shape in ((40, 64), (5000, 3), (300,)) for element in ("bf16", "f32", "f64")
        for name in ("segment_sum", "segment_mean", "segment_max", "segment_prod", "segment_logsumexp")
    )  # fmt: skip

    @staticmethod
    def reference_guarantee(desc: SegmentDescriptor) -> PrecisionGuarantee:
        return widely(bound(desc, 1.0), desc, max(desc.rows, 1))


def _template(x: Any, offsets: Any, *, mode: str = "drop", status: Any = None) -> Any: ...


_DOC = """{doc}: out[s, ...] = {formula} of x[offsets[s]:offsets[s + 1], ...]{along}.

x: f16, bf16, f32 or f64 of rank 1 or more, any strides; its rows, along the leading axis, are those of segments. offsets: int32
or int64 [segments + 1], in C order: the first row of each segment, and the end of the last one. They do not decrease and are of
0 to x.shape[0]; rows before the first and behind the last belong to no segment. {empty}
Segments may be of any length: they are cut into pieces of 256 rows, whose parts are joined in order. {computed}
mode: what becomes of offsets that decrease or are out of range. ``"drop"``: nothing is read, and every segment is empty.
``"status"``: the same, and `status`, a device int32 scalar (allocated if not given), is 1, else 0; `check` raises from it.
``"raise"``: InvalidProblemError, before anything is written; on ``device="cpu"`` and ``"ptx"`` alone, because a call does not
wait for a GPU.
out: [segments, *x.shape[1:]] of x's dtype, in C order. Returns (out, status) with ``mode="status"``, else out alone; allocated
if not given.
"""
_SUMMED = """Computed in f32 (f64 for f64) and rounded once; the order
follows from a segment's length and from how rows are laid out, not from other segments: the same bits at every call."""
_CHOSEN = "The result is exact; a NaN is a maximum and a minimum."
_SAID = {  # what the first line says, the formula, the result of an empty segment
    "segment_sum": ("Sums of segments of rows", "the sum", "The sum of an empty\nsegment is 0."),
    "segment_mean": ("Means of segments of rows", "the mean", "The mean of an empty\nsegment is 0 (torch.segment_reduce: NaN)."),
    "segment_max": ("Maxima of segments of rows", "the maximum", "The maximum of an empty\nsegment is -inf."),
    "segment_min": ("Minima of segments of rows", "the minimum", "The minimum of an empty\nsegment is inf."),
    "segment_prod": ("Products of segments of rows", "the product", "The product of an empty\nsegment is 1."),
    "segment_logsumexp": ("Log-sum-exps of segments of rows", "log(sum(exp))", "That of an\nempty segment is -inf."),
}  # fmt: skip


def _published(name: str) -> Callable[..., Any]:
    """The function of a row of the table, which is registered."""
    said, formula, empty = _SAID[name]
    chosen = TABLE[name].chosen
    doc = _DOC.format(
        doc=said, formula=formula, along=" along the leading axis", empty=empty, computed=_CHOSEN if chosen else _SUMMED
    )
    function = function_of(SegmentPlan, rules=REPORTED, called=name, doc=doc, name=name)(_template)
    remembered, reads, peers = (
        TABLE[name].remembered,
        TABLE[name].reads,
        {"torch": "segment_reduce"} if name != "segment_logsumexp" else {},
    )
    saved, renames = (("x", "offsets", "out"), {"out": "y"}) if remembered else (("x", "offsets"), {})
    gradient = Gradient(f"{name}_backward", saved, {"x": "grad_x"}, renames=renames, shapes=() if reads else ("x",))
    register(Op(name, SegmentPlan, function, samples.reduce, {"name": name}, gradient, peers))
    return function


segment_sum = _published("segment_sum")
segment_mean = _published("segment_mean")
segment_max = _published("segment_max")
segment_min = _published("segment_min")
segment_prod = _published("segment_prod")
segment_logsumexp = _published("segment_logsumexp")
