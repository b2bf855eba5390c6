"""paged_attention: a few tokens a sequence, or ragged new ones, against keys and values in pages that a table names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind, InvalidProblemError, OpCategory, OperandTypeError, PrecisionGuarantee
from .._function import SignatureRules, function_of
from ._decode.flash_pages import FlashPages
from ._decode.latent_keys import LatentPages
from ._decode.latent_wgmma import LatentWgmmaPages
from ._decode.simt_keys import SimtPages
from ._decode.split_keys import SplitPages
from ._decode.wgmma_pages import WgmmaPages
from ._problem import guarantee as _guarantee
from ._problem.attended import FLOATS, OperandStrides, computed
from .decode import CACHED, Decoding
from .forward import sides
from .oracle import decode as oracle
from .samples import decode as samples

__all__ = ["PagedAttentionDescriptor", "PagedAttentionPlan", "paged_attention"]

I32, F32 = ElementKind.I32, ElementKind.F32
LAYOUTS = {"NHD": (1, 2), "HND": (2, 1)}  # where a page's keys and its heads are


class Paged(Decoding):
    """What problems have in common whose keys and values are in pages that a table names."""

    k_pages_shape: tuple[int, ...]
    v_pages_shape: tuple[int, ...]
    page_table_shape: tuple[int, ...]
    order: str = "BSHD"  # of q; ragged: "THD"
    page_layout: str = "NHD"
    max_seqlen_q: int | None = None  # type: ignore[misc]
    paged: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._member(tuple(LAYOUTS), "page_layout", upper=True)
        super().__post_init__()

    # ---- what decoding asks ---------------------------------------------------------------------------------------

    @property
    def sequences(self) -> tuple[int, ...]:
        return self.page_table_shape[:1]

    @property
    def batch(self) -> int:
        return self.page_table_shape[0]

    @property
    def kv_heads(self) -> int:
        return self.k_pages_shape[LAYOUTS[self.page_layout][1]]

    @property
    def d_v(self) -> int:
        return self.v_pages_shape[-1]

    @property
    def page_keys(self) -> int:  # type: ignore[override]
        return self.k_pages_shape[LAYOUTS[self.page_layout][0]]

    @property
    def pages(self) -> int:  # type: ignore[override]
        return self.k_pages_shape[0]

    @property
    def checked(self) -> int:  # type: ignore[override]
        return max(self.batch, 1) if self.has("status") else 0

    @property
    def total_k(self) -> int:
        """The keys that a sequence has room for."""
        return self.page_table_shape[1] * self.page_keys

    @property
    def most_k(self) -> int:
        return self.total_k

    @property
    def keys_each(self) -> float:
        return self.total_k

    @property
    def cache_axes(self) -> tuple[int, int]:
        keys, heads = LAYOUTS[self.page_layout]
        return heads, keys

    def strides_of(self, name: str) -> OperandStrides:
        """For pages, from one to the next stands for a sequence's step."""
        if name not in self.caches:
            return super().strides_of(name)
        strides, (heads, keys) = self.layout(name).strides, self.cache_axes
        return OperandStrides(strides[0], strides[heads], strides[keys])

    @cached_property  # every configuration's cost asks
    def nbytes(self) -> int:
        """Pages count as many as the table has room for."""
        bits = self.cached.bits * self.batch * self.total_k * self.kv_heads * (self.d + self.d_v)
        return bits // 8 + 2 * self.element.nbytes(math.prod(self.q_shape))

    def _check_ranks(self) -> None:
        q, k, v, table = self.q_shape, self.k_pages_shape, self.v_pages_shape, self.page_table_shape
        if len(q) != (3 if self.ragged else 4):
            wanted = "[T, H, D] with cu_seqlens_q" if self.ragged else "[B, T, H, D], or [T, H, D] with cu_seqlens_q"
            raise InvalidProblemError(f"{self.op}: q has shape {q}", f"pass q as {wanted}")
        for name, shape, rank in (("k_pages", k, 4), ("v_pages", v, 4), ("page_table", table, 2)):
            if len(shape) != rank:
                known = "[B, pages]" if rank == 2 else f"{self.page_layout}, rank 4"
                raise InvalidProblemError(f"{self.op}: {name} has shape {shape}", f"pass {name} as {known}")

    def _check_shapes(self) -> None:
        if self.order == "BHSD" or self.ragged != (self.has("cu_seqlens_q")):
            fix = 'give order="THD" with cu_seqlens_q_shape, and else "BSHD"'
            raise InvalidProblemError(f"{self.op}: order={self.order!r}", fix)
        self._check_ranks()
        self._check_extents("q", "k_pages", "v_pages", "page_table", "cu_seqlens_q")
        q, k, v = self.q_shape, self.k_pages_shape, self.v_pages_shape
        if k[-1] != q[-1] or not q[-1]:
            raise InvalidProblemError(
                f"{self.op}: the head dim is {q[-1]} in q and {k[-1]} in k_pages",
                "pass both with the same last axis, 1 or more",
            )
        if k[:-1] != v[:-1] or not self.page_keys:
            raise InvalidProblemError(
                f"{self.op}: k_pages has shape {k} and v_pages {v}",
                "pass them alike but for the last axis, a key or more a page",
            )
        if not self.kv_heads or self.heads % self.kv_heads:
            raise InvalidProblemError(
                f"{self.op}: q has {self.heads} heads and k_pages {self.kv_heads}",
                "give q a multiple of k_pages' head count",
            )
        if not self.ragged and q[0] != self.batch:
            raise InvalidProblemError(f"{self.op}: q has {q[0]} sequences and page_table {self.batch}", "pass as many")
        starts = self.shape_of("cu_seqlens_q")
        if starts not in (None, (self.batch + 1,)):
            raise InvalidProblemError(
                f"{self.op}: cu_seqlens_q has shape {starts}",
                f"give one entry more than page_table has rows: {self.batch + 1}",
            )
        if self.max_seqlen_q is not None and (not self.ragged or self.max_seqlen_q < 0):
            raise InvalidProblemError(
                f"{self.op}: max_seqlen_q={self.max_seqlen_q}", "give it with cu_seqlens_q alone, 0 or more"
            )

    def check(self) -> None:
        super().check()
        if self.page_table_shape[1] > 1 and self.layout("page_table").strides[1] != 1:
            raise InvalidProblemError(f"{self.op}: page_table's rows do not lie side by side", "contiguize page_table")
        if self.has("status") and self.layout("status").element is not I32:
            raise OperandTypeError(f"{self.op}: status holds {self.layout('status').element}", "pass one of i32")


