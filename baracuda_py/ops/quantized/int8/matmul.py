"""matmul_int8: products of bytes, exact until they are scaled, and of floats with weights of a byte."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

from ....plan.descriptor import Descriptor, Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import Activation, ElementKind, OpCategory, OperandTypeError
from ....types.keeping import complete
from ..._function import function_of
from .._arguments import flag
from .._widened import F32Weights
from . import oracle, samples
from ._composite import Dequantized, Quantized, Staged
from ._gemv_tiles import GemvTiles
from ._mma import Int8Mma
from .gemv import Int8Gemv
from .problem import HALVES, Product, check_product, product_of

__all__ = ["Int8MatmulDescriptor", "Int8MatmulPlan", "matmul_int8"]


@described(
    Slot("out", "out", element="out_element"),
    Slot("a"),
    Slot("b"),
    *(Slot(name, optional=True) for name in ("scale_a", "scale_b", "zero_a", "zero_b", "bias")),
)
class Int8MatmulDescriptor(Descriptor):
    """out = f(sum (a - zero_a) (b - zero_b) scale_a scale_b + bias): a [..., K] of i8, u8, f16 or bf16, b [K, N] of i8.

    Scales and zero points: one number, or one a row of a and a column of b; of floats a, `scale_b` may be [K / group, N].
    `dynamic`: each row of floats a is quantised first, as by ``quantize_int8(a)``.
    """

    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    a_element: ElementKind
    b_element: ElementKind = ElementKind.I8
    out_element: ElementKind | None = None
    activation: Activation = Activation.IDENTITY
    dynamic: bool = False

    name = "matmul_int8"

    def __post_init__(self) -> None:
        super().__post_init__()
        complete(self, dynamic=flag(self.dynamic, f"{self.op}: dynamic"))

    @classmethod
    def of(
        cls, a: Any, b: Any, scale_a: Any = None, scale_b: Any = None, *, zero_a: Any = None, zero_b: Any = None,
        bias: Any = None, out: Any = None, activation: Activation | str | None = None, out_dtype: Any = None,
        dynamic: bool = False,
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(cls.name, {
            "out": out, "a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "zero_a": zero_a, "zero_b": zero_b, "bias": bias,
        })  # fmt: skip
        asked = None if out_dtype is None else ElementKind.of(out_dtype)
        held = tensors["out"].element if out is not None else None
        if asked is not None and held not in (None, asked):
            raise OperandTypeError(f"{cls.name}: out holds {held} and out_dtype is {asked}", "give one of them")
        activation = Activation.IDENTITY if activation is None else activation
        return cls.of_tensors(tensors, out_element=asked or held, activation=activation, dynamic=dynamic)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The result's."""
        return (*self.a_shape[:-1], *self.b_shape[-1:])

    def default_element(self, name: str) -> ElementKind:
        """Sums unchanged; scaled, f32, and of floats their own type."""
        if self.a_element in HALVES:
            return self.a_element
        return ElementKind.F32 if self.has("scale_a") or self.has("scale_b") else ElementKind.I32

    def check(self) -> None:
        check_product(self)

    @cached_property
    def product(self) -> Product:
        """The product that kernels see."""
        return product_of(self)


def _probes() -> tuple[dict[str, Any], ...]:
    def product(m: int, n: int, k: int, a: str = "i8", **more: Any) -> dict[str, Any]:
        return {"a_shape": (m, k), "b_shape": (k, n), "a_element": a, "b_strides": (1, k), **more}

    def scaled(m: int, n: int) -> dict[str, Any]:
        shapes = {"scale_a_shape": (m,), "scale_b_shape": (n,)}
        return shapes | {"scale_a_element": "f32", "scale_b_element": "f32"}

    weights = {"scale_b_shape": (4096,), "scale_b_element": "f32"}
    zeros = {"zero_a_shape": (), "zero_b_shape": (520,), "zero_a_element": "u8", "zero_b_element": "i8"}
    return (
        product(4096, 4096, 4096, out_element="bf16", **scaled(4096, 4096)),
        product(384, 520, 1024, "u8", out_element="f32", activation="gelu", **scaled(384, 520), **zeros),
        product(300, 264, 8192),
        product(130, 250, 515, b_strides=None),
        product(1, 4096, 4096, **scaled(1, 4096)),
        product(16, 4096, 4096, "u8", b_strides=None),
        product(1, 4096, 4096, "bf16", **weights),
        product(8, 4096, 4096, "f16", **weights | {"scale_b_shape": (32, 4096)}),
        product(4096, 4096, 4096, "bf16", **weights),
        product(64, 4096, 4096, "bf16", dynamic=True, **weights),
    )


class Int8MatmulPlan(Plan[Int8MatmulDescriptor]):
    """A product with i8 weights: operands `out`, `a`, `b`, and those of `scale_a`, `scale_b`, `zero_a`, `zero_b`, `bias` that it
    has."""

    descriptor = Int8MatmulDescriptor
    category = OpCategory.GEMM
    candidates = (
        Int8Gemv(), Int8Mma(), Staged(), Quantized(), Dequantized(), GemvTiles(), F32Weights(Dequantized()),
    )  # fmt: skip
    measures = oracle.MEASURES
    probes = _probes()
    reference = oracle.matmul
    shown = "a", "out"
    reference_guarantee = oracle.guarantee


@function_of(Int8MatmulPlan)
def matmul_int8(
    a: Any, b: Any, scale_a: Any = None, scale_b: Any = None, *, zero_a: Any = None, zero_b: Any = None, bias: Any = None,
    activation: Activation | str | None = None, out_dtype: Any = None, dynamic: bool = False,
) -> Any:  # fmt: skip
    """f(sum (a - zero_a) (b - zero_b) * scale_a * scale_b + bias): sums of bytes are exact, in s32, until they are scaled.

    a: [..., K], i8 or u8, or f16 or bf16 (W8A16: multiplied as it is, sums in f32). b: [K, N], i8. Any strides by which rows are
    evenly spaced: K-major weights, such as ``quantize_int8(w)[0].T`` of w [N, K], are the fastest.
    scale_a, scale_b: f32: one number, or one a row of a and a column of b. Of floats a, scale_b is needed, and may be
    [K / group, N]. zero_a, zero_b: zero points, of the operands' dtypes and the scales' shapes.
    bias: [N], f32, f16 or bf16, or one number; of an i32 result i32. activation: "relu", "gelu" (erf), "gelu_tanh" or "silu".
    out_dtype: f32, f16, bf16, i32 or i8: by default i32 without scales, f32 with, of floats a theirs. i32 are the exact sums,
    plus bias (saturating), of relu; i8 are rounded to nearest even and saturate: f32 arithmetic, bit for bit, of relu or none.
    dynamic: each row of floats a is quantised first, with a scale of its own, as by ``quantize_int8(a)``.
    Returns out, [..., N]. Raises InvalidProblemError where shapes or scales do not agree, or K products may overflow s32;
    OperandTypeError for a dtype that is not taken.
    """


register(Op("matmul_int8", Int8MatmulPlan, matmul_int8, samples.matmul, peers={"torch": "_int_mm"}))
