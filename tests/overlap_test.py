"""Launches that begin while the kernel ahead of them ends."""

from __future__ import annotations

import re

import pytest

import baracuda_py as bp
from baracuda_py.runtime.compiler import compile_ptx
from baracuda_py.runtime.overlap import can_overlap
from baracuda_py.runtime.steps import Kernel, Launch
from baracuda_py.types import DeviceSpec

H200 = DeviceSpec.named("h200")

OVERLAPPING = {
    "gemv along k": (bp.MatmulDescriptor((1, 1000), (1000, 513), "bf16", "bf16", b_strides=(1, 1000)), "gemv"),
    "gemv across": (bp.MatmulDescriptor((1, 513), (513, 1000), "bf16", "bf16"), "gemv"),
    "a ragged product": (bp.MatmulDescriptor((100, 77), (77, 91), "bf16", "bf16"), "tc_async"),
    "a split one": (bp.MatmulDescriptor((64, 8192), (8192, 64), "bf16", "bf16"), "tc_async"),
    "scales by blocks": (
        bp.MatmulDescriptor(
            (512, 512),
            (512, 512),
            "fp8_e4m3",
            "fp8_e4m3",
            out_element="bf16",
            b_strides=(1, 512),
            scale_a_shape=(512, 4),
            scale_a_strides=(1, 512),
            scale_b_shape=(4, 4),
            scale_a_element="f32",
            scale_b_element="f32",
        ),
        "wgmma",
    ),
    "tc": (bp.MatmulDescriptor((100, 77), (77, 91), "bf16", "bf16"), "tc"),
    "copies and a product": (bp.MatmulDescriptor((777, 2049), (2049, 1333), "bf16", "bf16"), "wgmma_padded"),
}


@pytest.mark.parametrize("what", list(OVERLAPPING))
def test_no_kernel_touches_memory_before_the_one_ahead_of_it_is_over(what: str) -> None:
    desc, variant = OVERLAPPING[what]
    plan = bp.MatmulPlan.select(desc, bp.PlanPreference(variant=variant), device=H200)
    launches = [step for step in plan._steps if isinstance(step, Launch)]
    assert len(launches) == (2 if what in ("a split one", "copies and a product") else 1)
    assert all(step.overlapped for step in launches)
    for step in launches:
        text = compile_ptx(step.kernel, "sm_90a")
        body = text[text.index(".entry") :]
        before = body[: body.index("griddepcontrol.wait")]
        assert not re.search(r"\b(ld|st|cp\.async\S*|red|atom)\S*\.global", before), step.kernel


@pytest.mark.parametrize(
    ("arch", "can"),
    [
        ("sm_80", False),
        ("sm_86", False),
        ("sm_89", False),
        ("sm_90a", True),
        ("sm_100a", True),
        ("sm_103a", True),
        ("sm_120", True),
    ],
)
def test_launches_overlap_from_sm_90_on(arch: str, can: bool) -> None:
    assert can_overlap(arch) is can
    kernel = Kernel(
        "gemm/reduce.cu", "reduce<float, 4, 256, u32, Epilogue<float, Absent, Absent, Absent, IDENTITY, true, float>>"
    )
    assert ("griddepcontrol.wait" in compile_ptx(kernel, arch)) is can
