"""rms_norm and layer_norm, with a residual added first where one is given. A row of the table is an op."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ... import functional, samples
from ...plan.candidate import OK, Candidate, Cost, Feasibility
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...reference import norm as oracle
from ...runtime.steps import Kernel, Launch, Run, Step
from ...types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory, OperandTypeError, PlanPreference, PrecisionGuarantee
from .._launch import index_scalar
from .._rows import FLOATS, RowConfig, Rows, computed_in, row_configs, row_cost, rows_of
from . import _guarantee

__all__ = ["NormDescriptor", "NormPlan", "layer_norm", "rms_norm"]


@dataclass(frozen=True)
class Row:
    """One norm: whether the mean is taken away, and what it says of itself."""

    name: str
    centered: bool
    formula: str


TABLE = {row.name: row for row in (
    Row("rms_norm", False, "x / sqrt(mean(x**2) + eps) * weight"),
    Row("layer_norm", True, "(x - mean(x)) / sqrt(var(x) + eps) * weight + bias"),
)}  # fmt: skip


class Normed(Descriptor):
    """What forward and backward have in common: rows are what lies along the last axes, those of `normalized_shape`."""

    shape: tuple[int, ...]
    element: ElementKind
    normalized_shape: tuple[int, ...] | None
    name: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.normalized_shape is None:
            object.__setattr__(self, "normalized_shape", self.shape[-1:])

    @property
    def centered(self) -> bool:
        return TABLE[self.name.removesuffix("_backward")].centered

    @property
    def rank(self) -> int:
        """Axes that lie along a row."""
        return len(self.normalized_shape or ())

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[: len(self.shape) - self.rank]

    @property
    def length(self) -> int:
        return math.prod(self.normalized_shape or ())

    def check(self) -> None:
        if not self.rank or self.shape[-self.rank :] != self.normalized_shape:
            raise InvalidProblemError(
                f"{self.op}: normalized_shape {self.normalized_shape} is not how x's shape {self.shape} ends",
                "give the extents of x's last axes, at least one",
            )

    def spread(self, name: str) -> tuple[int, ...] | None:
        """An operand's strides over all axes of x; None where it is absent."""
        if name not in {operand.name for operand in self.operands}:
            return None
        layout, extra = self.layout(name), len(self.shape)
        if len(layout.shape) == extra:
            return layout.strides
        missing = (0,) * (extra - len(layout.shape))
        return (*layout.strides, *missing) if name in ("mean", "rstd") else (*missing, *layout.strides)

    def _set(self, field: str, value: ElementKind) -> None:
        """Gives a field its default."""
        if getattr(self, field) is None:
            object.__setattr__(self, field, value)

    def holds(self, name: str, wanted: ElementKind) -> None:
        """Raises OperandTypeError where an operand there is holds something else."""
        held = getattr(self, f"{name}_element")
        if held not in (None, wanted):
            raise OperandTypeError(f"{self.op}: {name} must hold {wanted}, got {held}", f"cast it to {wanted}")

    def rows(self, *names: str) -> Rows:
        along = range(len(self.shape) - self.rank, len(self.shape))
        return rows_of(self, self.shape, along, {name: self.spread(name) for name in names}, ("mean", "rstd"))


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

    def __post_init__(self) -> None:
        self._names_op(tuple(TABLE), "name")
        super().__post_init__()
        if self.residual_element is not None:
            self._set("residual_out_element", self.residual_element)
        if self.rstd_element is not None or self.mean_element is not None:
            self._set("rstd_element", computed_in(self.element).element)
            if self.centered:
                self._set("mean_element", computed_in(self.element).element)

    def check(self) -> None:
        super().check()
        computed = computed_in(self.element).element
        for name, wanted in (("residual", self.element), ("residual_out", self.element), ("mean", computed), ("rstd", computed)):
            self.holds(name, wanted)
        if self.weight_element not in (None, self.element, computed):
            self.holds("weight", self.element)
        self.holds("bias", self.weight_element or self.element)
        for name, needed in (("mean", self.centered), ("bias", self.centered), ("residual_out", self.residual_element is not None)):
            if not needed and getattr(self, f"{name}_element") is not None:
                fix = "pass residual too" if name == "residual_out" else "leave it out, or call layer_norm"
                raise InvalidProblemError(f"{self.op}: there is no {name}", fix)

    def in_place(self, written: str, read: str) -> bool:
        """What is written may be x or the residual itself: a thread writes columns that it alone has read."""
        return written in ("out", "residual_out") and read in ("x", "residual")

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        if not 0 <= values["eps"] < math.inf:
            raise InvalidProblemError(f"{self.op}: eps={values['eps']}", "give a small number, 0 or more")
        return values


