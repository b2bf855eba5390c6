"""The gradients of sparsemax and entmax15, from their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ....numerics.guarantee import widely
from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Step
from ....types import Componentwise, DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee, Term
from ..._function import function_of
from ..._rows import FLOATS, RowConfig, computed_in, row_configs, row_cost
from . import oracle, samples
from .forward import FILE, SOURCE, TABLE, SparseSoftmax

__all__ = ["SparseSoftmaxBackwardDescriptor", "SparseSoftmaxBackwardPlan", "entmax15_backward", "sparsemax_backward"]

KERNEL = "sparse_softmax_backward"


@described(Slot("grad_x", "out", takes=FLOATS), Slot("grad", takes=FLOATS), Slot("y", takes=FLOATS))
class SparseSoftmaxBackwardDescriptor(SparseSoftmax):
    """The gradient of `name` without its ``_backward``, along `axis`."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    name: str = "sparsemax_backward"

    def __post_init__(self) -> None:
        self._names_op(tuple(f"{name}_backward" for name in TABLE), "name")
        super().__post_init__()


class RowsSparseSoftmaxBackward(Candidate[SparseSoftmaxBackwardDescriptor]):
    """A group of threads per row, which stays in registers where it fits and is streamed where it does not."""

    variant = "rows"
    launches = (f"{FILE}:{KERNEL}",)

    def configs(self, desc: SparseSoftmaxBackwardDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        """As of the gradient of softmax: accesses of 8 bytes."""
        vector = min(desc.rows().vector(desc.element), 64 // desc.element.bits)
        return row_configs(desc.extent, vector, desc.element, shallow=True, streams=512)

    def guarantee(
        self, desc: SparseSoftmaxBackwardDescriptor, device: DeviceSpec, config: RowConfig
    ) -> PrecisionGuarantee:
        return _promise(desc, config.depth(desc.extent))

    def cost(self, desc: SparseSoftmaxBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=12.0)

    def lower(self, desc: SparseSoftmaxBackwardDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        return (desc.rows().launch(FILE, KERNEL, desc.template, config),)


def _promise(desc: SparseSoftmaxBackwardDescriptor, depth: int) -> PrecisionGuarantee:
    """Of the mean: both sums, a root and a product a term, and the quotient; then a root, a difference and a product."""
    computed = computed_in(desc.element)
    unit = computed.element
    terms = (
        Term(2.0 * depth + 10, unit, "w_mean"), Term(4.0, unit, "w_grad"), Term(4.0, unit, "computed_smallest_normal"),
    )  # fmt: skip
    bound = Componentwise.rounded(terms, desc.element, SOURCE, "overflowing")
    return PrecisionGuarantee.fixed_order(computed.math, unit, bound)


class SparseSoftmaxBackwardPlan(Plan[SparseSoftmaxBackwardDescriptor]):
    """The gradient of sparsemax or entmax15 along an axis: operands `grad`, `y` and `grad_x`."""

    descriptor = SparseSoftmaxBackwardDescriptor
    category = OpCategory.SOFTMAX
    candidates = (RowsSparseSoftmaxBackward(),)
    measures = oracle.BACKWARD_MEASURES
    probes = tuple({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 50257))
    reference = oracle.backward

    @staticmethod
    def reference_guarantee(desc: SparseSoftmaxBackwardDescriptor) -> PrecisionGuarantee:
        return widely(_promise(desc, 1), desc, desc.extent)


def _along(grad: Any, y: Any, /, axis: int = -1, *, grad_x: Any = None) -> Any: ...


_DOC = """The gradient of `{name}` with respect to x: w * (grad - sum(w * grad) / sum(w)) along an axis, w = {weight}.

grad, y: the gradient of the result and the result, of one shape and dtype (f16, bf16, f32, f64), any strides. axis: of the
forward op.
grad_x: like y, grad or y itself included; allocated in C order if not given. Returns grad_x.
"""


def _published(name: str, weight: str) -> Callable[..., Any]:
    """The gradient of `name`, which is registered."""
    called, doc = f"{name}_backward", _DOC.format(name=name, weight=weight)
    function = function_of(SparseSoftmaxBackwardPlan, called=called, doc=doc, name=called)(_along)
    register(Op(called, SparseSoftmaxBackwardPlan, function, samples.sparse_backward, {"name": called}))
    return function


sparsemax_backward = _published("sparsemax", "1 where y > 0, else 0")
entmax15_backward = _published("entmax15", "sqrt(y)")
