"""What products of activations and quantised weights have in common as problems: the product with the weights as floats."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ...plan.descriptor import Descriptor
from ...types import Activation, ElementKind, MathPrecision
from ..gemm.matmul import MatmulDescriptor
from ..products.gemm import Gemm, as_matrices, gemm_of

__all__ = ["WeightProduct"]


class WeightProduct(Descriptor):
    """out = f(x W + bias): x [..., K] and a weight [K, `n`], whose operands another base describes."""

    x_shape: tuple[int, ...]
    n: int
    x_element: ElementKind
    activation: Activation

    @property
    def k(self) -> int:
        return self.x_shape[-1] if self.x_shape else 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's."""
        return (*self.x_shape[:-1], self.n)

    a_shape = property(lambda self: self.x_shape)  # as bounds of products know it

    def default_element(self, name: str) -> ElementKind:
        return self.x_element

    # ---- what kernels see -----------------------------------------------------------------------------------------

    @property
    def precision(self) -> MathPrecision:
        return MathPrecision.BF16 if self.x_element is ElementKind.BF16 else MathPrecision.F16

    @cached_property
    def product(self) -> MatmulDescriptor:
        """The product with the dequantised weights, which are stored by columns."""
        given: dict[str, Any] = {"b_strides": (1, self.k)}
        for name, of in (("x", "a"), ("out", "out"), *((("bias", "bias"),) if self.has("bias") else ())):
            layout = self.layout(name)
            given |= {f"{of}_strides": layout.strides, f"{of}_align": layout.align, f"{of}_element": layout.element}
            given |= {} if of == "out" else {f"{of}_shape": layout.shape}
        return MatmulDescriptor(b_shape=(self.k, self.n), b_element=self.x_element, activation=self.activation, **given)

    @cached_property
    def gemm(self) -> Gemm:
        """The product as kernels walk it: rows of x and of out, in the order of out's strides."""
        inner = self.product
        gemm = gemm_of(as_matrices({operand.name: inner.layout(operand.name) for operand in inner.operands}))
        return gemm.swapped if gemm.transposed else gemm
