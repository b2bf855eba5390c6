"""index_select, embedding and the gradient of index_add: lines along one axis, picked by an array of indices."""

from __future__ import annotations

from typing import Any

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import OpCategory
from .._function import function_of
from .._reported import REPORTED, STATUS
from .._rows import FLOATS
from . import oracle
from ._gather import Gather, GatherAxes, PickProblem
from ._indexed import BYTES, INDICES, STATUSES
from ._lines import GradientsByIndex, IndexedLines, LinesByIndex, RowsById
from .samples import embedding as embedding_samples
from .samples import index_add_backward as index_add_backward_samples
from .samples import index_select as index_select_samples

__all__ = [
    "EmbeddingDescriptor",
    "EmbeddingPlan",
    "IndexAddBackwardDescriptor",
    "IndexAddBackwardPlan",
    "IndexSelectDescriptor",
    "IndexSelectPlan",
    "embedding",
    "index_add_backward",
    "index_select",
]


class PickedLines(IndexedLines, PickProblem):
    """A problem whose result has lines in place of indices."""

    reports_all = True

    def gather_axes(self) -> GatherAxes:
        before, rank = self.along, len(self.places_shape)
        out, lines, index = (self.layout(name) for name in (self.result, self.lines, self.index))
        behind = len(lines.shape) - before - 1
        picked = (*lines.strides[:before], *(0,) * rank, *lines.strides[before + 1 :])
        places = [0] * before + [s * index.natural for s in index.strides] + [0] * behind
        return GatherAxes.of(out, lines, lines.strides[before] * lines.natural, picked, places)


def _slots(lines: str, index: str, result: str = "out") -> tuple[Slot, ...]:
    moved = BYTES if result == "out" else FLOATS
    return (
        Slot(result, "out", takes=moved, shape="out_shape", element="element"),
        *((STATUS,) if result == "out" else ()),
        Slot(lines, takes=moved, element="element"),
        Slot(index, takes=INDICES, element=f"{index}_element"),
    )


@described(*_slots("x", "index"), fields=LinesByIndex.FIELDS)
class IndexSelectDescriptor(LinesByIndex, PickedLines):
    """x of `x_shape`, and indices of lines along `axis`. There is a `status` where `mode` is ``"status"``."""

    name = "index_select"


@described(*_slots("weight", "ids"), fields=RowsById.FIELDS)
class EmbeddingDescriptor(RowsById, PickedLines):
    """weight of `weight_shape`, [N, D], and ids of its rows. There is a `status` where `mode` is ``"status"``."""

    name = "embedding"


@described(*_slots("grad", "index", "grad_src"), fields=GradientsByIndex.FIELDS)
class IndexAddBackwardDescriptor(GradientsByIndex, PickedLines):
    """The gradient of the result of `index_add`, and the indices of its call."""

    name, result = "index_add_backward", "grad_src"


class LinesPlan(Plan[Any]):
    """What the plans of lines by index have in common."""

    category = OpCategory.INDEXING
    candidates = (Gather(),)
    reference = oracle.select


class IndexSelectPlan(LinesPlan):
    """Lines by index: operands `x`, `index`, `out`, and with ``mode="status"`` `status`."""

    descriptor = IndexSelectDescriptor
    statuses = STATUSES
    probes = (
        {"x_shape": (40, 64), "index_shape": (9,), "element": "bf16"},
        {
            "x_shape": (5, 7, 9),
            "index_shape": (3, 2),
            "element": "f32",
            "index_element": "i32",
            "axis": 1,
            "mode": "clip",
        },
        {"x_shape": (8, 3), "index_shape": (4,), "element": "u8", "axis": -1, "mode": "wrap"},
    )


