"""matmul: matrix products with a fused epilogue, in every layout, batched; and the named tensor-core variants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Self

from ...plan.descriptor import Descriptor, ProblemKey, Slot, described
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...types import Activation, ElementKind, EpilogueKind, LayoutSku, MathPrecision, OpCategory
from .._function import function_of
from ..products.gemm import ADDENDS, Gemm, as_matrices, gemm_of
from ..products.scales import SCALES, Scaling, check_scales, scaling_of
from ..products.shapes import check_addend, product_shape
from . import oracle, samples
from ._candidates import CANDIDATES
from ._problem.elements import EIGHTS, MATH, NAMED, asked_output, check_elements, output_element
from ._problem.key import problem_key
from ._problem.weights import beyond_f32, check_beta, check_range

__all__ = [
    "MatmulDescriptor",
    "MatmulPlan",
    "matmul",
    "matmul_tc",
    "matmul_tc_async",
    "matmul_tc_bf16",
    "matmul_tc_bf16_async",
]


@described(
    Slot("out", "out", element="out_element"),
    Slot("a"),
    Slot("b"),
    *(Slot(name, optional=True) for name in (*ADDENDS, *SCALES)),
    last=("name",),
)
class MatmulDescriptor(Descriptor):
    """out = residual + f(alpha A·B + beta C + bias): A [..., M, K], B [..., K, N], batch axes that broadcast.

    A vector A is one row, a vector B one column, as in NumPy. `c`, `bias` and `residual` broadcast onto the result and are
    absent where their shape is None. `math` is how f32 operands are multiplied: ``"f32"`` (the default) or ``"tf32"``; for
    fp8 ``"fp8"`` or ``"fp8_fast"``. fp8 operands may have scales: [1, 1], [M, 1] and [1, N], or one for each block of 1 x 128
    of A, [M, ceil(K/128)], and of 128 x 128 of B, [ceil(K/128), ceil(N/128)].
    As in BLAS, A·B does not count where alpha is 0, nor C where beta is. `out` may be the very view that `c` or `residual` is.
    """

    a_shape: tuple[int, ...]
    b_shape: tuple[int, ...]
    a_element: ElementKind
    b_element: ElementKind
    out_element: ElementKind | None = None
    activation: Activation = Activation.IDENTITY
    math: MathPrecision | None = None
    alpha: float = 1.0
    beta: float = 1.0
    name: str = "matmul"

    values = ("alpha", "beta")

    def __post_init__(self) -> None:
        self._names_op(("matmul", "matmul_backward", *NAMED), "name")
        super().__post_init__()

    @classmethod
    def of(
        cls, a: Any, b: Any, *, c: Any = None, bias: Any = None, residual: Any = None, scale_a: Any = None,
        scale_b: Any = None, out: Any = None,
        activation: Activation | str | None = None, alpha: float = 1.0, beta: float = 1.0, out_dtype: Any = None,
        math: MathPrecision | str | None = None, name: str = "matmul",
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(name, {
            "a": a, "b": b, "c": c, "bias": bias, "residual": residual, "scale_a": scale_a, "scale_b": scale_b, "out": out,
        })  # fmt: skip
        element = asked_output(name, out_dtype, tensors["out"].element if out is not None else None)
        activation = Activation.IDENTITY if activation is None else activation
        return cls.of_tensors(
            tensors, out_element=element, activation=activation, math=math, alpha=alpha, beta=beta, name=name
        )

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The result's, as NumPy has it."""
        return product_shape(self.op, self.a_shape, self.b_shape)

    def default_element(self, name: str) -> ElementKind:
        return output_element(self)

    def in_place(self, written: str, read: str) -> bool:
        """Allowed for c and residual: the thread that writes an element reads it once, just before."""
        return read in ("c", "residual")

    def check(self) -> None:
        check_elements(self)
        for name in ADDENDS:
            check_addend(self.op, name, self.shape_of(name), self.shape)
        self.scalars({})
        check_scales(self, self._extents, scaled=self.a_element in EIGHTS)

    def neutral(self) -> dict[str, Any]:
        return super().neutral() | {"math": self.precision}

    @classmethod
    def check_values(cls, op: str, values: Mapping[str, float], operands: Mapping[str, Any]) -> bool:
        """Only numbers beyond f32's range need a check, and the operands' type decides whether they are refused."""
        check_beta(op, values["beta"], has_c="c" in operands)
        return beyond_f32(values["alpha"]) or beyond_f32(values["beta"])

    def scalars(self, given: Mapping[str, Any]) -> dict[str, float]:
        """alpha and beta of a call; InvalidProblemError for a beta with nothing to scale, and where f32 has no such number."""
        weights = super().scalars(given)
        check_range(self.op, weights, self.a_element)
        check_beta(self.op, weights["beta"], has_c=self.has("c"))
        return weights

    # ---- what kernels see -----------------------------------------------------------------------------------------

    @property
    def precision(self) -> MathPrecision:
        """How products are formed."""
        return self.math or MATH[self.a_element][0]

    @property
    def maths(self) -> tuple[MathPrecision, ...]:
        """How products of these operands may be formed, the default first."""
        return MATH[self.a_element]

    @property
    def variant(self) -> str | None:
        """The variant that the name fixes."""
        return NAMED[self.name].variant if self.name in NAMED else None

    @property
    def scaling(self) -> Scaling | None:
        """The scales' form; None where both do not have the same one."""
        return scaling_of(self.shape_of("scale_a"), self.shape_of("scale_b"), *self._extents)

    @property
    def _extents(self) -> tuple[int, int, int]:
        a, b = self.a_shape, self.b_shape
        return a[-2] if len(a) > 1 else 1, b[-1] if len(b) > 1 else 1, a[-1]

    @cached_property
    def gemm(self) -> Gemm:
        """The normalised product."""
        layouts = as_matrices({operand.name: self.layout(operand.name) for operand in self.operands})
        return gemm_of(layouts, blocked=self.scaling is Scaling.BLOCKS)

    def problem_key(self) -> ProblemKey:
        return problem_key(self)


