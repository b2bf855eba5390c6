"""matmul: matrix products with a fused epilogue, in every layout, batched; and the named tensor-core variants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, ClassVar, Self

from ... import functional, samples
from ...plan.descriptor import Descriptor, Layout, Operand, resolved_strides, scalar
from ...plan.plan import Plan
from ...plan.registry import Gradient, Op, register
from ...reference import gemm as oracle
from ...tensor import intake
from ...tensor.axes import broadcast_shapes
from ...types import (
    Activation,
    ElementKind,
    EpilogueKind,
    InvalidProblemError,
    LayoutSku,
    MathPrecision,
    OpCategory,
    OperandTypeError,
    PlanPreference,
    PrecisionGuarantee,
)
from ._candidates import CANDIDATES
from ._problem import ADDENDS, Gemm, gemm_of
from ._scales import SCALES, Scaling, check_scales, scaling_of

__all__ = [
    "MatmulDescriptor",
    "MatmulPlan",
    "matmul",
    "matmul_tc",
    "matmul_tc_async",
    "matmul_tc_bf16",
    "matmul_tc_bf16_async",
]

HALVES = (ElementKind.F16, ElementKind.BF16)
EIGHTS = (ElementKind.FP8_E4M3, ElementKind.FP8_E5M2)
OUTPUTS = {
    ElementKind.F16: (*HALVES, ElementKind.F32), ElementKind.BF16: (*HALVES, ElementKind.F32),
    ElementKind.F32: (ElementKind.F32, *HALVES), ElementKind.F64: (ElementKind.F64,),
} | dict.fromkeys(EIGHTS, (ElementKind.BF16, ElementKind.F16, ElementKind.F32))  # fmt: skip
MATH = {
    ElementKind.F16: (MathPrecision.F16,), ElementKind.BF16: (MathPrecision.BF16,),
    ElementKind.F32: (MathPrecision.F32, MathPrecision.TF32), ElementKind.F64: (MathPrecision.F64,),
} | dict.fromkeys(EIGHTS, (MathPrecision.FP8, MathPrecision.FP8_FAST))  # fmt: skip


OPTIONAL = (*ADDENDS, *SCALES)
_F32_INFINITE = (2 - 2.0**-24) * 2.0**127  # numbers from here on are nearer to 2**128 than to the largest f32


@dataclass(frozen=True)
class Named:
    """A name that fixes the element and the variant, and returns f32."""

    element: ElementKind
    variant: str
    other: str  # the function for the other 16-bit element


NAMED = {
    "matmul_tc": Named(ElementKind.F16, "tc", "matmul_tc_bf16"),
    "matmul_tc_bf16": Named(ElementKind.BF16, "tc", "matmul_tc"),
    "matmul_tc_async": Named(ElementKind.F16, "tc_async", "matmul_tc_bf16_async"),
    "matmul_tc_bf16_async": Named(ElementKind.BF16, "tc_async", "matmul_tc_async"),
}


@dataclass(frozen=True)
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
    c_shape: tuple[int, ...] | None = None
    bias_shape: tuple[int, ...] | None = None
    residual_shape: tuple[int, ...] | None = None
    scale_a_shape: tuple[int, ...] | None = None
    scale_b_shape: tuple[int, ...] | None = None
    c_element: ElementKind | None = None
    bias_element: ElementKind | None = None
    residual_element: ElementKind | None = None
    scale_a_element: ElementKind | None = None
    scale_b_element: ElementKind | None = None
    a_strides: tuple[int, ...] | None = None
    b_strides: tuple[int, ...] | None = None
    c_strides: tuple[int, ...] | None = None
    bias_strides: tuple[int, ...] | None = None
    residual_strides: tuple[int, ...] | None = None
    scale_a_strides: tuple[int, ...] | None = None
    scale_b_strides: tuple[int, ...] | None = None
    out_strides: tuple[int, ...] | None = None
    a_align: int | None = None
    b_align: int | None = None
    c_align: int | None = None
    bias_align: int | None = None
    residual_align: int | None = None
    scale_a_align: int | None = None
    scale_b_align: int | None = None
    out_align: int | None = None
    name: str = "matmul"

    values: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    signature_operands: ClassVar[tuple[Operand, ...]] = (
        Operand("out", "out"), Operand("a"), Operand("b"), *(Operand(n, "in", True) for n in OPTIONAL),
    )  # fmt: skip

    def __post_init__(self) -> None:
        self._names_op(("matmul", "matmul_backward", *NAMED), "name")
        self._ints(
            *(f"{n}_shape" for n in ("a", "b", *OPTIONAL)), *(f"{n}_strides" for n in ("a", "b", *OPTIONAL, "out"))
        )
        self._kind(*(f"{n}_element" for n in ("a", "b", *OPTIONAL, "out")))
        self._int(*(f"{n}_align" for n in ("a", "b", *OPTIONAL, "out")))
        self._member(Activation, "activation")
        self._member(MathPrecision, "math")
        self._scalar(*self.values)

    @classmethod
    def of(
        cls, a: Any, b: Any, *, c: Any = None, bias: Any = None, residual: Any = None, scale_a: Any = None,
        scale_b: Any = None, out: Any = None,
        activation: Activation | str | None = None, alpha: float = 1.0, beta: float = 1.0, out_dtype: Any = None,
        math: MathPrecision | str | None = None, name: str = "matmul",
    ) -> Self:  # fmt: skip
        """The descriptor of arrays as they lie."""
        given = {"a": a, "b": b, "c": c, "bias": bias, "residual": residual, "scale_a": scale_a, "scale_b": scale_b}
        given["out"] = out
        fields: dict[str, Any] = {}
        for key in ("a", "b"):
            if given[key] is None:
                raise InvalidProblemError(f"{name}: operand {key!r} is missing", f"pass {key}=...")
        for key, x in given.items():
            if x is not None:
                t = intake(x, what=f"{name}: {key}")
                fields |= {f"{key}_strides": t.strides, f"{key}_align": t.align, f"{key}_element": t.element}
                if key != "out":
                    fields[f"{key}_shape"] = t.shape
        if out_dtype is not None:
            wanted = ElementKind.of(out_dtype)
            if fields.setdefault("out_element", wanted) is not wanted:
                raise OperandTypeError(
                    f"{name}: out holds {fields['out_element']} and out_dtype is {wanted}", "give one of them"
                )
        fields |= {"activation": activation or Activation.IDENTITY, "math": math}
        desc = cls(alpha=alpha, beta=beta, name=name, **fields)
        if out is not None and len(desc.out_strides or ()) != len(desc.shape):
            raise InvalidProblemError(
                f"{name}: out must have shape {desc.shape}, got {intake(out, what=name).shape}",
                "pass an array of that shape",
            )
        return desc

    # ---- operands -------------------------------------------------------------------------------------------------

    @property
    def op(self) -> str:
        return self.name

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        present = (Operand(n) for n in OPTIONAL if getattr(self, f"{n}_shape") is not None)
        return (*self.signature_operands[:3], *present)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The result's, as NumPy has it."""
        a, b = self.a_shape, self.b_shape
        if not a or not b:
            raise InvalidProblemError(f"{self.op}: a has shape {a} and b {b}", "pass arrays of rank 1 or more")
        if a[-1] != b[-2 if len(b) > 1 else 0]:
            raise InvalidProblemError(
                f"{self.op}: a of shape {a} and b of shape {b} do not agree on K: {a[-1]} columns and "
                f"{b[-2 if len(b) > 1 else 0]} rows", "make them equal, or transpose one",
            )  # fmt: skip
        try:
            batch = broadcast_shapes(a[:-2], b[:-2])
        except ValueError:
            raise InvalidProblemError(
                f"{self.op}: the batch axes of a {a[:-2]} and b {b[:-2]} do not broadcast",
                "make each pair of extents equal, or one of them 1",
            ) from None
        return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))

    def layout(self, name: str) -> Layout:
        element = self._out_element if name == "out" else getattr(self, f"{name}_element")
        shape = self.shape if name == "out" else getattr(self, f"{name}_shape")
        strides = getattr(self, f"{name}_strides")
        if strides is not None and len(strides) != len(shape):
            raise InvalidProblemError(
                f"{self.op}: {name}_strides {strides} has {len(strides)} axes and {name} has {len(shape)}",
                "give one stride an axis",
            )
        element = element or self._out_element
        return Layout(shape, resolved_strides(shape, strides, element), element, self._align(name))

    @property
    def _out_element(self) -> ElementKind:
        if self.out_element or self.name in NAMED:
            return self.out_element or ElementKind.F32
        return ElementKind.BF16 if self.a_element in EIGHTS else self.a_element

    @property
    def scaling(self) -> Scaling | None:
        """How the scales lie; None where they do not go together."""
        return scaling_of(self.scale_a_shape, self.scale_b_shape, *self._extents)

    @property
    def _extents(self) -> tuple[int, int, int]:
        a, b = self.a_shape, self.b_shape
        return a[-2] if len(a) > 1 else 1, b[-1] if len(b) > 1 else 1, a[-1]

    def in_place(self, written: str, read: str) -> bool:
        """Every kernel reads an element of c and of residual once, in the thread that writes it, just before it does."""
        return read in ("c", "residual")

    # ---- validity -------------------------------------------------------------------------------------------------

    def check(self) -> None:
        if any(n < 0 for n in (*self.a_shape, *self.b_shape)):
            raise InvalidProblemError(
                f"{self.op}: {self.a_shape} or {self.b_shape} has a negative extent", "give 0 or more"
            )
        self.check_elements()
        shape = self.shape
        for name in ("a", "b", "out"):
            self.layout(name)
        for name in ADDENDS:
            given = getattr(self, f"{name}_shape")
            if given is None:
                continue
            self.layout(name)
            if len(given) > len(shape) or any(g not in (1, n) for g, n in zip(given[::-1], shape[::-1])):
                raise InvalidProblemError(
                    f"{self.op}: {name} of shape {given} does not broadcast onto the result's {shape}",
                    f"pass {name} of shape {shape[-1:] if name == 'bias' else shape}",
                )
        self.scalars({})
        check_scales(self, self._extents, scaled=self.a_element in EIGHTS)

    def check_elements(self) -> None:
        """Raises OperandTypeError where the operands' types do not go together, or with what was asked for."""
        a, b, named = self.a_element, self.b_element, NAMED.get(self.name)
        for name, kind in (("a", a), ("b", b)):
            if kind.is_integer or kind is ElementKind.BOOL:
                raise OperandTypeError(
                    f"{self.op}: {name} holds {kind}: integers are not multiplied", "cast it to a float type"
                )
            if named is not None and kind is not named.element:
                fix = f"use {named.other}" if kind in HALVES else f"cast it to {named.element}, or use matmul"
                raise OperandTypeError(f"{self.op}: {name} must hold {named.element}, got {kind}", fix)
            if kind not in OUTPUTS:
                raise OperandTypeError(
                    f"{self.op}: {name} holds {kind}", f"cast it to one of {', '.join(map(str, OUTPUTS))}"
                )
        if a is not b and not (a in EIGHTS and b in EIGHTS):
            raise OperandTypeError(
                f"{self.op}: a holds {a} and b holds {b}", "cast one of them: nothing is cast silently"
            )
        if named is not None and self._out_element is not ElementKind.F32:
            raise OperandTypeError(
                f"{self.op}: the result is f32 and {self._out_element} was asked for", "use matmul(..., out_dtype=...)"
            )
        if self._out_element not in OUTPUTS[a]:
            raise OperandTypeError(
                f"{self.op}: a product of {a} is not written as {self._out_element}",
                f"one of {', '.join(map(str, OUTPUTS[a]))}",
            )
        if self.math is not None and self.math not in MATH[a]:
            raise OperandTypeError(f"{self.op}: {a} is not multiplied in {self.math}", f"math={MATH[a][0].value!r}")
        for name in ADDENDS:
            kind = getattr(self, f"{name}_element")
            if kind is not None and kind not in OUTPUTS[a]:
                raise OperandTypeError(f"{self.op}: {name} holds {kind}", f"cast it to {self._out_element}")

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

    @cached_property
    def gemm(self) -> Gemm:
        """The normalised product."""
        layouts = {o.name: self.layout(o.name) for o in self.operands}
        a, b, out = layouts["a"], layouts["b"], layouts["out"]
        row, column = len(a.shape) == 1, len(b.shape) == 1
        if row:
            layouts["a"] = _with_axis(a, 0)
        if column:
            layouts["b"] = _with_axis(b, 1)
        for name in ("out", *ADDENDS):
            if name in layouts and column and layouts[name].shape:
                layouts[name] = _with_axis(layouts[name], len(layouts[name].shape))
            if name in layouts and row and layouts[name].shape:
                layouts[name] = _with_axis(layouts[name], len(layouts[name].shape) - 1)
        if not out.shape:
            layouts["out"] = Layout((1, 1), (1, 1), out.element, out.align)
        return gemm_of(layouts, blocked=self.scaling is Scaling.BLOCKS)

    def canonical(self) -> MatmulDescriptor:
        filled: dict[str, Any] = {"alpha": 1.0, "beta": 1.0, "math": self.precision}
        for operand in self.operands:
            layout = self.layout(operand.name)
            filled |= {f"{operand.name}_{f}": getattr(layout, f) for f in ("element", "strides", "align")}
        return replace(self, **filled)

    def at(self, given: Any) -> MatmulDescriptor:
        moved = any(v in given for v in self.values)
        return replace(self, **self.scalars(given)) if moved else self

    def resolve(self, given: Any) -> tuple[tuple[int, ...], dict[str, Any]]:
        return self.displacements(), self.scalars(given)

    def scalars(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """alpha and beta of a call; InvalidProblemError for a beta with nothing to scale, and where f32 has no such number."""
        scalars = {v: scalar(given.get(v, getattr(self, v)), f"{self.op}: {v}") for v in self.values}
        alpha, beta = scalars.values()
        if not (-_F32_INFINITE < alpha < _F32_INFINITE and -_F32_INFINITE < beta < _F32_INFINITE):
            self._check_range(scalars)
        _check_beta(self.op, scalars["beta"], self.c_shape is not None)
        return scalars

    def _check_range(self, scalars: Mapping[str, float]) -> None:
        """Raises InvalidProblemError for a finite number that is infinite as f32, where sums are f32."""
        for name, value in scalars.items():
            if self.a_element is not ElementKind.F64 and _beyond_f32(value):
                raise InvalidProblemError(
                    f"{self.op}: {name}={value:g} is beyond f32, in which it is multiplied", "scale an operand instead"
                )


def _with_axis(layout: Layout, axis: int) -> Layout:
    """A unit axis put in."""
    shape, strides = list(layout.shape), list(layout.strides)
    shape.insert(axis, 1)
    strides.insert(axis, 1)
    return layout._replace(shape=tuple(shape), strides=tuple(strides))


def _beyond_f32(value: float) -> bool:
    """Whether a finite number is infinite as f32."""
    return _F32_INFINITE <= abs(value) < inf


def _check_beta(op: str, beta: float, has_c: bool) -> None:
    """Raises InvalidProblemError for a beta with nothing to scale; the default and 0 say nothing of a c."""
    if not has_c and beta not in (0.0, 1.0):
        raise InvalidProblemError(f"{op}: beta={beta:g} scales c, and there is no c", "pass c, or leave beta out")


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

    @classmethod
    def reference(cls, desc: MatmulDescriptor, **arrays: Any) -> Any:
        return oracle.matmul(desc, **arrays)

    @classmethod
    def reference_guarantee(cls, desc: MatmulDescriptor) -> PrecisionGuarantee:
        return oracle.guarantee(desc)

    @classmethod
    def sku_elements(cls, desc: MatmulDescriptor) -> tuple[ElementKind, ElementKind | None]:
        out = desc.layout("out").element
        return desc.a_element, None if out is desc.a_element else out

    @classmethod
    def sku_traits(cls, desc: MatmulDescriptor) -> tuple[LayoutSku | None, EpilogueKind | None]:
        letters = "".join(
            "C" if s[-2:] and s[-1] != 1 else "R" for s in (desc.layout("a").strides, desc.layout("b").strides)
        )
        bias = desc.bias_shape is not None
        plain = desc.activation is Activation.IDENTITY
        kind = ("bias" if plain else f"bias_{desc.activation}") if bias else desc.activation.value
        return LayoutSku((letters + "R").lower()), EpilogueKind(kind)


def _function(op: str) -> Callable[..., Any]:
    of_alpha, of_beta = f"{op}: alpha", f"{op}: beta"

    def function(
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
        out: Any = None,
        stream: Any = None,
        pref: PlanPreference | None = None,
        device: Any = None,
    ) -> Any:
        if activation is not None:
            activation = Activation.of(activation, f"{op}: activation")
        values = {"alpha": scalar(alpha, of_alpha), "beta": scalar(beta, of_beta)}
        _check_beta(op, values["beta"], c is not None)
        # Operands decide whether such a number is refused, and calls without one have been checked: a key of its own.
        beyond = _beyond_f32(values["alpha"]) or _beyond_f32(values["beta"])
        operands = {"out": out, "a": a, "b": b}
        given = {"c": c, "bias": bias, "residual": residual, "scale_a": scale_a, "scale_b": scale_b}
        operands |= {n: x for n, x in given.items() if x is not None}
        if math is None and isinstance(pref, PlanPreference):
            math = pref.math

        def describe() -> MatmulDescriptor:
            return MatmulDescriptor.of(
                a,
                b,
                c=c,
                bias=bias,
                residual=residual,
                scale_a=scale_a,
                scale_b=scale_b,
                out=out,
                activation=activation,
                out_dtype=out_dtype,
                math=math,
                name=op,
            )

        return functional.call(
            MatmulPlan, operands, describe, options=(op, tuple(operands), activation, out_dtype, math, beyond),
            values=values, stream=stream, pref=pref, device=device,
        )  # fmt: skip

    function.__name__ = function.__qualname__ = op
    return function


matmul = _function("matmul")
matmul.__doc__ = """The matrix product residual + f(alpha a @ b + beta c + bias), with NumPy's rules for vectors and batches.

a: [..., M, K] and b: [..., K, N], f16, bf16, f32 or f64, of one dtype, or fp8 (e4m3 and e5m2 mix); any strides, so that
transposed views go in as they are.
bias, c, residual: arrays that broadcast onto the result, of a dtype that out may have. As in BLAS, what is weighted by 0 does
not count, NaN or not: c is not read where beta is 0, and a @ b is left out where alpha is. A beta other than 0 and 1 needs a c.
out may be the very array that c or residual is: out=x, c=x adds to x.
activation: "relu", "gelu" (erf), "gelu_tanh" or "silu".
out_dtype: f16, bf16 or f32 for 16-bit, f32 and fp8 operands; theirs by default, of fp8 bf16.
math: "tf32" to multiply f32 on tensor cores, where operands of 3.402e38 and more may count as infinite; strict f32 by default.
"fp8_fast" leaves sums of fp8 to the tensor cores, which keep 14 bits; by default every 128 of K are added up in f32.
scale_a, scale_b: f32 scales of fp8 operands: a number each, one a row of a, [M, 1], and a column of b, [1, N], or both by
blocks, [M, ceil(K/128)] and [ceil(K/128), ceil(N/128)]; scale_a is read as it lies where M is innermost and its
lines are on multiples of 16 bytes, and else copied ahead of the product.
Returns out, [..., M, N]. Raises InvalidProblemError where shapes do not agree or beta has no c, OperandTypeError for a
dtype that is not taken, OverlapError where out shares memory with an operand in another way.
"""
_GRADIENT = Gradient("matmul_backward", saves=("a", "b"), gives={"a": "grad_a", "b": "grad_b"})
_PEERS = {"cupy": "matmul", "torch": "matmul"}
register(Op("matmul", MatmulPlan, matmul, samples.matmul, {"name": "matmul"}, gradient=_GRADIENT, peers=_PEERS))
_STAGING = {"tc": "staged through shared memory", "tc_async": "brought in by a cp.async pipeline"}


def _named(name: str, element: ElementKind, variant: str) -> Callable[..., Any]:
    """The function of a name that fixes the variant, registered."""
    function = _function(name)
    function.__doc__ = f"""The matrix product of {element} operands by variant `{variant}`, in f32.

As `matmul`, with the kernel fixed: tensor-core code for sm_80 and later, operands {_STAGING[variant]}. Any M, N and K.
"""
    register(Op(name, MatmulPlan, function, samples.matmul, {"name": name}, gradient=_GRADIENT, peers=_PEERS))
    return function


matmul_tc, matmul_tc_bf16, matmul_tc_async, matmul_tc_bf16_async = (
    _named(name, fixed.element, fixed.variant) for name, fixed in NAMED.items()
)
