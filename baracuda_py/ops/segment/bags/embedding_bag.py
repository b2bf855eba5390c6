"""embedding_bag: rows of a table by id, gathered and reduced by bag in one launch."""

from __future__ import annotations

from typing import Any

from ....numerics.guarantee import widely
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....types import PrecisionGuarantee
from ..._function import function_of
from ..._reported import REPORTED, STATUS
from ..._rows import FLOATS
from . import oracle, samples
from ._candidates import Gathered, bound
from ._problem import FIELDS, OPERANDS, BagProblem

__all__ = ["EmbeddingBagDescriptor", "EmbeddingBagPlan", "embedding_bag"]


@described(
    Slot("out", "out", takes=FLOATS, shape="out_shape", element="element", strided=False),
    STATUS,
    *OPERANDS,
    fields=FIELDS,
)
class EmbeddingBagDescriptor(BagProblem):
    """Bags of ids of rows of weight, [N, D]. There is a `status` where `mode` is ``"status"``."""

    name = "embedding_bag"


class EmbeddingBagPlan(Plan[EmbeddingBagDescriptor]):
    """Rows by id, reduced by bag: operands `input`, `weight`, `out`, and as the problem has them `offsets`,
    `per_sample_weights` and `status`."""

    descriptor = EmbeddingBagDescriptor
    candidates = (Gathered(),)
    measures = oracle.MEASURES
    statuses = {
        1: ("an id or an offset is out of range, or an offset below the one before it",
            "give ids of 0 to N - 1, and offsets that do not decrease, of 0 to n")
    }  # fmt: skip
    reference = oracle.embedding_bag
    probes = (
        {"input_shape": (9, 20), "weight_shape": (100, 64), "element": "bf16"},
        {"input_shape": (3000,), "offsets_shape": (9,), "offsets_element": "i64", "weight_shape": (100, 33), "element": "f32",
         "reduce": "sum", "per_sample_weights_element": "f32"},
        {"input_shape": (30,), "offsets_shape": (9,), "offsets_element": "i32", "weight_shape": (100, 8), "element": "f64",
         "reduce": "max", "include_last_offset": True, "input_element": "i32"},
    )  # fmt: skip

    @staticmethod
    def reference_guarantee(desc: EmbeddingBagDescriptor) -> PrecisionGuarantee:
        return widely(bound(desc, 1.0), desc, max(desc.count, 1))


@function_of(EmbeddingBagPlan, rules=REPORTED)
def embedding_bag(
    input: Any, weight: Any, offsets: Any = None, *, reduce: str = "mean", per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: int | None = None, mode: str = "drop", status: Any = None,
) -> Any:  # fmt: skip
    """Bags of a table's rows: out[s, :] = the sum, mean or maximum of weight[input[i], :] over the entries i of bag s.

    It is torch.nn.functional.embedding_bag, whose `mode` is `reduce` here. With ``"sum"`` and weights it also passes messages in
    a graph: input has the source of each edge, weight the features of the nodes, offsets the first edge of each target.
    input: int32 or int64 ids in C order: [B, L], a bag per row, or [n] with `offsets`. weight: [N, D] of f16, bf16, f32 or f64,
    any strides, but in C order for the gradient of a maximum. offsets: int32 or int64 [B], the first entry of each bag; the last
    bag ends after the last entry, or with `include_last_offset`, [B + 1], at the last offset. Entries before the first offset
    belong to no bag.
    reduce: ``"sum"``, ``"mean"`` or ``"max"``; each is 0 of a bag without entries. per_sample_weights: a factor for the row of
    each entry, of weight's dtype and input's shape; with ``"sum"`` alone. padding_idx: a row whose entries are left out of every
    bag, and of the number that a mean divides by; it counts from the end where it is negative.
    mode: what becomes of an id that is not in [0, N), whose row is never read, and of offsets that decrease or are out of range.
    ``"drop"``: the entry is left out as padding is, and with such offsets every bag is empty. ``"status"``: the same, and
    `status`, a device int32 scalar (allocated if not given), is 1, else 0; `check` raises from it. ``"raise"``:
    InvalidProblemError, before anything is written; on ``device="cpu"`` and ``"ptx"`` alone, because a call does not wait for a
    GPU.
    Bags may be of any length: they are cut into pieces of 256 entries, whose parts are joined in order. Computed in f32 (f64 for
    f64) and rounded once; the order follows from a bag's length and from how rows are laid out: the same bits at every call.
    out: [B, D] of weight's dtype, in C order; allocated if not given. Returns (out, status) with ``mode="status"``, else out.
    """


_WITH = ("input", "weight", "offsets", "per_sample_weights")
register(
    Op("embedding_bag", EmbeddingBagPlan, embedding_bag, samples.embedding_bag,
       gradient=Gradient("embedding_bag_backward", _WITH,
                         {"weight": "grad_weight", "per_sample_weights": "grad_per_sample_weights"}),
       peers={"torch": "embedding_bag"})
)  # fmt: skip
