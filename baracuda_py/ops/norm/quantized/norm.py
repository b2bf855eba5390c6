"""rms_norm and layer_norm whose result is 8-bit codes with their scales, in one kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Slot, described, integers
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Run, Step
from ....types import DeviceSpec, ElementKind, OpCategory, PrecisionGuarantee
from ..._function import SignatureRules, function_of
from ..._rows import RowConfig, clustered, row_cost
from .._problem import TABLE, Normed, Part, described_by
from ..forward import NormDescriptor
from . import oracle, samples
from ._scheme import FLOATS, SCHEMES, CodedRows, coded_configs, guarantee, is_whole

__all__ = [
    "NormQuantizedDescriptor", "NormQuantizedPlan", "layer_norm_fp8", "layer_norm_int8", "rms_norm_fp8", "rms_norm_int8",
]  # fmt: skip

F32 = ElementKind.F32
_KINDS = {"int8": ("int8", 127), "fp8": ("fp8 (e4m3)", 448)}
OPS = tuple(f"{norm}_{suffix}" for norm in TABLE for suffix in _KINDS)


@described(
    Slot("codes", "out", shape="shape", element="codes_element"),
    Slot("scales", "out", shape="scales_shape", element=F32, strided=False),
    Slot("residual_out", "out", optional=True, takes=FLOATS, shape="shape"),
    Slot("x", takes=FLOATS),
    Slot("residual", optional=True, takes=FLOATS, shape="shape"),
    Slot("weight", optional=True, takes=FLOATS, shape="normalized_shape"),
    Slot("bias", optional=True, takes=FLOATS, shape="normalized_shape"),
)
class NormQuantizedDescriptor(CodedRows, Normed):
    """`name` of an x of `shape` along its last axes, as codes with a scale for each row, or for each `group_size` adjacent
    elements of one."""

    shape: tuple[int, ...]
    element: ElementKind
    normalized_shape: tuple[int, ...] | None = None
    eps: float = 1e-5
    per: str = "row"
    group_size: int | None = None
    name: str = "rms_norm_int8"
    values: ClassVar[tuple[str, ...]] = ("eps",)

    taken_by_kernel = ("codes", "residual_out", "x", "residual", "weight", "bias", "scales")
    flagged = ("weight", "bias", "residual")

    def __post_init__(self) -> None:
        self._names_op(OPS, "name")  # `suffix` reads it
        super().__post_init__()
        self._member(SCHEMES, "per")

    @property
    def suffix(self) -> str:  # type: ignore[override]
        return "_fp8" if self.name.endswith("_fp8") else "_int8"

    def parts(self) -> Mapping[str, Part]:
        added, weight = self.kind("residual") is not None, self.kind("weight") or self.element
        return {
            "residual": Part(self.element), "residual_out": Part(self.element, added),
            "weight": Part(weight if weight is F32 else self.element),
            "bias": Part(weight, None if self.centered else False),
        }  # fmt: skip

    def check(self) -> None:
        super().check()
        self.check_scheme(self.rank)

    def spread(self, name: str) -> tuple[int, ...] | None:
        """As of a norm; groups of a row are found from its first scale."""
        if name != "scales":
            return super().spread(name)
        strides = self.layout(name).strides
        return (*(strides[:-1] if self.group else strides), *(0,) * self.rank)

    def in_place(self, written: str, read: str) -> bool:
        """residual_out may be x or the residual itself: a thread writes columns that it alone has read."""
        return written == "residual_out" and read in ("x", "residual")

    check_values = NormDescriptor.check_values

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        values = super().scalars(given)
        self.check_values(self.op, values, {})
        return values


class RowsNormQuantized(Candidate[NormQuantizedDescriptor]):
    """A group of threads per row, which stays in registers where it fits and is streamed where it does not."""

    variant = "rows"
    launches = ("norm/quantized.cu:norm_quantized", "norm/quantized.cu:norm_quantized_cluster")

    def configs(self, desc: NormQuantizedDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        for config in coded_configs(desc, _rows(desc), 1 + desc.has("residual")):
            yield clustered(config, desc.length, desc.element, device)

    def guarantee(self, desc: NormQuantizedDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return guarantee(desc)

    def cost(self, desc: NormQuantizedDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, _rows(desc), desc.nbytes, config, desc.element, instructions=16.0)

    def lower(self, desc: NormQuantizedDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows = _rows(desc)
        weight = desc.kind("weight") or desc.kind("bias") or desc.element
        types = f"{desc.element.number}, {weight.number}, {desc.code_type}"
        options = f"{str(desc.centered).lower()}, {desc.flags}, {desc.group}, {str(is_whole(desc, rows)).lower()}"
        return (rows.launch("norm/quantized.cu", "norm_quantized", types, config, options, Run("eps", "float32")),)


def _rows(desc: NormQuantizedDescriptor) -> Any:
    """Columns in C order, so that a group's are adjacent."""
    return desc.rows(ordered=True)


