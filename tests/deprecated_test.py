"""Old names of public fields: they work, and warn."""

from __future__ import annotations

import pytest

from baracuda_py.plan.registry import Gradient


def test_gradient_old_field_names_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match="now called"):
        old = Gradient("add_backward", saves=("x",), gives={"x": "grad_x"}, called={"x": "y"})  # type: ignore[call-arg]
    assert old == Gradient("add_backward", ("x",), {"x": "grad_x"}, renames={"x": "y"})
    for name, value in (("saves", ("x",)), ("gives", {"x": "grad_x"}), ("called", {"x": "y"})):
        with pytest.warns(DeprecationWarning, match=f"Gradient.{name} is now called"):
            assert getattr(old, name) == value


def test_gradient_refuses_both_names_of_a_field() -> None:
    with pytest.raises(TypeError, match="pass saved="):
        Gradient("add_backward", saved=("x",), saves=("x",), gradients={})  # type: ignore[call-arg]


@pytest.mark.filterwarnings("error")
def test_gradient_new_field_names_do_not_warn() -> None:
    assert Gradient("add_backward", saved=("x",), gradients={"x": "grad_x"}).renames == {}
