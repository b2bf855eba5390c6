"""The gradients of a matrix product, dA = G·Bᵀ and dB = Aᵀ·G, as two products of transposed views.

Nothing is transposed or padded in memory, so every size is served. Sums are those of `matmul`, in f32. The gradient of an operand
that all matrices of the batch share is one product whose K includes the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np

from ... import functional
from ...plan.descriptor import Descriptor, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Op, register
from ...types import ElementKind, MathPrecision, OpCategory, OperandTypeError, PlanPreference, PrecisionGuarantee
from ..products.shapes import product_shape
from . import oracle, samples
from ._problem.elements import check_elements
from ._problem.gradients import Product, products
from ._two_products import TWO_PRODUCTS
from .matmul import MatmulDescriptor, MatmulPlan

__all__ = ["MatmulBackwardDescriptor", "MatmulBackwardPlan", "MatmulGradients", "matmul_backward"]

OP = "matmul_backward"


class MatmulGradients(NamedTuple):
    """The gradients with respect to `a` and `b`, in their shapes."""

    grad_a: Any
    grad_b: Any


@described(
    Slot("grad_a", "out", shape="a_shape", element="out_element", strided=False),
    Slot("grad_b", "out", shape="b_shape", element="out_element", strided=False),
    Slot("grad"),
    Slot("a"),
    Slot("b"),
)
class MatmulBackwardDescriptor(Descriptor):
    """The gradients of ``a @ b`` with respect to a and b, given `grad`, that of the result: G·Bᵀ and Aᵀ·G.

    `math` is how f32 operands are multiplied, as in MatmulDescriptor. Gradients are in C order.
    """

    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    a_element: ElementKind
    b_element: ElementKind
    grad_element: ElementKind
    out_element: ElementKind | None = None
    math: MathPrecision | None = None

    name = OP

    @classmethod
    def of(
        cls, grad: Any, a: Any, b: Any, *, grad_a: Any = None, grad_b: Any = None, out_dtype: Any = None, math: Any = None
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(OP, {"a": a, "b": b, "grad": grad, "grad_a": grad_a, "grad_b": grad_b})
        wanted = {} if out_dtype is None else {"out_element": ElementKind.of(out_dtype)}
        return cls.of_tensors(tensors, math=math, **wanted)

    @cached_property
    def grad_shape(self) -> tuple[int, ...]:
        """The result's shape by NumPy's rules, which its gradient has as well."""
        return product_shape(OP, self.a_shape, self.b_shape)

    def default_element(self, name: str) -> ElementKind:
        return self.a_element

    def check(self) -> None:
        given = {"a_element": self.a_element, "b_element": self.b_element, "out_element": self.out_element}
        check_elements(MatmulDescriptor(self.a_shape, self.b_shape, math=self.math, name=OP, **given))  # type: ignore[arg-type]
        if self.grad_element is not self.a_element:
            raise OperandTypeError(
                f"{OP}: grad holds {self.grad_element}, a and b hold {self.a_element}",
                f"cast grad to {self.a_element}: nothing is cast silently",
            )
        self.products  # noqa: B018  # refuses what would need a copy

    @cached_property
    def products(self) -> dict[str, Product]:
        """For each gradient, the two views whose product it is."""
        return products(OP, {name: self.layout(name) for name in ("grad", "a", "b")})

    @cached_property
    def parts(self) -> dict[str, MatmulDescriptor]:
        """Each gradient as a problem of `matmul`."""
        made = {}
        for name, product in self.products.items():
            first, second, out = product.first.layout, product.second.layout, self.layout(name)
            lies: dict[str, Any] = {"a_strides": first.strides, "b_strides": second.strides, "a_align": first.align}
            lies |= {"b_align": second.align, "out_align": out.align}
            kinds = first.element, second.element, out.element
            made[name] = MatmulDescriptor(first.shape, second.shape, *kinds, math=self.math, name=OP, **lies)
        return made

    @cached_property
    def canonical_parts(self) -> dict[str, MatmulDescriptor]:
        """The same problems, canonical."""
        return {name: part.canonical() for name, part in self.parts.items()}


def _measure(measure: Any, desc: MatmulBackwardDescriptor, *, output: str, **arrays: Any) -> Any:
    """A measure of matmul, taken of the product that gives `output`."""
    first, second = _operands(desc, output, arrays)
    part = desc.parts[output]
    measured = np.broadcast_to(measure(part, a=first, b=second), part.shape)
    return measured.reshape(desc.layout(output).shape)


def _operands(desc: MatmulBackwardDescriptor, output: str, arrays: Any) -> tuple[Any, Any]:
    product = desc.products[output]
    return product.first.of(arrays[product.first.name]), product.second.of(arrays[product.second.name])


def _probes() -> Iterator[dict[str, Any]]:
    """Rows and columns, a shared weight, vectors."""
    for kind, a, b in (("bf16", (264, 512), (512, 136)), ("f32", (3, 72, 96), (96, 40)), ("f64", (65,), (65, 33))):
        yield {"a_shape": a, "b_shape": b, "a_element": kind, "b_element": kind, "grad_element": kind}


class MatmulBackwardPlan(Plan[MatmulBackwardDescriptor]):
    """Both gradients of a matrix product: operands `grad_a`, `grad_b`, `grad`, `a`, `b`."""

    descriptor = MatmulBackwardDescriptor
    category = OpCategory.GEMM
    candidates = TWO_PRODUCTS
    measures = {name: partial(_measure, measure) for name, measure in oracle.MEASURES.items()}
    probes = tuple(_probes())
    result_type = MatmulGradients
    shown = "a", "grad_a"

    @staticmethod
    def reference(desc: MatmulBackwardDescriptor, **arrays: Any) -> Any:
        wide = []
        for name, part in desc.parts.items():
            first, second = _operands(desc, name, arrays)
            wide.append(MatmulPlan.reference(part, a=first, b=second).reshape(desc.layout(name).shape))
        return tuple(wide)

    @staticmethod
    def reference_guarantee(desc: MatmulBackwardDescriptor) -> PrecisionGuarantee:
        return PrecisionGuarantee.by_output(
            **{name: MatmulPlan.reference_guarantee(part) for name, part in desc.parts.items()}
        )


def matmul_backward(
    grad: Any,
    a: Any,
    b: Any,
    /,
    *,
    out_dtype: Any = None,
    stream: Any = None,
    pref: PlanPreference | None = None,
    device: Any = None,
) -> MatmulGradients:
    """The gradients of ``a @ b``, given that of the result: ``grad @ b.mT`` and ``a.mT @ grad``, each rounded once.

    grad has the shape of ``a @ b`` and the dtype of a and b. out_dtype="f32" keeps the f32 sums of 16-bit operands, which
    are. A weight that a batch shares gets the sum over the batch, where the batch's rows follow on in memory; other
    broadcasts are refused. Raises InvalidProblemError, OperandTypeError or UnsupportedError, each with what to do.
    """
    math = pref.math if isinstance(pref, PlanPreference) else None
    operands = {"grad_a": None, "grad_b": None, "grad": grad, "a": a, "b": b}
    return functional.call(  # type: ignore[no-any-return]
        MatmulBackwardPlan, operands, lambda: MatmulBackwardDescriptor.of(grad, a, b, out_dtype=out_dtype, math=math),
        options=(out_dtype, math), stream=stream, pref=pref, device=device,
    )  # fmt: skip


register(Op(OP, MatmulBackwardPlan, matmul_backward, samples.matmul_backward))
