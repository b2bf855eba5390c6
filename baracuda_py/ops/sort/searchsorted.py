"""searchsorted: where values belong in sorted sequences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...plan.candidate import Candidate, Cost
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.fields import flag
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Kernel, Launch, Ptr, Step
from ...tensor.axes import collapse
from ...types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory
from .._function import function_of
from .._launch import THREADS, grid_of, index_scalar, index_type, pack_dims
from . import oracle, samples
from .topk import KEYS

__all__ = ["SearchsortedDescriptor", "SearchsortedPlan", "searchsorted"]

INDICES = (ElementKind.I64, ElementKind.I32)
STEP_INSTRUCTIONS = 12  # of a halving, estimated from the source
COMPUTED = {ElementKind.F16: "float", ElementKind.BF16: "float"}  # others are compared unconverted


@described(
    Slot("out", "out", takes=INDICES, shape="values_shape", element="index_element"),
    Slot("sorted_sequence", takes=KEYS, shape="sequence_shape", element="element"),
    Slot("values", takes=KEYS, shape="values_shape", element="element"),
)
class SearchsortedDescriptor(Descriptor):
    """A sequence for all values, [N], or one for each row of them: `sequence_shape` and `values_shape` differ in the last axis
    alone. `right`: a value belongs behind its equals."""

    sequence_shape: tuple[int, ...]
    values_shape: tuple[int, ...]
    element: ElementKind
    index_element: ElementKind = ElementKind.I64
    right: bool = False

    name = "searchsorted"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._each(("right",), flag)

    @property
    def extent(self) -> int:
        return self.sequence_shape[-1]

    def check(self) -> None:
        sequence, values = self.sequence_shape, self.values_shape
        if not sequence or (len(sequence) > 1 and sequence[:-1] != values[:-1]):
            raise InvalidProblemError(
                f"searchsorted: sorted_sequence has shape {sequence} and values {values}",
                "pass a sorted_sequence of one axis, or of the axes of values but for the last",
            )
        if self.index_element is ElementKind.I32 and self.extent >= 2**31:
            raise InvalidProblemError(
                f"searchsorted: places among {self.extent} elements are no int32", "leave out an out of int32"
            )


class BinarySearch(Candidate[SearchsortedDescriptor]):
    """One launch: a value a thread, which halves the sequence until one place is left."""

    variant = "binary"
    launches = ("sort/searchsorted.cu:searchsorted",)

    def cost(self, desc: SearchsortedDescriptor, device: DeviceSpec, config: Any) -> Cost:
        count = math.prod(desc.values_shape)
        return Cost.streaming(device, desc.nbytes, instructions=count * STEP_INSTRUCTIONS * desc.extent.bit_length())

    def lower(self, desc: SearchsortedDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        shape, count = desc.values_shape, math.prod(desc.values_shape)
        if not count:
            return ()
        out, sequence, values = (desc.layout(name) for name in ("out", "sorted_sequence", "values"))
        size = sequence.natural
        rows = [s * size for s in sequence.strides[:-1]] if len(sequence.shape) > 1 else [0] * max(len(shape) - 1, 0)
        walks = [
            [s * out.natural for s in out.strides],
            [s * size for s in values.strides],
            [*rows, 0] if shape else [],
        ]
        extents, strides = collapse(shape, walks)
        index = index_type(count)
        args = (
            Ptr("out"), Ptr("sorted_sequence"), Ptr("values"), np.int64(desc.extent), np.int64(sequence.strides[-1] * size),
            index_scalar(count, index), pack_dims(extents, strides, index),
        )  # fmt: skip
        kinds = f"{desc.index_element.number}, {desc.element.number}, {COMPUTED.get(desc.element, desc.element.number)}"
        entry = f"searchsorted<{index}, {kinds}, {len(extents)}, {str(desc.right).lower()}>"
        return (Launch(Kernel("sort/searchsorted.cu", entry), grid_of(count, THREADS), (THREADS, 1, 1), args),)


class SearchsortedPlan(Plan[SearchsortedDescriptor]):
    """Places in sorted sequences: operands `sorted_sequence`, `values` and `out`."""

    descriptor = SearchsortedDescriptor
    category = OpCategory.SORT
    candidates = (BinarySearch(),)
    probes = (
        {"sequence_shape": (33,), "values_shape": (5, 7), "element": "f32"},
        {"sequence_shape": (5, 9), "values_shape": (5, 4), "element": "bf16", "index_element": "i32", "right": True},
        {"sequence_shape": (1000,), "values_shape": (64,), "element": "i64"},
    )
    reference = oracle.searchsorted


@function_of(SearchsortedPlan)
def searchsorted(sorted_sequence: Any, values: Any, *, right: bool = False, out: Any = None) -> Any:
    """Where each of `values` belongs in a sorted sequence: how many of its elements come before the value.

    sorted_sequence: [N], or [..., N] with a sequence for each row of values; ascending, NaN last, which is not checked: the place
    in a sequence of another order is one of 0 to N. f16, bf16, f32, f64 or integers, any strides.
    values: any shape, or [..., M] where sorted_sequence has those rows; of its dtype. right: elements equal to the value come
    before it, too, as numpy.searchsorted's side="right" and torch.searchsorted's right=True. NaN is above every number, and all
    NaN are equal; -0.0 equals 0.0.
    out: like values, int64 (allocated if not given) or int32. Returns out.
    """


register(
    Op(
        "searchsorted",
        SearchsortedPlan,
        searchsorted,
        samples.searchsorted,
        peers={"cupy": "searchsorted", "torch": "searchsorted"},
    )
)
