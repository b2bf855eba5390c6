"""masked_softmax: softmax(scale x + mask) along the last axis, causal where asked, in one kernel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ....numerics.guarantee import widely
from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Descriptor, Layout, Slot, described
from ....plan.fields import flag
from ....plan.plan import Plan
from ....plan.registry import Gradient, Op, register
from ....runtime.steps import Kernel, Launch, Run, Step
from ....tensor.axes import broadcast_strides
from ....types import (
    Componentwise,
    DeviceSpec,
    ElementKind,
    InvalidProblemError,
    OpCategory,
    OperandTypeError,
    PrecisionGuarantee,
    Term,
)  # fmt: skip
from ..._function import function_of
from ..._rows import FLOATS, RowConfig, Rows, computed_in, row_configs, row_cost, rows_of
from . import oracle, samples

__all__ = ["MaskedSoftmaxDescriptor", "MaskedSoftmaxPlan", "masked_softmax"]

BOOL = ElementKind.BOOL
FILE = "softmax/masked.cu"
SOURCE = "the bound of softmax (ops/softmax/_guarantee.py), and the rounding of scale x + mask"


@described(
    Slot("out", "out", takes=FLOATS),
    Slot("x", takes=FLOATS),
    Slot("mask", optional=True, takes=(*FLOATS, BOOL), shape="mask_shape"),
)
class MaskedSoftmaxDescriptor(Descriptor):
    """Softmax of scale x + mask along the last axis of `shape`; `causal`: row i along the axis before it sees columns up to
    i + `offset`."""

    shape: tuple[int, ...]
    element: ElementKind
    causal: bool = False
    scale: float = 1.0
    offset: int = 0
    name: str = "masked_softmax"
    values: ClassVar[tuple[str, ...]] = ("scale", "offset")

    def __post_init__(self) -> None:
        self._names_op(("masked_softmax",), "name")
        super().__post_init__()
        self._each(("causal",), flag)

    @property
    def length(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def masking(self) -> int:
        """The kernel's MASKING."""
        if not self.has("mask"):
            return 0
        return 1 if self.layout("mask").element is BOOL else 2

    def check(self) -> None:
        if len(self.shape) < 1 + self.causal:
            need = "causal rows have an axis of queries before that of keys" if self.causal else "a number has no rows"
            raise InvalidProblemError(f"{self.op}: {need}, and x has shape {self.shape}", "pass an array of more axes")
        if not self.has("mask"):
            return
        mask, kinds = self.layout("mask"), (BOOL, self.element, computed_in(self.element).element)
        if mask.element not in kinds:
            known = ", ".join(map(str, dict.fromkeys(kinds)))
            raise OperandTypeError(f"{self.op}: mask must hold one of {known}, got {mask.element}", "cast it")
        own = mask.shape
        fits = all(m in (1, n) for m, n in zip(own[::-1], self.shape[::-1]))
        if len(own) > len(self.shape) or not fits:
            raise InvalidProblemError(
                f"{self.op}: mask of shape {own} does not broadcast to x's shape {self.shape}",
                "make each extent x's, or 1",
            )

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, Any], operands: Mapping[str, Any]) -> None:
        if not math.isfinite(values["scale"]) or abs(values["scale"]) > ElementKind.F32.largest:
            raise InvalidProblemError(f"{op}: scale={values['scale']}", "give a finite number that f32 holds")
        if abs(values["offset"]) >= 2**31:
            raise InvalidProblemError(
                f"{op}: offset={values['offset']} is not below 2**31 in magnitude",
                "give the last column that row 0 sees",
            )

    def scalars(self, given: Mapping[str, Any]) -> dict[str, Any]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        if values["offset"] and not self.causal:
            raise InvalidProblemError(
                f"{self.op}: offset={values['offset']} without causal=True", "leave out offset, or pass causal=True"
            )
        return values

    def in_place(self, written: str, read: str) -> bool:
        """out may be x itself: a thread writes columns that it alone has read."""
        return read == "x"

    def layout(self, name: str) -> Layout:
        """Of an operand; of "query" that of a number per row, which is no operand: the row's index along the axis of queries."""
        return Layout((), (), ElementKind.U8) if name == "query" else super().layout(name)

    def rows(self) -> Rows:
        rank = len(self.shape)
        steps: dict[str, tuple[int, ...] | None] = {name: self.layout(name).strides for name in ("out", "x")}
        mask = self.layout("mask") if self.has("mask") else None
        steps["mask"] = None if mask is None else tuple(broadcast_strides(mask.shape, mask.strides, self.shape))
        steps["query"] = tuple(int(self.causal and axis == rank - 2) for axis in range(rank))
        return rows_of(self, self.shape, (rank - 1,), steps, ("query",), ordered=True)


