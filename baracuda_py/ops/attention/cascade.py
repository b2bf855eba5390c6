"""cascade_attention: sequences that share a prefix, whose keys are read once for all of them, before each one's own keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...tensor.dispatch import trace_as_op
from ...types import ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from .._function import DerivedArgs, SignatureRules, function_of
from ._cascade.parts import Cascade
from ._problem import guarantee as _guarantee
from ._problem.attended import MOST, computed
from .decode import Decoding
from .oracle import cascade as oracle
from .oracle.forward import guarantee
from .paged import Paged, PagedAttentionPlan
from .samples import cascade as samples

__all__ = ["CascadeAttentionDescriptor", "CascadeAttentionPlan", "cascade_attention"]

F16, BF16, F32, I32 = ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.I32
FLOATS = (F16, BF16, F32)
CACHED = (*FLOATS, ElementKind.FP8_E4M3, ElementKind.FP8_E5M2, ElementKind.I8)
WHOLE_TABLE = (1 << 31) - 1  # keys of the prefix, where no number is given


@described(
    Slot("out", "out", takes=FLOATS),
    Slot("lse", "out", optional=True, shape="stats_shape"),
    Slot("status", "out", optional=True, takes=(I32,), shape="sequences", strided=False, aligned=False),
    Slot("q", takes=FLOATS, element="element"),
    Slot("k_pages", takes=CACHED, element="cache_element"),
    Slot("v_pages", takes=CACHED, element="cache_element"),
    Slot("prefix_table", element=I32, aligned=False),
    Slot("page_table", element=I32, aligned=False),
    Slot("lengths", element=I32, shape="sequences", strided=False, aligned=False),
    Slot("prefix_length", optional=True, takes=(I32,), strided=False, aligned=False),
    Slot("cu_seqlens_q", optional=True, takes=(I32,), strided=False, aligned=False),
    Slot("k_scales", optional=True, takes=(F32,)),
    Slot("v_scales", optional=True, takes=(F32,)),
    Slot("sinks", optional=True, takes=FLOATS),
    fields=(
        "q_shape", "k_pages_shape", "v_pages_shape", "prefix_table_shape", "page_table_shape", "element", "order",
        "page_layout", "softcapped", "max_seqlen_q", *Decoding.behind,
    ),
)  # fmt: skip
class CascadeAttentionDescriptor(Paged):
    """The problem of `PagedAttentionDescriptor` for keys behind a prefix, which is in the pages of `prefix_table` [pages] for all
    sequences. `prefix_keys`: the keys that are in use there, where `prefix_length` is no operand."""

    prefix_table_shape: tuple[int, ...]
    prefix_keys: int = WHOLE_TABLE

    name = "cascade_attention"
    window: ClassVar[None] = None  # type: ignore[misc]
    values: ClassVar[tuple[str, ...]] = (*Decoding.values, "prefix_keys")

    @classmethod
    def of(
        cls, q: Any, k_pages: Any, v_pages: Any, prefix_table: Any, page_table: Any, lengths: Any, *,
        prefix_length: Any = None, cu_seqlens_q: Any = None, out: Any = None, lse: Any = None, status: Any = None,
        k_scales: Any = None, v_scales: Any = None, sinks: Any = None, scale: float | None = None,
        softcap: float | None = None, k_scale: float = 1.0, v_scale: float = 1.0, prefix_keys: int | None = None,
        max_seqlen_q: int | None = None, layout: str = "NHD", return_lse: bool = False, return_status: bool = False,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout, and of the function's arguments."""
        tensors = cls.taken(cls.name, {
            "out": out, "lse": lse, "status": status, "q": q, "k_pages": k_pages, "v_pages": v_pages,
            "prefix_table": prefix_table, "page_table": page_table, "lengths": lengths, "prefix_length": prefix_length,
            "cu_seqlens_q": cu_seqlens_q, "k_scales": k_scales, "v_scales": v_scales, "sinks": sinks,
        })  # fmt: skip
        options: dict[str, Any] = {
            "page_layout": layout, "element": tensors["q"].element, "softcapped": softcap is not None,
            "max_seqlen_q": max_seqlen_q, "k_scale": k_scale, "v_scale": v_scale,
            "order": "BSHD" if cu_seqlens_q is None else "THD",
        }  # fmt: skip
        given = ("scale", scale), ("softcap", softcap), ("prefix_keys", prefix_keys)
        options |= {n: x for n, x in given if x is not None}
        options |= {"lse_element": computed(tensors["q"].element)} if return_lse and lse is None else {}
        options |= {"status_element": I32} if return_status and status is None else {}
        return cls.of_tensors(tensors, **options)

    # ---- the prefix -------------------------------------------------------------------------------------------------

    @property
    def prefix_pages(self) -> int:
        return self.prefix_table_shape[0]

    @property
    def prefix_capacity(self) -> int:
        """The capacity of the prefix's table, in keys."""
        return self.prefix_pages * self.page_keys

    @property
    def contiguous_table(self) -> bool:
        return self.prefix_pages <= 1 or self.layout("prefix_table").strides[0] == 1

    @property
    def total_k(self) -> int:
        return self.prefix_capacity + super().total_k

    # ---- all queries, as one sequence to the prefix --------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """Of all sequences."""
        return self.total_q if self.ragged else self.q_shape[0] * self.total_q

    @property
    def rows(self) -> int:
        """Queries of all heads."""
        return self.tokens * self.heads

    @property
    def one_after_another(self) -> bool:
        """Whether the tokens of all sequences are evenly spaced."""
        if self.ragged or min(self.q_shape[:2]) <= 1:
            return True
        sequence, token = self.layout("q").strides[:2]
        return sequence == self.total_q * token

    @property
    def row_strides(self) -> tuple[int, int]:
        """The steps of q from one token to the next, whatever sequence it is in, and from head to head."""
        strides = self.layout("q").strides
        return (strides[0] if self.ragged or self.total_q == 1 else strides[1]), strides[-2]

    @property
    def nbytes(self) -> int:
        """Pages count up to the capacity of the tables, the prefix's once."""
        keys = self.prefix_capacity + self.batch * self.page_table_shape[1] * self.page_keys
        bits = self.cached.bits * keys * self.kv_heads * (self.d + self.d_v)
        return bits // 8 + 2 * self.element.nbytes(math.prod(self.q_shape))

    # ---- validity -----------------------------------------------------------------------------------------------------

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        keys = int(values["prefix_keys"])
        if self.has("prefix_length") and keys != WHOLE_TABLE:
            raise InvalidProblemError(
                f"{self.op}: prefix_keys={keys} and prefix_length, which is an array", "give one of them"
            )
        if not 0 <= keys <= self.prefix_capacity and keys != WHOLE_TABLE:
            raise InvalidProblemError(
                f"{self.op}: prefix_length={keys} of {self.prefix_pages} pages of {self.page_keys} keys",
                f"give 0 to {self.prefix_capacity}, or more pages",
            )
        return values

    def _check_ranks(self) -> None:
        super()._check_ranks()
        if len(self.prefix_table_shape) != 1:
            raise InvalidProblemError(
                f"{self.op}: prefix_table has shape {self.prefix_table_shape}",
                "pass the page ids of the prefix as [pages]",
            )

    def _check_shapes(self) -> None:
        super()._check_shapes()
        self._check_extents("prefix_table")
        if self.total_k > MOST:
            raise InvalidProblemError(
                f"{self.op}: the tables have a capacity of {self.total_k} keys per sequence",
                f"give tables of {MOST} keys at most",
            )
        shape = self.shape_of("prefix_length")
        if shape not in (None, (), (1,)):
            raise InvalidProblemError(f"{self.op}: prefix_length has shape {shape}", "pass one element, or a number")


