"""Products whose K is split over CTAs: where, into what, and at which price."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.ops.gemm._variants.mma import TcAsync, tiles_of
from baracuda_py.types import DeviceSpec

FEW_TILES = [(64, 512, 16384, "f64"), (128, 256, 8200, "f16"), (1, 64, 4097, "bf16")]


def split_configs(m: int, n: int, k: int, kind: str, device: DeviceSpec) -> list[Any]:
    desc = bp.MatmulDescriptor((m, k), (k, n), kind, kind).canonical()
    return [c for c in TcAsync().configs(desc, device) if c.split_k > 1]


@pytest.mark.parametrize("device", ["sm_80", "h200"])
@pytest.mark.parametrize(("m", "n", "k", "kind"), FEW_TILES)
def test_k_is_split_where_tiles_are_few(m: int, n: int, k: int, kind: str, device: str) -> None:
    """Into parts that are whole K tiles, none of them empty, in no more CTAs than there are SMs."""
    spec = DeviceSpec.named(device)
    gemm = bp.MatmulDescriptor((m, k), (k, n), kind, kind).canonical().gemm
    found = split_configs(m, n, k, kind, spec)
    assert found
    for config in found:
        each = config.k_split(gemm)
        assert each * gemm.a.itemsize % config.k_bytes == 0
        assert (config.split_k - 1) * each < k <= config.split_k * each
        assert tiles_of(gemm, config) <= spec.sms


@pytest.mark.parametrize(("m", "n", "k"), [(4096, 4096, 4096), (64, 64, 100), (64, 64, 0), (0, 64, 8192)])
def test_k_is_whole_where_splitting_gains_nothing(m: int, n: int, k: int) -> None:
    assert not split_configs(m, n, k, "f16", DeviceSpec.named("h200"))


@pytest.mark.parametrize("device", ["sm_80", "h200"])
def test_a_split_k_costs_workspace_and_batch_invariance(device: str) -> None:
    """It is taken where it is predicted to be faster, and left where a preference bars it."""
    m, n, k, kind = FEW_TILES[0]
    desc = bp.MatmulDescriptor((m, k), (k, n), kind, kind)
    split = bp.MatmulPlan.select(desc, bp.PlanPreference(variant="tc_async"), device=device)
    parts = int(str(split.sku.config).rpartition("split_k=")[2])
    assert [view.name.partition("<")[0] for view in split.kernels] == ["tc_async", "reduce"]
    assert split.workspace_size == parts * m * n * 8
    assert split.deterministic and split.precision_guarantee.deterministic
    assert not split.precision_guarantee.batch_invariant
    for pref in (bp.PlanPreference(variant="tc_async", batch_invariant=True),
                 bp.PlanPreference(variant="tc_async", max_workspace_bytes=0)):  # fmt: skip
        whole_k = bp.MatmulPlan.select(desc, pref, device=device)
        assert len(whole_k.kernels) == 1
        assert whole_k.workspace_size == 0
        assert whole_k.precision_guarantee.batch_invariant
        assert whole_k.cost.seconds > split.cost.seconds


@pytest.mark.parametrize("shape", [(16, 4096, 14336), (4096, 16, 14336), (64, 64, 16384)], ids=str)
def test_split_k_is_not_batch_invariant(shape: tuple[int, int, int]) -> None:
    """Strict f32: what splits K takes scratch and two kernels, and steps back where batch invariance is asked for."""
    m, n, k = shape
    desc = bp.MatmulDescriptor((m, k), (k, n), "f32", "f32")
    fast = bp.MatmulPlan.select(desc, bp.PlanPreference(variant="simt"), device="h200")
    assert not fast.precision_guarantee.batch_invariant and fast.precision_guarantee.deterministic
    assert len(fast.kernels) == 2
    assert fast.workspace_size % (m * n * 4) == 0 and fast.workspace_size >= 2 * m * n * 4
    whole = bp.MatmulPlan.select(desc, bp.PlanPreference(variant="simt", batch_invariant=True), device="h200")
    assert whole.precision_guarantee.batch_invariant
    assert len(whole.kernels) == 1 and whole.workspace_size == 0
    assert fast.cost.seconds < whole.cost.seconds
