"""Products with i8 weights: what goes together, and how kernels walk it. All arithmetic on shapes and strides is here."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ....plan.descriptor import Layout
from ....tensor.axes import merge_axes
from ....types import Activation, ElementKind, InvalidProblemError, OperandTypeError, UnsupportedError

__all__ = [
    "CODES",
    "HALVES",
    "Product",
    "Side",
    "across",
    "check_product",
    "exact_k",
    "group_of",
    "product_of",
    "step_of",
]

I8, U8, I32, F32 = ElementKind.I8, ElementKind.U8, ElementKind.I32, ElementKind.F32
CODES = (I8, U8)
HALVES = (ElementKind.F16, ElementKind.BF16)
OUTPUTS = (F32, *HALVES, I32, I8)
NEEDS_SCALE = (ElementKind.F16, I8)  # a few products are beyond them
SIZES = {I8: 128, U8: 255}  # the largest magnitude of a code; with a zero point 255
LARGEST = (1 << 31) - 1


def across(extent: int, step: int) -> int:
    """How many steps cover an extent."""
    return -(-extent // step)


@dataclass(frozen=True)
class Side:
    """An operand as a matrix: strides in elements, of A and out by rows and columns, of B by k and n."""

    operand: str
    element: ElementKind
    row: int
    col: int
    align: int

    @property
    def size(self) -> int:
        return self.element.bits // 8

    def access(self, extent: int, *, along_row: bool, widest: int = 16) -> int:
        """The most bytes an access along that axis may take: they divide its extent, and every line starts on a multiple.
        0 where neighbours are not contiguous."""
        step, across = (self.col, self.row) if along_row else (self.row, self.col)
        if step != 1 and extent > 1:
            return 0
        found = widest
        while found > self.size and any(n % found for n in (extent * self.size, across * self.size, self.align)):
            found //= 2
        return found

    def access_bytes(self, *, along_row: bool) -> int:
        """The most bytes, up to 16, of which every line's beginning is a multiple, whatever its end; 0 likewise."""
        step, across = (self.col, self.row) if along_row else (self.row, self.col)
        if step != 1:
            return 0
        found = 16
        while found > self.size and (across * self.size % found or self.align % found):
            found //= 2
        return found


@dataclass(frozen=True)
class Product:
    """out [M, N] of A [M, K] and B [K, N], each one matrix."""

    m: int
    n: int
    k: int
    a: Side
    b: Side
    out: Side

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def nbytes(self) -> int:
        """Useful bytes: operands once, the result once."""
        return self.m * self.k * self.a.size + self.k * self.n * self.b.size + self.m * self.n * self.out.size

    @property
    def paired(self) -> bool:
        """Whether two neighbours of out, the first in an even column, are one access."""
        both = 2 * self.out.size
        return self.out.col == 1 and self.out.row * self.out.size % both == 0 and self.out.align % both == 0


def _tall(layout: Layout) -> tuple[int, int] | None:
    """Strides by rows and columns of [..., columns] with its leading axes as one; None where they are not evenly spaced."""
    extents, (steps,) = merge_axes(layout.shape[:-1], [layout.strides[:-1]])
    if len(extents) > 1 and 0 not in extents:
        return None
    return (steps[0] if extents else layout.shape[-1]), layout.strides[-1]


