"""A descriptor made from a table of its operands: the fields, layouts, checks and run-time values that follow from it."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.descriptor import Descriptor, Operand, Slot, described
from baracuda_py.types import Activation, ElementKind

FLOATS = (bp.F16, bp.BF16, bp.F32, bp.F64)


@described(
    Slot("out", "out", takes=FLOATS, element="out_element"),
    Slot("rstd", "out", element=ElementKind.F32, shape="rows", strided=False, aligned=False),
    Slot("x", takes=FLOATS),
    Slot("weight", takes=FLOATS, shape="columns", optional=True),
    Slot("bias", takes=FLOATS, optional=True),
    last=("name",),
)
class Rows(Descriptor):
    """A norm of rows, as an example."""

    shape: tuple[int, ...]
    element: ElementKind
    out_element: ElementKind | None = None
    activation: Activation = Activation.IDENTITY
    groups: int = 1
    eps: float = 1e-5
    name: str = "rows"

    values = ("eps",)

    @property
    def columns(self) -> tuple[int, ...]:
        return self.shape[-1:]

    @property
    def rows(self) -> tuple[int, ...]:
        return self.shape[:-1]

    def default_element(self, name: str) -> ElementKind:
        return self.element


def rows(**more: Any) -> Any:
    given: dict[str, Any] = {"shape": [3, 4], "element": "bf16"}
    return Rows(**given | more)


def test_fields_come_in_order_inputs_first() -> None:
    assert [f.name for f in fields(Rows)] == [
        "shape", "element", "out_element", "activation", "groups", "eps",
        "bias_shape", "weight_element", "bias_element",
        "x_strides", "weight_strides", "bias_strides", "out_strides",
        "x_align", "weight_align", "bias_align", "out_align",
        "name",
    ]  # fmt: skip
    assert all(f.default is None for f in fields(Rows) if f.name.endswith(("strides", "align")))
    assert str(inspect.signature(Rows.of)) == (
        "(x, weight=None, bias=None, out=None, rstd=None, *, activation=<Activation.IDENTITY: 'identity'>, groups=1, "
        "eps=1e-05, name='rows')"
    )


def test_operands_are_those_of_the_problem() -> None:
    assert [o.name for o in rows().operands] == ["out", "rstd", "x"]
    assert [o.name for o in rows(weight_element="f32", bias_shape=(4,)).operands] == [
        "out",
        "rstd",
        "x",
        "weight",
        "bias",
    ]
    assert rows(weight_element="f32").operands[3] == Operand("weight")
    assert Rows.signature_operands[:3] == (Operand("x"), Operand("weight", "in", True), Operand("bias", "in", True))
    assert rows().shape_of("bias") is None and rows().element_of("weight") is None
    assert rows(weight_element="f32").shape_of("weight") == (4,)


def test_layouts() -> None:
    desc = rows(weight_element="f32", weight_align=4, x_strides=(1, 3))
    assert desc.layout("x") == ((3, 4), (1, 3), bp.BF16, 16, 0)
    assert desc.layout("out") == ((3, 4), (4, 1), bp.BF16, 16, 0)
    assert desc.layout("rstd") == ((3,), (1,), bp.F32, 4, 0)
    assert desc.layout("weight") == ((4,), (1,), bp.F32, 4, 0)
    assert desc.nbytes == 2 * (24) + 12 + 16
    assert rows(x_align=256).layout("x").align == 16


def test_fields_are_given_their_types() -> None:
    desc = rows(shape=np.array([3, 4]), activation="relu", groups=np.int64(2), eps=1, out_element="float32")
    assert (desc.shape, desc.activation, desc.eps) == ((3, 4), Activation.RELU, 1.0)
    assert type(desc.groups) is int and desc.out_element is bp.F32 and type(desc.eps) is float
    assert hash(desc) == hash(rows(activation=Activation.RELU, groups=2, eps=1.0, out_element=bp.F32))
    for bad in ({"groups": 1.5}, {"x_strides": "ab"}, {"activation": "relo"}, {"shape": None}):
        with pytest.raises(bp.InvalidProblemError, match=f"rows: {next(iter(bad))}"):
            rows(**bad)
    with pytest.raises(FrozenInstanceError):
        desc.groups = 3


REFUSED: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
    ({"shape": (3, -4)}, bp.InvalidProblemError, "rows: shape (3, -4) has a negative extent"),
    ({"bias_shape": (-4,)}, bp.InvalidProblemError, "rows: bias_shape (-4,) has a negative extent"),
    ({"element": "i32"}, bp.OperandTypeError, "rows: x must hold f16, bf16, f32 or f64, got i32: cast it to f16"),
    ({"weight_element": "u8"}, bp.OperandTypeError, "rows: weight must hold"),
    ({"out_element": "u8"}, bp.OperandTypeError, "rows: out must hold"),
    ({"element": "i32", "out_element": "i32"}, bp.OperandTypeError, "rows: x must hold"),
    (
        {"x_strides": (1,)},
        bp.InvalidProblemError,
        "rows: x_strides (1,) has 1 axes and x has 2: give one stride an axis",
    ),
    ({"weight_element": "f32", "weight_strides": (1, 1)}, bp.InvalidProblemError, "weight_strides (1, 1) has 2 axes"),
    ({"x_align": 3}, bp.InvalidProblemError, "rows: x_align=3 is no alignment"),
    ({"x_strides": (1 << 62, 1)}, bp.InvalidProblemError, "2**63 bytes"),
)


@pytest.mark.parametrize(("given", "error", "says"), REFUSED)
def test_what_is_refused(given: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        rows(**given).validate()
    assert says in str(caught.value)


def test_canonical_fills_what_was_left_open_and_forgets_values() -> None:
    desc = rows(eps=0.5, weight_element="f32", x_align=64)
    canonical = desc.canonical()
    assert canonical == rows(
        weight_element="f32", out_element="bf16", x_strides=(4, 1), weight_strides=(1,), out_strides=(4, 1), x_align=16,
        weight_align=16, out_align=16,
    )  # fmt: skip
    assert canonical == canonical.canonical() == rows(eps=3.0, weight_element="f32").canonical()


def test_run_time_values() -> None:
    desc = rows()
    assert desc.resolve({}) == ((0, 0, 0), {"eps": 1e-5}) and desc.resolve({"eps": 2}) == ((0, 0, 0), {"eps": 2.0})
    assert desc.at({"eps": 2}) == rows(eps=2.0) and desc.at({"x": 1}) is desc
    with pytest.raises(bp.OperandTypeError, match="rows: eps must be a number"):
        desc.resolve({"eps": "2"})


def test_a_descriptor_of_arrays() -> None:
    x = np.zeros((4, 3), np.float32).T
    desc = Rows.of(x, np.ones(4, np.float64), eps=2.0)
    assert (desc.shape, desc.element, desc.eps) == ((3, 4), bp.F32, 2.0)
    assert desc.layout("x").strides == (1, 3) and desc.element_of("weight") is bp.F64 and not desc.has("bias")
    assert Rows.of(x, out=np.zeros((3, 4), np.float16)).layout("out").element is bp.F16
    with pytest.raises(bp.InvalidProblemError, match="rows: operand 'x' is missing"):
        Rows.of(None)
    with pytest.raises(bp.InvalidProblemError, match=r"rows: out must have shape \(3, 4\), got \(12,\)"):
        Rows.of(x, out=np.zeros(12, np.float16))
    with pytest.raises(bp.OperandTypeError, match="rows: weight: expected an array"):
        Rows.of(x, 3)
    with pytest.raises(TypeError, match="unexpected keyword argument 'wieght'"):
        Rows.of(x, wieght=x)


def test_kinds_in_bytes_are_offered_for_packed_ones() -> None:
    every = tuple(kind for kind in ElementKind if not kind.packed)
    with pytest.raises(bp.OperandTypeError, match="op: x: s4 is not supported: view the bytes as u8"):
        Slot("x", takes=every).check("op", bp.S4)


def test_optional_operand_needs_a_field_for_its_presence() -> None:
    class Silent(Descriptor):
        shape: tuple[int, ...]

    with pytest.raises(TypeError, match="Silent: no field would say whether mask is there"):
        described(Slot("mask", optional=True, shape="shape", element=bp.BOOL))(Silent)
