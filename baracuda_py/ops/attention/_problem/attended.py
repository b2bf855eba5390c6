"""What every attention problem has: layouts, head counts, which keys a query sees, how scores change, and lengths.

A problem is `batch` sequences of `heads` query heads over `kv_heads` heads of keys and values. Kernels see every operand as
[batch, head, row, column] with a stride each and contiguous rows (kernels/include/attention/problem.cuh).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ....plan.descriptor import Descriptor
from ....types import ElementKind, InvalidProblemError, MathPrecision, OperandTypeError
from ....types.keeping import complete
from .visible import Visible

__all__ = ["FLOATS", "LAYOUTS", "SHORT_KEYS", "Attended", "OperandStrides", "Visible", "computed"]

FLOATS = (ElementKind.F16, ElementKind.BF16, ElementKind.F32, ElementKind.F64)
LAYOUTS = ("BHSD", "BSHD", "THD")
MATHS = {
    ElementKind.F16: (MathPrecision.F16,),
    ElementKind.BF16: (MathPrecision.BF16,),
    ElementKind.F32: (MathPrecision.F32, MathPrecision.TF32),
    ElementKind.F64: (MathPrecision.F64,),
}  # how products may be formed, the default first
MASK_KINDS = {ElementKind.BOOL: 1, ElementKind.F32: 3}  # else 2: of q's own type
UNLIMITED = 1 << 40  # more keys than there are on one side
F32_LEAST, F32_MAX = 2.0**-126, (2 - 2.0**-23) * 2.0**127
SHORT_KEYS = 384  # scores of so many are kept in shared memory where the name is attention_tc's
ROWS_TO_FILL_DEVICE = 1 << 14  # of all heads of a sequence: a CTA an SM
MOST = (1 << 31) - 64  # rows, keys and columns that kernels count


class OperandStrides(NamedTuple):
    """An operand's steps in elements from one sequence, head and row to the next."""

    batch: int
    head: int
    row: int


def computed(element: ElementKind) -> ElementKind:
    """What scores and sums are kept in: f32, and f64 for f64."""
    return ElementKind.F64 if element is ElementKind.F64 else ElementKind.F32


