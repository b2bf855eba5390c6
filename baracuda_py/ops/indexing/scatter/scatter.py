"""index_add, index_copy and scatter: lines or elements that an array of indices sends to places of a copy of another array."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ....numerics.guarantee import widely
from ....plan.candidate import Candidate, Cost, Feasibility
from ....plan.descriptor import Slot, described
from ....plan.lowering import Sub
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....plan.selection import Selection, selected
from ....runtime.steps import Ptr, Step
from ....types import DeviceSpec, OpCategory, OperandTypeError, PrecisionGuarantee
from ..._function import function_of
from ..._reported import REPORTED, STATUS
from ..._rows import FLOATS
from ...shape_layout.contiguize import ContiguizeDescriptor, ContiguizePlan
from .. import oracle
from .._indexed import BYTES, INDICES, STATUSES
from .._lines import ElementsByIndex, LinesByIndex
from . import samples
from ._runs import OPS, ROUNDED, ScatteredElements, ScatteredLines, ScatteredProblem, Share, Sorted, bound, scattered

__all__ = [
    "IndexScatterDescriptor",
    "IndexScatterPlan",
    "ScatterDescriptor",
    "ScatterPlan",
    "index_add",
    "index_copy",
    "scatter",
]

SENT = {"x": "grad_x", "src": "grad_src"}  # the gradients
REDUCED_BY = {"index_add": "add", "index_copy": "set"}  # the reduction that a name means


class IntoCopy(ScatteredProblem):
    """A problem whose result is a copy of x, into which `src` is reduced."""

    result, source, base = "out", "src", "x"

    def check(self) -> None:
        super().check()
        if self.reduce != "set" and not (self.element in FLOATS or (self.element.is_integer and self.reduce != "mean")):
            kinds = "f16, bf16, f32 or f64" + ("" if self.reduce == "mean" else ", or whole numbers,")
            raise OperandTypeError(
                f"{self.op}: x must hold {kinds} to reduce by {self.reduce!r}, got {self.element}",
                "cast it to one of these",
            )

    def copy(self) -> ContiguizeDescriptor:
        """The copy of x."""
        x, out = self.layout("x"), self.layout("out")
        layouts: dict[str, Any] = {"x_strides": x.strides, "x_align": x.align, "out_align": out.align}
        return ContiguizeDescriptor(x.shape, self.element, **layouts)


def _slots(index: str) -> tuple[Slot, ...]:
    return (
        Slot("out", "out", takes=BYTES, shape="x_shape", strided=False),
        STATUS,
        Slot("x", takes=BYTES),
        Slot(index, takes=INDICES, element=f"{index}_element"),
        Slot("src", takes=BYTES, shape="picked_shape"),
    )


@described(*_slots("index"), fields=LinesByIndex.FIELDS)
class IndexScatterDescriptor(LinesByIndex, ScatteredLines, IntoCopy):
    """x of `x_shape`, indices of its lines along `axis`, and a line of `src` for each; `name` says how these are reduced."""

    name: str = "index_add"

    def __post_init__(self) -> None:
        self._names_op(tuple(REDUCED_BY), "name")
        super().__post_init__()

    @property
    def reduce(self) -> str:  # type: ignore[override]
        """How lines of the same index are reduced."""
        return REDUCED_BY[self.name]


@described(*_slots("indices"), fields=(*ElementsByIndex.FIELDS, "reduce"))
class ScatterDescriptor(ElementsByIndex, ScatteredElements, IntoCopy):
    """x of `x_shape`, and an index along `axis` for each element of `src`, reduced by `reduce`."""

    reduce: str = "set"
    name = "scatter"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(tuple(OPS), "reduce")

    def check(self) -> None:
        super().check()
        self.refuse_longer_indices()


@dataclass(frozen=True)
class CopyAndShare:
    """A configuration: what copies x, and how lines are shared out."""

    copy: Selection
    share: Share

    def __str__(self) -> str:
        return f"contiguize={self.copy.candidate.variant} {self.share}"


class SortedIntoCopy(Candidate[IntoCopy]):
    """A copy of x, into which runs of equal indices are reduced in order, sorted by place. Same bits at every call."""

    variant = "sorted"
    launches = (*dict.fromkeys(launch for c in ContiguizePlan.candidates for launch in c.launches), *Sorted.launches)
    inner = Sorted()

    def supports(self, desc: IntoCopy, device: DeviceSpec) -> Feasibility:
        return self.inner.supports(desc, device)

    def configs(self, desc: IntoCopy, device: DeviceSpec) -> Iterable[CopyAndShare]:
        copy = selected(ContiguizePlan, desc.copy(), None, device)
        return (CopyAndShare(copy, share) for share in self.inner.configs(desc, device))

    def cost(self, desc: IntoCopy, device: DeviceSpec, config: CopyAndShare) -> Cost:
        one = self.inner.cost(desc, device, config.share)
        return Cost(one.bytes, one.flops, one.seconds + config.copy.cost.seconds, one.limit)

    def guarantee(self, desc: IntoCopy, device: DeviceSpec, config: CopyAndShare) -> PrecisionGuarantee:
        return self.inner.guarantee(desc, device, config.share)

    def lower(self, desc: IntoCopy, device: DeviceSpec, config: CopyAndShare) -> tuple[Step | Sub, ...]:
        copy = Sub(config.copy, {"x": Ptr("x"), "out": Ptr("out")})
        return (copy, *scattered(desc, config.share))


class IntoCopyPlan(Plan[Any]):
    """What the plans of copies with reductions have in common."""

    category = OpCategory.INDEXING
    statuses = STATUSES
    candidates = (SortedIntoCopy(),)
    measures = oracle.MEASURES

    @staticmethod
    def reference_guarantee(desc: IntoCopy) -> PrecisionGuarantee:
        made = bound(desc, 1.0)
        return widely(made, desc, desc.count + 1) if desc.reduce in ROUNDED and desc.element in FLOATS else made


class IndexScatterPlan(IntoCopyPlan):
    """Lines sent to lines of a copy of x: operands `x`, `index`, `src`, `out`, and with ``mode="status"`` `status`."""

    descriptor = IndexScatterDescriptor
    reference = oracle.scatter_lines
    probes = (
        {"x_shape": (40, 64), "index_shape": (9,), "element": "bf16"},
        {"x_shape": (5, 7, 9), "index_shape": (3, 2), "element": "u8", "axis": 1, "mode": "clip", "name": "index_copy"},
    )


class ScatterPlan(IntoCopyPlan):
    """Elements sent to places of a copy of x: operands `x`, `indices`, `src`, `out`, and with ``mode="status"`` `status`."""

    descriptor = ScatterDescriptor
    reference = oracle.scatter_places
    probes = (
        {"x_shape": (5, 33), "indices_shape": (5, 7), "element": "f32", "reduce": "add"},
        {"x_shape": (8, 4), "indices_shape": (3, 4), "element": "complex128", "axis": 0, "mode": "wrap"},
        {"x_shape": (8, 4), "indices_shape": (3, 4), "element": "bf16", "axis": 0, "mode": "clip", "reduce": "max"},
        {"x_shape": (64,), "indices_shape": (9,), "element": "f64", "reduce": "min"},
    )


@function_of(IndexScatterPlan, rules=REPORTED, name="index_add")
def index_add(x: Any, index: Any, src: Any, axis: int = 0, *, mode: str = "drop", status: Any = None) -> Any:
    """A copy of `x` with lines of `src` added along `axis`: out[:, ..., index[i], ..., :] += src[:, ..., i, ..., :].

    x: floats or whole numbers of rank 1 or more, any strides. index: int32 or int64 of any shape. src: of x's dtype and shape,
    with index's shape in the place of the axis. Indices are sorted, and lines of the same index added in order, in chunks: in f32
    (f64 for f64), rounded once; the same bits at every call. Sums of whole numbers wrap.
    mode: what becomes of an index out of range, negative ones among them. ``"drop"``: its line of src is left out.
    ``"status"``: the same, and `status`, a device int32 scalar (allocated if not given), is 1 where there was one, else 0;
    `check` raises from it. ``"clip"``: the nearest line. ``"wrap"``: modulo the extent, so that negative indices count from the
    end. ``"raise"``: InvalidProblemError, before anything is written; on ``device="cpu"`` and ``"ptx"`` alone, because a call
    does not wait for a GPU.
    out: of x's shape, in C order, not x itself. Returns (out, status) with ``mode="status"``, else out alone; allocated if not
    given.
    """


@function_of(IndexScatterPlan, rules=REPORTED, name="index_copy")
def index_copy(x: Any, index: Any, src: Any, axis: int = 0, *, mode: str = "drop", status: Any = None) -> Any:
    """A copy of `x` with lines of `src` along `axis`: out[:, ..., index[i], ..., :] = src[:, ..., i, ..., :].

    x: any array of a byte-wide kind, of rank 1 or more. Of several lines of the same index, the last one stands. All else is as
    in `index_add`. Returns (out, status) with ``mode="status"``, else out alone.
    """


@function_of(ScatterPlan, rules=REPORTED)
def scatter(
    x: Any, indices: Any, src: Any, axis: int = -1, *, reduce: str = "set", mode: str = "drop",
    status: Any = None,
) -> Any:  # fmt: skip
    """A copy of `x` with elements of `src` at `indices` along `axis`: out[i, ..., indices[i, ..., j], ...] = src[i, ..., j, ...].

    x: any array of a byte-wide kind; floats or whole numbers where it reduces, and floats for a mean. indices: int32 or int64 of
    x's rank; its other axes may be shorter than x's. src: of x's dtype and of indices' shape.
    reduce: ``"set"``: of several elements for one place, the last one in C order stands. ``"add"``, ``"prod"``, ``"mean"``,
    ``"max"``, ``"min"``: they are reduced with x's own, in C order and chunks (torch's scatter_reduce with include_self). Sums
    and products are computed in f32 (f64 for f64) and rounded once, a mean is divided before that; of whole numbers they wrap. A
    NaN is a maximum and a minimum. The same bits at every call.
    mode, status and out: as in `index_add`. Returns (out, status) with ``mode="status"``, else out alone.
    """


register(
    Op("index_add", IndexScatterPlan, index_add, samples.index_add, fixed={"name": "index_add"},
       gradient=Gradient("index_add_backward", ("index",), {"src": "grad_src"}, unchanged=("x",)),
       peers={"torch": "index_add"})
)  # fmt: skip
register(
    Op("index_copy", IndexScatterPlan, index_copy, samples.index_copy, fixed={"name": "index_copy"},
       gradient=Gradient("index_copy_backward", ("index",), SENT), peers={"torch": "index_copy"})
)  # fmt: skip
register(
    Op("scatter", ScatterPlan, scatter, samples.scatter,
       gradient=Gradient("scatter_backward", ("indices", "x", "src", "out"), SENT, renames={"out": "y"}),
       peers={"cupy": "put_along_axis", "torch": "scatter"})
)  # fmt: skip
