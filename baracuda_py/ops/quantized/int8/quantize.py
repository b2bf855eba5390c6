"""quantize_int8, quantize_fp8: floats as codes of a byte with scales of their own; and the inverse. A row of TABLE is a pair."""

from __future__ import annotations

from typing import Any, Self

from ....plan.descriptor import Slot, described
from ....plan.fields import choice
from ....plan.plan import Plan
from ....plan.registry import Op, register
from ....types import ElementKind, InvalidProblemError, OpCategory
from ....types.keeping import complete
from ..._function import CallArgs, function_of
from .._arguments import flag
from . import oracle, samples
from ._scheme import BYTES, FLOATS, INTEGERS, Scheme
from .quantize_kernels import Dequantize, QuantizeRows, RangesFirst

__all__ = [
    "DequantizeDescriptor",
    "DequantizePlan",
    "QuantizeDescriptor",
    "QuantizePlan",
    "dequantize_fp8",
    "dequantize_int8",
    "quantize_fp8",
    "quantize_int8",
]

F32 = ElementKind.F32


@described(
    Slot("codes", "out", shape="shape", element="codes_element"),
    Slot("scales", "out", shape="scales_shape", element=F32, strided=False),
    Slot("zeros", "out", optional=True, takes=INTEGERS, shape="scales_shape", strided=False),
    Slot("x", takes=FLOATS, element="element"),
)
class QuantizeDescriptor(Scheme):
    """x of `shape` as codes: round(x / scale) + zero; of the kind that the name stands for where none is given.

    `per` and `group_size` say what has a scale of its own; `zeros_element` that there are zero points, which are codes too.
    """

    shape: tuple[int, ...]
    element: ElementKind
    codes_element: ElementKind | None = None  # type: ignore[assignment]  # filled in at construction
    per: str = "row"
    group_size: int | None = None
    name: str = "quantize_int8"
    floats = "x"

    def __post_init__(self) -> None:
        self._names_op(tuple(f"quantize_{name}" for name in BYTES), "name")
        super().__post_init__()
        if self.codes_element is None:
            complete(self, codes_element=_first(self.name))

    @classmethod
    def of(
        cls, x: Any, *, codes: Any = None, scales: Any = None, zeros: Any = None, per: str = "row",
        group_size: int | None = None, dtype: Any = None, zero_points: bool = False, name: str = "quantize_int8",
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(name, {"x": x, "codes": codes, "scales": scales, "zeros": zeros})
        made = _first(name) if codes is None else tensors["codes"].element
        options: dict[str, Any] = {"codes_element": made if dtype is None else ElementKind.of(dtype)}
        if flag(zero_points, f"{name}: zero_points") and zeros is None:
            options["zeros_element"] = options["codes_element"]
        return cls.of_tensors(tensors, per=per, group_size=group_size, name=name, **options)

    def check(self) -> None:
        super().check()
        _check_zeros(self)


@described(
    Slot("out", "out", takes=FLOATS, shape="shape", element="element"),
    Slot("codes", shape="shape", element="codes_element"),
    Slot("scales", shape="scales_shape", element=F32),
    Slot("zeros", optional=True, takes=INTEGERS, shape="scales_shape"),
)
class DequantizeDescriptor(Scheme):
    """The inverse: out = (code - zero) scale, rounded to f32 and then to `element`."""

    shape: tuple[int, ...]
    codes_element: ElementKind
    element: ElementKind = F32
    per: str = "row"
    group_size: int | None = None
    name: str = "dequantize_int8"
    floats = "out"

    def __post_init__(self) -> None:
        self._names_op(tuple(f"dequantize_{name}" for name in BYTES), "name")
        super().__post_init__()

    @classmethod
    def of(
        cls, codes: Any, scales: Any, zeros: Any = None, *, out: Any = None, per: str = "row",
        group_size: int | None = None, dtype: Any = None, name: str = "dequantize_int8",
    ) -> Self:  # fmt: skip
        """The descriptor of arrays of any layout."""
        tensors = cls.taken(name, {"out": out, "codes": codes, "scales": scales, "zeros": zeros})
        made = F32 if out is None else tensors["out"].element
        options = {"element": made if dtype is None else ElementKind.of(dtype), "shape": tensors["codes"].shape}
        return cls.of_tensors(tensors, per=per, group_size=group_size, name=name, **options)

    def check(self) -> None:
        super().check()
        _check_zeros(self)


def _first(name: str) -> ElementKind:
    known = tuple(f"quantize_{kind}" for kind in BYTES)
    return BYTES[choice(known)(name, "QuantizeDescriptor: name").rpartition("_")[2]][0]


def _check_zeros(desc: Any) -> None:
    if desc.zeros_element is not None and desc.codes_element.is_float:
        raise InvalidProblemError(
            f"{desc.op}: zeros, and codes of {desc.codes_element}", "leave zeros out: there are none"
        )
    if desc.zeros_element not in (None, desc.codes_element):
        raise InvalidProblemError(
            f"{desc.op}: zeros hold {desc.zeros_element} and codes {desc.codes_element}", "a zero point is a code"
        )


class QuantizePlan(Plan[QuantizeDescriptor]):
    """Floats as codes: operands `x`, `codes`, `scales`, and `zeros` where the problem has zero points."""

    descriptor = QuantizeDescriptor
    category = OpCategory.QUANTIZATION
    candidates = (QuantizeRows(), RangesFirst())
    probes = (
        {"shape": (300, 4096), "element": "bf16"},
        {"shape": (300, 100), "element": "f32", "zeros_element": "i8"},
        {"shape": (30, 256), "element": "f16", "per": "group", "group_size": 64},
        {"shape": (300, 200), "element": "f32", "per": "column", "codes_element": "u8", "zeros_element": "u8"},
        {"shape": (300, 200), "element": "bf16", "per": "tensor"},
        {"shape": (3, 40), "element": "f32", "codes_element": "fp8_e4m3", "name": "quantize_fp8"},
    )
    reference = oracle.quantize


class DequantizePlan(Plan[DequantizeDescriptor]):
    """Codes as floats: operands `codes`, `scales`, `out`, and `zeros` where the problem has zero points."""

    descriptor = DequantizeDescriptor
    category = OpCategory.QUANTIZATION
    candidates = (Dequantize(),)
    probes = (
        {"shape": (300, 4096), "element": "bf16", "codes_element": "i8"},
        {"shape": (300, 100), "element": "f32", "codes_element": "u8", "zeros_element": "u8", "per": "column"},
        {"shape": (30, 256), "element": "f16", "codes_element": "i8", "per": "group", "group_size": 64},
        {"shape": (30, 25), "element": "f32", "codes_element": "fp8_e4m3", "per": "tensor", "name": "dequantize_fp8"},
    )
    reference = oracle.dequantize


def _asked(name: str, operands: dict[str, Any], options: dict[str, Any]) -> CallArgs:
    zero_points = flag(options.get("zero_points", False), f"{name}: zero_points")
    made = {"codes", "scales", "x"} | ({"zeros"} if zero_points else set())
    given = {n: x for n, x in operands.items() if x is not None or n in made}
    return given, lambda: QuantizeDescriptor.of(**operands, **options, name=name), (name, *options.values()), None, None


@function_of(QuantizePlan)
def quantize_int8(
    x: Any, *, per: str = "row", group_size: int | None = None, dtype: Any = "i8", zero_points: bool = False,
    codes: Any = None, scales: Any = None, zeros: Any = None,
) -> CallArgs:  # fmt: skip
    """x as codes of 8 bits: round(x / scale) + zero, to nearest even; `dequantize_int8` is its inverse.

    x: [..., K], f16, bf16 or f32, any strides. per: what has a scale of its own: the "tensor", a "row" along the last axis (a
    token), a "column" (a channel: all of one last index), or a "group" of `group_size` neighbours of a row, which divides K.
    dtype: "i8" or "u8". Without zero points scale = max(|x|) / 127 and codes are -127 to 127; of u8 max(x) / 255, and what is
    negative is 0. zero_points: scale = (max - min) / 255, 0 being a code itself, of zero point. What is not finite does not count
    for scales; NaN is the code of 0, infinities are the ends. A scale is 2**-126 at least, and 1 where all is 0.
    Returns the named tuple (codes, scales) or (codes, scales, zeros): codes like x, scales f32 [], [...], [K] or
    [..., K / group_size], zeros of the codes' dtype and the scales' shape. Results are those of f32 arithmetic, bit for bit.
    """
    operands = {"codes": codes, "scales": scales, "zeros": zeros, "x": x}
    return _asked(
        "quantize_int8", operands, {"per": per, "group_size": group_size, "dtype": dtype, "zero_points": zero_points}
    )


@function_of(QuantizePlan)
def quantize_fp8(
    x: Any, *, per: str = "row", group_size: int | None = None, dtype: Any = "fp8_e4m3", codes: Any = None, scales: Any = None
) -> CallArgs:  # fmt: skip
    """x as fp8 (e4m3): x / scale rounded to nearest even, scale = max(|x|) / 448. As `quantize_int8`, without zero points.

    NaN is NaN. Returns the named tuple (codes, scales), such as `matmul` takes them.
    """
    operands = {"codes": codes, "scales": scales, "zeros": None, "x": x}
    return _asked("quantize_fp8", operands, {"per": per, "group_size": group_size, "dtype": dtype})


def _inverse(
    codes: Any, scales: Any, zeros: Any = None, *, per: str = "row", group_size: int | None = None, dtype: Any = None
) -> Any:
    """(code - zero) scale, rounded to f32 and then to `dtype`: f32 by default, f16 or bf16. The inverse of `{inverse}`.

    codes: [..., K], any strides; scales: f32, [], [...], [K] or [..., K / group_size], as `per` says; zeros: like scales, of the
    codes' dtype. Returns out, like codes.
    """


def _dequantize(name: str) -> Any:
    doc = (_inverse.__doc__ or "").format(inverse=f"quantize_{name}")
    own = f"dequantize_{name}"
    function = function_of(DequantizePlan, called=own, doc=doc, name=own)(_inverse)
    register(Op(own, DequantizePlan, function, samples.dequantize, {"name": own}))
    return function


dequantize_int8, dequantize_fp8 = map(_dequantize, BYTES)
for _function in (quantize_int8, quantize_fp8):
    _name = _function.__name__
    register(Op(_name, QuantizePlan, _function, samples.quantize, {"name": _name}))
