"""kv_append: new keys and values written into contiguous caches at positions read on the device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Descriptor, Layout, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...tensor import Tensor
from ...types import (
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    OpCategory,
)
from ...types.errors import shown
from ...types.keeping import complete
from .._function import function_of
from .._launch import append_shape, divisor, grid_of, index_scalar, index_type, pack_dims, words_of
from . import oracle
from ._copy_cost import BandwidthCosts
from .samples import copies as samples

__all__ = ["KvAppendDescriptor", "KvAppendPlan", "kv_append"]

BYTES = tuple(kind for kind in ElementKind if not kind.packed)
LAYOUTS = {"BHSD": 2, "BSHD": 1}  # where the token axis is


@described(
    Slot("k_cache", "inout", takes=BYTES, shape="cache_shape"),
    Slot("v_cache", "inout", takes=BYTES, shape="cache_shape"),
    Slot("k", takes=BYTES, shape="new_shape"),
    Slot("v", takes=BYTES, shape="new_shape"),
    Slot("positions", takes=(ElementKind.I32, ElementKind.I64), shape="sequences", strided=False, aligned=False),
    Slot("status", "out", element=ElementKind.I32, shape="sequences", strided=False, aligned=False),
    last=("wrap",),
)
class KvAppendDescriptor(Descriptor):
    """Caches of `cache_shape` ([B, H, S, D] or [B, S, H, D]) and `tokens` new tokens for every sequence, in the same layout.
    With `wrap`, positions are taken modulo S."""

    cache_shape: tuple[int, ...]
    tokens: int
    element: ElementKind
    cache_layout: str = "BHSD"
    positions_element: ElementKind = ElementKind.I64
    wrap: bool = False

    name = "kv_append"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.wrap, (bool, np.bool_)):
            raise InvalidProblemError(f"kv_append: wrap={shown(self.wrap)}", "give True or False")
        complete(self, wrap=bool(self.wrap))
        self._member(tuple(LAYOUTS), "cache_layout", upper=True)

    @classmethod
    def of(
        cls, k_cache: Any, v_cache: Any, k: Any, v: Any, positions: Any, layout: str = "BHSD", wrap: bool = False
    ) -> Self:
        """The descriptor of arrays of any layout."""
        named = {"k_cache": k_cache, "v_cache": v_cache, "k": k, "v": v, "positions": positions}
        tensors = cls.taken(cls.name, named)
        new = tensors["k"].shape
        if len(new) != 4:
            raise InvalidProblemError(f"kv_append: k has rank {len(new)}", f"pass k of shape {layout}")
        tokens = new[LAYOUTS.get(str(layout).upper(), 2)]
        return cls.of_tensors(tensors, tokens=tokens, cache_layout=layout, wrap=wrap)

    @property
    def token_axis(self) -> int:
        return LAYOUTS[self.cache_layout]

    @property
    def new_shape(self) -> tuple[int, ...]:
        shape = list(self.cache_shape)
        shape[self.token_axis : self.token_axis + 1] = [self.tokens]
        return tuple(shape)

    @property
    def sequences(self) -> tuple[int, ...]:
        return self.cache_shape[:1]

    def check(self) -> None:
        if len(self.cache_shape) != 4:
            raise InvalidProblemError(
                f"kv_append: caches of shape {self.cache_shape}", f"pass rank-4 caches, {self.cache_layout}"
            )
        if not 0 <= self.tokens <= self.cache_shape[self.token_axis]:
            raise InvalidProblemError(
                f"kv_append: {self.tokens} tokens do not fit a cache of {self.cache_shape[self.token_axis]}",
                "append fewer, or allocate a longer cache",
            )

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if "status" in tensors:
            return
        length, positions = self.cache_shape[self.token_axis], tensors["positions"].array()
        wrong = np.flatnonzero((positions < 0) | ((positions > length - self.tokens) & (not self.wrap)))
        if wrong.size:
            b = int(wrong[0])
            if self.wrap:
                raise InvalidProblemError(
                    f"kv_append: positions[{b}] = {int(positions[b])} is negative, and wrap=True counts tokens from 0",
                    f"give 0 or more, or pass status=, an int32 array of shape {self.sequences} that is then 1 there",
                )
            raise InvalidProblemError(
                f"kv_append: positions[{b}] = {int(positions[b])} is out of range: {self.tokens} tokens from there do not fit "
                f"k_cache and v_cache, which have {length} places per sequence",
                f"give 0 to {length - self.tokens}, allocate longer caches, or pass status=, an int32 array of shape "
                f"{self.sequences} that is then 1 for such a sequence",
            )


class PerSequence(Candidate[KvAppendDescriptor]):
    """Both caches in one launch; each sequence's position is read and checked on the device."""

    variant = "per_sequence"
    launches = ("shape_layout/append.cu:append_runs", "shape_layout/append_wrap.cu:append_wrapped")
    unaligned = True

    def cost(self, desc: KvAppendDescriptor, device: DeviceSpec, config: Any) -> Cost:
        moved = 4 * desc.element.nbytes(math.prod(desc.new_shape))
        return Cost.streaming(device, moved, efficiency=BandwidthCosts.of(device).append_efficiency)

    def lower(self, desc: KvAppendDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        append = _append_wrapped if desc.wrap else _append
        if (
            desc.layout("k").strides == desc.layout("v").strides
            and desc.layout("k_cache").strides == desc.layout("v_cache").strides
        ):
            return (append(desc, device, ("k", "v")),)
        return append(desc, device, ("k",)), append(desc, device, ("v",))


def _walked(desc: KvAppendDescriptor, parts: tuple[str, ...]) -> tuple[int, int, Layout, list[list[int]]]:
    """The bytes of an element, the alignment that all operands have, the layout of the new tokens, and the strides in bytes of a
    cache and of them."""
    size = desc.element.bits // 8
    cache, new = desc.layout(f"{parts[0]}_cache"), desc.layout(parts[0])
    align = min(lay.align for p in parts for lay in (desc.layout(p), desc.layout(f"{p}_cache")))
    return size, align, new, [[s * size for s in lay.strides] for lay in (cache, new)]


def _append(desc: KvAppendDescriptor, device: DeviceSpec, parts: tuple[str, ...]) -> Launch:
    """One launch for one cache, or for both where their layouts are the same. The sequence axis stays first and is not merged."""
    size, align, new, walks = _walked(desc, parts)
    step = walks[0][desc.token_axis]
    leads = [walk[0] for walk in walks]
    shape, inner, word = words_of(new.shape[1:], [walk[1:] for walk in walks], size, align, (*leads, step))
    extents = (new.shape[0], *shape)
    strides = [(lead, *walk) for lead, walk in zip(leads, inner)]
    count = math.prod(extents)
    index = index_type(max(count, new.shape[0]))  # sequences are counted even without tokens
    threads, unroll = append_shape(count, device)
    a, b = parts[0], parts[-1]
    args = (
        Ptr(f"{a}_cache"), Ptr(f"{b}_cache"), Ptr(a), Ptr(b), Ptr("positions"), Ptr("status"),
        index_scalar(desc.cache_shape[0], index), np.int64(desc.cache_shape[desc.token_axis] - desc.tokens),
            np.int64(step), index_scalar(count, index),
        divisor(count // max(new.shape[0], 1), index), pack_dims(extents, strides, index),
    )  # fmt: skip
    taken = f"{word}, {threads}, {unroll}, {len(parts)}"
    entry = f"append_runs<{index}, {desc.positions_element.number}, {len(extents)}, {taken}, true>"
    grid = (grid_of(count, threads * unroll)[0], len(parts), 1)
    return Launch(Kernel("shape_layout/append.cu", entry), grid, (threads, 1, 1), args)


def _append_wrapped(desc: KvAppendDescriptor, device: DeviceSpec, parts: tuple[str, ...]) -> Launch:
    """The same for a circular cache. The token axis comes second and does not move in the cache: the kernel finds its place."""
    size, align, new, walks = _walked(desc, parts)
    axis = desc.token_axis
    inner = [[s for i, s in enumerate(walk) if i not in (0, axis)] for walk in walks]
    step, steps = walks[0][axis], [walks[0][0], walks[1][0], walks[0][axis], walks[1][axis]]
    shape = [n for i, n in enumerate(new.shape) if i not in (0, axis)]
    rest, strides, word = words_of(shape, inner, size, align, steps)
    extents = (new.shape[0], desc.tokens, *rest)
    moved = [(walks[0][0], 0, *strides[0]), (walks[1][0], walks[1][axis], *strides[1])]
    count = math.prod(extents)
    index = index_type(max(count, new.shape[0]))
    threads = append_shape(count, device)[0]
    a, b = parts[0], parts[-1]
    args = (
        Ptr(f"{a}_cache"), Ptr(f"{b}_cache"), Ptr(a), Ptr(b), Ptr("positions"), Ptr("status"),
        index_scalar(new.shape[0], index), np.uint64(desc.cache_shape[axis]), np.int64(step), index_scalar(count, index),
        divisor(count // max(new.shape[0], 1), index), divisor(math.prod(rest), index), pack_dims(extents, moved, index),
    )  # fmt: skip
    entry = f"append_wrapped<{index}, {desc.positions_element.number}, {len(extents)}, {word}, {threads}, {len(parts)}>"
    grid = (grid_of(count, threads)[0], len(parts), 1)
    return Launch(Kernel("shape_layout/append_wrap.cu", entry), grid, (threads, 1, 1), args)


class KvAppendPlan(Plan[KvAppendDescriptor]):
    """Appends to a pair of caches: operands `k_cache`, `v_cache` (in place), `k`, `v`, `positions`, and `status` out."""

    descriptor = KvAppendDescriptor
    statuses = {
        1: (
            "the tokens do not fit the cache at the sequence's position",
            "give 0 to S - T, or 0 or more with wrap=True",
        ),
    }
    category = OpCategory.SHAPE_LAYOUT
    candidates = (PerSequence(),)
    probes = tuple(
        {
            "cache_shape": shape,
            "tokens": tokens,
            "element": element,
            "cache_layout": layout,
            "positions_element": positions,
        }
        for shape, tokens, element, layout, positions in (
            ((4, 3, 17, 64), 1, "bf16", "BHSD", "i64"),
            ((4, 17, 3, 64), 3, "fp8_e4m3", "BSHD", "i32"),
            ((64, 8, 4096, 128), 16, "f16", "BHSD", "i32"),
            ((2, 3, 9, 5), 2, "f32", "BHSD", "i64"),
        )
    ) + ({"cache_shape": (4, 3, 17, 64), "tokens": 3, "element": "bf16", "wrap": True},)
    reference = oracle.kv_append


@function_of(KvAppendPlan)
def kv_append(
    k_cache: Any,
    v_cache: Any,
    k: Any,
    v: Any,
    positions: Any,
    *,
    layout: str = "BHSD",
    wrap: bool = False,
    status: Any = None,
) -> Any:
    """Writes `k` and `v` into the caches at each sequence's position; returns (k_cache, v_cache, status).

    k_cache, v_cache: [B, H, S, D] or [B, S, H, D] (`layout`), written in place, any byte-wide kind. k, v: the same layout with
    T new tokens for S. positions: device int32 or int64 [B], the first token's place in each sequence, read at launch.
    wrap: token t of a sequence is written at (position + t) % S, so that a cache of S places keeps the last S tokens; a
    negative position does not fit.
    status: device int32 [B], 0 where the tokens were written, 1 where they do not fit: nothing of that sequence is written. It
    is allocated if not given. A call on a GPU does not wait for it, so it raises nothing: look at the status. On
    ``device="cpu"`` and ``"ptx"`` a position out of range raises InvalidProblemError, unless `status` is given.
    """


register(Op("kv_append", KvAppendPlan, kv_append, samples.kv_append))