def _widest(across: int, along: int, lines: int, length: int) -> tuple[int, int]:
    """Strides of lines; of an axis that is never stepped, having one element or none, what permits the widest accesses."""
    along = along if length > 1 else 1
    return (-(-length // 16) * 16 if lines <= 1 and along == 1 else across), along


def product_of(desc: Any) -> Product:
    """The product of a descriptor; UnsupportedError where leading axes of a or out do not merge."""
    a, b, out = (desc.layout(name) for name in ("a", "b", "out"))
    sides = {}
    for name, layout in (("a", a), ("out", out)):
        steps = _tall(layout)
        if steps is None:
            raise UnsupportedError(
                f"{desc.op}: the rows of {name} of shape {layout.shape} and strides {layout.strides} are not evenly spaced",
                f"pass {name} in C order",
            )
        row, col = _widest(*steps, math.prod(layout.shape[:-1]), layout.shape[-1])
        sides[name] = Side(name, layout.element, row, col, layout.align)
    m, k, n = math.prod(a.shape[:-1]), a.shape[-1], b.shape[1]
    col, row = _widest(b.strides[1], b.strides[0], n, k)
    side = Side("b", b.element, row, col, b.align)
    if not k:  # nothing is read: any layout will do
        sides["a"], side = replace(sides["a"], row=16, col=1, align=16), replace(side, row=1, col=16, align=16)
    return Product(m, n, k, sides["a"], side, sides["out"])


def step_of(desc: Any, name: str) -> int:
    """Elements from one number of a scale, zero point or bias to the next; 0 where there is but one."""
    layout = desc.layout(name)
    extents, (steps,) = merge_axes(layout.shape, [layout.strides])
    if len(extents) > 1 and 0 not in extents:
        raise UnsupportedError(
            f"{desc.op}: {name} of shape {layout.shape} and strides {layout.strides} is not evenly spaced",
            f"pass {name} in C order",
        )
    return steps[0] if extents else 0


# ---- what goes together ------------------------------------------------------------------------------------------------


def scale_kinds(desc: Any, name: str) -> tuple[tuple[int, ...], ...]:
    """The shapes that scales and zero points of an operand may have: one number, or one a row of a or a column of b."""
    lead, n = desc.a_shape[:-1], desc.b_shape[1]
    single: tuple[tuple[int, ...], ...] = ((), (1,), (1, 1))
    return (*single, lead, (*lead, 1)) if name.endswith("_a") else (*single, (n,), (1, n))


def group_of(desc: Any) -> int:
    """Of how many k's a column's scale is, where scale_b is [K / group, N]; else 0."""
    shape, k = desc.scale_b_shape, desc.a_shape[-1]
    if shape is None or len(shape) != 2 or shape[0] in (0, 1) or shape in scale_kinds(desc, "scale_b"):
        return 0
    return across(k, int(shape[0]))


def check_product(desc: Any) -> None:
    """Raises where operands do not go together."""
    _check_shapes(desc)
    _check_elements(desc)
    _check_scales(desc)
    _check_output(desc)
    _check_range(desc)


def _check_shapes(desc: Any) -> None:
    a, b = desc.a_shape, desc.b_shape
    if not a or len(b) != 2:
        raise InvalidProblemError(f"{desc.op}: a has shape {a} and b {b}", "pass a [..., K] and b [K, N]")
    if a[-1] != b[0]:
        raise InvalidProblemError(
            f"{desc.op}: a of shape {a} and b of shape {b} do not agree on K: {a[-1]} columns and {b[0]} rows",
            "make them equal, or transpose one",
        )


def _check_elements(desc: Any) -> None:
    a, b = desc.a_element, desc.b_element
    if b.is_float:
        fix = "use matmul" if a.is_float else "cast a, or quantize_int8(b.T)"
        raise OperandTypeError(f"{desc.op}: b holds {b}: weights are i8", fix)
    if b is not I8:
        raise OperandTypeError(f"{desc.op}: b must hold i8, got {b}", "view unsigned codes less 128 as i8")
    if a not in (*CODES, *HALVES):
        fix = "cast it to f16 or bf16, or use matmul with b as floats" if a.is_float else "cast it to i8 or u8"
        raise OperandTypeError(f"{desc.op}: a must hold i8, u8, f16 or bf16, got {a}", fix)
    if desc.dynamic and a not in HALVES:
        raise OperandTypeError(f"{desc.op}: dynamic=True and a holds {a}, which is quantised already", "leave it out")


def _check_scales(desc: Any) -> None:
    for name in ("scale_a", "scale_b", "zero_a", "zero_b"):
        if not desc.has(name):
            continue
        held, shape, of = getattr(desc, f"{name}_element"), desc.shape_of(name), name[-1]
        element = getattr(desc, f"{of}_element")
        kinds = scale_kinds(desc, name)
        wanted = F32 if name.startswith("scale") else element
        if of == "a" and element in HALVES:
            raise InvalidProblemError(
                f"{desc.op}: {name} was given and a holds {element}, which is not quantised", "leave it out"
            )
        if held is not wanted:
            what = "scales are f32" if wanted is F32 else f"a zero point is a code of {of}"
            raise OperandTypeError(f"{desc.op}: {name} must hold {wanted}, got {held}", f"cast it: {what}")
        if name == "zero_b" and desc.a_element in HALVES:
            raise InvalidProblemError(f"{desc.op}: zero_b was given and a holds {desc.a_element}", "leave it out")
        if shape in kinds:
            continue
        group, k = group_of(desc), desc.a_shape[-1]
        takes_groups = name == "scale_b" and desc.a_element in HALVES and not desc.dynamic
        if takes_groups and group and k % group == 0 and shape == (k // group, desc.b_shape[1]):
            continue
        each = "row of a" if of == "a" else "column of b"
        raise InvalidProblemError(
            f"{desc.op}: {name} of shape {shape} is no {'scale' if wanted is F32 else 'zero point'} of this product",
            f"pass one number, or {kinds[3]}, one for each {each}",
        )
    bias, n = desc.shape_of("bias"), desc.b_shape[1]
    if bias is not None and bias not in ((), (1,), (n,), (1, n)):
        raise InvalidProblemError(f"{desc.op}: bias of shape {bias}", f"pass {(n,)}, one for each column of b")
    for name in ("scale_a", "zero_a"):
        if desc.has(name):
            step_of(desc, name)  # refused here, and not when the chosen kernel is lowered


def _check_output(desc: Any) -> None:
    out = desc.layout("out").element
    scaled = desc.has("scale_a") or desc.has("scale_b") or desc.dynamic
    if out not in OUTPUTS:
        raise OperandTypeError(f"{desc.op}: a result of {out}", f"one of {', '.join(map(str, OUTPUTS))}")
    if desc.a_element in HALVES and not desc.has("scale_b"):
        raise InvalidProblemError(f"{desc.op}: scale_b is missing: a holds {desc.a_element}", "pass scale_b")
    if out in NEEDS_SCALE and not scaled:
        raise InvalidProblemError(
            f"{desc.op}: a result of {out} needs a scale and has none: sums are beyond {out}",
            "pass scale_b, or out_dtype='i32'",
        )
    if out in (I32, I8) and desc.a_element in HALVES and not desc.dynamic:
        raise OperandTypeError(
            f"{desc.op}: a result of {out} and a holds {desc.a_element}, whose sums are not exact",
            "dynamic=True, or quantize_int8(a)",
        )
    if out is I32 and scaled:
        raise InvalidProblemError(
            f"{desc.op}: a result of i32 is the exact sum, and a scale was given", "leave it out, or out_dtype='f32'"
        )
    bias = desc.bias_element
    if bias is not None and (bias is I32) is not (out is I32):
        wanted = "i32" if out is I32 else "f32, f16 or bf16"
        raise OperandTypeError(f"{desc.op}: bias holds {bias} and the result {out}", f"pass a bias of {wanted}")
    if out in (I32, I8) and desc.activation not in (Activation.IDENTITY, Activation.RELU):
        raise UnsupportedError(
            f"{desc.op}: {desc.activation} of a result of {out} is not bit for bit the same everywhere",
            "out_dtype='f32', then quantize_int8",
        )


def exact_k(desc: Any) -> int:
    """The largest K whose sums fit s32 whatever the codes."""
    a = I8 if desc.a_element in HALVES else desc.a_element
    sizes: list[int] = [255 if desc.has(f"zero_{of}") else SIZES[kind] for of, kind in (("a", a), ("b", I8))]
    return LARGEST // (sizes[0] * sizes[1])


def _check_range(desc: Any) -> None:
    k, most = desc.a_shape[-1], exact_k(desc)
    if k > most and (desc.a_element in CODES or desc.dynamic):
        raise InvalidProblemError(
            f"{desc.op}: sums of K={k} products may be beyond s32: the largest exact K of these operands is {most}",
            "split K, and add the results",
        )
