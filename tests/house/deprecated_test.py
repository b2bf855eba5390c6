"""Old names of public fields and arguments: they work, and warn."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py import RopeScaling
from baracuda_py.plan.registry import Gradient
from baracuda_py.types.deprecated import present_config


def test_gradient_old_field_names_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match="now called"):
        old = Gradient("add_backward", saves=("x",), gives={"x": "grad_x"}, called={"x": "y"})  # type: ignore[call-arg]
    assert old == Gradient("add_backward", ("x",), {"x": "grad_x"}, renames={"x": "y"})
    for name, value in (("saves", ("x",)), ("gives", {"x": "grad_x"}), ("called", {"x": "y"})):
        with pytest.warns(DeprecationWarning, match=f"Gradient: {name} is now called"):
            assert getattr(old, name) == value


def test_gradient_refuses_both_names_of_a_field() -> None:
    with pytest.raises(TypeError, match="pass saved="):
        Gradient("add_backward", saved=("x",), saves=("x",), gradients={})  # type: ignore[call-arg]


@pytest.mark.filterwarnings("error")
def test_gradient_new_field_names_do_not_warn() -> None:
    assert Gradient("add_backward", saved=("x",), gradients={"x": "grad_x"}).renames == {}


def test_rope_scaling_old_argument_names_work_and_warn() -> None:
    with pytest.warns(DeprecationWarning, match="trained is now called original_max_position_embeddings"):
        old = RopeScaling.yarn(64, 4.0, trained=4096)  # type: ignore[call-arg]
    assert np.array_equal(old.inv_freq, RopeScaling.yarn(64, 4.0, 4096).inv_freq)
    with pytest.warns(DeprecationWarning, match="longest is now called max_position_embeddings"):
        long = RopeScaling.longrope(4, [1, 1], [2, 2], 5, 4, longest=8)  # type: ignore[call-arg]
    new = RopeScaling.longrope(4, [1, 1], [2, 2], 5, original_max_position_embeddings=4, max_position_embeddings=8)
    assert long.attention_factor == new.attention_factor
    with pytest.raises(TypeError, match=r"RopeScaling\.llama3: trained= is the old name"):
        RopeScaling.llama3(64, trained=8192, original_max_position_embeddings=8192)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("old", "new"), [("anywhere", "unaligned"), ("quantised", "quantized"), ("dequantised", "dequantized")]
)
def test_preference_old_variants_work_and_warn(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"the variant {old} is now called {new}"):
        assert bp.PlanPreference(variant=old) == bp.PlanPreference(variant=new)


def test_saved_plan_old_variant_works_and_warns() -> None:
    desc = bp.SoftmaxDescriptor((3, 4097), "bf16")
    plan = bp.SoftmaxPlan.select(desc, device="h200", pref=bp.PlanPreference(variant="unaligned"))
    with pytest.warns(DeprecationWarning, match="the variant anywhere"):
        assert bp.SoftmaxPlan.from_json(plan.to_json().replace("unaligned", "anywhere")) == plan


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("64x64 part=32 apart=2", "64x64 part=32 specialized=2"),
        ("vector=8 down=2 anywhere", "vector=8 down=2 unaligned"),
        ("quantise=rows[vector=8] product=gemv", "quantize=rows[vector=8] product=gemv"),
        ("128x128 ping_pong", "128x128 ping_pong"),
    ],
)
def test_saved_plan_old_words_of_a_configuration_work(old: str, new: str) -> None:
    assert present_config(old) == new
