"""masked_softmax_backward: the gradient of masked_softmax, from its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from ....numerics.guarantee import widely
from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Descriptor, Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Run, Step
from ....types import Componentwise, DeviceSpec, ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee, Term
from ..._function import function_of
from ..._rows import FLOATS, RowConfig, Rows, computed_in, row_configs, row_cost, rows_of
from . import oracle, samples
from .forward import FILE, SOURCE, MaskedSoftmaxDescriptor

__all__ = ["MaskedSoftmaxBackwardDescriptor", "MaskedSoftmaxBackwardPlan", "masked_softmax_backward"]


@described(Slot("grad_x", "out", takes=FLOATS), Slot("grad", takes=FLOATS), Slot("y", takes=FLOATS))
class MaskedSoftmaxBackwardDescriptor(Descriptor):
    """The gradient of masked_softmax along the last axis of `shape`: scale y (grad - sum(grad y))."""

    shape: tuple[int, ...]
    element: ElementKind
    scale: float = 1.0
    name: str = "masked_softmax_backward"
    values: ClassVar[tuple[str, ...]] = ("scale",)

    def __post_init__(self) -> None:
        self._names_op(("masked_softmax_backward",), "name")
        super().__post_init__()

    @property
    def length(self) -> int:
        return self.shape[-1] if self.shape else 1

    def check(self) -> None:
        if not self.shape:
            raise InvalidProblemError(f"{self.op}: a number has no rows", "pass an array of rank 1 or more")

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, Any], operands: Mapping[str, Any]) -> None:
        MaskedSoftmaxDescriptor.check_values(op, {"offset": 0, **values}, operands)

    def scalars(self, given: Mapping[str, Any]) -> dict[str, Any]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values

    def in_place(self, written: str, read: str) -> bool:
        """What is written may be an input itself: a thread writes elements that it alone has read."""
        return True

    def rows(self) -> Rows:
        steps = {name: self.layout(name).strides for name in ("grad_x", "grad", "y")}
        return rows_of(self, self.shape, (len(self.shape) - 1,), steps)


class RowsMaskedSoftmaxBackward(Candidate[MaskedSoftmaxBackwardDescriptor]):
    """A group of threads per row, which stays in registers where it fits and is streamed where it does not."""

    variant = "rows"
    launches = (f"{FILE}:masked_softmax_backward",)

    def configs(self, desc: MaskedSoftmaxBackwardDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        """As of the gradient of softmax: accesses of 8 bytes."""
        vector = min(desc.rows().vector(desc.element), 64 // desc.element.bits)
        return row_configs(desc.length, vector, desc.element, shallow=True, streams=512)

    def guarantee(
        self, desc: MaskedSoftmaxBackwardDescriptor, device: DeviceSpec, config: RowConfig
    ) -> PrecisionGuarantee:
        return _guarantee(desc, config.depth(desc.length))

    def cost(self, desc: MaskedSoftmaxBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=10.0)

    def lower(self, desc: MaskedSoftmaxBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        computed = computed_in(desc.element)
        types, scale = f"{desc.element.number}, {computed.cuda}", Run("scale", computed.numpy)
        return (desc.rows().launch(FILE, "masked_softmax_backward", types, config, "", scale),)


def _guarantee(desc: MaskedSoftmaxBackwardDescriptor, depth: int) -> PrecisionGuarantee:
    """The sum's error, and the roundings of a difference and two products."""
    computed = computed_in(desc.element)
    unit = computed.element
    terms = (Term(depth + 5.0, unit, "y_sum"), Term(4.0, unit, "y_grad"), Term(4.0, unit, "scaled_one_smallest"))
    bound = Componentwise.rounded(terms, desc.element, SOURCE, "overflowing")
    return PrecisionGuarantee.fixed_order(computed.math, unit, bound)


class MaskedSoftmaxBackwardPlan(Plan[MaskedSoftmaxBackwardDescriptor]):
    """The gradient of masked_softmax: operands `grad`, `y` and `grad_x`."""

    descriptor = MaskedSoftmaxBackwardDescriptor
    category = OpCategory.SOFTMAX
    candidates = (RowsMaskedSoftmaxBackward(),)
    measures = oracle.BACKWARD_MEASURES
    probes = tuple({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 50257))
    reference = oracle.backward

    @staticmethod
    def reference_guarantee(desc: MaskedSoftmaxBackwardDescriptor) -> PrecisionGuarantee:
        return widely(_guarantee(desc, 1), desc, desc.length)


@function_of(MaskedSoftmaxBackwardPlan)
def masked_softmax_backward(grad: Any, y: Any, /, *, scale: float = 1.0, grad_x: Any = None) -> Any:
    """The gradient of `masked_softmax` with respect to x: scale * y * (grad - sum(grad * y)) along the last axis.

    grad, y: the gradient of the result and the result, of one shape and dtype (f16, bf16, f32, f64), any strides; what a row does
    not see has y = 0, and no gradient. scale: of the forward op.
    grad_x: like y, grad or y itself included; allocated in C order if not given. Returns grad_x.
    """


register(
    Op(
        "masked_softmax_backward", MaskedSoftmaxBackwardPlan, masked_softmax_backward, samples.masked_softmax_backward,
        {"name": "masked_softmax_backward"},
    )
)  # fmt: skip
