"""The HTML of a plan, and representations of one line."""

from __future__ import annotations

import math
from html.parser import HTMLParser
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.plan.tables.picture import occupancy, picture
from baracuda_py.runtime.steps import Kernel, Launch
from baracuda_py.types import DeviceSpec, ElementKind

PRODUCT = bp.MatmulDescriptor((512, 4096), (4096, 1024), "bf16", "bf16")
CASES: list[tuple[Any, Any, str]] = [
    (bp.MatmulPlan, PRODUCT, "h200"),
    (bp.UnaryPlan, bp.UnaryDescriptor("gelu", (64,), "f32"), "rtx4090"),
    (bp.UnaryPlan, bp.UnaryDescriptor("gelu", (64,), "f32"), "cpu"),
    (bp.WriteSlicePlan, bp.WriteSliceDescriptor((9, 4), [(1, 3), (0, 4)], "bf16"), "ptx"),
    (bp.UnaryPlan, bp.UnaryDescriptor("gelu", (0,), "f32"), "a100"),
]


class Page(HTMLParser):
    """Parses a page, and holds that tags are closed in order and that nothing is loaded from elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: dict[str, list[dict[str, str | None]]] = {}
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "img", "link", "iframe", "style", "object")
        assert not {name for name, _ in attrs} & {"src", "href", "srcset", "data"}
        assert not any(name.startswith("on") or "url(" in (value or "") for name, value in attrs)
        self.open.append(tag)
        self.tags.setdefault(tag, []).append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)


@pytest.mark.parametrize(("family", "desc", "device"), CASES)
def test_picture_is_html_that_needs_nothing_else(family: Any, desc: Any, device: str) -> None:
    plan = family.select(desc, device=device)
    page = Page(plan._repr_html_())
    sources = "".join(page.texts.get("pre", []))
    for launch, kernel in zip(plan.selection.launches, plan.kernels):
        assert kernel.source in sources and kernel.name in "".join(page.texts["div"])
        assert len(page.tags["details"]) == len({one.kernel for one in plan.selection.launches})
        assert f"source of {launch.kernel.file}" in "".join(page.texts["summary"])
    assert plan.sku.variant in "".join(page.texts["div"])


def test_picture_draws_the_prediction_under_the_roof() -> None:
    plan = bp.MatmulPlan.select(PRODUCT, device="h200")
    page = Page(plan._repr_html_())
    (dot,), (roof,) = page.tags["circle"], page.tags["polyline"]
    (left, top), (ridge, flat), (right, _) = (tuple(map(float, p.split(","))) for p in (roof["points"] or "").split())
    assert left < ridge < right and flat < top
    x, y = float(dot["cx"] or 0), float(dot["cy"] or 0)
    intensity = plan.cost.flops / plan.cost.bytes
    rate = dict(plan.device.rates)["bf16"]
    assert x == pytest.approx(
        ridge + math.log10(intensity * plan.device.bandwidth / rate) / 6 * (right - left), abs=0.2
    )
    assert y >= flat and f"{intensity:.3g} FLOPs per byte" in "".join(page.texts["text"])
    slower = bp.MatmulPlan.select(PRODUCT, bp.PlanPreference(variant="tc"), device="h200")
    lower = Page(slower._repr_html_()).tags["circle"][0]
    assert float(lower["cy"] or 0) > y, "a slower plan is drawn lower"


def test_picture_escapes_what_plans_say(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = bp.UnaryPlan.select(CASES[1][1], device="h200")
    monkeypatch.setattr(type(plan.selection.candidate), "variant", "<script>alert(1)</script>")
    text = picture(plan.selection, [])
    assert "<script" not in text and "&lt;script&gt;" in text
    Page(text)


@pytest.mark.parametrize(
    ("block", "shared", "arch", "share", "limit"),
    [(1024, 0, "sm_90a", 1.0, "threads"), (32, 0, "sm_90a", 0.5, "CTAs per SM"),
     (256, 100 << 10, "sm_90a", 0.25, "shared memory"),
     (1024, 0, "sm_86", 1024 / 1536, "threads"), (128, 0, "sm_89", 1.0, "threads")],
)  # fmt: skip
def test_occupancy_by_what_limits_it(block: int, shared: int, arch: str, share: float, limit: str) -> None:
    launch = Launch(Kernel("shape_layout/copy.cu", "no_such_entry"), (1, 1, 1), (block, 1, 1), (), shared)
    assert occupancy(launch, DeviceSpec.named(arch)) == (share, limit)


def test_occupancy_counts_registers_of_a_built_kernel() -> None:
    plan = bp.MatmulPlan.select(PRODUCT, device="h200").compile()
    (launch,) = plan.selection.launches
    registers = -(-plan.kernels[0].resources.registers // 8) * 8
    share, _ = occupancy(launch, plan.device)
    assert share <= 65536 // (registers * launch.block[0]) * launch.block[0] / 2048


def test_representations_are_one_line() -> None:
    plan = bp.MatmulPlan.select(PRODUCT, device="h200")
    guarantee = bp.get_op("attention").plan.select(
        bp.AttentionDescriptor((1, 2, 8, 64), (1, 2, 8, 64), (1, 2, 8, 64), "f16"), device="h200"
    ).precision_guarantee  # fmt: skip
    shown = (plan, plan.desc, plan.cost, plan.precision_guarantee, guarantee, plan.sku, plan.device, plan.pref,
             plan.candidates[0], bp.plan_cache, plan.kernels[0], plan.desc.a)  # fmt: skip
    for one in shown:
        text = repr(one)
        assert "\n" not in text and " at 0x" not in text and "=None" not in text, text
    assert repr(plan).startswith(f"<MatmulPlan {plan.sku} on NVIDIA H200 (sm_90a): ")
    assert str(plan).startswith("MatmulPlan\n  kernel")


def test_representations_of_values_make_them_again() -> None:
    names = {
        "MatmulDescriptor": bp.MatmulDescriptor,
        "PlanPreference": bp.PlanPreference,
        "UnaryDescriptor": bp.UnaryDescriptor,
    }
    for value in (
        PRODUCT,
        CASES[1][1],
        bp.PlanPreference(),
        bp.PlanPreference(variant="tc", math="tf32", deterministic=False),
    ):
        assert eval(repr(value), dict(names)) == value
    assert repr(bp.PlanPreference()) == "PlanPreference()"
    assert ElementKind.BF16.value in repr(PRODUCT)
