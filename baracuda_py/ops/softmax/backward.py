"""The gradients of softmax and log_softmax, from their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np

from ...numerics.guarantee import widely
from ...plan.candidate import Candidate, Cost, Feasibility
from ...plan.descriptor import Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...runtime.steps import Arg, Run, Step
from ...types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from .._function import function_of
from .._rows import FLOATS, RowConfig, clustered, computed_in, row_configs, row_cost
from .._unaligned import (
    kept_configs,
    kept_rows,
    resident_configs,
    resident_cost,
    resident_launch,
    resident_rows,
    unaligned_config,
    unaligned_launch,
    unaligned_rows,
)
from . import _guarantee, oracle, samples
from .forward import TABLE, Softmaxed

__all__ = [
    "DOC",
    "SLOTS",
    "SoftmaxBackward",
    "SoftmaxBackwardDescriptor",
    "SoftmaxBackwardPlan",
    "log_softmax_backward",
    "softmax_backward",
]


FILE, KERNEL = "softmax/backward.cu", "softmax_backward"
SLOTS = Slot("grad_x", "out", takes=FLOATS), Slot("grad", takes=FLOATS), Slot("y", takes=FLOATS)


class SoftmaxBackward(Softmaxed):
    """What gradients of softmax have in common; those with a run-time value `scale` are multiplied by it."""

    @property
    def scaled(self) -> bool:
        return "scale" in self.values

    @property
    def template(self) -> str:
        """Types and what is computed, as kernels take them."""
        what = 2 if self.scaled else int(self.log)
        return f"{self.element.number}, {computed_in(self.element).cuda}, {self.element.digits}, {what}"

    @property
    def scale_arg(self) -> Arg:
        """As kernels take it."""
        kind = computed_in(self.element).numpy
        return Run("scale", kind) if self.scaled else np.dtype(kind).type(1)


@described(*SLOTS)
class SoftmaxBackwardDescriptor(SoftmaxBackward):
    """The gradient of `name` without its ``_backward``, along `axis`."""

    shape: tuple[int, ...]
    element: ElementKind
    axis: int = -1
    name: str = "softmax_backward"

    def __post_init__(self) -> None:
        self._names_op(tuple(f"{name}_backward" for name in TABLE), "name")
        super().__post_init__()


class RowsSoftmaxBackward(Candidate[SoftmaxBackward]):
    """A group of threads a row, which stays in registers where it fits and is streamed where it does not."""

    variant = "rows"
    launches: ClassVar[tuple[str, ...]] = (
        f"{FILE}:{KERNEL}",
        f"{FILE}:{KERNEL}_cluster",
    )

    def configs(self, desc: SoftmaxBackward, device: DeviceSpec) -> Iterable[RowConfig]:
        """Accesses of 8 bytes, two of them as one of 16: rows of 16 KB take 0.87 of the time (H200)."""
        vector = min(desc.rows().vector(desc.element), 64 // desc.element.bits)
        for config in row_configs(desc.extent, vector, desc.element, shallow=True):
            yield clustered(config, desc.extent, desc.element, device)

    def guarantee(self, desc: SoftmaxBackward, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return _guarantee.backward(desc.element, log=desc.log, depth=config.depth(desc.extent), scaled=desc.scaled)

    def cost(self, desc: SoftmaxBackward, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=10.0)

    def lower(self, desc: SoftmaxBackward, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        return (desc.rows().launch(FILE, KERNEL, desc.template, config, "", desc.scale_arg),)


class ResidentSoftmaxBackward(RowsSoftmaxBackward):
    """A group of threads a row that starts at any address, which stays in registers and goes by aligned words."""

    variant = "unaligned_resident"
    launches = (f"softmax/unaligned_resident_backward.cu:{KERNEL}_unaligned_resident",)

    def supports(self, desc: SoftmaxBackward, device: DeviceSpec) -> Feasibility:
        return resident_rows(desc.rows(), desc.element, 8, 2)

    def configs(self, desc: SoftmaxBackward, device: DeviceSpec) -> Iterable[RowConfig]:
        return resident_configs(desc.rows(), desc.element, 2)

    def cost(self, desc: SoftmaxBackward, device: DeviceSpec, config: RowConfig) -> Cost:
        return resident_cost(device, desc.rows(), desc.nbytes, config, instructions=10.0)

    def lower(self, desc: SoftmaxBackward, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        file, name = "softmax/unaligned_resident_backward.cu", f"{KERNEL}_unaligned_resident"
        return (resident_launch(desc.rows(), file, name, desc.template, config, "", desc.scale_arg),)


class UnalignedSoftmaxBackward(RowsSoftmaxBackward):
    """A CTA a long row that starts at any address, by aligned words."""

    variant = "unaligned"
    launches: ClassVar[tuple[str, ...]] = (
        f"{FILE}:{KERNEL}_unaligned",
        f"{FILE}:{KERNEL}_unaligned_cluster",
    )

    def supports(self, desc: SoftmaxBackward, device: DeviceSpec) -> Feasibility:
        return unaligned_rows(desc.rows(), desc.element, 8)

    def configs(self, desc: SoftmaxBackward, device: DeviceSpec) -> Iterable[RowConfig]:
        yield unaligned_config(desc.rows(), desc.element, device)

    def lower(self, desc: SoftmaxBackward, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        name = f"{KERNEL}_unaligned"
        return (unaligned_launch(desc.rows(), FILE, name, desc.template, config, "", desc.scale_arg),)


class KeptSoftmaxBackward(UnalignedSoftmaxBackward):
    """A cluster a long row; grad and y, or grad alone, are read once and stay in shared memory."""

    variant = "kept"
    launches = (f"{FILE}:{KERNEL}_kept_cluster",)

    def supports(self, desc: SoftmaxBackward, device: DeviceSpec) -> Feasibility:
        return kept_rows(desc.rows(), desc.element, 2, device)

    def configs(self, desc: SoftmaxBackward, device: DeviceSpec) -> Iterable[RowConfig]:
        return kept_configs(desc.rows(), desc.element, 2, device)


CANDIDATES = RowsSoftmaxBackward(), UnalignedSoftmaxBackward(), KeptSoftmaxBackward()


class SoftmaxBackwardPlan(Plan[SoftmaxBackwardDescriptor]):
    """The gradient of softmax along an axis: operands `grad`, `y` and `grad_x`."""

    descriptor = SoftmaxBackwardDescriptor
    category = OpCategory.SOFTMAX
    candidates = (*CANDIDATES, ResidentSoftmaxBackward())
    measures = oracle.BACKWARD_MEASURES
    probes = (
        *({"shape": (3, n), "element": e} for e in ("f32", "bf16", "f16", "f64") for n in (100, 4096, 50257)),
        {"shape": (6, 40), "element": "f32", "y_strides": (1, 6)},
    )
    reference = oracle.backward

    @staticmethod
    def reference_guarantee(desc: SoftmaxBackwardDescriptor) -> PrecisionGuarantee:
        return widely(_guarantee.backward(desc.element, log=desc.log, depth=1), desc, desc.extent)


def _along(grad: Any, y: Any, /, axis: int = -1, *, grad_x: Any = None) -> Any: ...


DOC = """The gradient of `{name}` with respect to x: {formula} along an axis{where}.

grad, y: the gradient of the result and the result, of one shape and dtype (f16, bf16, f32, f64), any strides. axis: of the
forward op.
grad_x: like y, grad or y itself included; allocated in C order if not given. Returns grad_x.
"""


def _published(name: str, formula: str) -> Callable[..., Any]:
    """The gradient of `name`, which is registered."""
    called, doc = f"{name}_backward", DOC.format(name=name, formula=formula, where="")
    function = function_of(SoftmaxBackwardPlan, called=called, doc=doc, name=called)(_along)
    register(Op(called, SoftmaxBackwardPlan, function, samples.softmax_backward, {"name": called}))
    return function


softmax_backward = _published("softmax", "y * (grad - sum(grad * y))")
log_softmax_backward = _published("log_softmax", "grad - exp(y) * sum(grad)")
