"""What is said beside a refused candidate is true: a fix admits it in one step; another variant that is named serves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.plan.candidate import OK, Candidate, Change, Cost, no
from baracuda_py.plan.select import Assessment, advised, assess, choose
from baracuda_py.types import DeviceSpec, PlanPreference

from .problems import random_problems

H200 = DeviceSpec.named("h200")
DEVICES = [
    H200,
    *map(DeviceSpec.named, ("sm_80", "sm_120", "cpu", "ptx:sm_89")),
    H200.with_libraries(frozenset({"cublas"})),
]


def preferences(rng: np.random.Generator, plan: Any) -> PlanPreference:
    """None of any kind, mostly."""
    variants = [c.variant for c in plan.candidates]
    choices: list[dict[str, Any]] = [
        {"variant": str(rng.choice(variants))}, {"backend": str(rng.choice(["bespoke", "memcpy", "cublas"]))},
        {"math": str(rng.choice(["f32", "tf32", "bf16", "f64", "fp8", "exact"]))}, {"max_workspace_bytes": 0},
        {"batch_invariant": True}, {"bit_stable": True, "deterministic": False},
        {"variant": str(rng.choice(variants)), "batch_invariant": True},
    ]  # fmt: skip
    return PlanPreference(**choices[rng.integers(len(choices))]) if rng.random() < 0.35 else PlanPreference()


def refused(seed: int, count: int) -> Iterator[tuple[Any, Any, PlanPreference, DeviceSpec, Assessment, str]]:
    """Plan class, canonical descriptor, preference, device, the answer of a candidate none of whose configurations serves, and
    the variant that is chosen ("" where nothing serves)."""
    rng = np.random.default_rng(seed)
    for plan, desc in random_problems(rng, count):
        pref, device = preferences(rng, plan), DEVICES[rng.integers(len(DEVICES))]
        canonical = desc.canonical()
        answers = assess(plan.all_candidates(), canonical, pref, device)
        serving = {a.candidate.variant for a in answers if a.feasibility}
        chosen = choose(answers, canonical, pref, device).candidate.variant if serving else ""
        for variant in dict.fromkeys(a.candidate.variant for a in answers):
            if variant not in serving:
                yield plan, canonical, pref, device, next(a for a in answers if a.candidate.variant == variant), chosen


def serves(plan: Any, variant: str, desc: Any, pref: PlanPreference, device: DeviceSpec) -> bool:
    desc.validate()
    candidates = [c for c in plan.all_candidates() if c.variant == variant]
    return any(a.feasibility for a in assess(candidates, desc.canonical(), pref, device))


def test_fix_admits_its_candidate_in_one_step() -> None:
    kept = fixed = elsewhere = 0
    for plan, desc, pref, device, answer, chosen in refused(0, 230):
        feasible = advised(answer, desc, pref, device, instead=chosen)
        variant = answer.candidate.variant
        label = f"{desc} {pref} {device}: {variant}: {feasible.reason}; {feasible.advice}"
        assert feasible.reason and bool(feasible.fix) == (feasible.change is not None), label
        if feasible.change is not None:
            changed, asked = replace(desc, **feasible.change.desc), replace(pref, **feasible.change.pref)
            assert serves(plan, variant, changed, asked, feasible.change.device or device), label
            fixed += 1
        elif chosen:
            assert feasible.instead == chosen and serves(plan, chosen, desc, pref, device), label
            elsewhere += 1
        kept += 1
    assert kept > 1000 and fixed > 400 and elsewhere > 100, (kept, fixed, elsewhere)


class Picky(Candidate[Any]):
    """Wants two things of the descriptor and one of the device, and says so one at a time."""

    variant = "picky"
    wanted = (4,)

    def supports(self, desc: Any, device: DeviceSpec) -> Any:
        if desc.x_align < 16:
            return no("loose", "x on 16 bytes", Change({"x_align": 16}))
        if desc.shape != (4,):
            return no("of another shape", change=Change({"shape": self.wanted, "x_strides": None, "out_strides": None}))
        return OK if device is H200 else no("elsewhere", "another device", Change(device=H200))

    def configs(self, desc: Any, device: DeviceSpec) -> tuple[str, ...]:
        return ("",)

    def cost(self, desc: Any, device: DeviceSpec, config: Any) -> Cost:
        return Cost(0, 0, 0.0)

    def guarantee(self, desc: Any, device: DeviceSpec, config: Any) -> Any:
        return bp.UnaryPlan.select(bp.UnaryDescriptor("neg", (4,), "f32"), device="h200").precision_guarantee


def test_fixes_are_joined_and_useless_ones_left_out() -> None:
    desc = bp.UnaryDescriptor("neg", (3,), "f32", x_align=4).canonical()
    pref, device = PlanPreference(), DeviceSpec.named("sm_80")
    (answer,) = assess([Picky()], desc, pref, device)
    feasible = advised(answer, desc, pref, device, instead="strided")
    assert (
        feasible.advice
        == "to admit it: x on 16 bytes and shape=(4,), x_strides=None, out_strides=None and another device"
    )
    assert feasible.change == Change({"x_align": 16, "shape": (4,), "x_strides": None, "out_strides": None}, {}, H200)
    Picky.wanted = (5,)  # which it does not take either
    try:
        stuck = advised(answer, desc, pref, device, instead="strided")
    finally:
        Picky.wanted = (4,)
    assert (stuck.reason, stuck.fix, stuck.change, stuck.advice) == ("loose", "", None, "serves instead: strided")


def said(desc: Any, of: str, device: str = "h200", **pref: Any) -> tuple[str, str]:
    plan = {bp.MatmulDescriptor: bp.MatmulPlan, bp.BinaryDescriptor: bp.BinaryPlan}.get(type(desc))
    plan = plan or (bp.WriteSlicePlan if isinstance(desc, bp.WriteSliceDescriptor) else bp.ContiguizePlan)
    row = next(r for r in plan.select(desc, PlanPreference(**pref), device=device).explain() if r.variant == of)
    assert not row.admitted
    return row.fix, row.instead


def product(a: tuple[int, ...], b: tuple[int, ...], element: str = "bf16", **fields: Any) -> bp.MatmulDescriptor:
    return bp.MatmulDescriptor(a, b, element, element, **fields)


PAD, LINES = "pad a's leading dimension to a multiple of 8 elements", "contiguize b with K innermost"
FULL = "pass contiguize(cupy.broadcast_to(x2, (4, 5))) for x2"


@pytest.mark.parametrize(
    ("desc", "variant", "wanted"),
    [
        (product((64, 64), (64, 64), "f32", b_strides=(1, 64)), "wgmma", "math='tf32'"),
        (product((64, 64), (64, 64), "f32"), "wgmma", "math='tf32' and contiguize b with K innermost"),
        (product((64, 64), (64, 64), "f64"), "wgmma", ""),
        (product((64, 64), (64, 64), "f64"), "wgmma_padded", ""),
        (product((64, 64), (64, 64)), "wgmma_padded", ""),
        (product((64, 64), (64, 64)), "gemv", ""),
        (product((64, 65), (65, 64)), "wgmma", PAD),
        (product((64, 64), (64, 64), a_align=4), "wgmma", "a on a multiple of 16 bytes"),
        (product((64, 65), (65, 64), a_align=2), "wgmma", f"{PAD} and a on a multiple of 16 bytes"),
        (product((64, 64), (64, 64), a_strides=(0, 1)), "wgmma", "contiguize a with K innermost"),
        (product((64, 64), (64, 64), a_strides=(-64, 1)), "wgmma", "contiguize a with K innermost"),
        (product((64, 64), (64, 64), b_strides=(128, 2)), "wgmma", "contiguize b with N innermost"),
        (product((64, 40), (40, 64), "fp8_e4m3", a_strides=(48, 1)), "wgmma", f"{LINES}, in lines of 48 elements"),
        (product((64, 64), (64, 64), "fp8_e4m3"), "simt", "a cast to f16"),
        (product((64, 64), (64, 64), "fp8_e4m3", scale_a_shape=(1, 1), scale_a_element="f32"), "simt", ""),
        (bp.BinaryDescriptor("add", (4, 5), (5,), "f32", "f32"), "contiguous", FULL),
        (bp.BinaryDescriptor("add", (4, 5), (4, 5), "f32", "f32", x2_strides=(1, 4)), "contiguous", "contiguize x2"),
        (bp.WriteSliceDescriptor((8, 8), [(0, 4), (0, 4)], "s4"), "dynamic_start", ""),
        (bp.WriteSliceDescriptor((8, 8), [(0, 4), (0, 4)], "f32"), "dynamic_start", "dynamic_axis=0, and start on the device"),
        (bp.WriteSliceDescriptor((8, 8), [(0, 4), (0, 4)], "f32"), "nibble", ""),
        (bp.WriteSliceDescriptor((8, 8), [(0, 4), (0, 4)], "f32"), "whole_dest", ""),
        (bp.ContiguizeDescriptor((8, 8), "f32", x_strides=(1, 8)), "contiguous_chunk", "contiguous x"),
        (bp.ContiguizeDescriptor((8, 8), "f32", x_strides=(1, 8)), "pitched", ""),
        (bp.ContiguizeDescriptor((8, 8), "f32"), "transpose", ""),
    ],
)  # fmt: skip
def test_words(desc: Any, variant: str, wanted: str) -> None:
    fix, instead = said(desc, variant)
    assert fix == wanted
    assert bool(instead) != bool(fix)


def test_advice_names_the_preference_that_would_be_honoured() -> None:
    desc = product((64, 64), (64, 64), "f32", b_strides=(1, 64))
    assert said(desc, "tc_async", variant="simt") == ("math='tf32' and variant='tc_async'", "")
    assert said(desc, "simt", device="cpu") == ('device="sm_90a" to select and compile without one', "")
    with pytest.raises(
        bp.UnsupportedError, match=r"simt: computes in f32, not tf32 \(to admit it: math='f32'\)"
    ) as caught:
        bp.MatmulPlan.select(desc, PlanPreference(math="tf32"), device="h200")  # type: ignore[arg-type]
    assert "wgmma, tc_async, tc: does not multiply in f32 (to admit it: math='tf32')" in str(caught.value)
    assert "fix" not in str(caught.value)


def test_the_table_says_what_serves_instead() -> None:
    text = repr(bp.MatmulPlan.select(product((64, 64), (64, 64), "f64"), device="h200").explain())
    assert "does not multiply in f64; serves instead: " in text


def test_an_empty_product_has_no_scratch_to_refuse() -> None:
    """Nothing is lowered for it, on any device."""
    for device in ("h200", "sm_80"):
        plan = bp.MatmulPlan.select(product((0, 16), (16, 16)), PlanPreference(max_workspace_bytes=0), device=device)
        assert plan.launch_config == ()
