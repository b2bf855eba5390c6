"""matmul_gguf: activations times weights in blocks of a GGUF format, which are read without repacking."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, Self

from ....packed.gguf import PackedGguf
from ....plan.descriptor import Descriptor, Slot, described
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import (
    ElementKind,
    InvalidProblemError,
    MathPrecision,
    OpCategory,
    OperandTypeError,
    PlanPreference,
)
from ....types.gguf import GgufFormat
from ..._function import CallArgs, function_of
from .._arguments import asked_element
from .._widened import F32Weights
from . import samples
from ._composite import Dequantized
from ._panels import Panels
from ._product import ExactActivation, Q8Activation, Q8InOrder
from .blocks import FLOATS, blocks_of, check_columns, check_row_bytes
from .oracle import matmul as oracle

__all__ = ["GgufMatmulDescriptor", "GgufMatmulPlan", "matmul_gguf", "matmul_q4k"]

MATH = {ElementKind.F16: MathPrecision.F16, ElementKind.BF16: MathPrecision.BF16, ElementKind.F32: MathPrecision.F32}


@described(
    Slot("out", "out", takes=FLOATS, shape="out_shape", element="out_element"),
    Slot("x", takes=FLOATS),
    Slot("w", element=ElementKind.U8, strided=False),
)
class GgufMatmulDescriptor(Descriptor):
    """x of `x_shape`, [..., K], times the transposed weights, blocks of `w_shape`, [N, bytes of K weights].

    `math` is ``"int8"`` where activations may be rounded to Q8_1 blocks, and else that of x, which is the default.
    """

    x_shape: tuple[int, ...]
    x_element: ElementKind
    w_shape: tuple[int, ...]
    format: GgufFormat
    out_element: ElementKind | None = None
    math: MathPrecision | None = None
    name: str = "matmul_gguf"

    def __post_init__(self) -> None:
        self._names_op(("matmul_gguf", "matmul_q4k"), "name")
        super().__post_init__()

    @classmethod
    def of(
        cls, x: Any, w: Any, *, format: Any = None, out_dtype: Any = None, math: MathPrecision | str | None = None,
        out: Any = None, name: str = "matmul_gguf",
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout; `w` may be a PackedGguf, in place of its bytes and format."""
        if format is None and name == "matmul_q4k" and not isinstance(w, PackedGguf):
            format = GgufFormat.Q4_K
        w, format, _ = blocks_of(name, "w", w, format)
        tensors = cls.taken(name, {"x": x, "w": w, "out": out})
        element = asked_element(name, out_dtype, tensors.get("out"))
        return cls.of_tensors(tensors, format=format, out_element=element, math=math, name=name)

    def default_element(self, name: str) -> ElementKind:
        return self.x_element

    @property
    def k(self) -> int:
        return self.x_shape[-1] if self.x_shape else 0  # of no axis, which is refused

    @property
    def n(self) -> int:
        return self.w_shape[0] if self.w_shape else 0

    @cached_property
    def out_shape(self) -> tuple[int, ...]:
        return (*self.x_shape[:-1], self.n)

    @property
    def precision(self) -> MathPrecision:
        """How products are formed."""
        return self.math or MATH[self.x_element]

    @property
    def rounds(self) -> bool:
        """Whether activations may be rounded."""
        return self.precision is MathPrecision.INT8

    def neutral(self) -> dict[str, Any]:
        return super().neutral() | {"math": self.precision}

    def check(self) -> None:
        if self.op == "matmul_q4k" and self.format is not GgufFormat.Q4_K:
            raise InvalidProblemError(f"{self.op}: format={self.format.value!r}", "use matmul_gguf")
        if not self.x_shape:
            raise InvalidProblemError(f"{self.op}: x has no axis", "pass [..., K]")
        if len(self.w_shape) != 2:
            raise InvalidProblemError(
                f"{self.op}: w has shape {self.w_shape}",
                "pass a row of blocks for each column of the result, [N, bytes]",
            )
        check_columns(self.op, "x", self.k, self.format)
        check_row_bytes(self.op, "w", self.w_shape[1], self.k, self.format)
        if self.math not in (None, MathPrecision.INT8, MATH[self.x_element]):
            raise OperandTypeError(
                f"{self.op}: {self.x_element} is not multiplied in {self.math}",
                f"math={MATH[self.x_element].value!r}, or 'int8' to round activations to 8 bits",
            )