class RowsNorm(Candidate[NormDescriptor]):
    """A group of threads a row, which stays in registers where it fits and is streamed where it does not."""

    variant = "rows"
    launches = ("norm/forward.cu:norm",)

    def supports(self, desc: NormDescriptor, device: DeviceSpec) -> Feasibility:
        return OK

    def configs(self, desc: NormDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        inputs = 1 + (desc.residual_element is not None)
        return row_configs(desc.length, _problem(desc).vector(desc.element), desc.element, inputs)

    def guarantee(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return _guarantee.forward(desc, config)

    def cost(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, _problem(desc), desc.nbytes, config, desc.element, instructions=8.0)

    def lower(self, desc: NormDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows, computed = _problem(desc), computed_in(desc.element)
        has = {operand.name for operand in desc.operands}
        flags = sum(bit for bit, name in ((1, "weight"), (2, "bias"), (4, "residual"), (8, "rstd")) if name in has)
        weight = (desc.weight_element or desc.bias_element or desc.element).number
        types = f"{desc.element.number}, {weight}, {computed.cuda}"
        entry = f"norm<{types}, {config.template}, {rows.template}, {str(desc.centered).lower()}, {flags}>"
        args = (
            index_scalar(rows.count, rows.index), index_scalar(rows.length, rows.index), Run("eps", computed.numpy), rows.places(),
            *rows.pointers(),
        )  # fmt: skip
        return (Launch(Kernel("norm/forward.cu", entry), config.grid(rows.count), (config.threads, 1, 1), args),)


OPERANDS = ("out", "residual_out", "mean", "rstd", "x", "residual", "weight", "bias")  # as the kernel takes them


def _problem(desc: NormDescriptor) -> Rows:
    return desc.rows(*OPERANDS)


class NormPlan(Plan[NormDescriptor]):
    """A norm along rows: operands `x`, `out`, and as the problem has them `weight`, `bias`, `residual`, `residual_out`, `mean`,
    `rstd`."""

    descriptor = NormDescriptor
    category = OpCategory.NORM
    candidates = (RowsNorm(),)
    measures = oracle.MEASURES
    probes = (
        *({"shape": (3, n), "element": e, "weight_element": e} for e in ("f32", "bf16", "f64") for n in (100, 4096, 50257)),
        {"shape": (4, 8192), "element": "f16", "weight_element": "f32", "residual_element": "f16", "rstd_element": "f32"},
        {"shape": (6, 40), "element": "f32", "x_strides": (1, 6)},
    )

    @classmethod
    def reference(cls, desc: NormDescriptor, **arrays: Any) -> Any:
        return oracle.norm(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: NormDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(_guarantee.forward(desc, RowConfig(1, 1, 1, True)))


def _call(name: str, operands: dict[str, Any], eps: float, normalized_shape: Sequence[int] | None, stats: bool, **how: Any) -> Any:
    """Runs a norm; `stats` asks for those outputs of statistics that are not given."""
    axes = None if normalized_shape is None else tuple(normalized_shape)
    asked = ("rstd", "mean")[: 1 + TABLE[name].centered] if stats else ()
    if operands["residual"] is not None:
        asked = (*asked, "residual_out")
    given = {n: x for n, x in operands.items() if x is not None or n in asked or n in ("out", "x")}

    def describe() -> NormDescriptor:
        options: dict[str, Any] = {} if axes is None else {"normalized_shape": axes}
        desc = NormDescriptor.of_tensors(NormDescriptor.taken(name, operands), name=name, eps=eps, **options)
        return replace(desc, rstd_element=computed_in(desc.element).element) if stats and desc.rstd_element is None else desc

    return functional.call(NormPlan, given, describe, options=(name, axes, stats), values={"eps": eps}, **how)


def rms_norm(
    x: Any, weight: Any = None, *, eps: float = 1e-5, residual: Any = None, normalized_shape: Sequence[int] | None = None,
    stats: bool = False, out: Any = None, residual_out: Any = None, rstd: Any = None,
    stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """Root mean square norm: h / sqrt(mean(h**2) + eps) * weight along the last axes, h = x + residual.

    x: [..., *normalized_shape], f16, bf16, f32 or f64, any strides. weight: [*normalized_shape], of x's dtype or f32; without one,
    `normalized_shape` says how many axes a row has, by default the last. eps: 0 or more, a run-time value.
    residual: like x. Then h = x + residual, rounded to x's dtype, is the output `residual_out`, which may be residual itself.
    stats: whether rstd = 1 / sqrt(mean(h**2) + eps) is an output: [...], f32 (f64 for f64), as `rms_norm_backward` takes it.
    Returns out, or the named tuple (out, residual_out, rstd) of those that there are. out, residual_out and rstd are allocated if
    not given; the first two may be x or residual. Computed in f32 (f64 for f64) and rounded once.
    """
    operands = {"out": out, "residual_out": residual_out, "rstd": rstd, "x": x, "residual": residual, "weight": weight}
    return _call("rms_norm", operands, eps, normalized_shape, stats, stream=stream, pref=pref, device=device)


def layer_norm(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, residual: Any = None,
    normalized_shape: Sequence[int] | None = None, stats: bool = False, out: Any = None, residual_out: Any = None,
    mean: Any = None, rstd: Any = None, stream: Any = None, pref: PlanPreference | None = None, device: Any = None,
) -> Any:  # fmt: skip
    """Layer norm: (h - mean(h)) / sqrt(var(h) + eps) * weight + bias along the last axes, h = x + residual.

    As `rms_norm`. bias: like weight. stats: whether mean and rstd = 1 / sqrt(var(h) + eps) are outputs, each [...], f32 (f64 for
    f64), as `layer_norm_backward` takes them. The variance is the mean square deviation from the mean, in a pass of its own.
    Returns out, or the named tuple (out, residual_out, mean, rstd) of those that there are.
    """
    operands = {"out": out, "residual_out": residual_out, "mean": mean, "rstd": rstd, "x": x, "residual": residual,
                "weight": weight, "bias": bias}  # fmt: skip
    return _call("layer_norm", operands, eps, normalized_shape, stats, stream=stream, pref=pref, device=device)


for _name, _function, _parts in (
    ("rms_norm", rms_norm, ("weight",)), ("layer_norm", layer_norm, ("weight", "bias")),
):  # fmt: skip
    _gives = {part: f"grad_{part}" for part in ("x", *_parts)}
    _saves = ("x", "weight", *(("mean",) if TABLE[_name].centered else ()), "rstd")
    _gradient = Gradient(f"{_name}_backward", _saves, _gives)
    register(Op(_name, NormPlan, _function, samples.norm, {"name": _name}, _gradient, {"torch": _name}))
