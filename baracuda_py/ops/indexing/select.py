"""index_select and embedding: lines of an array along one axis, picked by an array of indices."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np

from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...runtime.steps import Fill, Kernel, Launch, Ptr, Scratch, Step
from ...types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory
from .._function import function_of
from .._launch import THREADS, grid_of, index_scalar, index_type, pack_dims, words_of
from . import oracle
from ._lines import INDICES, MODES, STATUSES, IndexedLines
from .samples import embedding as embedding_samples
from .samples import index_select as index_select_samples
from .take_along_axis import Costs

__all__ = [
    "BYTES",
    "EmbeddingDescriptor",
    "EmbeddingPlan",
    "IndexSelectDescriptor",
    "IndexSelectPlan",
    "embedding",
    "index_select",
]

BYTES = tuple(kind for kind in ElementKind if not kind.packed)
UNROLL = 4


class SelectProblem(IndexedLines):
    """A problem whose result `out` holds the lines that the indices name."""

    element: ElementKind

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.picked_shape


@described(
    Slot("out", "out", takes=BYTES, shape="out_shape", element="element"),
    Slot("status", "out", optional=True, takes=(ElementKind.I32,), shape="scalar_shape", strided=False, aligned=False),
    Slot("x", takes=BYTES, element="element"),
    Slot("index", takes=INDICES, element="index_element"),
    fields=("x_shape", "index_shape", "element", "index_element", "axis", "mode"),
)
class IndexSelectDescriptor(SelectProblem):
    """x of `x_shape`, and indices of lines along `axis`. There is a `status` where `status_element` is given."""

    x_shape: tuple[int, ...]
    index_shape: tuple[int, ...]
    index_element: ElementKind = ElementKind.I64
    axis: int = 0

    name = "index_select"

    @classmethod
    def of(
        cls, x: Any, index: Any, *, out: Any = None, status: Any = None, axis: int = 0, mode: str = "raise",
        return_status: bool = False,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays with their layouts."""
        arrays = {"out": out, "status": status, "x": x, "index": index}
        return cls.of_arrays("index_select", return_status, arrays, axis=axis, mode=mode)


