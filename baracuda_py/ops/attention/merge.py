"""merge_attention: one attention of several that went over parts of the keys, such as a shared prefix and what follows it."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from ...plan.candidate import OK, Candidate, Cost, Feasibility, no
from ...plan.constraints import UnitStride
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Ptr, Step
from ...types import (
    Componentwise,
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    MathPrecision,
    OpCategory,
    PrecisionGuarantee,
    Term,
)
from .._fitted import Fitted
from .._function import function_of
from .._launch import overlapped_overhead
from ._decode.merge_launch import Lines, merge_launch, rows_align
from ._problem.attended import LAYOUTS, OperandStrides
from .oracle import merge as oracle
from .samples import merge as samples

__all__ = ["MergeAttentionDescriptor", "MergeAttentionPlan", "merge_attention"]

F32 = ElementKind.F32
FLOATS = (ElementKind.F16, ElementKind.BF16, F32)
AXES = {"BHSD": (0, 1, 2), "BSHD": (0, 2, 1), "THD": (None, 1, 0)}  # of sequences, heads and rows, behind the parts'
MOST_LINES = (1 << 31) - 1


@described(
    Slot("out", "out", takes=FLOATS, shape="shape"),
    Slot("lse", "out", shape="stats_shape", element=F32),
    Slot("outs", takes=FLOATS, element="element"),
    Slot("lses", shape="parts_shape", element=F32),
)
class MergeAttentionDescriptor(Descriptor):
    """outs [parts, ...] laid out as results of attention in an `order` ("BHSD", "BSHD", "THD"), and lses [parts, ...] like its
    lse; of rank 3, [parts, rows, columns] and [parts, rows]."""

    outs_shape: tuple[int, ...]
    element: ElementKind
    order: str = "BHSD"
    out_element: ElementKind | None = None

    name = "merge_attention"
    values: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self._member(LAYOUTS, "order", upper=True)

    @classmethod
    def of(cls, outs: Any, lses: Any, *, out: Any = None, lse: Any = None, layout: str = "BHSD") -> Self:
        """The descriptor of arrays of any layout."""
        return cls.of_tensors(cls.taken(cls.name, {"out": out, "lse": lse, "outs": outs, "lses": lses}), order=layout)

    def default_element(self, name: str) -> ElementKind:
        return self.element

    @property
    def parts(self) -> int:
        return self.outs_shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.outs_shape[1:]

    @property
    def columns(self) -> int:
        return self.outs_shape[-1]

    @property
    def extents(self) -> tuple[int, int, int]:
        """Sequences, heads and rows."""
        self._check_rank()
        if len(self.shape) == 2:
            return 1, 1, self.shape[0]
        batch, heads, rows = AXES[self.order]
        return 1 if batch is None else self.shape[batch], self.shape[heads], self.shape[rows]

    @property
    def stats_shape(self) -> tuple[int, ...]:
        return self.extents[3 - len(self.shape[:-1]) :]

    @property
    def parts_shape(self) -> tuple[int, ...]:
        return (self.parts, *self.stats_shape)

    def _check_rank(self) -> None:
        ranks = (4,) if self.order == "THD" else (3, 5)
        if len(self.outs_shape) not in ranks:
            wanted = " or ".join(str(rank) for rank in ranks)
            raise InvalidProblemError(
                f"{self.op}: outs has shape {self.outs_shape}", f"pass rank {wanted}, parts first"
            )

    def check(self) -> None:
        self._check_rank()
        if not self.parts:
            raise InvalidProblemError(
                f"{self.op}: there are no parts to merge", "pass one or more along the first axis"
            )

    def lines(self) -> Lines:
        def all_strides(name: str, *, of_lse: bool, lead: int) -> OperandStrides:
            strides = self.layout(name).strides[lead:]
            strides = strides if of_lse else strides[:-1]
            axes = (None, 1, 0) if self.order == "THD" else AXES[self.order]
            if of_lse:
                return OperandStrides(*((0,) * (3 - len(strides)) + strides))
            if len(strides) == 1:
                return OperandStrides(0, 0, strides[0])
            return OperandStrides(*(0 if axis is None else strides[axis] for axis in axes))

        outs, out = self.layout("outs"), self.layout("out")
        return Lines(
            self.element, out.element, self.extents, self.columns, self.parts, all_strides("out", of_lse=False, lead=0),
            all_strides("lse", of_lse=True, lead=0), all_strides("outs", of_lse=False, lead=1),
            all_strides("lses", of_lse=True, lead=1),
            (outs.strides[0], self.layout("lses").strides[0]), True, rows_align(outs, out),
        )  # fmt: skip


class Costs(Fitted, table="attention.merge"):
    latency_s: float
    bandwidth_efficiency: float


class MergeLines(Candidate[MergeAttentionDescriptor]):
    """A row's parts by one warp, or by four where rows are few."""

    variant = "lines"
    launches = ("attention/merge.cu:attention_merge",)
    constraints = (UnitStride("outs"), UnitStride("out"))

    def supports(self, desc: MergeAttentionDescriptor, device: DeviceSpec) -> Feasibility:
        if not (said := super().supports(desc, device)):
            return said
        if max(math.prod(desc.extents), desc.parts, desc.columns) > MOST_LINES:
            return no(f"there are more than {MOST_LINES} rows, parts or columns", "fewer a call")
        return OK

    def cost(self, desc: MergeAttentionDescriptor, device: DeviceSpec, config: Any) -> Cost:
        costs = Costs.of(device)
        seconds = (
            overlapped_overhead(device)
            + costs.latency_s
            + desc.nbytes / (costs.bandwidth_efficiency * device.bandwidth)
        )
        return Cost(desc.nbytes, 2 * math.prod(desc.outs_shape), seconds)

    def guarantee(self, desc: MergeAttentionDescriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return guarantee(desc)

    def lower(self, desc: MergeAttentionDescriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        return (merge_launch(desc.lines(), Ptr("outs"), Ptr("lses"), device),)


def guarantee(desc: MergeAttentionDescriptor) -> PrecisionGuarantee:
    """exp's argument, the difference of lse from the largest, is rounded twice; exp is good to 2 ulp, and sums err by their depth
    (Higham, section 4.2). Weights below f32's smallest normal number are 0; what is below it on its way errs by its spacing."""
    source = "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2"
    depth, out = desc.parts + 10.0, desc.layout("out").element
    terms = (
        Term(2.0, F32, "spread"), Term(2 * depth, F32, "weighted"), Term(2.0**-102, F32, "unweighted"),
        Term(depth, F32, "computed_smallest_normal"),
    )  # fmt: skip
    of_lse = Term(2.0, F32, "mean_spread"), Term(depth, F32, "one"), Term(4.0, F32, "abs_result")
    made = {
        "out": Componentwise.rounded(terms, out, source, "beyond"),
        "lse": Componentwise(of_lse, source, "row_beyond"),
    }
    return PrecisionGuarantee.by_output(
        **{name: PrecisionGuarantee.fixed_order(MathPrecision.F32, F32, bound) for name, bound in made.items()}
    )


class MergeAttentionPlan(Plan[MergeAttentionDescriptor]):
    """Merges attention over parts of the keys: operands `outs`, `lses`, `out` and `lse`."""

    descriptor = MergeAttentionDescriptor
    category = OpCategory.ATTENTION
    candidates = (MergeLines(),)
    measures = oracle.MEASURES
    probes = (
        {"outs_shape": (2, 3, 4, 5, 64), "element": "bf16"},
        {"outs_shape": (9, 30, 4, 128), "element": "f32", "order": "THD", "out_element": "f16"},
        {"outs_shape": (3, 7, 33), "element": "f16"},
        {"outs_shape": (2, 2, 4096, 32, 128), "element": "bf16", "order": "BSHD"},
    )
    reference = oracle.merge

    @staticmethod
    def reference_guarantee(desc: MergeAttentionDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, guarantee(desc))


@function_of(MergeAttentionPlan)
def merge_attention(outs: Any, lses: Any, *, layout: str = "BHSD", out: Any = None, lse: Any = None) -> Any:
    """One attention of several whose keys are parts of all keys: sum exp(lses_i - lse) outs_i, lse = log sum exp(lses_i).

    outs: [parts, B, H, S, D] (`layout` "BHSD"), [parts, B, S, H, D] ("BSHD"), [parts, T, H, D] ("THD") or [parts, S, D]:
    f16, bf16 or f32, any strides but a contiguous last axis. lses: f32 [parts, B, H, S] ([parts, H, T],
    [parts, S]), as `attention` gives them. A part of lse -inf has seen nothing: it is not read.
    Returns the named tuple (out, lse), as attention over all keys would. Given, out may hold any of these types.
    """


register(Op("merge_attention", MergeAttentionPlan, merge_attention, samples.merge_attention))