class CascadeAttentionPlan(Plan[CascadeAttentionDescriptor]):
    """Attention over a shared prefix and each sequence's own pages: operands `q`, `k_pages`, `v_pages`, `prefix_table`,
    `page_table`, `lengths`, `out`, and as the problem has them `lse`, `status`, `prefix_length`, `cu_seqlens_q`, `k_scales`,
    `v_scales` and `sinks`; values `scale`, `softcap`, `k_scale`, `v_scale` and `prefix_keys`."""

    descriptor = CascadeAttentionDescriptor
    statuses = {
        **PagedAttentionPlan.statuses,
        4: ("a page of the prefix is not there", "fill prefix_table with ids in [0, P), as far as the prefix goes"),
        5: (
            "prefix_length is beyond the capacity of prefix_table, or below 0",
            "give 0 to the table's pages times the page size",
        ),
    }
    category = OpCategory.ATTENTION
    candidates = (Cascade(),)
    measures = oracle.CASCADE_MEASURES
    probes = (
        {"q_shape": (5, 1, 8, 64), "k_pages_shape": (50, 16, 2, 64), "v_pages_shape": (50, 16, 2, 64),
         "prefix_table_shape": (20,), "page_table_shape": (5, 4), "element": "bf16", "prefix_length_shape": (1,),
         "prefix_length_element": "i32"},
        {"q_shape": (64, 1, 32, 128), "k_pages_shape": (500, 64, 8, 128), "v_pages_shape": (500, 64, 8, 128),
         "prefix_table_shape": (256,), "page_table_shape": (64, 3), "element": "bf16", "lse_element": "f32",
         "status_element": "i32"},
        {"q_shape": (70, 4, 64), "k_pages_shape": (9, 4, 7, 64), "v_pages_shape": (9, 4, 7, 64), "page_layout": "HND",
         "prefix_table_shape": (3,), "page_table_shape": (3, 9), "order": "THD", "element": "f16",
         "cu_seqlens_q_shape": (4,), "cu_seqlens_q_element": "i32"},
    )  # fmt: skip
    reference = oracle.cascade

    @staticmethod
    def reference_guarantee(desc: CascadeAttentionDescriptor) -> PrecisionGuarantee:
        made = guarantee(desc, _guarantee.forward(desc, dot=desc.d, keys=desc.most_k, blocks=1))
        if not desc.checked:
            return made
        return PrecisionGuarantee.by_output(**dict(made.parts), status=PrecisionGuarantee.exact(I32))