def _probes() -> Iterator[dict[str, Any]]:
    """Every arithmetic, few rows and many, chunks that begin anywhere."""
    for element in ("f16", "bf16", "f32"):
        for m, math in ((1, None), (8, None), (3, "int8"), (300, None)):
            yield {"x_shape": (m, 512), "x_element": element, "w_shape": (40, 288), "format": "q4_k", "math": math}
    yield {"x_shape": (2, 512), "x_element": "bf16", "w_shape": (40, 420), "format": "q6_k"}
    yield {"x_shape": (5, 96), "x_element": "f16", "w_shape": (40, 54), "format": "q4_0", "out_element": "f32"}


class GgufMatmulPlan(Plan[GgufMatmulDescriptor]):
    """Activations times weights in blocks: operands `x`, `w` and `out`."""

    descriptor = GgufMatmulDescriptor
    category = OpCategory.QUANTIZATION
    candidates = (
        ExactActivation(), Q8Activation(), Q8InOrder(), Panels(), Dequantized(), F32Weights(Dequantized()),
    )  # fmt: skip
    measures = oracle.MEASURES
    probes = tuple(_probes())
    reference = oracle.matmul
    shown = "x", "out"
    reference_guarantee = oracle.product_guarantee


_DOC = """x times the transposed weights, which are blocks of a GGUF format, as in the file.

x: f16, bf16 or f32 [..., K], any strides. w: a PackedGguf; or u8 [N, bytes], a row of blocks for each column of the result.
{format}math: activations are multiplied as they are, and sums are f32; "int8" permits rounding them to 8 bits, 32 neighbours with
one scale (Q8_1), of x in C order; the guarantee says what it costs. A preference of that math does the same.
out_dtype: f16, bf16 or f32; that of x by default.
Returns out, [..., N]. Many rows are multiplied with weights that are dequantised to the type of x first. Raises
InvalidProblemError where K is no multiple of the block, BufferTooSmallError, with `needed` and `got`, for rows
that are too short.
"""
_FORMAT = 'format: "Q4_K", ... (`GgufFormat`), or the `gguf` package\'s own member; a PackedGguf has it.\n'


@function_of(GgufMatmulPlan, doc=_DOC.format(format=_FORMAT))
def matmul_gguf(
    x: Any, w: Any, format: Any = None, *, out_dtype: Any = None, math: MathPrecision | str | None = None, out: Any = None,
    pref: PlanPreference | None = None,
) -> CallArgs:  # fmt: skip
    return _asked("matmul_gguf", x, w, format, out_dtype, math, out, pref)


@function_of(GgufMatmulPlan, doc=_DOC.format(format=""))
def matmul_q4k(
    x: Any, w: Any, *, out_dtype: Any = None, math: MathPrecision | str | None = None, out: Any = None,
    pref: PlanPreference | None = None,
) -> CallArgs:  # fmt: skip
    return _asked(
        "matmul_q4k", x, w, None if isinstance(w, PackedGguf) else GgufFormat.Q4_K, out_dtype, math, out, pref
    )


def _asked(
    op: str, x: Any, w: Any, format: Any, out_dtype: Any, math: Any, out: Any, pref: PlanPreference | None
) -> CallArgs:
    """What a call asks for; how to multiply is a preference as well."""
    blocks, kind, _ = blocks_of(op, "w", w, format)
    if math is None and isinstance(pref, PlanPreference):
        math = pref.math
    operands, options = {"out": out, "x": x, "w": blocks}, {"format": kind, "out_dtype": out_dtype, "math": math}
    return (
        operands,
        lambda: GgufMatmulDescriptor.of(**operands, **options, name=op),
        (op, *options.values()),
        None,
        None,
    )


_REGISTERED: tuple[tuple[str, Callable[..., Any], dict[str, Any]], ...] = (
    ("matmul_gguf", matmul_gguf, {}), ("matmul_q4k", matmul_q4k, {"name": "matmul_q4k", "format": "q4_k"}),
)  # fmt: skip
for _name, _function, _fixed in _REGISTERED:
    register(Op(_name, GgufMatmulPlan, _function, samples.matmul, _fixed))