def _probes() -> Iterator[dict[str, Any]]:
    """Tiles and waves, layouts, ragged rows, epilogues, batches, few tokens, long sums, every type, scales."""

    def product(m: int, n: int, k: int, element: str = "bf16", **more: Any) -> dict[str, Any]:
        return {"a_shape": (m, k), "b_shape": (k, n), "a_element": element, "b_element": element, **more}

    for element in ("bf16", "f16"):
        epilogue: dict[str, Any] = {"activation": "gelu", "alpha": 0.5, "beta": 0.5}
        for name in ADDENDS:
            epilogue |= {f"{name}_shape": (520,) if name == "bias" else (384, 520), f"{name}_element": element}
        yield product(384, 520, 1024, element, **epilogue)
        yield product(2, 4096, 2048, element)
        yield product(130, 250, 515, element, a_strides=(1, 130))
    yield product(4096, 4096, 4096)
    yield product(260, 136, 8192, b_strides=(1, 8192), out_element="f32")
    yield product(16, 1024, 4097)
    yield product(200, 264, 96, "f32", math="tf32")
    yield product(65, 130, 300, "f32")
    yield product(65, 130, 300, "f64")
    shapes = {"a_shape": (3, 1, 72, 136), "b_shape": (5, 136, 64), "out_strides": (23040, 4608, 1, 72)}
    yield product(0, 0, 0, out_element="f32") | shapes
    for of_a, of_b in (((1, 1), (1, 1)), ((130, 3), (3, 2))):
        scales: dict[str, Any] = {"scale_a_shape": of_a, "scale_b_shape": of_b, "scale_a_strides": (1, 132)}
        scales |= {f"{name}_element": "f32" for name in SCALES}
        for math in ("fp8", "fp8_fast"):
            yield product(130, 136, 384, "fp8_e4m3", b_strides=(1, 384), math=math, **scales)