def _of_length(prefix_length: Any, prefix_keys: int | None) -> tuple[Any, int | None]:
    """`prefix_length` if it is an array, and `prefix_keys`: a length that is a number, too."""
    if not isinstance(prefix_length, (int, np.integer)) or isinstance(prefix_length, bool):
        return prefix_length, prefix_keys
    if prefix_keys is not None:
        raise InvalidProblemError(
            f"cascade_attention: prefix_length={prefix_length} and prefix_keys={prefix_keys}", "give one of them"
        )
    return None, int(prefix_length)


_LENGTH = ("prefix_length", "prefix_keys")


@function_of(CascadeAttentionPlan, rules=SignatureRules(derived=DerivedArgs(_LENGTH, _LENGTH, _of_length)))
def cascade_attention(
    q: Any, k_pages: Any, v_pages: Any, prefix_table: Any, page_table: Any, lengths: Any, *, prefix_length: Any = None,
    prefix_keys: int | None = None, cu_seqlens_q: Any = None, scale: float | None = None, softcap: float | None = None,
    sinks: Any = None, k_scale: float | None = None, v_scale: float | None = None, k_scales: Any = None,
    v_scales: Any = None, max_seqlen_q: int | None = None, layout: str = "NHD", return_lse: bool = False,
    return_status: bool = False, out: Any = None, lse: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """`paged_attention` of sequences that begin with the same keys, which are read once for all sequences.

    q, k_pages, v_pages, cu_seqlens_q, max_seqlen_q, scale, softcap, sinks, layout, k_scale, v_scale, k_scales and v_scales: as
    `paged_attention` has them, but for f64. prefix_table: device int32 [pages], the pages of the keys that all sequences share.
    prefix_length: how many these keys are, a number (as `prefix_keys`, a run-time value), or a device int32 of one element, which
    is read at launch; by default the capacity of prefix_table. page_table: device int32 [B, pages], and lengths: device
    int32 [B], of the keys that each sequence has behind the prefix; 0 is a length, too. Tokens' own keys are among these. Every
    token sees the whole prefix, and token t of T the first lengths - T + t + 1 keys behind it.
    There are neither windows nor ALiBi, which go by a token's distance from a key: `paged_attention` has both.
    Returns out, q's shape with Dv columns, or with `return_lse` and `return_status` (or given `lse`, `status`) a named tuple of
    these too, as `paged_attention` does. status: also 4 where a page of the prefix is not there, 5 where prefix_length is below
    0 or beyond the capacity of prefix_table, for sequences without another error.
    The prefix, the sequences' own keys and the merge of both are plans of their own (``plan.explain()``), with results in
    scratch. With pref.batch_invariant a sequence's bits depend neither on the others nor on which pages it has.
    """


register(Op("cascade_attention", CascadeAttentionPlan, cascade_attention, samples.cascade_attention))


def _traced(given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the custom op, in which a length that is a number is `prefix_keys`."""
    rest = dict(named)
    if isinstance(rest.get("prefix_length"), int) and rest.get("prefix_keys") is None:
        rest["prefix_keys"] = rest.pop("prefix_length")
    return given, rest


trace_as_op("cascade_attention", cascade_attention, _traced)
