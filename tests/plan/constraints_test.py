"""What kernels ask of operands: each constraint holds where it should, and the change that it names admits."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.plan.candidate import Candidate
from baracuda_py.plan.constraints import Aligned, InOrder, Kinds, Multiple, UnitStride
from baracuda_py.types import DeviceSpec, PlanPreference

H200 = DeviceSpec.named("h200")
PREF = PlanPreference()


def view(shape: tuple[int, ...] = (6, 40), element: str = "f32", **lies: Any) -> Any:
    desc = bp.ContiguizeDescriptor(shape, element, **lies)
    desc.validate()
    return desc.canonical()


def product(**more: Any) -> Any:
    desc = bp.MatmulDescriptor((8, 16), (16, 8), "f16", "f16", **more)
    desc.validate()
    return desc.canonical()


HELD = (
    (Kinds("x", (bp.F32, bp.F64)), view()), (InOrder("x"), view()), (UnitStride("x"), view(x_strides=(60, 1))),
    (Aligned("x", 16), view()), (Aligned("x", 8), view(x_strides=(42, 1), x_align=8)),
    (Aligned("x", 16), view((3, 0), x_align=1)),
    (Aligned("x", 16), view((1, 7))), (Multiple("x", -1, 8, "K"), view()), (Kinds("bias", (bp.F32,)), product()),
    (InOrder("bias"), product()), (UnitStride("c"), product()), (Aligned("c", 16), product()),
    (Multiple("c", 0, 8, "M"), product()),
    (InOrder("out"), product()), (UnitStride("x"), view((4, 1), x_strides=(1, 9))),
)  # fmt: skip
REFUSED = (
    (Kinds("x", (bp.F32, bp.F64)), view(element="i8"), "x holds i8, not f32 or f64: a cast of x to f32"),
    (InOrder("x"), view(x_strides=(1, 6)), "x does not lie in C order: contiguize x"),
    (InOrder("out"), product(out_strides=(1, 8)), "out does not lie in C order: pass out in C order"),
    (UnitStride("x"), view(x_strides=(120, 3)), "x's last axis is stepped along by 3 elements: contiguize x"),
    (UnitStride("bias"), product(bias_shape=(8,), bias_strides=(0,)), "bias's last axis is stepped along by 0 elements"),
    (Aligned("x", 16), view(x_align=4), "aligned to 4 bytes, not to 16: x on a multiple of 16 bytes"),
    (Aligned("x", 16), view(x_align=8), "aligned to 8 bytes, not to 16: x on a multiple of 16 bytes"),
    (Aligned("x", 16), view((6, 41)), "x's rows are 164 bytes apart, not a multiple of 16: x in C order with rows 176 bytes"),
    (Aligned("x", 16), view((5, 6, 8), x_strides=(49, 8, 1)), "x's rows are 196 bytes apart"),
    (Aligned("x", 8), view((6, 41), "bf16", x_strides=(-41, 1)), "x's rows are 82 bytes apart"),
)  # fmt: skip


@pytest.mark.parametrize(("constraint", "desc"), HELD)
def test_what_holds(constraint: Any, desc: Any) -> None:
    assert constraint.of(desc)


@pytest.mark.parametrize(("constraint", "desc", "says"), REFUSED)
def test_a_refusal_says_why_and_its_change_admits(constraint: Any, desc: Any, says: str) -> None:
    refusal = constraint.of(desc)
    assert not refusal
    assert says in f"{refusal.reason}: {refusal.fix}"
    changed, _, _ = refusal.change.applied(desc, PREF, H200)
    assert constraint.of(changed)


def test_an_extent_cannot_be_changed_alone() -> None:
    refusal = Multiple("x", 1, 16, "K").of(view((6, 40)))
    assert (refusal.reason, refusal.fix, refusal.change) == ("K is 40, not a multiple of 16", "pad K to 48", None)


def test_a_candidate_asks_its_constraints_in_order() -> None:
    class Picky(Candidate[Any]):
        variant = "picky"
        constraints = (Kinds("x", (bp.F32,)), Aligned("x", 16))

    assert Picky().supports(view(), H200)
    assert Picky().supports(view(x_align=4), H200).reason.startswith("x's first touched element")
    assert Picky().supports(view(element="i8", x_align=4), H200).reason == "x holds i8, not f32"


def test_constraints_are_values() -> None:
    assert Aligned("x", 16) == Aligned("x", 16) and len({Aligned("x", 16), Aligned("x", 16), Aligned("x", 8)}) == 2
    assert "Aligned(operand='x', nbytes=16)" in repr(Aligned("x", 16))