@described(
    Slot("out", "out", takes=BYTES, shape="out_shape", element="element"),
    Slot("status", "out", optional=True, takes=(ElementKind.I32,), shape="scalar_shape", strided=False, aligned=False),
    Slot("weight", takes=BYTES, element="element"),
    Slot("ids", takes=INDICES, element="ids_element"),
    fields=("weight_shape", "ids_shape", "element", "ids_element", "padding_idx", "mode"),
)
class EmbeddingDescriptor(SelectProblem):
    """weight of `weight_shape`, [N, D], and ids of its rows. There is a `status` where `status_element` is given."""

    weight_shape: tuple[int, ...]
    ids_shape: tuple[int, ...]
    ids_element: ElementKind = ElementKind.I64
    padding_idx: int | None = None

    name = "embedding"
    lines, index = "weight", "ids"
    axis: ClassVar[int] = 0

    def check(self) -> None:
        if len(self.weight_shape) != 2:
            raise InvalidProblemError(
                f"{self.op}: weight must have shape [N, D], got {self.weight_shape}", "pass a matrix of one row per id"
            )
        super().check()

    @classmethod
    def of(
        cls, weight: Any, ids: Any, *, out: Any = None, status: Any = None, padding_idx: int | None = None,
        mode: str = "raise", return_status: bool = False,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays with their layouts."""
        arrays = {"out": out, "status": status, "weight": weight, "ids": ids}
        return cls.of_arrays("embedding", return_status, arrays, padding_idx=padding_idx, mode=mode)


class Select(Candidate[SelectProblem]):
    """One launch: a word of up to 16 bytes per thread and turn, in the result's order."""

    variant = "gather"
    launches = ("indexing/take.cu:take_along",)

    def cost(self, desc: SelectProblem, device: DeviceSpec, config: Any) -> Cost:
        moved = desc.layout(desc.index).element.nbytes(desc.count) + 2 * desc.element.nbytes(math.prod(desc.out_shape))
        return Cost.streaming(device, moved, efficiency=Costs.of(device).bandwidth_efficiency)

    def lower(self, desc: SelectProblem, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        clear = (Fill(Ptr("status"), 0, 4),) if desc.has("status") else ()
        return clear if 0 in desc.out_shape else (*clear, _select(desc))


def _select(desc: SelectProblem) -> Launch:
    size, before = desc.element.bits // 8, desc.along
    out, x, index = (desc.layout(name) for name in ("out", desc.lines, desc.index))
    behind = len(x.shape) - before - 1
    lines = (*x.strides[:before], *(0,) * len(index.shape), *x.strides[before + 1 :])
    walks = [[s * size for s in strides] for strides in (out.strides, lines)]
    places = [0] * before + [s * index.natural for s in index.strides] + [0] * behind
    step = x.strides[before] * size
    extents, (of_out, of_x, of_index), word = words_of(
        desc.out_shape, walks, size, min(out.align, x.align), (step,), (places,)
    )
    count = math.prod(extents)
    counted = index_type(count)
    args = (
        Ptr("out"), Ptr(desc.lines), Ptr(desc.index),
        Ptr("status") if desc.has("status") else Scratch.named("status", 4),
        np.int64(desc.extent), np.int64(step), index_scalar(count, counted),
        pack_dims(extents, (of_out, of_index, of_x), counted),
    )  # fmt: skip
    taken = f"{len(extents)}, {word}, {MODES[desc.mode]}, {UNROLL}"
    kernel = Kernel("indexing/take.cu", f"take_along<{counted}, {index.element.number}, {taken}>")
    return Launch(kernel, grid_of(count, THREADS * UNROLL), (THREADS, 1, 1), args)


class IndexSelectPlan(Plan[IndexSelectDescriptor]):
    """Lines by index: operands `x`, `index`, `out`, and as the problem has it `status`."""

    descriptor = IndexSelectDescriptor
    statuses = STATUSES
    category = OpCategory.INDEXING
    candidates = (Select(),)
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
    reference = oracle.select


class EmbeddingPlan(Plan[EmbeddingDescriptor]):
    """Rows by id: operands `weight`, `ids`, `out`, and as the problem has it `status`."""

    descriptor = EmbeddingDescriptor
    statuses = STATUSES
    category = OpCategory.INDEXING
    candidates = (Select(),)
    probes = (
        {"weight_shape": (100, 64), "ids_shape": (3, 9), "element": "bf16"},
        {"weight_shape": (100, 33), "ids_shape": (9,), "element": "f32", "ids_element": "i32", "mode": "wrap"},
    )
    reference = oracle.select


@function_of(IndexSelectPlan)
def index_select(
    x: Any, index: Any, axis: int = 0, *, mode: str = "raise", return_status: bool = False, status: Any = None
) -> Any:
    """Lines of `x` along `axis` by `index`: out[:, ..., i, ..., :] = x[:, ..., index[i], ..., :], as numpy.take has them.

    x: any array of a byte-wide kind, of rank 1 or more. index: int32 or int64 of any shape, which stands in the place of the
    axis in the shape of out. Bytes are moved: 16 at a time where lines and addresses are multiples of that.
    mode: what becomes of an index out of range, which is never read. ``"clip"``: the nearest line. ``"wrap"``: modulo the extent,
    so that negative indices count from the end. ``"raise"``: on ``device="cpu"`` and ``"ptx"``, InvalidProblemError before
    anything is written, unless a status is given or asked for. A call does not wait for a GPU: there, its line is zero bytes.
    Negative indices are out of range. `status` (`return_status`): int32 scalar, 1 if there was one, else 0; `check` raises from
    it.
    Returns out, or (out, status); allocated if not given.
    """


@function_of(EmbeddingPlan)
def embedding(
    weight: Any, ids: Any, *, padding_idx: int | None = None, mode: str = "raise", return_status: bool = False,
    status: Any = None,
) -> Any:  # fmt: skip
    """Rows of a table by id: out[i, :] = weight[ids[i], :].

    weight: [N, D] of any byte-wide kind, any strides. ids: int32 or int64 of any shape; out has shape [*ids.shape, D].
    padding_idx: the row that gets no gradient; it is looked up as any other, and counts from the end where it is negative.
    mode, status and return_status: as in `index_select`: with ``"raise"`` an id that is not in [0, N) raises on the host, and
    gives zeros and a status on a GPU. Returns out, or (out, status); allocated if not given.
    """


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
