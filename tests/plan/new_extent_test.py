"""`select` for extents without a measurement: what it leaves out does not change its choice, and what it keeps is never stale."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.ops.gemm._wgmma import cost
from baracuda_py.ops.gemm._wgmma.tile import Traits
from baracuda_py.plan.select import Assessment, assess, best, checked, choose
from baracuda_py.types import DeviceSpec, PlanPreference

ELEMENTS = [
    ("bf16", None), ("f16", None), ("f32", None), ("f32", "tf32"), ("f64", None), ("fp8_e4m3", None), ("fp8_e4m3", "fp8_fast"),
]  # fmt: skip
EXTENTS = (8, 16, 100, 256, 1000, 1024, 4096, 4104, 7168, 11008)
H200 = DeviceSpec.named("h200")
DEVICES = [
    H200, H200.with_libraries(frozenset({"cublas"})), *map(DeviceSpec.named, ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120")),
]  # fmt: skip
PREFERENCES = [PlanPreference()] * 5 + [
    PlanPreference(batch_invariant=True), PlanPreference(backend="bespoke"), PlanPreference(max_workspace_bytes=0),  # type: ignore[arg-type]
]  # fmt: skip
CANDIDATES = bp.MatmulPlan.all_candidates()


def lying(lead: tuple[int, ...], rows: int, cols: int, *, columns: bool) -> tuple[int, ...]:
    """Strides of dense matrices in rows or columns."""
    strides: list[int] = []
    step = rows * cols
    for extent in reversed(lead):
        strides.insert(0, step)
        step *= extent
    return (*strides, 1, rows) if columns else (*strides, cols, 1)


@cache
def questions(count: int) -> list[tuple[Any, PlanPreference, DeviceSpec]]:
    """Products of M from 1 to 100,000, as many odd as even: every type and layout, batches, epilogues, misaligned operands."""
    r = random.Random(20)
    found = []
    for _ in range(count):
        m = min(100_000, int(2 ** r.uniform(0, 16.62)))
        n, k = r.choice(EXTENTS), r.choice(EXTENTS)
        element, math = r.choice(ELEMENTS)
        batch: tuple[int, ...] = r.choice([(), (), (), (3,), (2, 5)])
        shared = batch if r.random() < 0.6 else ()
        fields: dict[str, Any] = {"math": math}
        fields["a_strides"] = lying(batch, m, k, columns=r.random() < 0.3)
        fields["b_strides"] = lying(shared, k, n, columns=r.random() < (0.8 if element.startswith("fp8") else 0.3))
        fields["out_strides"] = lying(batch, m, n, columns=r.random() < 0.3)
        if r.random() < 0.3:
            addend = "bf16" if element.startswith("fp8") else element
            fields |= {"bias_shape": (n,), "bias_element": addend, "activation": r.choice(["identity", "relu", "gelu"])}
        if r.random() < 0.15:
            fields["a_align"] = 8
        desc = bp.MatmulDescriptor((*batch, m, k), (*shared, k, n), element, element, **fields)
        found.append((checked(desc), r.choice(PREFERENCES), r.choice(DEVICES)))
    return found


def outcome(answer: Assessment) -> tuple[str, Any]:
    return answer.candidate.variant, answer.config


def test_select_chooses_what_the_full_assessment_chooses() -> None:
    chosen: Counter[str] = Counter()
    split = 0
    for desc, pref, device in questions(300):
        answers = assess(CANDIDATES, desc, pref, device)
        if not any(a.feasibility for a in answers):
            with pytest.raises(bp.UnsupportedError):
                best(CANDIDATES, desc, pref, device)
            continue
        full, found = choose(answers, desc, pref, device), best(CANDIDATES, desc, pref, device)
        assert outcome(found) == outcome(full), desc
        chosen[found.candidate.variant] += 1
        split += "split_k" in str(found.config)
    assert set(chosen) >= {"wgmma", "wgmma_padded", "gemv", "tc_async", "simt", "cublas"} and split > 20


def test_no_configuration_costs_less_than_its_candidate_floor() -> None:
    near = 0
    for desc, pref, device in questions(300)[:100]:
        for answer in assess(CANDIDATES, desc, pref, device):
            if answer.cost is not None and not device.is_host:
                floor = answer.candidate.floor(desc, device)
                assert floor <= answer.cost.seconds * (1 + 1e-9), answer
                near += floor > 0.5 * answer.cost.seconds
    assert near > 100  # floors that say something


def test_configurations_are_sorted_by_cost() -> None:
    for desc, _, device in questions(300)[:60]:
        for candidate in CANDIDATES[:-1]:
            if candidate.supports(desc, device):
                ranked = list(candidate.ranked(desc, device))
                assert [s for _, s in ranked] == sorted(s for _, s in ranked)
                assert dict(ranked) == {
                    c: candidate.cost(desc, device, c).seconds for c in candidate.configs(desc, device)
                }


def test_new_extent_walks_no_tiles_of_wgmma(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not depend on the extents is found once for each layout: another K takes array operations alone."""
    traits = Traits(2, 2, 64, False, "TMA_ROW", False)
    assert cost.menu_of(traits, traits, False, H200).tiles
    for walk in ("_fits", "split_last_waves", "last_waves_of", "clusters_at_once"):
        monkeypatch.setattr(cost, walk, lambda *_: pytest.fail("a menu of another K looks at each tile"))
    short = cost.menu_of(traits._replace(k_blocks=7), traits._replace(k_blocks=7), False, H200)
    assert {tile.split_k for tile in short.tiles} == {1}, "seven blocks of K are too few for two parts of four"
    assert not short.slots.any()
