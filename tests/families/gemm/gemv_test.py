"""gemv: its launches, its count of additions, and what it refuses."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.ops.gemm._variants.gemv import Gemv
from baracuda_py.plan.about.tune import admissible
from baracuda_py.runtime.steps import Launch
from baracuda_py.types import DeviceSpec

H200 = DeviceSpec.named("h200")


def vector_times(n: int, k: int, *, tokens: int = 1, along_k: bool = True, batch: tuple[int, ...] = ()) -> Any:
    strides = {"b_strides": (*(n * k for _ in batch), 1, k)} if along_k else {}
    return bp.MatmulDescriptor((*batch, tokens, k), (*batch, k, n), "bf16", "bf16", **strides)


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"])
@pytest.mark.parametrize("along_k", [True, False])
@pytest.mark.parametrize("tokens", [1, 2, 3, 8])
def test_gemv_launches_cover_every_column_and_fit_the_device(tokens: int, along_k: bool, arch: str) -> None:
    device = DeviceSpec.named(arch)
    desc = vector_times(1001 * 8, 1000 * 8, tokens=tokens, along_k=along_k).canonical()
    shapes = list(Gemv().configs(desc, device))
    assert len({str(s) for s in shapes}) == len(shapes) >= 2
    for shape in shapes:
        step = Gemv().lower(desc, device, shape)[0]
        assert isinstance(step, Launch) and step.pdl
        assert step.grid[0] * shape.columns >= 8008 > (step.grid[0] - 1) * shape.columns
        assert step.grid[1:] == (shape.split_k, 1) and step.block == (shape.warps * 32, 1, 1)
        assert step.shared_bytes <= device.shared_bytes and shape.warps <= 32
    ample = not along_k and tokens <= 2 and device.shared_bytes >= 128 << 10
    assert any(s.warps == 32 for s in shapes) == ample


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120", "h100", "h200"])
@pytest.mark.parametrize("tokens", [1, 4])
def test_no_product_is_predicted_faster_than_memory_is(tokens: int, arch: str) -> None:
    """Large products of a few rows: a copy reaches 0.87 of the datasheet's bandwidth, reads alone a little more."""
    device = DeviceSpec.named(arch)
    for along_k in (True, False):
        desc = vector_times(28672, 8192, tokens=tokens, along_k=along_k)
        for plan in admissible(bp.MatmulPlan, desc, bp.PlanPreference(), device):
            assert plan.cost.seconds >= 28672 * 8192 * 2 / (device.bandwidth / 0.87)


def test_gemv_counts_the_longest_chain_of_additions() -> None:
    # 8000 are two turns of 4096 elements, 16 a thread, for which 5 folds in the warp and 8 warps follow.
    desc = vector_times(4096, 8000).canonical()
    (shape,) = [s for s in Gemv().configs(desc, H200) if str(s) == "unroll=2 team=8 warps=8 cols=2 along_k"]
    assert shape.step_k == 2 * 8 * 32 * 8 == 4096 and shape.additions(8000) == 2 * 16 + 5 + 8


def test_gemv_refuses_more_matrices_than_a_grid_holds() -> None:
    refused = Gemv().supports(vector_times(64, 64, batch=(70_000,)).canonical(), H200)
    assert not refused and "70000 matrices" in refused.reason
    assert Gemv().supports(vector_times(64, 64, batch=(60_000,)).canonical(), H200)


@pytest.mark.parametrize("extents", [(1, 8, 1 << 31), (1, 1 << 31, 64), (1 << 31, 1, 64), (1, 8, (1 << 32) - 1000)])
def test_gemv_counts_with_32_bits(extents: tuple[int, int, int]) -> None:
    m, n, k = extents
    desc = bp.MatmulDescriptor((m, k), (k, n), "bf16", "bf16", b_strides=(1, k)).canonical()
    refused = Gemv().supports(desc, H200)
    assert not refused and "2**31" in refused.reason
    plan = None
    with contextlib.suppress(bp.BaracudaError):  # another variant may serve it; none may stumble
        plan = bp.MatmulPlan.select(desc, device=H200)
    assert plan is None or plan.sku.variant != "gemv"