class MatmulPlan(Plan[MatmulDescriptor]):
    """A matrix product: operands `out`, `a`, `b`, and those of `c`, `bias`, `residual` that were described."""

    descriptor = MatmulDescriptor
    category = OpCategory.GEMM
    candidates = CANDIDATES
    measures = oracle.MEASURES
    probes = tuple(_probes())
    reference = oracle.matmul
    shown = "a", "out"
    reference_guarantee = oracle.guarantee

    @classmethod
    def sku_traits(cls, desc: MatmulDescriptor) -> tuple[LayoutSku | None, EpilogueKind | None]:
        letters = "".join(
            "C" if s[-2:] and s[-1] != 1 else "R" for s in (desc.layout("a").strides, desc.layout("b").strides)
        )
        bias = desc.has("bias")
        plain = desc.activation is Activation.IDENTITY
        kind = ("bias" if plain else f"bias_{desc.activation}") if bias else desc.activation.value
        return LayoutSku((letters + "R").lower()), EpilogueKind(kind)


def _product(
    a: Any,
    b: Any,
    /,
    *,
    bias: Any = None,
    activation: Activation | str | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    c: Any = None,
    residual: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out_dtype: Any = None,
    math: MathPrecision | str | None = None,
) -> Any:
    """The matrix product residual + f(alpha a @ b + beta c + bias), with NumPy's rules for vectors and batches.

    a: [..., M, K] and b: [..., K, N], f16, bf16, f32 or f64, of one dtype, or fp8 (e4m3 and e5m2 mix); any strides, so that
    transposed views are used without a copy.
    bias, c, residual: arrays that broadcast onto the result, of a dtype that out may have. As in BLAS, what is weighted by 0
    does not count, NaN or not: c is not read where beta is 0, and a @ b is left out where alpha is. A beta other than 0 and 1
    needs a c.
    out may be the very array that c or residual is: out=x, c=x adds to x.
    activation: "relu", "gelu" (erf), "gelu_tanh" or "silu".
    out_dtype: f16, bf16 or f32 for 16-bit, f32 and fp8 operands; theirs by default, of fp8 bf16.
    math: "tf32" to multiply f32 on tensor cores, where operands of 3.402e38 and more may count as infinite; strict f32 by
    default. "fp8_fast" leaves sums of fp8 to the tensor cores, which keep 14 bits; by default every 128 of K are added up in f32.
    scale_a, scale_b: f32 scales of fp8 operands: a number each, one a row of a, [M, 1], and a column of b, [1, N], or both by
    blocks, [M, ceil(K/128)] and [ceil(K/128), ceil(N/128)]; scale_a is read without a copy where M is innermost and its
    lines are on multiples of 16 bytes, and else copied ahead of the product.
    Returns out, [..., M, N]. Raises InvalidProblemError where shapes do not agree or beta has no c, OperandTypeError for a
    dtype that is not taken, OverlapError where out shares memory with an operand in another way.
    """


matmul = function_of(MatmulPlan, called="matmul", name="matmul")(_product)
_GRADIENT = Gradient("matmul_backward", saved=("a", "b"), gradients={"a": "grad_a", "b": "grad_b"})
_PEERS = {"cupy": "matmul", "torch": "matmul"}
register(Op("matmul", MatmulPlan, matmul, samples.matmul, {"name": "matmul"}, gradient=_GRADIENT, peers=_PEERS))
_DOC = """The matrix product of {element} operands by variant `{variant}`, in f32.

As `matmul`, with the kernel fixed: tensor-core code for sm_80 and later, operands {how}. Any M, N and K.
"""
_STAGING = {"tc": "staged through shared memory", "tc_async": "brought in by a cp.async pipeline"}


def _named(name: str, element: ElementKind, variant: str) -> Callable[..., Any]:
    """The function of a name that fixes the variant, registered."""
    function = function_of(
        MatmulPlan, called=name, doc=_DOC.format(element=element, variant=variant, how=_STAGING[variant]), name=name
    )(_product)
    register(Op(name, MatmulPlan, function, samples.matmul, {"name": name}, gradient=_GRADIENT, peers=_PEERS))
    return function


matmul_tc, matmul_tc_bf16, matmul_tc_async, matmul_tc_bf16_async = (
    _named(name, fixed.element, fixed.variant) for name, fixed in NAMED.items()
)