class RowsMaskedSoftmax(Candidate[MaskedSoftmaxDescriptor]):
    """A group of threads per row, which stays in registers where it fits; else maximum and sum come in one pass."""

    variant = "rows"
    launches = (f"{FILE}:masked_softmax",)

    def configs(self, desc: MaskedSoftmaxDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        return row_configs(
            desc.length, desc.rows().vector(desc.element), desc.element, 1 + desc.has("mask"), streams=512
        )

    def guarantee(self, desc: MaskedSoftmaxDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        depth = config.depth(desc.length)
        return _guarantee(desc, depth, 0 if config.resident else depth // config.vector + 1)

    def cost(self, desc: MaskedSoftmaxDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=14.0)

    def lower(self, desc: MaskedSoftmaxDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows, computed = desc.rows(), computed_in(desc.element)
        mask = "u8" if desc.masking < 2 else desc.layout("mask").element.number
        types = f"{desc.element.number}, {mask}, {computed.cuda}, {desc.element.digits}, {desc.masking}, {_flag(desc.causal)}"
        entry = config.entry("masked_softmax", types, rows.template)
        values = Run("scale", computed.numpy), Run("offset", "int64")
        args = (*rows.counts, *values, rows.places(), *rows.pointers()[:3])
        return (Launch(Kernel(FILE, entry), config.grid(rows.count), (config.threads, 1, 1), args),)


def _flag(value: bool) -> str:
    return str(value).lower()


def _guarantee(desc: MaskedSoftmaxDescriptor, depth: int, scalings: int) -> PrecisionGuarantee:
    computed = computed_in(desc.element)
    unit = computed.element
    terms = (
        Term(3.0, unit, "shifted"), Term(3.0, unit, "expected"), Term(1.0, unit, "score_error"),
        Term(depth + 5.0 * scalings + 12, unit, "abs_result"), Term(4.0, unit, "computed_smallest_normal"),
    )  # fmt: skip
    bound = Componentwise.rounded(terms, desc.element, SOURCE, "undetermined")
    return PrecisionGuarantee.fixed_order(computed.math, unit, bound)


class MaskedSoftmaxPlan(Plan[MaskedSoftmaxDescriptor]):
    """Softmax of scaled and masked rows: operands `x`, `out`, and `mask` where the problem has one."""

    descriptor = MaskedSoftmaxDescriptor
    category = OpCategory.SOFTMAX
    candidates = (RowsMaskedSoftmax(),)
    measures = oracle.MEASURES
    probes = (
        *(
            {"shape": (3, 4, n), "element": e, "causal": True}
            for e in ("f32", "bf16", "f64")
            for n in (100, 4096, 50257)
        ),
        {"shape": (3, 4, 512), "element": "f16", "mask_shape": (4, 512), "mask_element": "bool"},
        {"shape": (3, 4, 512), "element": "bf16", "mask_shape": (3, 1, 512), "mask_element": "f32"},
    )
    reference = oracle.softmax

    @staticmethod
    def reference_guarantee(desc: MaskedSoftmaxDescriptor) -> PrecisionGuarantee:
        return widely(_guarantee(desc, 1, 0), desc, desc.length)


@function_of(MaskedSoftmaxPlan)
def masked_softmax(
    x: Any, mask: Any = None, *, scale: float = 1.0, causal: bool = False, offset: int = 0, out: Any = None
) -> Any:
    """softmax(scale * x + mask) along the last axis, in one kernel.

    x: [..., Q, K], f16, bf16, f32 or f64, any strides. mask: broadcasts to x's shape; bool, True where a score takes part (as of
    `attention`), or added: x's dtype, or f32 (f64 for f64). scale: a run-time value, which f32 holds.
    causal: row i along the axis before the last sees columns j <= i + offset; offset=K - Q lets the last row see all. A run-time
    value, refused without causal.
    out: like x, x itself included. Computed in f32 (f64 for f64) and rounded once. A row of which all scores are -inf is 0, one
    that holds NaN or +inf where it sees is NaN; what it does not see may hold anything. The mask has no gradient.
    Returns out.
    """


register(
    Op(
        "masked_softmax", MaskedSoftmaxPlan, masked_softmax, samples.masked_softmax, {"name": "masked_softmax"},
        Gradient("masked_softmax_backward", ("out",), {"x": "grad_x"}, renames={"out": "y"}),
    )
)  # fmt: skip
