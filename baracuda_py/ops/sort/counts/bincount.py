"""bincount: how many elements there are of each value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....tensor import Tensor
from ....types import ElementKind, InvalidProblemError, OpCategory
from ..._function import function_of
from ..._reported import REPORTED, STATUS, ReportedProblem
from . import oracle, samples
from ._bins import CANDIDATES, COUNTABLE, BinProblem

__all__ = ["BincountDescriptor", "BincountPlan", "bincount"]

INTEGERS = tuple(k for k in ElementKind if k.is_integer and not k.packed and k is not ElementKind.U64)


@described(
    Slot("out", "out", element=ElementKind.I64, shape="out_shape", strided=False),
    STATUS,
    Slot("x", takes=INTEGERS),
    fields=("shape", "element"),
)
class BincountDescriptor(ReportedProblem, BinProblem):
    """An integer x of `shape`, whose elements from 0 to `length` - 1 are counted. There is a `status` where `mode` is
    ``"status"``."""

    length: int
    mode: str = "drop"

    name = "bincount"
    uniform = False

    @property
    def bin_count(self) -> int:
        return self.length

    def check(self) -> None:
        if not 0 <= self.length <= COUNTABLE:
            raise InvalidProblemError(f"bincount: length={self.length}", f"give the number of bins, 0 to {COUNTABLE}")

    def refuse_values(self, tensors: Mapping[str, Tensor]) -> None:
        if self.mode != "raise":
            return
        x = tensors["x"].array()
        wrong = (x < 0) | (x.astype(np.int64) >= self.length)
        if wrong.any():
            at = tuple(map(int, np.argwhere(wrong)[0]))
            place = f"[{', '.join(map(str, at))}]" if at else ""
            raise InvalidProblemError(
                f"bincount: x{place} = {int(x[at])} has no bin among {self.length}",
                f'give 0 to {self.length - 1}, a greater length, or mode="drop" or "status"',
            )


class BincountPlan(Plan[BincountDescriptor]):
    """Elements by value: operands `x`, `out`, and with ``mode="status"`` `status`."""

    descriptor = BincountDescriptor
    category = OpCategory.SORT
    candidates = CANDIDATES
    statuses = {1: ("an element has no bin, and is not counted", "give 0 to length - 1, or a greater length")}
    probes = (
        {"shape": (5000,), "element": "i64", "length": 300},
        {"shape": (70, 130), "element": "u8", "length": 256, "x_strides": (131, 1), "mode": "status"},
        {"shape": (5000,), "element": "i32", "length": 50_000},
    )
    reference = oracle.bincount


@function_of(BincountPlan, rules=REPORTED)
def bincount(x: Any, length: int, *, mode: str = "drop", status: Any = None) -> Any:
    """How many elements of `x` have each value from 0 to `length` - 1: int64 [length], as jax.numpy.bincount(x, length=length).

    x: an array of integers of any shape and strides but u64, whose elements are counted one by one. `length` does not depend on
    the data, so that nothing waits for the device: numpy.bincount's is max(x) + 1. A sum of weights in place of a count is
    ``index_add(zeros(length), x, weights)``.
    mode: what becomes of an element that is negative or not below `length`. ``"drop"``: it is not counted. ``"status"``: the
    same, and `status`, a device int32 scalar (allocated if not given), is 1 where there was one, else 0; `check` raises from it.
    ``"raise"``: InvalidProblemError, before anything is written; on ``device="cpu"`` and ``"ptx"`` alone, because a call does not
    wait for a GPU.
    Counts are exact, the same at every call. Up to 12,288 bins are counted in shared memory; of more, every element is an atomic
    in L2, where many equal elements wait for each other.
    out: int64 [length], in C order; allocated if not given. Returns (out, status) with ``mode="status"``, else out alone.
    Raises InvalidProblemError for a length that is not 0 to 2**31 - 1.
    """


register(Op("bincount", BincountPlan, bincount, samples.bincount, peers={"cupy": "bincount", "torch": "bincount"}))
