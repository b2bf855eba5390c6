"""rms_norm and layer_norm, with a residual added first where one is given. A row of the table is an op."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ...plan.candidate import Candidate, Cost, Feasibility, no
from ...plan.descriptor import Slot, described, integers
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...runtime.steps import Run, Step
from ...types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from .._function import SignatureRules, function_of
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
from ._problem import TABLE, Normed, Part, described_by, probes

__all__ = ["KERNEL_OPERANDS", "NormDescriptor", "NormPlan", "layer_norm", "rms_norm"]

# Operands of the kernel, in order.
KERNEL_OPERANDS = ("out", "residual_out", "x", "residual", "weight", "bias", "mean", "rstd")
# Of f32, in which eps is added, but for f64.
_LEAST, _LARGEST = float(np.finfo(np.float32).smallest_subnormal), float(np.finfo(np.float32).max)


@described(
    Slot("out", "out", takes=FLOATS),
    Slot("residual_out", "out", optional=True, takes=FLOATS, shape="shape"),
    Slot("mean", "out", optional=True, shape="row_shape"),
    Slot("rstd", "out", optional=True, shape="row_shape"),
    Slot("x", takes=FLOATS),
    Slot("residual", optional=True, takes=FLOATS, shape="shape"),
    Slot("weight", optional=True, takes=FLOATS, shape="normalized_shape"),
    Slot("bias", optional=True, takes=FLOATS, shape="normalized_shape"),
)
class NormDescriptor(Normed):
    """`name` of an x of `shape` along its last axes, `normalized_shape` (by default the last one).

    `residual_element` says that a residual is added first, whose sum with x is the output `residual_out`; `rstd_element` (and
    `mean_element`, of layer_norm) that the statistics are outputs too.
    """

    shape: tuple[int, ...]
    element: ElementKind
    normalized_shape: tuple[int, ...] | None = None
    eps: float = 1e-5
    name: str = "rms_norm"
    values: ClassVar[tuple[str, ...]] = ("eps",)

    suffix = ""
    taken_by_kernel = KERNEL_OPERANDS
    flagged = ("weight", "bias", "residual", "rstd")

    def parts(self) -> Mapping[str, Part]:
        added, weight = self.kind("residual") is not None, self.kind("weight") or self.element
        stats = None if self.kind("rstd") is None and self.kind("mean") is None else True
        return {
            "residual": Part(self.element), "residual_out": Part(self.element, added), "rstd": Part(self.computed, stats),
            "mean": Part(self.computed, stats if self.centered else False),
            "weight": Part(weight if weight is self.computed else self.element),
            "bias": Part(weight, None if self.centered else False),
        }  # fmt: skip

    @property
    def types(self) -> str:
        """As kernels take them: of x, of weights, and what is computed in."""
        weight = self.kind("weight") or self.kind("bias") or self.element
        return f"{self.element.number}, {weight.number}, {computed_in(self.element).cuda}"

    @property
    def options(self) -> str:
        """Kernels' own template arguments."""
        return f"{str(self.centered).lower()}, {self.flags}"

    def in_place(self, written: str, read: str) -> bool:
        """What is written may be x or the residual itself: a thread writes columns that it alone has read."""
        return written in ("out", "residual_out") and read in ("x", "residual")

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> None:
        if not (values["eps"] == 0 or _LEAST <= values["eps"] <= _LARGEST):
            raise InvalidProblemError(f"{op}: eps={values['eps']}", "give 0, or a positive number that f32 holds")

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values