@described(
    Slot("out", "out", takes=FLOATS),
    Slot("lse", "out", optional=True, shape="stats_shape"),
    Slot("status", "out", optional=True, takes=(I32,), shape="sequences", strided=False, aligned=False),
    Slot("q", takes=FLOATS, element="element"),
    Slot("k_pages", takes=CACHED, element="cache_element"),
    Slot("v_pages", takes=CACHED, element="cache_element"),
    Slot("page_table", element=I32, aligned=False),
    Slot("lengths", element=I32, shape="sequences", strided=False, aligned=False),
    Slot("cu_seqlens_q", optional=True, takes=(I32,), strided=False, aligned=False),
    Slot("k_scales", optional=True, takes=(F32,)),
    Slot("v_scales", optional=True, takes=(F32,)),
    Slot("alibi_slopes", optional=True, takes=(F32,)),
    Slot("sinks", optional=True, takes=FLOATS),
    fields=(
        "q_shape", "k_pages_shape", "v_pages_shape", "page_table_shape", "element", "order", "page_layout", "window",
        "softcapped", "max_seqlen_q", *Decoding.behind,
    ),
)  # fmt: skip
class PagedAttentionDescriptor(Paged):
    """q [B, T, Hq, D], or ragged [T, Hq, D]; pages [P, N, Hkv, D] (`page_layout` "NHD") or [P, Hkv, N, D] ("HND"), which hold
    `cache_element`, by default that of q.

    `softcapped` says that a softcap is given at run time; `lse_element` and `status_element` that these are outputs.
    """

    name = "paged_attention"

    @classmethod
    def of(
        cls, q: Any, k_pages: Any, v_pages: Any, page_table: Any, lengths: Any, *, cu_seqlens_q: Any = None,
        out: Any = None, lse: Any = None, status: Any = None, k_scales: Any = None, v_scales: Any = None,
        alibi_slopes: Any = None, sinks: Any = None, scale: float | None = None,
        window: Sequence[int | None] | None = None, softcap: float | None = None, k_scale: float = 1.0, v_scale: float = 1.0,
        max_seqlen_q: int | None = None, layout: str = "NHD", return_lse: bool = False, return_status: bool = False,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout, and of the function's arguments."""
        tensors = cls.taken(cls.name, {
            "out": out, "lse": lse, "status": status, "q": q, "k_pages": k_pages, "v_pages": v_pages,
            "page_table": page_table, "lengths": lengths, "cu_seqlens_q": cu_seqlens_q, "k_scales": k_scales,
            "v_scales": v_scales, "alibi_slopes": alibi_slopes, "sinks": sinks,
        })  # fmt: skip
        options: dict[str, Any] = {
            "page_layout": layout, "window": sides(window, f"{cls.name}: window"), "element": tensors["q"].element,
            "softcapped": softcap is not None, "max_seqlen_q": max_seqlen_q, "k_scale": k_scale, "v_scale": v_scale,
            "order": "BSHD" if cu_seqlens_q is None else "THD",
        }  # fmt: skip
        options |= {n: x for n, x in (("scale", scale), ("softcap", softcap)) if x is not None}
        options |= {"lse_element": computed(tensors["q"].element)} if return_lse and lse is None else {}
        options |= {"status_element": I32} if return_status and status is None else {}
        return cls.of_tensors(tensors, **options)


class PagedAttentionPlan(Plan[PagedAttentionDescriptor]):
    """Attention over pages: operands `q`, `k_pages`, `v_pages`, `page_table`, `lengths`, `out`, and as the problem has them
    `lse`, `status`, `cu_seqlens_q`, `k_scales`, `v_scales`, `alibi_slopes` and `sinks`; values `scale`, `softcap`, `k_scale` and
    `v_scale`."""

    descriptor = PagedAttentionDescriptor
    statuses = {
        1: ("a page that some token sees is not there", "fill the sequence's row of page_table with ids in [0, P)"),
        2: ("the length is not one that the table has room for", "give 0 to the table's columns times the page size"),
        3: ("cu_seqlens_q decreases, begins below 0 or ends behind the tokens", "pass sums of the sequences' lengths"),
    }
    category = OpCategory.ATTENTION
    candidates = (SplitPages(), FlashPages(), WgmmaPages(), LatentPages(), LatentWgmmaPages(), SimtPages())
    measures = oracle.MEASURES
    probes = (
        *(
            {"q_shape": (3, t, 8, d), "k_pages_shape": p, "v_pages_shape": p, "page_table_shape": (3, 40), "element": e,
             "page_layout": order}
            for t, d, e, order, p in (
                (1, 64, "bf16", "NHD", (50, 16, 2, 64)), (4, 128, "f16", "HND", (50, 2, 16, 128)),
                (1, 128, "bf16", "NHD", (70, 64, 8, 128)),
            )
        ),
        {"q_shape": (70, 4, 64), "k_pages_shape": (9, 7, 4, 64), "v_pages_shape": (9, 7, 4, 64), "page_table_shape": (3, 9),
         "order": "THD", "element": "bf16", "cu_seqlens_q_shape": (4,), "lse_element": "f32",
         "status_element": "i32", "window": (20, 0)},
    )  # fmt: skip
    reference = oracle.decode

    @staticmethod
    def reference_guarantee(desc: PagedAttentionDescriptor) -> PrecisionGuarantee:
        made = oracle.guarantee(desc, _guarantee.forward(desc, dot=desc.d, keys=desc.most_k, blocks=1))
        if not desc.checked:
            return made
        return PrecisionGuarantee.by_output(**dict(made.parts), status=PrecisionGuarantee.exact(I32))


@function_of(PagedAttentionPlan, rules=SignatureRules(reads={"window": sides}))
def paged_attention(
    q: Any, k_pages: Any, v_pages: Any, page_table: Any, lengths: Any, *, cu_seqlens_q: Any = None,
    scale: float | None = None, window: Sequence[int | None] | None = None, softcap: float | None = None,
    alibi_slopes: Any = None, sinks: Any = None, k_scale: float | None = None, v_scale: float | None = None,
    k_scales: Any = None, v_scales: Any = None,
    max_seqlen_q: int | None = None, layout: str = "NHD",
    return_lse: bool = False, return_status: bool = False, out: Any = None, lse: Any = None, status: Any = None,
) -> Any:  # fmt: skip
    """Attention of the last tokens of every sequence with all of its keys and values, which are in pages.

    q: [B, T, Hq, D], or with `cu_seqlens_q` (device int32 [B + 1]) [T, Hq, D] of sequences one behind the other, each with as
    many tokens as it has (a prefill; `max_seqlen_q` says how many at most). k_pages, v_pages: [P, N, Hkv, D] (`layout` "NHD")
    or [P, Hkv, N, D] ("HND"), N keys a page; floats of q's dtype; any strides but a contiguous
    last axis; f16 and bf16 whose rows begin on multiples of 16 bytes are fast. page_table: device int32 [B, pages], key j of
    sequence b is in page page_table[b, j // N]. lengths: device int32 [B], the keys of each sequence, its tokens' own included.
    Both are read at launch; lengths are clamped to what the table has room for, and pages that are not there are never read:
    their keys are not seen.
    Pages may hold fp8_e4m3, fp8_e5m2 or i8, and are multiplied with the numbers k_scale and v_scale (run-time values) and with
    k_scales and v_scales: f32, one a head [Hkv], or one a key and head, in the shape of the pages without their last axis (those
    of values below 256 where q holds f16, in which weights are multiplied with them).
    scale, window, softcap, alibi_slopes, sinks, lse: as `attention` has them, causal.
    Returns out, q's shape with Dv columns, or with `return_lse` and `return_status` (or given `lse`, `status`) a named tuple of
    these too. lse: f32 (f64 where q is) [B, Hq, T], of ragged tokens [Hq, T]. status: int32 [B], 0 where all is well, 1 where a
    page that some token sees is not there (those before the window may be gone), 2 where the length is not one that the table has
    room for, 3, for all, where cu_seqlens_q decreases, begins below 0 or ends behind the tokens: what is then in out and lse
    means nothing. Tokens before its first entry and behind the last belong to no sequence; their out and lse are undefined.
    With pref.batch_invariant a sequence's bits depend neither on the others nor on which pages it has.
    """


register(Op("paged_attention", PagedAttentionPlan, paged_attention, samples.paged_attention))
