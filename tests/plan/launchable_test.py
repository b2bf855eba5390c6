"""Problems beyond what a launch can count: what is admitted can be launched, and the others say what bars them."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.plan.candidate import steps_of
from baracuda_py.plan.select import assess
from baracuda_py.runtime.steps import Launch
from baracuda_py.types import DeviceSpec, PlanPreference

H200 = DeviceSpec.named("h200")

HUGE: list[tuple[Any, Any, set[str]]] = [
    (bp.UnaryPlan, bp.UnaryDescriptor("neg", (2**39,), "f64"), {"contiguous"}),
    (bp.UnaryPlan, bp.UnaryDescriptor("neg", (2**48,), "u8", x_align=1), set()),
    (bp.BinaryPlan, bp.BinaryDescriptor("add", (2**24, 2**20), (2**20,), "u8", "u8", x1_strides=(2**20 + 1, 1)), set()),
    (bp.ContiguizePlan, bp.ContiguizeDescriptor((2**22, 2**22), "u8", x_strides=(1, 2**22)), {"transpose"}),
    (bp.ContiguizePlan, bp.ContiguizeDescriptor((2**40, 2**20), "u8", x_strides=(1, 2**40)), set()),
    (bp.WriteSlicePlan, bp.WriteSliceDescriptor((2**44, 8), [(0, 2**44), (0, 5)], "u8", dynamic_axis=1), set()),
    (bp.KvAppendPlan, bp.KvAppendDescriptor((2**33, 1, 8, 1), 0, "u8"), {"per_sequence"}),
    (bp.KvAppendPlan, bp.KvAppendDescriptor((2**33, 16, 8, 64), 8, "f32", k_cache_align=4), set()),
    (bp.MatmulPlan, bp.MatmulDescriptor((2**30, 16), (16, 2**30), "bf16", "bf16"), set()),
    (bp.MatmulPlan, bp.MatmulDescriptor((2**30, 3), (3, 2**30), "bf16", "bf16"), set()),
    (bp.MatmulPlan, bp.MatmulDescriptor((2**29, 1, 3), (2**29, 3, 2**15), "bf16", "bf16"), set()),
    (bp.MatmulPlan, bp.MatmulDescriptor((2**19, 16), (16, 2**19), "bf16", "bf16"), {"wgmma", "tc_async", "simt"}),
]


@pytest.mark.parametrize(("plan", "desc", "serve"), HUGE, ids=[f"{i} {d.op}" for i, (_, d, _) in enumerate(HUGE)])
def test_what_is_admitted_can_be_launched(plan: Any, desc: Any, serve: set[str]) -> None:
    desc.validate()
    canonical = desc.canonical()
    admitted = [a for a in assess(plan.candidates, canonical, PlanPreference(), H200) if a.feasibility]
    assert serve <= {a.candidate.variant for a in admitted}
    for a in admitted:
        for step in steps_of(a.candidate, canonical, H200, a.config):
            if isinstance(step, Launch):
                assert all(0 < n <= most for n, most in zip(step.grid, (2**31 - 1, 65535, 65535)))
    if not admitted:
        with pytest.raises(bp.UnsupportedError, match=r"launch has at most|bits|no configuration"):
            plan.select(desc, device=H200)


def test_copies_that_a_product_wants_first_are_counted() -> None:
    """b, 4 MB a matrix, is copied for 2**30 matrices; so is a."""
    desc = bp.MatmulDescriptor((2**24, 7, 2**21 + 1), (2**24, 2**21 + 1, 7), "bf16", "bf16")
    answers = assess(bp.MatmulPlan.candidates, desc.canonical(), PlanPreference(), H200)
    reasons = {a.candidate.variant: a.feasibility.reason for a in answers}
    assert "CTAs, and a launch has at most" in reasons["wgmma_padded"]


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (3, 4)])
@pytest.mark.parametrize("strides", [None, (1, 4)])
def test_an_empty_window_launches_nothing(shape: tuple[int, int], strides: Any) -> None:
    """Whatever the variant; but where the start is on the device there is a status to give."""
    ranges = [(0, n) for n in shape] if 0 in shape else [(1, 1), (0, 4)]
    desc = bp.WriteSliceDescriptor((4, 4), ranges, "f32", source_strides=strides)
    for a in assess(bp.WriteSlicePlan.candidates, desc.canonical(), PlanPreference(), H200):
        assert not a.feasibility or steps_of(a.candidate, desc.canonical(), H200, a.config) == ()
    assert bp.WriteSlicePlan.select(desc, device=H200).launch_config == ()
    moving = bp.WriteSliceDescriptor((4, 4), ranges, "f32", dynamic_axis=1)
    assert [c.grid for c in bp.WriteSlicePlan.select(moving, device=H200).launch_config] == [(1, 1, 1)]
