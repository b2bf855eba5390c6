"""cascade: the prefix's keys once for the queries of all sequences, every sequence's own keys, and the merge of both.

The queries of all sequences are one sequence of queries to the prefix, which sees all of its keys. For the kernels of whole
sequences the prefix may be several sequences of pages, each for the same queries: a CTA of these kernels takes all keys of a
sequence, and few queries fill no device otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

from ....plan.candidate import OK, Candidate, Change, Cost, Feasibility, no
from ....plan.lowering import Place, Sub
from ....plan.select import cheapest, checked
from ....plan.selection import Selection, selected
from ....runtime.steps import Arg, Fill, Kernel, Launch, Packed, Ptr, Run, Scratch, Step, Struct
from ....tensor.axes import alignment_of, c_strides
from ....types import BaracudaError, DeviceSpec, ElementKind, PlanPreference, PrecisionGuarantee, UnsupportedError
from ..._launch import overlapped_overhead
from .._decode.flash_pages import FlashPages
from .._decode.wgmma_pages import WgmmaPages
from ..merge import MergeAttentionDescriptor, MergeAttentionPlan
from ..paged import PagedAttentionDescriptor, PagedAttentionPlan
from .guarantee import merged

__all__ = ["Cascade", "CascadeConfig", "PrefixDescriptor"]

F32, I32 = ElementKind.F32, ElementKind.I32
ANY, INVARIANT = PlanPreference(), PlanPreference(batch_invariant=True)
WHOLE_SEQUENCES = (FlashPages(), WgmmaPages())  # a CTA takes all keys of a sequence
PARTS = (2, 4, 8, 16, 32)  # sequences that the prefix is taken for
LEAST_KEYS = 512  # of each of them
MODEL = "model"  # the provenance of a choice by predicted time
THREADS = 256
ALIGN = 256  # bytes, of scratch
VALUES = ("scale", "softcap", "k_scale", "v_scale")  # of the parts, as of the whole
ABSENT = Packed(bytes(8))


class PrefixDescriptor(PagedAttentionDescriptor):
    """Every query sees every key of its sequence."""

    causal: ClassVar[bool] = False  # type: ignore[misc]


@dataclass(frozen=True)
class CascadeConfig:
    """A configuration: the prefix as `count` sequences, and the plans of the parts."""

    count: int
    parts: tuple[tuple[str, Selection], ...]

    def __str__(self) -> str:
        named = (
            f"{name}={part.candidate.variant}" + (f"[{part.config}]" if str(part.config) else "")
            for name, part in self.parts
        )
        return " ".join((f"prefix_parts={self.count}", *named))

    @property
    def of(self) -> dict[str, Selection]:
        return dict(self.parts)


class Cascade(Candidate[Any]):
    """Plans of `paged_attention` for the prefix and for the sequences' own keys, and one of `merge_attention`."""

    variant = "cascade"
    launches = (
        "attention/cascade.cu:attention_cascade_prefix",
        *dict.fromkeys(launch for each in PagedAttentionPlan.candidates for launch in each.launches),
    )

    def supports(self, desc: Any, device: DeviceSpec) -> Feasibility:
        if not desc.one_after_another:
            reason = "q's tokens and sequences are not evenly spaced, and the prefix takes all of them as one sequence"
            return no(reason, "contiguize(q)", Change({"q_strides": c_strides(desc.q_shape, desc.element)}))
        for part, made in (("prefix", _prefix), ("own keys", _own)):
            try:
                made(desc, device, ANY)
            except BaracudaError as error:
                said = error.reason.removeprefix(f"{desc.op}: ")
                return Feasibility.of(UnsupportedError(f"{desc.op}: {part}: {said}", error.fix))
        return OK

    def configs(self, desc: Any, device: DeviceSpec) -> Iterable[CascadeConfig]:
        """The prefix as one sequence and as several, and where each part's bits depend on no other sequence."""
        yield from (made := list(self._fast(desc, device)))
        yield from self._invariant(desc, device, made[0])

    def ranked(self, desc: Any, device: DeviceSpec) -> Iterator[tuple[CascadeConfig, float]]:
        """As of any candidate. Parts of the model's choice are at least as fast as those that are chosen for invariance, so these
        are chosen only where none of the faster configurations is admitted."""
        made = list(self._fast(desc, device))
        priced = [(config, self.cost(desc, device, config).seconds) for config in made]
        first = priced[0][1] if all(part.provenance == MODEL for _, part in made[0].parts) else -math.inf
        yield from sorted((pair for pair in priced if pair[1] <= first), key=itemgetter(1))
        rest = [pair for pair in priced if pair[1] > first]
        rest += [(each, self.cost(desc, device, each).seconds) for each in self._invariant(desc, device, made[0])]
        yield from sorted(rest, key=itemgetter(1))

    def _fast(self, desc: Any, device: DeviceSpec) -> Iterator[CascadeConfig]:
        own = _own(desc, device, ANY)
        yield self._config(desc, device, 1, _prefix(desc, device, ANY), own)
        for count in PARTS:
            if count * LEAST_KEYS <= desc.prefix_capacity and (found := _split_prefix(desc, device, count)):
                yield self._config(desc, device, count, found, own)

    def _invariant(self, desc: Any, device: DeviceSpec, fastest: CascadeConfig) -> Iterator[CascadeConfig]:
        try:
            made = self._config(desc, device, 1, _prefix(desc, device, INVARIANT), _own(desc, device, INVARIANT))
        except BaracudaError:
            return
        if str(made) != str(fastest):
            yield made

    def _config(self, desc: Any, device: DeviceSpec, count: int, prefix: Selection, own: Selection) -> CascadeConfig:
        return CascadeConfig(count, (("prefix", prefix), ("own", own), ("merge", _merge(desc, device, count))))

    def cost(self, desc: Any, device: DeviceSpec, config: CascadeConfig) -> Cost:
        costs = [part.cost for _, part in config.parts]
        longest = max(costs, key=lambda cost: cost.seconds)
        seconds = sum(c.seconds for c in costs)
        seconds += overlapped_overhead(device) if self._prepares(desc, config) else 0.0
        return Cost(desc.nbytes, sum(c.flops for c in costs), seconds, longest.limit)

    def guarantee(self, desc: Any, device: DeviceSpec, config: CascadeConfig) -> PrecisionGuarantee:
        parts = config.of["prefix"].guarantee, config.of["own"].guarantee
        return merged(desc, parts, config.count + 1, desc.most_k)

    def lower(self, desc: Any, device: DeviceSpec, config: CascadeConfig) -> tuple[Step | Sub, ...]:
        places, count = _Places.of(desc, config.count), config.count
        own: dict[str, Place] = {"page_table": Ptr("page_table"), "lengths": Ptr("lengths"), **places.of_part(count)}
        own |= {name: Ptr(name) for name in ("cu_seqlens_q", "sinks", "status") if desc.has(name)}
        prefix: dict[str, Place] = {
            "page_table": places.table if self._copies(desc, config) else Ptr("prefix_table"),
            "lengths": places.lengths if self._prepares(desc, config) else Ptr("prefix_length"),
            **places.of_part(0),
        }
        shared = ("q", "k_pages", "v_pages", "k_scales", "v_scales")
        both: dict[str, Place] = {name: Ptr(name) for name in shared if desc.has(name)}
        result: dict[str, Place] = {name: Ptr(name) for name in ("out", "lse") if desc.has(name)}
        # Ragged rows that are in no sequence have no keys of their own: their lse is NaN
        cleared = (Fill(places.own_lses, 0xFF, places.own_lses.nbytes),) if desc.ragged else ()
        return (
            *cleared,
            Sub(config.of["own"], both | own, VALUES),
            *((self._prepare(desc, config, places),) if self._prepares(desc, config) else ()),
            Sub(config.of["prefix"], both | prefix, VALUES),
            Sub(config.of["merge"], {"outs": places.outs, "lses": places.lses, **result}),
        )

    def _copies(self, desc: Any, config: CascadeConfig) -> bool:
        """Whether the table is copied: for several parts, or since its entries are not contiguous."""
        return config.count > 1 or not desc.contiguous_table

    def _prepares(self, desc: Any, config: CascadeConfig) -> bool:
        """Whether parts, the length or the status must be written ahead of the prefix."""
        return self._copies(desc, config) or not desc.has("prefix_length") or desc.has("status")

    def _prepare(self, desc: Any, config: CascadeConfig, places: _Places) -> Launch:
        pages = -(-desc.prefix_pages // config.count)
        extents = (desc.prefix_pages, desc.page_keys, desc.pages, config.count, pages, desc.batch)
        length: Arg = Ptr("prefix_length") if desc.has("prefix_length") else ABSENT
        status: Arg = Ptr("status") if desc.has("status") else ABSENT
        table: Arg = places.table if self._copies(desc, config) else ABSENT
        fields = (
            Ptr("prefix_table"), length, table, places.lengths, status,
            np.int64(desc.layout("prefix_table").strides[0]), Run("prefix_keys", "int64"),
            Packed(np.array(extents, np.uint32).tobytes(), 4),
        )  # fmt: skip
        kernel = Kernel("attention/cascade.cu", f"attention_cascade_prefix<{THREADS}>")
        return Launch(kernel, (1, 1, 1), (THREADS, 1, 1), (Struct(fields),), pdl=True)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Places:
    """Scratch: the results of all parts, the sequences' own last, and the prefix's parts."""

    outs: Scratch
    lses: Scratch
    lengths: Scratch
    table: Scratch
    count: int

    @staticmethod
    def of(desc: Any, count: int) -> _Places:
        sizes = (
            4 * (count + 1) * desc.rows * desc.d_v, 4 * (count + 1) * desc.rows, 4 * count,
            4 * count * -(-desc.prefix_pages // count),
        )  # fmt: skip
        regions, end = [], 0
        for nbytes in sizes:
            regions.append(Scratch(end, nbytes))
            end += -(-nbytes // ALIGN) * ALIGN
        return _Places(regions[0], regions[1], regions[2], regions[3], count)

    def of_part(self, part: int) -> dict[str, Place]:
        """The results of the parts from one on."""
        return {"out": self._from(self.outs, part), "lse": self._from(self.lses, part)}

    @property
    def own_lses(self) -> Scratch:
        return self._from(self.lses, self.count)

    def _from(self, region: Scratch, part: int) -> Scratch:
        begins = region.nbytes // (self.count + 1) * part
        return Scratch(region.offset + begins, region.nbytes - begins)


# ---- the parts ------------------------------------------------------------------------------------------------------


def _laid_out(desc: Any, *names: str) -> dict[str, Any]:
    """The fields of operands that a part takes unchanged."""
    found: dict[str, Any] = {}
    for name in names:
        if desc.has(name):
            x, slot = desc.layout(name), desc.slot_of[name]
            found |= {f"{name}_shape": x.shape} | ({f"{name}_strides": x.strides} if slot.strided else {})
            found |= {f"{name}_align": x.align} if slot.aligned else {}
            found |= {f"{name}_element": x.element} if slot.optional else {}
    return found


def _common(desc: Any) -> dict[str, Any]:
    return {
        **_laid_out(desc, "k_pages", "v_pages", "k_scales", "v_scales"), "element": desc.element, "page_layout": desc.page_layout,
        "softcapped": desc.softcapped, "out_element": F32, "lse_element": F32, "cache_element": desc.cached,
    }  # fmt: skip


def _prefix_problem(desc: Any, count: int) -> PrefixDescriptor:
    """All queries as those of `count` sequences of pages each."""
    row, head = desc.row_strides
    pages = -(-desc.prefix_pages // count)
    fields = _common(desc) | {
        "q_shape": (count, desc.tokens, desc.heads, desc.d), "q_strides": (0, row, head, 1), "q_align": desc.layout("q").align,
        "page_table_shape": (count, pages),
    }  # fmt: skip
    return PrefixDescriptor(**fields)


@lru_cache(maxsize=256)
def _prefix(desc: Any, device: DeviceSpec, pref: PlanPreference) -> Selection:
    """Whatever is fastest over the prefix as one sequence."""
    problem = _prefix_problem(desc, 1)
    found = cheapest(PagedAttentionPlan.candidates, checked(problem), pref, device)
    if found is None:
        known = next(
            said for c in PagedAttentionPlan.candidates if not (said := c.supports(problem.canonical(), device))
        )
        raise UnsupportedError(f"{desc.op}: {known.reason}", known.fix)
    return Selection.of(PagedAttentionPlan, problem, pref, device, found[0])


@lru_cache(maxsize=256)
def _split_prefix(desc: Any, device: DeviceSpec, count: int) -> Selection | None:
    problem = _prefix_problem(desc, count)
    found = cheapest(WHOLE_SEQUENCES, checked(problem), ANY, device)
    return found and Selection.of(PagedAttentionPlan, problem, ANY, device, found[0])


@lru_cache(maxsize=256)
def _own(desc: Any, device: DeviceSpec, pref: PlanPreference) -> Selection:
    """The sequences' own keys."""
    laid_out = _laid_out(desc, "cu_seqlens_q", "sinks") | {
        "q_shape": desc.q_shape, "q_strides": desc.layout("q").strides, "q_align": desc.layout("q").align,
        "page_table_shape": desc.page_table_shape, "page_table_strides": desc.layout("page_table").strides,
    }  # fmt: skip
    fields = _common(desc) | laid_out | {
        "order": desc.order, "max_seqlen_q": desc.max_seqlen_q, "lse_strides": _stats_strides(desc), "lse_align": 4,
        "out_align": alignment_of(4 * desc.rows * desc.d_v), "status_element": I32 if desc.has("status") else None,
    }  # fmt: skip
    return selected(PagedAttentionPlan, PagedAttentionDescriptor(**fields), pref, device)


@lru_cache(maxsize=256)
def _merge(desc: Any, device: DeviceSpec, count: int) -> Selection:
    """All parts' results. Where lse is no output, that of the merge is at no address."""
    out, fields = desc.layout("out"), dict[str, Any]()
    fields |= {"lses_strides": (desc.rows, *_stats_strides(desc)), "out_strides": out.strides, "out_align": out.align}
    if desc.has("lse"):
        fields |= {"lse_strides": desc.layout("lse").strides, "lse_align": desc.layout("lse").align}
    problem = MergeAttentionDescriptor((count + 1, *desc.out_shape), F32, desc.order, out.element, **fields)
    return selected(MergeAttentionPlan, problem, None, device)


def _stats_strides(desc: Any) -> tuple[int, ...]:
    """The steps of a part's lse, [heads, tokens] of all sequences together."""
    return (desc.total_q, 1) if desc.ragged else (desc.total_q, desc.tokens, 1)