class RowsNorm(Candidate[NormDescriptor]):
    """A group of threads a row, which stays in registers where it fits and is streamed where it does not."""

    variant = "rows"
    launches: ClassVar[tuple[str, ...]] = ("norm/forward.cu:norm", "norm/forward.cu:norm_cluster")

    def configs(self, desc: NormDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        inputs = 1 + desc.has("residual")
        for config in row_configs(desc.length, desc.rows().vector(desc.element), desc.element, inputs, streams=512):
            yield clustered(config, desc.length, desc.element, device)

    def guarantee(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return _guarantee.forward(desc, depth=config.depth(desc.length))

    def cost(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=8.0)

    def lower(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        eps = Run("eps", computed_in(desc.element).numpy)
        return (desc.rows().launch("norm/forward.cu", "norm", desc.types, config, desc.options, eps),)


class ResidentNorm(RowsNorm):
    """A group of threads a row that starts at any address, which stays in registers and goes by aligned words."""

    variant = "unaligned_resident"
    launches = ("norm/unaligned_resident.cu:norm_unaligned_resident",)

    def supports(self, desc: NormDescriptor, device: DeviceSpec) -> Feasibility:
        return resident_rows(desc.rows(), desc.element, 8, 1 + desc.has("residual"))

    def configs(self, desc: NormDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        return resident_configs(desc.rows(), desc.element, 1 + desc.has("residual"))

    def cost(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return resident_cost(device, desc.rows(), desc.nbytes, config, instructions=8.0)

    def lower(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        file, name = "norm/unaligned_resident.cu", "norm_unaligned_resident"
        eps = Run("eps", computed_in(desc.element).numpy)
        return (resident_launch(desc.rows(), file, name, desc.types, config, desc.options, eps),)


class UnalignedNorm(Candidate[NormDescriptor]):
    """A CTA a long row that starts at any address, by aligned words."""

    variant = "unaligned"
    launches: ClassVar[tuple[str, ...]] = ("norm/forward.cu:norm_unaligned", "norm/forward.cu:norm_unaligned_cluster")

    def supports(self, desc: NormDescriptor, device: DeviceSpec) -> Feasibility:
        if desc.has("residual"):
            return no("a residual is added first")
        return unaligned_rows(desc.rows(), desc.element, 8)

    def configs(self, desc: NormDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        yield unaligned_config(desc.rows(), desc.element, device)

    def guarantee(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return _guarantee.forward(desc, depth=config.depth(desc.length))

    def cost(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=8.0)

    def lower(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        file, name, eps = "norm/forward.cu", "norm_unaligned", Run("eps", computed_in(desc.element).numpy)
        return (unaligned_launch(desc.rows(), file, name, desc.types, config, desc.options, eps),)


class KeptNorm(UnalignedNorm):
    """A cluster a long row, which is read once and stays in shared memory."""

    variant = "kept"
    launches = ("norm/forward.cu:norm_kept_cluster",)

    def supports(self, desc: NormDescriptor, device: DeviceSpec) -> Feasibility:
        if desc.has("residual"):
            return no("a residual is added first")
        return kept_rows(desc.rows(), desc.element, 1, device)

    def configs(self, desc: NormDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        return kept_configs(desc.rows(), desc.element, 1, device)


class NormPlan(Plan[NormDescriptor]):
    """A norm along rows: operands `x`, `out`, and as the problem has them `weight`, `bias`, `residual`, `residual_out`, `mean`,
    `rstd`."""

    descriptor = NormDescriptor
    category = OpCategory.NORM
    candidates = (RowsNorm(), ResidentNorm(), UnalignedNorm(), KeptNorm())
    measures = oracle.MEASURES
    probes = (
        *probes(3),
        {
            "shape": (4, 8192), "element": "f16", "weight_element": "f32", "residual_element": "f16", "rstd_element": "f32",
        },
    )  # fmt: skip
    reference = oracle.norm

    @staticmethod
    def reference_guarantee(desc: NormDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc, _guarantee.forward(desc, depth=1))


SIGNATURE_RULES = SignatureRules(
    reads={"normalized_shape": integers}, wanted={"residual_out": "residual", "mean": "stats", "rstd": "stats"},
    of=described_by(NormDescriptor),
)  # fmt: skip


@function_of(NormPlan, rules=SIGNATURE_RULES, name="rms_norm")
def rms_norm(
    x: Any, weight: Any = None, *, eps: float = 1e-5, residual: Any = None, normalized_shape: Sequence[int] | None = None,
    stats: bool = False, out: Any = None, residual_out: Any = None, rstd: Any = None,
) -> Any:  # fmt: skip
    """Root mean square norm: h / sqrt(mean(h**2) + eps) * weight along the last axes, h = x + residual.

    x: [..., *normalized_shape], f16, bf16, f32 or f64, any strides. weight: [*normalized_shape], of x's dtype or f32; without
    one, `normalized_shape` says how many axes a row has, by default the last. eps: 0, or positive as f32; a run-time value.
    residual: like x. Then h = x + residual, rounded to x's dtype, is the output `residual_out`, which may be residual itself.
    stats: whether rstd = 1 / sqrt(mean(h**2) + eps) is an output: [...], f32 (f64 for f64), as `rms_norm_backward` takes it.
    Returns out, or the named tuple (out, residual_out, rstd) of those that there are. out, residual_out and rstd are allocated if
    not given; the first two may be x or residual. Computed in f32 (f64 for f64) and rounded once.
    """


@function_of(NormPlan, rules=SIGNATURE_RULES, name="layer_norm")
def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, residual: Any = None,
    normalized_shape: Sequence[int] | None = None, stats: bool = False, out: Any = None, residual_out: Any = None,
    mean: Any = None, rstd: Any = None,
) -> Any:  # fmt: skip
    """Layer norm: (h - mean(h)) / sqrt(var(h) + eps) * weight + bias along the last axes, h = x + residual.

    As `rms_norm`. bias: like weight. stats: whether mean and rstd = 1 / sqrt(var(h) + eps) are outputs, each [...], f32 (f64 for
    f64), as `layer_norm_backward` takes them. The variance is the mean square deviation from the mean, in a pass of its own.
    Returns out, or the named tuple (out, residual_out, mean, rstd) of those that there are.
    """


for _name, _function, _parts in (
    ("rms_norm", rms_norm, ("weight",)), ("layer_norm", layer_norm, ("weight", "bias")),
):  # fmt: skip
    _gives = {part: f"grad_{part}" for part in ("x", *_parts)}
    _saves = ("x", "weight", *(("mean",) if TABLE[_name].centered else ()), "rstd")
    _gradient = Gradient(f"{_name}_backward", _saves, _gives)
    register(Op(_name, NormPlan, _function, samples.norm, {"name": _name}, _gradient, {"torch": _name}))