class EmbeddingPlan(LinesPlan):
    """Rows by id: operands `weight`, `ids`, `out`, and with ``mode="status"`` `status`."""

    descriptor = EmbeddingDescriptor
    statuses = STATUSES
    probes = (
        {"weight_shape": (100, 64), "ids_shape": (3, 9), "element": "bf16"},
        {"weight_shape": (100, 33), "ids_shape": (9,), "element": "f32", "ids_element": "i32", "mode": "wrap"},
    )


class IndexAddBackwardPlan(LinesPlan):
    """The gradient of `index_add`: operands `grad`, `index` and `grad_src`."""

    descriptor = IndexAddBackwardDescriptor
    probes = (
        {"grad_shape": (40, 64), "index_shape": (9,), "element": "bf16"},
        {"grad_shape": (5, 7, 9), "index_shape": (3, 2), "element": "f32", "axis": 1, "mode": "clip"},
    )


@function_of(IndexSelectPlan, rules=REPORTED)
def index_select(x: Any, index: Any, axis: int = 0, *, mode: str = "drop", status: Any = None) -> Any:
    """Lines of `x` along `axis` by `index`: out[:, ..., i, ..., :] = x[:, ..., index[i], ..., :], as numpy.take has them.

    x: any array of a byte-wide kind, of rank 1 or more. index: int32 or int64 of any shape, which stands in the place of the
    axis in the shape of out. Bytes are moved: 16 at a time where lines and addresses are multiples of that.
    mode: what becomes of an index out of range, negative ones among them, which is never read. ``"drop"``: zero bytes in place of
    its line. ``"status"``: the same, and `status`, a device int32 scalar (allocated if not given), is 1 where there was one, else
    0; `check` raises from it. ``"clip"``: the nearest line. ``"wrap"``: modulo the extent, so that negative indices count from
    the end. ``"raise"``: InvalidProblemError, before anything is written; on ``device="cpu"`` and ``"ptx"`` alone, because a call
    does not wait for a GPU.
    Returns (out, status) with ``mode="status"``, else out alone; allocated if not given.
    """


@function_of(EmbeddingPlan, rules=REPORTED)
def embedding(weight: Any, ids: Any, *, padding_idx: int | None = None, mode: str = "drop", status: Any = None) -> Any:
    """Rows of a table by id: out[i, :] = weight[ids[i], :].

    weight: [N, D] of any byte-wide kind, any strides. ids: int32 or int64 of any shape; out has shape [*ids.shape, D].
    padding_idx: the row that gets no gradient; it is looked up as any other, and counts from the end where it is negative.
    mode and status: as in `index_select`, of ids that are not in [0, N).
    Returns (out, status) with ``mode="status"``, else out alone; allocated if not given.
    """


@function_of(IndexAddBackwardPlan)
def index_add_backward(grad: Any, index: Any, axis: int = 0, *, mode: str = "drop", grad_src: Any = None) -> Any:
    """The gradient of `index_add` with respect to src: the lines of grad that the indices name. That of x is grad itself.

    grad: the gradient of the result (f16, bf16, f32, f64), any strides. index, axis, mode: those of the forward call; with
    ``"drop"`` and ``"status"``, the gradient of a line whose index is out of range is 0, and ``"raise"`` raises where the forward
    call raised.
    grad_src: of grad's dtype, with index's shape in the place of the axis; allocated if not given. Returns grad_src.
    """


register(Op("index_add_backward", IndexAddBackwardPlan, index_add_backward, index_add_backward_samples))
register(
    Op("index_select", IndexSelectPlan, index_select, index_select_samples,
       gradient=Gradient("index_select_backward", ("index", "x"), {"x": "grad_x"}, shapes=("x",)),
       peers={"cupy": "take", "torch": "index_select"})
)  # fmt: skip
register(
    Op("embedding", EmbeddingPlan, embedding, embedding_samples,
       gradient=Gradient("embedding_backward", ("ids", "weight"), {"weight": "grad_weight"}, shapes=("weight",),
                         withheld=("padding_idx",)),
       peers={"torch": "embedding"})
)  # fmt: skip