class Attended(Descriptor):
    """What problems of attention have in common. A subclass has these fields, or states them, and operands q, k and v."""

    q_shape: tuple[int, ...]
    k_shape: tuple[int, ...]
    v_shape: tuple[int, ...]
    element: ElementKind
    order: str = "BHSD"  # the operands' layout: of LAYOUTS
    causal: bool = False
    window: tuple[int, ...] | None = None  # keys to the left and right; -1: all
    softcapped: bool = False
    offset_given: bool = False  # else the last query sees the last key
    block_size: tuple[int, ...] | None = None
    max_seqlen_q: int | None = None
    max_seqlen_k: int | None = None
    scale: float = math.inf  # infinite: 1 / sqrt(d)
    math: MathPrecision | None = None
    softcap: float = 1.0
    offset: float = 0.0
    values: ClassVar[tuple[str, ...]] = ("scale", "softcap", "offset")
    ahead: ClassVar[tuple[str, ...]] = (  # the first fields of problems of whole sequences
        "q_shape", "k_shape", "v_shape", "element", "order", "causal", "window", "softcapped", "offset_given", "block_size",
        "max_seqlen_q", "max_seqlen_k",
    )  # fmt: skip
    behind: ClassVar[tuple[str, ...]] = ("math", "scale", "softcap", "offset", "name")

    def __post_init__(self) -> None:
        self._member(LAYOUTS, "order", upper=True)
        for name in ("causal", "softcapped", "offset_given"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise InvalidProblemError(f"{self.op}: {name} must be True or False", "give a bool")
            complete(self, **{name: bool(getattr(self, name))})
        super().__post_init__()
        if self.window == (-1, -1):
            complete(self, window=None)

    def _check_ranks(self) -> None:
        """Before anything is asked of an axis."""
        ranks = (3,) if self.ragged else (2, 4)
        for name, shape in (("q", self.q_shape), ("k", self.k_shape), ("v", self.v_shape)):
            if len(shape) not in ranks or len(shape) != len(self.q_shape):
                wanted = "rank 3, [T, H, D]" if self.ragged else f"rank 4, {self.order}, or all of rank 2, [S, D]"
                raise InvalidProblemError(f"{self.op}: {name} has shape {shape}", f"pass {name} of {wanted}")

    # ---- shapes ---------------------------------------------------------------------------------------------------

    @property
    def ragged(self) -> bool:
        """Whether sequences of several lengths follow one another."""
        return self.order == "THD"

    @property
    def batch(self) -> int:
        if self.ragged:
            return (self.shape_of("cu_seqlens_q") or (1,))[0] - 1
        return self.q_shape[0] if len(self.q_shape) == 4 else 1

    @property
    def head_axis(self) -> int:
        return {"BHSD": 1, "BSHD": 2, "THD": 1}[self.order]

    @property
    def row_axis(self) -> int:
        return {"BHSD": 2, "BSHD": 1, "THD": 0}[self.order]

    def _extent(self, shape: tuple[int, ...], axis: int, alone: int) -> int:
        """Along an axis; of one head of one sequence, `alone`."""
        return alone if len(shape) == 2 else shape[axis]

    @property
    def heads(self) -> int:
        return self._extent(self.q_shape, self.head_axis, 1)

    @property
    def kv_heads(self) -> int:
        return self._extent(self.k_shape, self.head_axis, 1)

    @cached_property  # every configuration's cost asks
    def group(self) -> int:
        """Query heads that share keys and values."""
        return self.heads // max(self.kv_heads, 1)

    @property
    def total_q(self) -> int:
        """Queries, all sequences together where they are ragged."""
        return self._extent(self.q_shape, self.row_axis, self.q_shape[0])

    @property
    def total_k(self) -> int:
        return self._extent(self.k_shape, self.row_axis, self.k_shape[0])

    @property
    def most_q(self) -> int:
        """Queries of the longest sequence, as far as that is known."""
        return min(self.max_seqlen_q or self.total_q, self.total_q) if self.ragged else self.total_q

    @property
    def most_k(self) -> int:
        return min(self.max_seqlen_k or self.total_k, self.total_k) if self.ragged else self.total_k

    def launched_q(self, heads: int) -> int:
        """Queries of a sequence that CTAs are launched for, by kernels whose CTAs go on where a sequence has more. If the longest
        of ragged sequences is not known, that is twice the mean, or what the `heads` of one sequence keep a device busy with."""
        return self._launched(self.most_q, self.max_seqlen_q, self.rows_each, heads)

    def launched_k(self, heads: int) -> int:
        """The same of keys."""
        return self._launched(self.most_k, self.max_seqlen_k, self.keys_each, heads)

    def _launched(self, most: int, declared: int | None, mean: float, heads: int) -> int:
        if not self.ragged or declared is not None:
            return most
        return min(most, max(math.ceil(2 * mean), ROWS_TO_FILL_DEVICE // max(heads, 1), 1))

    @property
    def rows_each(self) -> float:
        """Queries of a sequence, taking ragged ones for equally long."""
        return self.total_q / max(self.batch, 1) if self.ragged else self.total_q

    @property
    def keys_each(self) -> float:
        return self.total_k / max(self.batch, 1) if self.ragged else self.total_k

    @property
    def d(self) -> int:
        return self.q_shape[-1]

    @property
    def d_v(self) -> int:
        return self.v_shape[-1]

    @property
    def out_shape(self) -> tuple[int, ...]:
        self._check_ranks()
        return (*self.q_shape[:-1], self.d_v)

    @property
    def stats_shape(self) -> tuple[int, ...]:
        """lse's: [B, H, S], ragged [H, T]."""
        self._check_ranks()
        if len(self.q_shape) == 2:
            return self.q_shape[:1]
        return (self.heads, self.total_q) if self.ragged else (self.batch, self.heads, self.total_q)

    @property
    def block_grid(self) -> tuple[int, int]:
        """Blocks of the block mask: along queries and keys."""
        rows, keys = self.block_size or (1, 1)
        return -(-self.most_q // max(rows, 1)), -(-self.most_k // max(keys, 1))

    # ---- what is computed -----------------------------------------------------------------------------------------

    @property
    def visible(self) -> Visible:
        left, right = (None if n < 0 else n for n in self.window or (-1, -1))
        return Visible(left, 0 if self.causal and right is None else min(right, 0) if self.causal and right else right)

    @property
    def precision(self) -> MathPrecision:
        return self.math or MATHS[self.element][0]

    @property
    def factor(self) -> float:
        """What products of queries and keys are multiplied with."""
        return 1 / math.sqrt(max(self.d, 1)) if math.isinf(self.scale) else self.scale

    def neutral(self) -> dict[str, Any]:
        return super().neutral() | {"math": self.precision}

    def _sequence(self) -> tuple[float, float, int]:
        """Queries, keys and offset of a sequence, taking ragged ones for equally long."""
        rows, keys = self.rows_each, self.keys_each
        return rows, keys, int(self.offset) if self.offset_given else int(keys) - int(rows)

    def pairs(self) -> float:
        """Scores that count, of all heads."""
        rows, keys, offset = self._sequence()
        return self.batch * self.heads * rows * self.visible.keys(int(rows), int(keys), offset)

    def query_tiles(self, queries: int) -> int:
        """Tiles of so many queries, of all heads."""
        return self.batch * self.heads * -(-int(self._sequence()[0]) // queries)

    def tiles(self, queries: int, keys: int) -> float:
        """Tiles of scores that kernels compute, of all heads: the blocks of keys that tiles of queries touch, whole ones."""
        rows, all_keys, offset = self._sequence()
        return self.query_tiles(queries) * self.visible.blocks(int(rows), int(all_keys), offset, (queries, keys))

    @property
    def flops(self) -> float:
        return 2.0 * self.pairs() * (self.d + self.d_v)

    # ---- values ---------------------------------------------------------------------------------------------------

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> Any:
        scale, softcap, offset = (values.get(name, 1.0) for name in ("scale", "softcap", "offset"))
        if not abs(scale) <= F32_MAX:  # NaN neither
            raise InvalidProblemError(f"{op}: scale={scale}", "give a number that f32 holds, by default 1 / sqrt(D)")
        if not F32_LEAST <= softcap <= F32_MAX:
            raise InvalidProblemError(f"{op}: softcap={softcap}", "give a number above 0 that f32 holds, or none")
        if not (abs(offset) < 2**31 and offset == int(offset)):
            raise InvalidProblemError(f"{op}: offset={offset}", "give the integer key that query 0 stands at")
        return None

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        """The run-time values of a call; InvalidProblemError for one out of range, or that the problem does not have."""
        for name, there in (("softcap", self.softcapped), ("offset", self.offset_given)):
            if name in given and not there:
                raise InvalidProblemError(
                    f"{self.op}: {name} is given and the problem has none", f"select a plan with {name}"
                )
        values = super().scalars(given)
        if "scale" not in given:
            values["scale"] = self.factor
        self.check_values(self.op, values, {})
        return values

    # ---- validity -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        self._check_shapes()
        self._check_masks()
        if self.math not in (None, *MATHS[self.element]):
            known = " or ".join(repr(str(m)) for m in MATHS[self.element])
            raise InvalidProblemError(f"{self.op}: math={str(self.math)!r} is not for {self.element}", f"give {known}")
        self.scalars({})

    def _check_shapes(self) -> None:
        q, k, v = self.q_shape, self.k_shape, self.v_shape
        self._check_ranks()
        self._check_extents("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k")
        if k[-1] != q[-1] or not q[-1]:
            raise InvalidProblemError(
                f"{self.op}: the head dim is {q[-1]} in q and {k[-1]} in k",
                "pass q and k with the same last axis, 1 or more",
            )
        if k[:-1] != v[:-1]:
            raise InvalidProblemError(
                f"{self.op}: k has shape {k} and v {v}", "pass k and v alike but for the last axis"
            )
        if not self.ragged and len(q) == 4 and q[0] != k[0]:
            raise InvalidProblemError(f"{self.op}: q has {q[0]} sequences and k {k[0]}", "pass as many")
        if self.kv_heads == 0 or self.heads % self.kv_heads:
            raise InvalidProblemError(
                f"{self.op}: q has {self.heads} heads and k {self.kv_heads}", "give q a multiple of k's head count"
            )
        self._check_lengths()

    def _check_extents(self, *names: str) -> None:
        """Raises where kernels could not count an axis."""
        for name in names:
            shape = self.shape_of(name) if name in self.slot_of else None
            if max(shape or (), default=0) > MOST:
                raise InvalidProblemError(f"{self.op}: {name} has shape {shape}", f"give extents of {MOST} at most")

    def _check_lengths(self) -> None:
        lengths = {name: self.shape_of(name) for name in ("cu_seqlens_q", "cu_seqlens_k") if name in self.slot_of}
        for name, shape in lengths.items():
            if (shape is not None) != self.ragged:
                fix = 'pass layout="THD" and both cu_seqlens_q and cu_seqlens_k, or neither of them'
                raise InvalidProblemError(f"{self.op}: {name} is {'missing' if shape is None else 'given'}", fix)
        shapes = set(lengths.values())
        if self.ragged and (len(shapes) != 1 or any(s is None or len(s) != 1 or s[0] < 1 for s in shapes)):
            said = " and ".join(f"{name} has shape {shape}" for name, shape in lengths.items())
            raise InvalidProblemError(
                f"{self.op}: {said}", "give both one entry more than there are sequences, from 0 on"
            )
        for name in ("max_seqlen_q", "max_seqlen_k"):
            longest = getattr(self, name)
            if longest is not None and (not self.ragged or longest < 0):
                raise InvalidProblemError(f"{self.op}: {name}={longest}", "give it with cu_seqlens_q alone, 0 or more")

    def _check_masks(self) -> None:
        if self.window is not None and (len(self.window) != 2 or min(self.window) < -1):
            raise InvalidProblemError(
                f"{self.op}: window={self.window}",
                "give keys to the left and to the right, each 0 or more, or -1 for all",
            )
        whole = (self.batch, self.heads, self.total_q, self.total_k)
        if (shape := self.shape_of("mask") if "mask" in self.slot_of else None) is not None:
            self._padded_only("mask")
            self._broadcasts("mask", shape, whole)
            if self.element_of("mask") not in (ElementKind.BOOL, ElementKind.F32, self.element):
                raise OperandTypeError(
                    f"{self.op}: mask holds {self.element_of('mask')}", f"cast it to {self.element}, f32 or bool"
                )
        if (shape := self.shape_of("block_mask") if "block_mask" in self.slot_of else None) is not None:
            self._padded_only("block_mask")
            if self.block_size is None or len(self.block_size) != 2 or min(self.block_size) < 1:
                raise InvalidProblemError(
                    f"{self.op}: block_mask with block_size={self.block_size}", "give the queries and keys of a block"
                )
            self._broadcasts("block_mask", shape, (*whole[:2], *self.block_grid), exact=2)
        elif self.block_size is not None:
            raise InvalidProblemError(f"{self.op}: block_size without block_mask", "pass block_mask too")
        self._check_per_head()

    def _padded_only(self, name: str) -> None:
        if self.ragged:
            raise InvalidProblemError(
                f"{self.op}: {name} and cu_seqlens_q together", f"leave out {name}, or pad sequences to one length"
            )

    def _check_per_head(self) -> None:
        for name, shapes in (
            ("alibi_slopes", ((self.heads,), (self.batch, self.heads))),
            ("sinks", ((self.heads,),)),
        ):
            shape = self.shape_of(name) if name in self.slot_of else None
            if shape is not None and shape not in shapes:
                raise InvalidProblemError(
                    f"{self.op}: {name} has shape {shape}", f"pass {' or '.join(str(s) for s in shapes)}"
                )
        if "sinks" in self.slot_of and self.element_of("sinks") not in (None, ElementKind.F32, self.element):
            raise OperandTypeError(
                f"{self.op}: sinks holds {self.element_of('sinks')}", f"cast it to {self.element} or f32"
            )

    def _broadcasts(self, name: str, shape: tuple[int, ...], whole: tuple[int, ...], exact: int = 0) -> None:
        """Raises where `shape` does not broadcast to `whole`, whose last `exact` axes it must have unchanged."""
        padded = (1,) * (len(whole) - len(shape)) + shape
        fits = len(shape) <= len(whole) and all(n in (1, w) for n, w in zip(padded, whole))
        if not fits or padded[len(whole) - exact :] != whole[len(whole) - exact :]:
            raise InvalidProblemError(f"{self.op}: {name} has shape {shape}", f"pass one that broadcasts to {whole}")

    # ---- what kernels see -----------------------------------------------------------------------------------------

    def strides_of(self, name: str) -> OperandStrides:
        """The steps of q, k, v, out or an operand of such a layout."""
        strides = self.layout(name).strides
        if len(strides) == 2:
            return OperandStrides(0, 0, strides[0])
        return OperandStrides(0 if self.ragged else strides[0], strides[self.head_axis], strides[self.row_axis])

    def stats_strides(self, name: str) -> OperandStrides:
        """The steps of lse or an operand of such a layout; nothing where there is none."""
        if not self.has(name):
            return OperandStrides(0, 0, 0)
        strides = (0, 0, 0, *self.layout(name).strides)[-3:]
        return OperandStrides(0 if self.ragged else strides[0], strides[1], strides[2])

    def broadcast_strides(self, name: str, rank: int) -> tuple[int, ...]:
        """The steps of an operand that is broadcast to `rank` axes; zeros where there is none."""
        if not self.has(name):
            return (0,) * rank
        layout = self.layout(name)
        steps = tuple(0 if n == 1 else s for n, s in zip(layout.shape, layout.strides))
        return (0,) * (rank - len(steps)) + steps
