"""paged_kv_append: new keys and values written into the pages of a cache, unchanged or quantised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind, InvalidProblemError, OpCategory, OperandTypeError
from .._function import function_of
from ..position.angles import ANGLES, Angled, check_factor
from ..position.rope import RopeDescriptor
from . import samples
from ._append import FewPages, ManyPages
from ._guarantee import guarantee_of
from .oracle import append as oracle
from .oracle import rotated

__all__ = ["PagedKvAppendDescriptor", "PagedKvAppendPlan", "paged_kv_append"]

NEW = (ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.I8, ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)
QUANTIZED = (ElementKind.I8, ElementKind.FP8_E4M3)
WIDE = (ElementKind.F16, ElementKind.BF16, ElementKind.F32)
LAYOUTS = {"NHD": (1, 2), "HND": (2, 1)}  # where slots and heads are in [pages, ..., D]
_I32 = (ElementKind.I32,)
ANGLES_FIX = "pass inv_freq, or cos and sin"
_F32 = (ElementKind.F32,)


@described(
    Slot("k_pages", "inout", takes=NEW, element="pages_element"),
    Slot("v_pages", "inout", takes=NEW, element="pages_element"),
    Slot("k_scales", "inout", optional=True, takes=_F32, shape="scales_shape"),
    Slot("v_scales", "inout", optional=True, takes=_F32, shape="scales_shape"),
    Slot("k", takes=NEW, element="element"),
    Slot("v", takes=NEW, element="element", shape="v_shape"),
    Slot("page_table", element=ElementKind.I32),
    Slot("lengths", element=ElementKind.I32, shape="requests_shape", strided=False, aligned=False),
    Slot("cu_seqlens", optional=True, takes=_I32, shape="offsets_shape", strided=False, aligned=False),
    Slot("k_scale", optional=True, takes=_F32, shape="heads_shape"),
    Slot("v_scale", optional=True, takes=_F32, shape="heads_shape"),
    Slot("positions", optional=True, takes=(ElementKind.I32, ElementKind.I64), shape="tokens_shape", aligned=False),
    *ANGLES,
    Slot("status", "out", element=ElementKind.I32, shape="requests_shape", strided=False, aligned=False),
)
class PagedKvAppendDescriptor(Angled):
    """Pages of `k_pages_shape` and `v_pages_shape` ([P, page, H, D] where `pages_layout` is ``"NHD"``, else [P, H, page, D]), new
    tokens of `k_shape` ([B, T, H, D], or with `cu_seqlens` [T, H, D]) and a table of `page_table_shape` ([B, pages a request]).
    Keys are rotated where there are frequencies (`inv_freq_shape`) or tables (`cos_shape`, `sin_shape`)."""

    k_pages_shape: tuple[int, ...]
    v_pages_shape: tuple[int, ...]
    k_shape: tuple[int, ...]
    page_table_shape: tuple[int, ...]
    pages_element: ElementKind
    element: ElementKind
    pages_layout: str = "NHD"
    style: str = "half"
    attention_factor: float = 1.0

    name = "paged_kv_append"
    values = ("attention_factor",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(tuple(LAYOUTS), "pages_layout", upper=True)
        self._complete_angles({})

    @classmethod
    def of(
        cls, k_pages: Any, v_pages: Any, k: Any, v: Any, page_table: Any, lengths: Any, cu_seqlens: Any = None,
        k_scales: Any = None, v_scales: Any = None, k_scale: Any = None, v_scale: Any = None, positions: Any = None,
        inv_freq: Any = None, cos: Any = None, sin: Any = None, *, layout: str = "NHD", style: str = "half",
        attention_factor: float = 1.0,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        named = {
            "k_pages": k_pages, "v_pages": v_pages, "k_scales": k_scales, "v_scales": v_scales, "k": k, "v": v,
            "page_table": page_table, "lengths": lengths, "cu_seqlens": cu_seqlens, "k_scale": k_scale, "v_scale": v_scale,
            "positions": positions, "inv_freq": inv_freq, "cos": cos, "sin": sin,
        }  # fmt: skip
        tensors = cls.taken(cls.name, named)
        return cls.of_tensors(tensors, pages_layout=layout, style=style, attention_factor=attention_factor)

    # ---- extents ----------------------------------------------------------------------------------------------------

    @property
    def ragged(self) -> bool:
        """Whether requests have tokens of their own numbers, as `cu_seqlens` says."""
        return self.has("cu_seqlens")

    @property
    def quantized(self) -> bool:
        return self.pages_element is not self.element

    @property
    def rotates_keys(self) -> bool:
        """Whether keys are rotated by their positions."""
        return self.half > 0

    @property
    def requests(self) -> int:
        return self.page_table_shape[0]

    @property
    def tokens(self) -> int:
        """Of all requests."""
        return self.k_shape[0] if self.ragged else self.k_shape[0] * self.k_shape[1]

    @property
    def page_size(self) -> int:
        return self.k_pages_shape[LAYOUTS[self.pages_layout][0]]

    @property
    def heads(self) -> int:
        return self.k_pages_shape[LAYOUTS[self.pages_layout][1]]

    def split(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        """Strides of pages or of their scales by page, slot, head and column."""
        slot, head = LAYOUTS[self.pages_layout]
        return (strides[0], strides[slot], strides[head], *strides[3:])

    @property
    def tokens_shape(self) -> tuple[int, ...]:
        return self.k_shape[:-2]

    @property
    def v_shape(self) -> tuple[int, ...]:
        return (*self.k_shape[:-1], *self.v_pages_shape[-1:])

    @property
    def scales_shape(self) -> tuple[int, ...]:
        return self.k_pages_shape[:3]

    @property
    def requests_shape(self) -> tuple[int, ...]:
        return self.page_table_shape[:1]

    @property
    def offsets_shape(self) -> tuple[int, ...]:
        return (self.page_table_shape[0] + 1,)

    @property
    def heads_shape(self) -> tuple[int, ...]:
        return (self.heads,)

    @property
    def empty(self) -> bool:
        return self.requests == 0

    # ---- validity ---------------------------------------------------------------------------------------------------

    def check(self) -> None:
        words = "[pages, page, H, D]" if self.pages_layout == "NHD" else "[pages, H, page, D]"
        for name in ("k_pages", "v_pages"):
            shape = getattr(self, f"{name}_shape")
            if len(shape) != 4:
                raise InvalidProblemError(f"{self.op}: {name} has shape {shape}", f"pass {words}")
        if self.v_pages_shape[:3] != self.k_pages_shape[:3]:
            raise InvalidProblemError(
                f"{self.op}: v_pages has shape {self.v_pages_shape} and k_pages {self.k_pages_shape}",
                f"give both {words}, only D may differ",
            )
        if self.page_size < 1:
            raise InvalidProblemError(f"{self.op}: pages of {self.page_size} slots", "give a page one slot or more")
        if len(self.page_table_shape) != 2:
            raise InvalidProblemError(
                f"{self.op}: page_table has shape {self.page_table_shape}", "pass [B, pages a request]"
            )
        self._check_tokens()
        self._check_scales()
        self._check_rotation()

    def _check_tokens(self) -> None:
        ends = (self.heads, self.k_pages_shape[3])
        shape, words = self.k_shape, "[T, H, D]" if self.ragged else "[B, T, H, D], or [T, H, D] with cu_seqlens"
        if len(shape) != (3 if self.ragged else 4):
            raise InvalidProblemError(f"{self.op}: k has shape {shape}", f"pass {words}")
        if shape[-2:] != ends:
            raise InvalidProblemError(
                f"{self.op}: k has {shape[-2]} heads of {shape[-1]}, and k_pages {ends[0]} of {ends[1]}",
                f"pass {words}",
            )
        if not self.ragged and shape[0] != self.requests:
            raise InvalidProblemError(
                f"{self.op}: k has {shape[0]} requests and page_table {self.requests}", "give both as many"
            )

    def _check_scales(self) -> None:
        written = [name for name in ("k_scales", "v_scales") if self.has(name)]
        given = [name for name in ("k_scale", "v_scale") if self.has(name)]
        if not self.quantized:
            if written or given:
                raise InvalidProblemError(
                    f"{self.op}: {(written + given)[0]} was passed and {self.element} is stored as it is",
                    "leave it out",
                )
            return
        if self.pages_element not in QUANTIZED or self.element not in WIDE:
            raise OperandTypeError(
                f"{self.op}: k holds {self.element} and k_pages {self.pages_element}",
                "give both one dtype, or pages of i8 or fp8_e4m3 for tokens of f16, bf16 or f32",
            )
        if len(written) + len(given) != 2 or len(written) == 1:
            had = ", ".join(written + given) or "none"
            raise InvalidProblemError(
                f"{self.op}: {self.pages_element} pages need scales, got {had}",
                "pass k_scales and v_scales, which are written, or k_scale and v_scale, one a head",
            )

    def _check_rotation(self) -> None:
        given = [name for name in ("inv_freq", "cos", "sin") if self.has(name)]
        if not given:
            idle = [
                name for name, means in (("positions", self.has("positions")), ("style", self.style != "half")) if means
            ]
            for name in idle:
                raise InvalidProblemError(f"{self.op}: {name} was passed and no angles", ANGLES_FIX)
            _check_factor_alone(self.op, self.attention_factor)
            return
        if self.element not in WIDE:
            raise OperandTypeError(
                f"{self.op}: {given[0]} was passed and k holds {self.element}",
                "pass f16, bf16 or f32, which can be turned",
            )
        self.check_angles("k", self.k_shape[-1])

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        check_factor(op, values)

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        if not self.rotates_keys:
            _check_factor_alone(self.op, values["attention_factor"])
        return values

    def turning(self) -> RopeDescriptor:
        """`rope` of the keys as they come, at positions that are given."""
        given: dict[str, Any] = {
            "shape": self.k_shape, "element": self.element, "style": self.style, "attention_factor": self.attention_factor,
            "head_layout": "THD" if self.ragged else "BSHD", "positions_shape": self.tokens_shape,
            "inv_freq_shape": self.inv_freq_shape, "cos_shape": self.cos_shape, "sin_shape": self.sin_shape,
            "cos_element": self.cos_element, "sin_element": self.sin_element,
        }  # fmt: skip
        return RopeDescriptor(**given)


def _check_factor_alone(op: str, factor: float) -> None:
    """Raises for a factor of angles where there are none."""
    if factor != 1.0:
        raise InvalidProblemError(f"{op}: attention_factor={factor} was passed and no angles", ANGLES_FIX)


class PagedKvAppendPlan(Plan[PagedKvAppendDescriptor]):
    """Appends to the pages of a cache: operands `k_pages`, `v_pages` (and `k_scales`, `v_scales`) in place, `k`, `v`,
    `page_table`, `lengths`, as the problem has them `cu_seqlens`, `k_scale`, `v_scale`, and `status` out."""

    descriptor = PagedKvAppendDescriptor
    statuses = {
        1: ("the request's row of the page table is too short, or its length negative", "reserve more pages for it"),
        2: ("a page's id is not in [0, P)", "fill the request's row of page_table with ids of pages"),
        3: ("cu_seqlens decreases, begins below 0 or ends behind the tokens", "pass sums of the requests' lengths"),
        4: ("a position is outside of cos and sin", "pass longer tables"),
    }
    category = OpCategory.ATTENTION
    candidates = (FewPages(), ManyPages())
    measures = rotated.MEASURES
    probes = tuple(
        {
            "k_pages_shape": (256, page, heads, dim), "v_pages_shape": (256, page, heads, v_dim), "k_shape": k_shape,
            "page_table_shape": (batch, 2048 // page), "pages_element": pages, "element": element, **more,
        }
        for page, heads, dim, v_dim, batch, k_shape, pages, element, more in (
            (16, 8, 128, 128, 64, (64, 1, 8, 128), "bf16", "bf16", {}),
            (64, 8, 128, 128, 4, (4, 1024, 8, 128), "bf16", "bf16", {}),
            (64, 8, 128, 128, 4, (4096, 8, 128), "f16", "f16", {"cu_seqlens_element": "i32"}),
            (1, 3, 72, 40, 4, (19, 3, 72), "f32", "f32", {"cu_seqlens_element": "i32"}),
            (16, 8, 128, 128, 4, (64, 8, 128), "i8", "bf16",
             {"cu_seqlens_element": "i32", "k_scales_element": "f32", "v_scales_element": "f32"}),
            (16, 8, 128, 128, 64, (64, 1, 8, 128), "bf16", "bf16", {"inv_freq_shape": (64,)}),
            (16, 8, 128, 128, 4, (64, 8, 128), "fp8_e4m3", "bf16",
             {"cu_seqlens_element": "i32", "k_scale_element": "f32", "v_scale_element": "f32", "positions_element": "i32",
              "cos_shape": (4096, 32), "sin_shape": (4096, 32), "style": "interleaved"}),
            (16, 1, 576, 512, 4, (4, 1, 1, 576), "fp8_e4m3", "f16", {"k_scale_element": "f32", "v_scale_element": "f32"}),
        )
    )  # fmt: skip
    reference = oracle.paged_kv_append
    reference_guarantee = guarantee_of


@function_of(PagedKvAppendPlan)
def paged_kv_append(
    k_pages: Any, v_pages: Any, k: Any, v: Any, page_table: Any, lengths: Any, *, cu_seqlens: Any = None, layout: str = "NHD",
    k_scales: Any = None, v_scales: Any = None, k_scale: Any = None, v_scale: Any = None, inv_freq: Any = None, cos: Any = None,
    sin: Any = None, positions: Any = None, style: str = "half", attention_factor: float = 1.0, status: Any = None,
) -> Any:  # fmt: skip
    """Writes new tokens behind those that the requests of a paged cache have; returns what it wrote, `status` last.

    k_pages, v_pages: [P, page, H, D] (``layout="NHD"``) or [P, H, page, D] (``"HND"``), written in place; D may differ.
    k, v: [B, T, H, D], T tokens for every request, or [T, H, D] of all requests, of which b has those from cu_seqlens[b] to
    cu_seqlens[b + 1] (device int32 [B + 1]; tokens before the first and behind the last belong to no sequence).
    page_table: device int32 [B, N], the pages of each request in order. lengths: device int32 [B], how many tokens a request
    has *before* the append: its token i goes to page_table[b, (lengths[b] + i) // page], slot (lengths[b] + i) % page. No two
    tokens may go to the same slot. All three are read at launch, so that a captured graph follows a batch that grows.
    Tokens of the pages' dtype are stored unchanged. f16, bf16 and f32 are quantised to pages of int8 or fp8_e4m3: with
    `k_scales`, `v_scales` (f32, [P, page, H] or [P, H, page] as `layout` says, written in place) by a scale a token and head,
    max(amax / M, 2**-126) of the largest finite magnitude amax and M = 127 or 448, and 1 where amax is 0; or by `k_scale`,
    `v_scale` (f32 [H]), given. The code of x is x * (1 / scale) in f32, rounded to nearest even, held to [-M, M]; NaN is 0 in
    int8 and NaN in fp8.
    With `inv_freq` (f32 [rotary_dim / 2]: a `RopeScaling`'s ``on(k)``), or `cos` and `sin` (f32 or k's dtype, [positions,
    rotary_dim / 2]), keys of f16, bf16 or f32 are rotated before they are stored or quantised: bit for bit as `rope` does it, by
    `style` and `attention_factor`. Token i of request b is rotated by the position lengths[b] + i, or by what `positions` says
    (device int32 or int64, [B, T] or [T]).
    status: device int32 [B], allocated if not given. 0: written. Else nothing of the request is: 1 where its row of the table
    is too short (or its length negative), 2 where a page's id is not in [0, P), 4 where a position is outside of the tables, 3,
    for all requests, where cu_seqlens decreases, begins below 0 or ends behind the tokens.
    """


register(Op("paged_kv_append", PagedKvAppendPlan, paged_kv_append, samples.paged_kv_append))
