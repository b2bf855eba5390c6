"""matmul_int4: products of activations and int4 weights, W4A16."""

from __future__ import annotations

from typing import Any, Self

from ....packed.int4 import Int4Layout
from ....plan.candidate import OK, Change, Feasibility, no
from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import (
    Activation,
    ElementKind,
    InvalidProblemError,
    OpCategory,
    OperandTypeError,
)
from ..._function import CallArgs, function_of
from ...products.shapes import check_addend
from .._even_rows import EvenRows
from .._product import WeightProduct
from .._widened import F32Weights
from . import oracle, samples
from ._composite import DequantizeThenMatmul
from .kernels import Int4Gemv, Int4Mma
from .weight import HALVES, ORDER, SLOTS, Int4Weight, arrays_of, taken_weight

__all__ = ["Int4MatmulDescriptor", "Int4MatmulPlan", "matmul_int4"]

F32 = ElementKind.F32


@described(
    Slot("out", "out", takes=(*HALVES, F32)),
    Slot("x", takes=HALVES),
    *SLOTS,
    ORDER,
    Slot("bias", optional=True, takes=(*HALVES, F32)),
)
class Int4MatmulDescriptor(WeightProduct, Int4Weight):
    """out = f(x W + bias): x [..., K] and a weight [K, `n`] of int4 codes in layout `packing`, a scale for `group_size` of K."""

    x_shape: tuple[int, ...]
    n: int
    x_element: ElementKind
    group_size: int = 128
    packing: Int4Layout = Int4Layout.TILED
    codes_element: ElementKind = ElementKind.U32
    scales_element: ElementKind = ElementKind.F16
    out_element: ElementKind | None = None
    activation: Activation = Activation.IDENTITY

    name = "matmul_int4"

    @classmethod
    def of(
        cls, x: Any, codes: Any, scales: Any = None, zeros: Any = None, order: Any = None, *, bias: Any = None, out: Any = None,
        shape: Any = None, group_size: int | None = None, layout: Any = None, activation: Any = None, out_dtype: Any = None,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout; `codes` may be a PackedInt4, in place of all that describes the weight."""
        arrays, weight = arrays_of(cls.name, codes, scales, zeros, order, shape, group_size, layout)
        tensors = cls.taken(cls.name, {"x": x, **arrays, "bias": bias, "out": out})
        k = tensors["x"].shape[-1] if tensors["x"].shape else None
        packing, shape = taken_weight(cls.name, tensors, **weight, k=k)
        wanted = {} if out_dtype is None else {"out_element": ElementKind.of(out_dtype)}
        if out is not None and wanted.get("out_element", tensors["out"].element) is not tensors["out"].element:
            raise OperandTypeError(
                f"{cls.name}: out holds {tensors['out'].element} and out_dtype is {wanted['out_element']}",
                "leave one out",
            )
        activation = Activation.IDENTITY if activation is None else activation
        options = {"n": shape[1], "group_size": weight["group_size"], "packing": packing, "activation": activation}
        return cls.of_tensors(tensors, **options, **wanted)

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.k, self.n

    def check(self) -> None:
        if not self.x_shape:
            raise InvalidProblemError(f"{self.op}: x has rank 0", "pass x of shape (..., K)")
        self.check_weight()
        check_addend(self.op, "bias", self.shape_of("bias"), self.shape)

    @property
    def tiled(self) -> Feasibility:
        """Whether the weight is in the layout that kernels multiply with."""
        if self.packing is Int4Layout.TILED:
            return OK
        fields: dict[str, Any] = {"packing": Int4Layout.TILED, "codes_element": ElementKind.U32, "codes_align": None}
        fields |= {"scales_align": None} | (
            {"zeros_element": ElementKind.U8, "zeros_align": None} if self.has("zeros") else {}
        )
        reason = f"the weight is in layout {str(self.packing)!r}"
        return no(reason, "repack_int4(weight), once, which gives layout 'tiled'", Change(fields))


class Int4MatmulPlan(Plan[Int4MatmulDescriptor]):
    """A product with a weight of int4 codes: operands `x`, `codes`, `scales`, `out`, and as the problem has them `zeros`, `order`
    and `bias`."""

    descriptor = Int4MatmulDescriptor
    category = OpCategory.QUANTIZATION
    candidates = (
        Int4Gemv(),
        Int4Mma(),
        DequantizeThenMatmul(),
        F32Weights(DequantizeThenMatmul()),
        EvenRows(Int4Gemv(), Int4Mma(), DequantizeThenMatmul()),
    )
    measures = oracle.MEASURES
    probes = (
        {"x_shape": (1, 256), "n": 48, "x_element": "f16"},
        {"x_shape": (5, 256), "n": 4096, "x_element": "bf16", "group_size": 32, "zeros_element": "u8", "bias_shape": (4096,),
         "bias_element": "bf16", "activation": "gelu"},
        {"x_shape": (1, 8192), "n": 32, "x_element": "f16", "order_element": "i32"},
        {"x_shape": (48, 8192), "n": 32, "x_element": "f16", "group_size": 64, "out_element": "f32"},
        {"x_shape": (4096, 256), "n": 4096, "x_element": "bf16", "scales_element": "bf16"},
        {"x_shape": (7, 256), "n": 48, "x_element": "f16", "packing": "awq", "zeros_element": "i32"},
    )  # fmt: skip
    reference = oracle.matmul
    shown = "x", ElementKind.U4
    reference_guarantee = oracle.guarantee


@function_of(Int4MatmulPlan)
def matmul_int4(
    x: Any, codes: Any, scales: Any = None, *, zeros: Any = None, order: Any = None, shape: Any = None,
    group_size: int | None = None, layout: Any = None, bias: Any = None, activation: Any = None, out_dtype: Any = None,
    out: Any = None,
) -> CallArgs:  # fmt: skip
    """f(x W + bias) with W[k, n] = (code - zero) scale, never rounded but where W is dequantised first; sums in f32.

    PlanPreference(exact_weights=True) excludes that rounding, batch_invariant=True keeps a row's bits, at any number of tokens.

    x: [..., K], f16 or bf16, any strides. codes: a PackedInt4, which has all that describes the weight; or its arrays, with
    `shape` (K, N), `group_size` (128) and `layout` ("tiled"; of the others the shape follows).
    order: int32 [K], as PackedInt4 has and checks it; one that is passed by itself is checked where it is on the host. One in
    device memory is not read: what is no k or group makes NaN; a k that is named twice counts twice.
    Weights in layout "tiled" are multiplied directly; those of others are dequantised at every call: `repack_int4` them once.
    bias: f16, bf16 or f32, broadcasts onto the result. activation: "relu", "gelu", "gelu_tanh" or "silu".
    out_dtype: f16, bf16 or f32; that of x by default.
    Returns out, [..., N]. Raises InvalidProblemError or OperandTypeError for arrays that the layout does not have.
    """
    arrays, options = arrays_of("matmul_int4", codes, scales, zeros, order, shape, group_size, layout, reads=True)
    operands = {"out": out, "x": x, **arrays} | ({} if bias is None else {"bias": bias})
    options |= {"activation": activation, "out_dtype": out_dtype}
    return (
        operands,
        lambda: Int4MatmulDescriptor.of(**operands, **options),
        (tuple(arrays), *options.values()),
        None,
        None,
    )


register(Op("matmul_int4", Int4MatmulPlan, matmul_int4, samples.matmul_int4))
