"""silu_mul, the gate of SwiGLU, whose result is 8-bit codes with their scales, in one kernel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....plan.candidate import Candidate, Cost
from ....plan.descriptor import Descriptor, Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Step
from ....types import DeviceSpec, ElementKind, InvalidProblemError, OpCategory, PrecisionGuarantee
from ..._function import function_of
from ..._rows import RowConfig, Rows, row_cost, rows_of
from . import oracle, samples
from ._scheme import FLOATS, SCHEMES, CodedRows, coded_configs, guarantee, is_whole

__all__ = ["GateQuantizedDescriptor", "GateQuantizedPlan", "silu_mul_fp8", "silu_mul_int8"]

OPS = ("silu_mul_int8", "silu_mul_fp8")
F16_DIGITS = ElementKind.F16.digits  # accuracy of the formula for 16-bit operands


@described(
    Slot("codes", "out", shape="shape", element="codes_element"),
    Slot("scales", "out", shape="scales_shape", element=ElementKind.F32, strided=False),
    Slot("x", takes=FLOATS),
    Slot("y", takes=FLOATS),
)
class GateQuantizedDescriptor(CodedRows, Descriptor):
    """x sigmoid(x) y of two arrays of `shape`, as codes with a scale for each row along the last axis, or for each `group_size`
    adjacent elements of one."""

    shape: tuple[int, ...]
    element: ElementKind
    per: str = "row"
    group_size: int | None = None
    name: str = "silu_mul_int8"

    def __post_init__(self) -> None:
        self._names_op(OPS, "name")
        super().__post_init__()
        self._member(SCHEMES, "per")

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[:-1]

    @property
    def normalized_shape(self) -> tuple[int, ...]:
        return self.shape[-1:]

    @property
    def length(self) -> int:
        return self.shape[-1] if self.shape else 1

    def check(self) -> None:
        super().check()
        if not self.shape:
            raise InvalidProblemError(f"{self.op}: a number has no rows", "pass arrays of rank 1 or more")
        self.check_scheme(1)

    def rows(self) -> Rows:
        """Columns in C order, so that a group's are adjacent."""
        strides: dict[str, tuple[int, ...] | None] = {n: self.layout(n).strides for n in ("codes", "x", "y")}
        scales = self.layout("scales").strides
        strides["scales"] = (*(scales[:-1] if self.group else scales), 0)
        ordered = {name: strides[name] for name in ("codes", "scales", "x", "y")}
        return rows_of(self, self.shape, (len(self.shape) - 1,), ordered, ("scales",), ordered=True)


class RowsGateQuantized(Candidate[GateQuantizedDescriptor]):
    """A group of threads per row, which stays in registers where it fits and is streamed where it does not."""

    variant = "rows"
    launches = ("norm/quantized.cu:gate_quantized",)

    def configs(self, desc: GateQuantizedDescriptor, device: DeviceSpec) -> Iterable[RowConfig]:
        return coded_configs(desc, desc.rows(), 2)

    def guarantee(self, desc: GateQuantizedDescriptor, device: DeviceSpec, config: RowConfig) -> PrecisionGuarantee:
        return guarantee(desc)

    def cost(self, desc: GateQuantizedDescriptor, device: DeviceSpec, config: RowConfig) -> Cost:
        return row_cost(device, desc.rows(), desc.nbytes, config, desc.element, instructions=24.0)

    def lower(self, desc: GateQuantizedDescriptor, device: DeviceSpec, config: RowConfig) -> tuple[Step, ...]:
        rows, digits = desc.rows(), desc.element.digits if desc.element is ElementKind.F32 else F16_DIGITS
        types = f"{desc.element.number}, {desc.code_type}, {digits}"
        options = f"{desc.group}, {str(is_whole(desc, rows)).lower()}"
        return (rows.launch("norm/quantized.cu", "gate_quantized", types, config, options),)


class GateQuantizedPlan(Plan[GateQuantizedDescriptor]):
    """silu_mul as codes: operands `x`, `y`, `codes` and `scales`."""

    descriptor = GateQuantizedDescriptor
    category = OpCategory.NORM
    candidates = (RowsGateQuantized(),)
    measures = oracle.GATE_MEASURES
    probes = (
        {"shape": (3, 4096), "element": "bf16"},
        {"shape": (3, 100), "element": "f32"},
        {"shape": (2, 50304), "element": "bf16", "per": "group", "group_size": 128},
        {"shape": (6, 128), "element": "f16", "x_strides": (1, 6), "per": "group", "group_size": 32},
    )
    reference = oracle.gate
    reference_guarantee = guarantee


def _gate(
    x: Any, y: Any, /, *, per: str = "row", group_size: int | None = None, codes: Any = None, scales: Any = None
) -> Any: ...


_DOC = """`silu_mul`, the gate of SwiGLU, and its result quantized to {kind}, in one kernel: x / (1 + exp(-x)) * y as codes.

x, y: [..., K] of one shape and dtype (f16, bf16 or f32), any strides.
per: what has a scale of its own: a "row" along the last axis (a token), or a "group" of `group_size` (32, 64 or 128) adjacent
elements of one, which divides K.
Returns the named tuple (codes, scales): codes like x, {kind}; scales f32, [...] or [..., K / group_size]. The product is
computed in f32 and not rounded to x's dtype. Scales and codes follow `quantize_{suffix}`. A code differs from that of the exact
product only where it is near a tie of two codes.
"""


def _published(suffix: str, kind: str) -> Any:
    """The function of that kind, which is registered."""
    name, doc = f"silu_mul_{suffix}", _DOC.format(kind=kind, suffix=suffix)
    function = function_of(GateQuantizedPlan, called=name, doc=doc, name=name)(_gate)
    register(Op(name, GateQuantizedPlan, function, samples.gate, {"name": name}))
    return function


silu_mul_int8 = _published("int8", "int8")
silu_mul_fp8 = _published("fp8", "fp8 (e4m3)")
