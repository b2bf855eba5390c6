"""quantize_int4: a float matrix as int4 codes with a scale, and where asked for a zero point, for every group."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np

from ....packed.int4 import Int4Layout
from ....plan.candidate import Candidate, Cost, Feasibility
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....runtime.steps import Kernel, Launch, Ptr, Step
from ....types import DeviceSpec, ElementKind, InvalidProblemError, MathPrecision, OpCategory, PrecisionGuarantee
from ....types.precision import Exact
from ..._function import CallArgs, function_of
from ..._launch import grid_of
from .._arguments import flag, pointer
from .._conversion_costs import ConversionCosts
from . import oracle, samples
from .weight import HALVES, Int4Weight, groups_fit

__all__ = ["QuantizeInt4Descriptor", "QuantizeInt4Plan", "quantize_int4"]

THREADS = 256
U8 = ElementKind.U8


@described(
    Slot("out", "out", element=ElementKind.U32, shape="codes_shape", strided=False),
    Slot("scales", "out", takes=HALVES, shape="scales_shape", strided=False),
    Slot("zeros", "out", optional=True, takes=(U8,), shape="points_shape", strided=False),
    Slot("w", takes=(*HALVES, ElementKind.F32), shape="shape", element="element"),
)
class QuantizeInt4Descriptor(Int4Weight):
    """A matrix of `shape` (K, N), to be int4 codes in layout "tiled". `zeros_element` says that groups have zero points, of
    `least_zero` or more."""

    shape: tuple[int, ...]
    element: ElementKind
    group_size: int = 128
    scales_element: ElementKind | None = None
    least_zero: int = 0

    name = "quantize_int4"
    packing = Int4Layout.TILED

    @classmethod
    def of(
        cls, w: Any, *, out: Any = None, scales: Any = None, zeros: Any = None, group_size: int = 128, symmetric: bool = True,
        scales_dtype: Any = None, least_zero: int = 0,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(cls.name, {"out": out, "scales": scales, "zeros": zeros, "w": w})
        options: dict[str, Any] = {"group_size": group_size, "least_zero": least_zero, "shape": tensors["w"].shape}
        options |= {"zeros_element": U8} if not flag(symmetric, f"{cls.name}: symmetric") else {}
        options |= {} if scales_dtype is None else {"scales_element": ElementKind.of(scales_dtype)}
        return cls.of_tensors(tensors, **options)

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.as_weight(self.shape)

    def default_element(self, name: str) -> ElementKind:
        return self.element if self.element in HALVES else ElementKind.F16

    def check(self) -> None:
        self.check_weight()
        if self.least_zero and not self.has("zeros"):
            raise InvalidProblemError(
                f"{self.op}: least_zero was given and no zero points are asked for", "symmetric=False"
            )
        if not 0 <= self.least_zero <= 15:
            raise InvalidProblemError(f"{self.op}: least_zero={self.least_zero}", "give 0 to 15")


class ByGroups(Candidate[QuantizeInt4Descriptor]):
    """A thread a group's scale, then one a word."""

    variant = "groups"
    launches = ("quantized/int4_pack.cu:scales_of", "quantized/int4_pack.cu:quantize")

    def supports(self, desc: QuantizeInt4Descriptor, device: DeviceSpec) -> Feasibility:
        return groups_fit(desc)

    def cost(self, desc: QuantizeInt4Descriptor, device: DeviceSpec, config: Any) -> Cost:
        efficiency = ConversionCosts.of(device).int4_quantize_efficiency
        return Cost.streaming(device, 2 * desc.nbytes, efficiency=efficiency)

    def guarantee(self, desc: QuantizeInt4Descriptor, device: DeviceSpec, config: Any) -> PrecisionGuarantee:
        return exactly(desc)

    def lower(self, desc: QuantizeInt4Descriptor, device: DeviceSpec, config: Any) -> tuple[Step, ...]:
        (k, n), w, words = desc.weight_shape, desc.layout("w"), math.prod(desc.codes_shape)
        kinds = f"{desc.element.number}, {desc.layout('scales').element.number}, {str(desc.has('zeros')).lower()}"
        strides = (np.int64(w.strides[0]), np.int64(w.strides[1]))
        extents = (np.uint32(k), np.uint32(n), np.uint32(desc.columns), np.uint32(desc.group_size))
        points, block = (Ptr("scales"), pointer(desc, "zeros")), (THREADS, 1, 1)
        return (
            Launch(
                Kernel("quantized/int4_pack.cu", f"scales_of<{kinds}>"),
                (grid_of(desc.columns, THREADS)[0], desc.groups, 1), block,
                (Ptr("w"), *points, *strides, *extents, np.uint32(desc.least_zero)),
            ),
            Launch(
                Kernel("quantized/int4_pack.cu", f"quantize<{kinds}>"), grid_of(words, THREADS), block,
                (Ptr("w"), *points, Ptr("out"), *strides, *extents, np.uint64(words)),
            ),
        )  # fmt: skip


def exactly(desc: Any) -> PrecisionGuarantee:  # noqa: ARG001
    """Every result is the one that the recipe gives in f32 arithmetic, rounded to nearest at each step."""
    return PrecisionGuarantee(MathPrecision.F32, ElementKind.F32, True, True, True, False, Exact())


class QuantizeInt4Plan(Plan[QuantizeInt4Descriptor]):
    """A matrix as int4 codes: operands `w`, `out` (codes), `scales` and, as the problem has them, `zeros`."""

    descriptor = QuantizeInt4Descriptor
    category = OpCategory.QUANTIZATION
    candidates = (ByGroups(),)
    probes = (
        {"shape": (128, 48), "element": "f32"},
        {"shape": (128, 48), "element": "bf16", "zeros_element": "u8", "w_strides": (1, 128)},
    )
    reference = oracle.quantize
    reference_guarantee = exactly


@function_of(QuantizeInt4Plan)
def quantize_int4(
    w: Any, *, group_size: int = 128, symmetric: bool = True, scales_dtype: Any = None, least_zero: int = 0, out: Any = None,
    scales: Any = None, zeros: Any = None,
) -> CallArgs:  # fmt: skip
    """int4 codes of a matrix in layout "tiled", with a scale for `group_size` of K; `pack_int4` makes a PackedInt4 of them.

    w: [K, N], f16, bf16 or f32, finite, any strides: of a weight [N, K] its transpose. group_size: 32, 64, 128 or K.
    symmetric: scale = max|w| / 7, code = round(w / scale) + 8; else scale = (max - min) / 15 of the group's values and 0, with a
    zero point round(-min / scale), at least `least_zero`, which the code adds. Codes are clamped to 0..15; a scale of 0 becomes
    1. Rounding is to nearest, ties to even, in f32; a scale is rounded to its type before it is used.
    scales_dtype: f16 or bf16; that of w, of f32 f16.
    Returns (out, scales), and zeros (u8) where not symmetric, as PackedInt4 has them.
    """
    zeros_there = not flag(symmetric, "quantize_int4: symmetric") or zeros is not None
    operands = {"out": out, "scales": scales, **({"zeros": zeros} if zeros_there else {}), "w": w}
    options = {"group_size": group_size, "symmetric": symmetric, "scales_dtype": scales_dtype, "least_zero": least_zero}
    return operands, lambda: QuantizeInt4Descriptor.of(**operands, **options), tuple(options.values()), None, None


register(Op("quantize_int4", QuantizeInt4Plan, quantize_int4, samples.quantize_int4))