class NormQuantizedPlan(Plan[NormQuantizedDescriptor]):
    """A norm as codes: operands `x`, `codes`, `scales`, and as the problem has them `weight`, `bias`, `residual`,
    `residual_out`."""

    descriptor = NormQuantizedDescriptor
    category = OpCategory.NORM
    candidates = (RowsNormQuantized(),)
    measures = oracle.NORM_MEASURES
    probes = (
        {"shape": (3, 4096), "element": "bf16", "weight_element": "bf16"},
        {"shape": (3, 4096), "element": "bf16", "weight_element": "f32", "residual_element": "bf16"},
        {"shape": (3, 100), "element": "f32"},
        {"shape": (2, 50304), "element": "bf16", "per": "group", "group_size": 128},
        {"shape": (3, 256), "element": "f32", "per": "group", "group_size": 128},
        {"shape": (6, 128), "element": "f16", "x_strides": (1, 6), "per": "group", "group_size": 32},
    )
    reference = oracle.norm
    reference_guarantee = guarantee


def _rms(
    x: Any, weight: Any = None, *, eps: float = 1e-5, residual: Any = None, normalized_shape: Sequence[int] | None = None,
    per: str = "row", group_size: int | None = None, codes: Any = None, scales: Any = None, residual_out: Any = None,
) -> Any: ...  # fmt: skip


def _layer(
    x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *, residual: Any = None,
    normalized_shape: Sequence[int] | None = None, per: str = "row", group_size: int | None = None, codes: Any = None,
    scales: Any = None, residual_out: Any = None,
) -> Any: ...  # fmt: skip


_DOC = """`{norm}`, and its result quantized to {kind}, in one kernel: codes = y / scale to nearest even, scale = max|y| / {most}.

x, weight, {bias}eps, residual, normalized_shape: as of `{norm}`; x holds f16, bf16 or f32.
per: what has a scale of its own: a "row" (a token: all that is normalised together), or a "group" of `group_size` (32, 64 or
128) adjacent elements along the last axis, which divides it.
Returns the named tuple (codes, scales), with a residual (codes, scales, residual_out): codes like x, {kind}; scales f32, [...]
or [..., K / group_size]; residual_out = x + residual in x's dtype, which may be x or residual itself. y is computed in f32 and
not rounded to x's dtype. Scales and codes follow `quantize_{suffix}`: what is not finite does not count for scales, a scale is
2**-126 at least, and 1 where all is 0. A code differs from that of the exact y only where y / scale is near a tie of two codes.
"""


def _published(norm: str, suffix: str) -> Any:
    """The function of that norm and kind, which is registered."""
    name, (kind, most), centered = f"{norm}_{suffix}", _KINDS[suffix], TABLE[norm].centered
    doc = _DOC.format(norm=norm, kind=kind, most=most, suffix=suffix, bias="bias, " if centered else "")
    rules = SignatureRules(
        reads={"normalized_shape": integers},
        wanted={"residual_out": "residual"},
        of=described_by(NormQuantizedDescriptor),
    )
    template: Callable[..., Any] = _layer if centered else _rms
    function = function_of(NormQuantizedPlan, rules=rules, called=name, doc=doc, name=name)(template)
    register(Op(name, NormQuantizedPlan, function, samples.norm, {"name": name}))
    return function


rms_norm_int8, rms_norm_fp8 = (_published("rms_norm", suffix) for suffix in _KINDS)
layer_norm_int8, layer_norm_fp8 = (_published("layer_norm", suffix) for suffix in _KINDS)
