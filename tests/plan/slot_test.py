"""A descriptor's table of operands: what it puts into a class, and what it says of a problem."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.plan.descriptor import Descriptor, Slot, described

FLOATS = (bp.F32, bp.F64)


@described(
    Slot("out", "out", strided=False),
    Slot("sum", "out", optional=True, strided=False, aligned=False),
    Slot("x", takes=FLOATS),
    Slot("bias", optional=True, takes=FLOATS),
    Slot("scale", optional=True, takes=FLOATS, shape="shape"),
)
class Tabled(Descriptor):
    """A problem of no op."""

    shape: tuple[int, ...]
    element: bp.ElementKind

    name = "tabled"


def tabled(**more: Any) -> Any:
    return Tabled((4, 8), "f32", **more)  # type: ignore[arg-type]


def test_the_fields_that_a_table_puts_in() -> None:
    assert [f.name for f in fields(Tabled)] == [
        "shape", "element",
        "bias_shape", "sum_shape", "bias_element", "scale_element", "sum_element",
        "x_strides", "bias_strides", "scale_strides",
        "x_align", "bias_align", "scale_align", "out_align",
    ]  # fmt: skip


def test_described_orders_fields_of_bases() -> None:
    class Base(Descriptor):
        shape: tuple[int, ...]
        element: bp.ElementKind
        axis: int = -1

    @described(Slot("x", takes=FLOATS), fields=("shape", "element", "own", "axis"))
    class Ordered(Base):
        own: str = ""

    assert [(f.name, f.default) for f in fields(Ordered)][1:4] == [("element", MISSING), ("own", ""), ("axis", -1)]


def test_optional_slot_is_present_with_its_shape_or_element() -> None:
    assert [o.name for o in tabled().operands] == ["out", "x"]
    assert tabled(bias_shape=(8,)).has("bias")
    assert not tabled(bias_element="f32").has("bias")
    assert tabled(scale_element="f32").has("scale")
    assert [o.name for o in tabled(bias_shape=(8,), scale_element="f64", sum_shape=(4,)).operands] == [
        "out", "sum", "x", "bias", "scale",
    ]  # fmt: skip


def test_inputs_are_arguments_ahead_of_outputs() -> None:
    assert [o.name for o in Tabled.signature_operands] == ["x", "bias", "scale", "out", "sum"]
    assert [o.optional for o in Tabled.signature_operands] == [False, True, True, False, True]
    assert list(inspect.signature(Tabled.of).parameters) == ["x", "bias", "scale", "out", "sum"]


def test_each_operand_holds_what_its_slot_takes() -> None:
    for name in ("x", "bias", "scale"):
        with pytest.raises(bp.OperandTypeError, match=f"tabled: {name} must hold f32 or f64, got i8: cast it"):
            Tabled.slot_of[name].check("tabled", bp.I8)
        Tabled.slot_of[name].check("tabled", bp.F64)
    Tabled.slot_of["out"].check("tabled", bp.I8)


def test_optional_slot_of_a_fixed_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="leave its element open"):

        @described(Slot("x"), Slot("count", optional=True, shape="shape", element=bp.I64))
        class Wrong(Descriptor):
            shape: tuple[int, ...]
            element: bp.ElementKind
