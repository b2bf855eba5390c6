"""matmul_nf4: products of activations and NF4 weights."""

from __future__ import annotations

from typing import Any, Self

from ....plan.descriptor import Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import Activation, ElementKind, InvalidProblemError, OpCategory
from ..._function import CallArgs, function_of
from ...products.shapes import check_addend
from .._arguments import asked_element
from .._product import WeightProduct
from .._widened import F32Weights
from . import oracle, samples
from ._composite import DequantizeNf4ThenMatmul
from ._gemv import Nf4Gemv
from ._weight import FLOATS, HALVES, SLOTS, Nf4Weight, arrays_of_nf4

__all__ = ["Nf4MatmulDescriptor", "Nf4MatmulPlan", "matmul_nf4"]

F32 = ElementKind.F32


@described(Slot("out", "out", takes=FLOATS), Slot("x", takes=HALVES), *SLOTS, Slot("bias", optional=True, takes=FLOATS))
class Nf4MatmulDescriptor(WeightProduct, Nf4Weight):
    """out = f(x W^T + bias): x [..., K] and a weight [`n`, K] of NF4 codes in blocks of `block_size`."""

    x_shape: tuple[int, ...]
    n: int
    x_element: ElementKind
    block_size: int = 64
    absmax_element: ElementKind = F32
    out_element: ElementKind | None = None
    activation: Activation = Activation.IDENTITY

    name = "matmul_nf4"

    @classmethod
    def of(
        cls, x: Any, codes: Any, absmax: Any = None, scales: Any = None, offset: Any = None, *, bias: Any = None,
        out: Any = None, block_size: int | None = None, activation: Any = None, out_dtype: Any = None,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout; `codes` may be a PackedNf4, in place of all that describes the weight."""
        arrays, block_size = arrays_of_nf4(cls.name, codes, absmax, scales, offset, block_size)
        tensors = cls.taken(cls.name, {"x": x, **arrays, "bias": bias, "out": out})
        element, held = asked_element(cls.name, out_dtype, tensors.get("out")), tensors["codes"].shape
        if len(held) != 2:
            raise InvalidProblemError(f"{cls.name}: codes have shape {held}", "pass u8 [N, K/2]")
        wanted = {} if element is None else {"out_element": element}
        activation = Activation.IDENTITY if activation is None else activation
        return cls.of_tensors(tensors, n=held[0], block_size=block_size, activation=activation, **wanted)

    @property
    def weight_shape(self) -> tuple[int, int]:
        """[N, K], as the codes are stored."""
        return self.n, self.k

    @property
    def values_shape(self) -> tuple[int, ...]:
        return self.weight_shape

    def check(self) -> None:
        if not self.x_shape:
            raise InvalidProblemError(f"{self.op}: x has rank 0", "pass x of shape (..., K)")
        if min(self.weight_shape) < 1:
            raise InvalidProblemError(
                f"{self.op}: a weight of shape {self.weight_shape}", "give (N, K), both at least 1"
            )
        self.check_weight("x")
        check_addend(self.op, "bias", self.shape_of("bias"), self.shape)


class Nf4MatmulPlan(Plan[Nf4MatmulDescriptor]):
    """A product with a weight of NF4 codes: operands `x`, `codes`, `absmax`, `out`, and as the problem has them `scales` and
    `offset`, and `bias`."""

    descriptor = Nf4MatmulDescriptor
    category = OpCategory.QUANTIZATION
    candidates = (Nf4Gemv(), DequantizeNf4ThenMatmul(), F32Weights(DequantizeNf4ThenMatmul()))
    measures = oracle.MEASURES
    probes = (
        {"x_shape": (1, 256), "n": 48, "x_element": "f16"},
        {"x_shape": (5, 256), "n": 4096, "x_element": "bf16", "absmax_element": "u8", "scales_element": "f32",
         "offset_element": "f32", "bias_shape": (4096,), "bias_element": "bf16", "activation": "gelu"},
        {"x_shape": (1, 8192), "n": 32, "x_element": "f16", "block_size": 4096},
        {"x_shape": (16, 8192), "n": 8192, "x_element": "bf16", "out_element": "f32"},
        {"x_shape": (4096, 256), "n": 4096, "x_element": "bf16"},
    )  # fmt: skip
    reference = oracle.matmul
    shown = "x", ElementKind.U4
    reference_guarantee = oracle.guarantee


@function_of(Nf4MatmulPlan)
def matmul_nf4(
    x: Any, codes: Any, absmax: Any = None, *, scales: Any = None, offset: Any = None, block_size: int | None = None,
    bias: Any = None, activation: Any = None, out_dtype: Any = None, out: Any = None,
) -> CallArgs:  # fmt: skip
    """f(x W^T + bias), W[n, k] = NF4[code] absmax, whose values are rounded to the type of x; sums in f32.

    x: [..., K], f16 or bf16, any strides. codes: a PackedNf4, which has all that describes the weight; or u8 [N, K/2] as
    bitsandbytes packs it, with `absmax` and, doubly quantised, `scales` and `offset`; `block_size` is 64 by default.
    bias: f16, bf16 or f32, broadcasts onto the result. activation: "relu", "gelu", "gelu_tanh" or "silu".
    out_dtype: f16, bf16 or f32; that of x by default.
    For few rows of x the codes are multiplied without a copy; many rows with a weight that is dequantised first, at every call:
    where x is f16, a weight beyond 65504 is infinite then. PlanPreference(exact_weights=True) rounds none, at any number of rows.
    Returns out, [..., N]. Raises InvalidProblemError or OperandTypeError for arrays that do not fit.
    """
    arrays, size = arrays_of_nf4("matmul_nf4", codes, absmax, scales, offset, block_size)
    operands = {"out": out, "x": x, **arrays} | ({} if bias is None else {"bias": bias})
    options = {"block_size": size, "activation": activation, "out_dtype": out_dtype}
    key = (tuple(arrays), *options.values())
    return operands, lambda: Nf4MatmulDescriptor.of(**operands, **options), key, None, None


register(Op("matmul_nf4", Nf4MatmulPlan, matmul_nf4, samples.matmul_nf4))
