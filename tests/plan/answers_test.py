"""Plans that answer: options, a forced configuration, differences, several devices, bounds as numbers, reports of verify."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.cli.main import main
from baracuda_py.plan.about.exactness import SYMBOLS, exactness, number_of
from baracuda_py.types import Componentwise, DeviceSpec, ElementKind, Exact, Term, Ulp

from ..gauntlet import readable

PRODUCT = bp.MatmulDescriptor((16, 256), (256, 128), "bf16", "bf16", b_strides=(1, 256))


def refused(call: Callable[[], Any], *words: str) -> None:
    with pytest.raises(bp.BaracudaError) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


@pytest.fixture(scope="module")
def plan() -> Any:
    return bp.MatmulPlan.select(PRODUCT, device="h200")


def test_options_lists_admissible_plans_the_chosen_first(plan: Any) -> None:
    table, rows = plan.options(top=None, registers=False), plan.explain(configs=True).rows
    assert len(table) == table.total == sum(row.admitted for row in rows)
    first, *others = table
    assert first.chosen and (first.variant, first.config) == (plan.sku.variant, plan.sku.config)
    assert not any(option.chosen for option in others)
    assert [o.microseconds for o in others] == sorted(o.microseconds for o in others)
    for option in others[:3]:
        assert option.plan.cost.seconds * 1e6 == option.microseconds
        assert option.exactness == exactness(option.plan.selection)["out"]
        again = bp.MatmulPlan.select(
            PRODUCT, bp.PlanPreference(variant=option.variant, config=option.config), device="h200"
        )
        assert again == option.plan and again.sku.config == option.config
        assert bp.Plan.from_json(again.to_json()) == again
    assert len(plan.options(top=2, registers=False)) == 2


def test_options_have_registers_of_the_kernels(plan: Any) -> None:
    option = plan.options(top=1)[0]
    assert option.registers == max(kernel.resources.registers for kernel in plan.kernels)
    assert plan.options(top=1, registers=False)[0].registers is None
    host = bp.MatmulPlan.select(PRODUCT, device="cpu").options()
    assert [(o.variant, o.registers, o.chosen) for o in host] == [("reference", None, True)]


def test_options_fit_eighty_columns_and_are_json(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    table = plan.options(top=3, registers=False)
    assert max(map(len, repr(table).splitlines())) <= 80
    assert json.loads(json.dumps(table.to_dict()))["rows"][0]["config"] == plan.sku.config
    assert table._repr_html_().count("<tr>") == 4
    for wrong in (0, -1, "all", True):
        refused(lambda wrong=wrong: plan.options(top=wrong), "options(top=", "None for all")  # type: ignore[misc]


def test_preference_config_refuses_with_what_serves(plan: Any) -> None:
    other = plan.options(top=2, registers=False)[1]
    select = lambda **pref: bp.MatmulPlan.select(PRODUCT, bp.PlanPreference(**pref), device="h200")  # noqa: E731
    assert select(config=other.config).sku.config == other.config
    refused(
        lambda: select(config="1x1"),
        "no configuration '1x1' serves",
        f"{plan.sku.variant}[{plan.sku.config}]",
        "options(top=None)",
    )
    refused(lambda: select(config="1x1", variant="gemv"), "gemv")
    refused(lambda: select(config=7), "config=7", "plan.options()")
    assert "not the preferred configuration" in repr(select(config=other.config).explain(configs=True))


def test_diff_lists_what_differs_alone(plan: Any) -> None:
    other = plan.options(top=2, registers=False)[1].plan
    found = {row.fact: (row.before, row.after) for row in plan.diff(other)}
    assert found["config"] == (plan.sku.config, other.sku.config)
    assert found["pref.config"] == ("None", other.sku.config)
    assert "launch 0" in found and "device" not in found and not any(fact.startswith("desc.") for fact in found)
    assert all(before != after for before, after in found.values())
    assert len(plan.diff(plan)) == 0 and "no difference" in repr(plan.diff(plan))
    assert {row.fact: row.after for row in other.diff(plan)}["config"] == plan.sku.config
    elsewhere = bp.MatmulPlan.select(PRODUCT, device="a100")
    assert {"device", "predicted", "launch 0"} <= {row.fact for row in plan.diff(elsewhere)}
    refused(lambda: plan.diff("plan"), "expected a plan, got str")


def test_compare_selects_on_each_device() -> None:
    table = bp.compare(PRODUCT, ["a100", "h200", "cpu"])
    for row, device in zip(table, ("a100", "h200", "cpu")):
        own = bp.MatmulPlan.select(PRODUCT, device=device)
        assert (row.variant, row.config, row.microseconds) == (own.sku.variant, own.sku.config, own.cost.seconds * 1e6)
    assert [row.nominal for row in table] == [True, False, False]
    assert len(bp.compare(PRODUCT)) >= 6 and json.dumps(table.to_dict())
    only = bp.compare(PRODUCT, ["a100", "h200"], bp.PlanPreference(variant="wgmma"))
    assert only[0].microseconds is None and "sm_90a" in only[0].refused and only[1].variant == "wgmma"
    refused(lambda: bp.compare(3), "expected a descriptor, got int")
    refused(lambda: bp.compare(PRODUCT, "h200"), "give a list")
    refused(lambda: bp.compare(PRODUCT, ["t4"]), "8.0 and later")


def test_explanation_is_json(plan: Any, capsys: pytest.CaptureFixture[str]) -> None:
    data = plan.explain().to_dict()
    assert json.loads(json.dumps(data))["rows"][0]["variant"] == plan.sku.variant
    assert main(["explain", "gelu", "shape=64", "element=bf16", "--device", "h100", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["rows"][0]["chosen"] and "nominal" in shown["notes"][-1]


@pytest.mark.parametrize("name", ["a100", "h100", "l40s", "b200", "rtx4090", "RTX 5090", "rtx_3090", "l4", "ptx:a10"])
def test_device_names_people_know_are_nominal(name: str) -> None:
    spec = DeviceSpec.named(name)
    assert spec.nominal and DeviceSpec.named(spec.name) == spec
    plan = bp.UnaryPlan.select(bp.UnaryDescriptor("exp", (8,), "f32"), device=name)  # type: ignore[arg-type]
    assert "nominal" in repr(plan.explain()) and not DeviceSpec.named("h200").nominal


def test_exactness_is_the_bound_in_numbers(plan: Any) -> None:
    said = exactness(plan.selection)["out"]
    bound = plan.precision_guarantee.bound
    whole = sum(t.coefficient * t.unit.unit_roundoff for t in bound.terms if t.measure == "abs_matmul")
    assert float(re.search(r"≤ (\S+)·Σ\|a\|\|b\|", said)[1]) == pytest.approx(whole, rel=0.05)  # type: ignore[index]
    assert f"error of out {said}" in plan.explain().notes
    assert said in plan.options(top=1, registers=False).title


def test_exactness_of_each_sort_of_bound() -> None:
    f32, bf16 = ElementKind.F32, ElementKind.BF16
    assert number_of(Exact(), f32) == "exact"
    assert number_of(Ulp(0.5), f32) == "≤ 0.5 ulp"
    terms = (
        Term(3, f32, "abs_sum"),
        Term(1, f32, "abs_sum"),
        Term(1, bf16, "abs_result"),
        Term(1, bf16, "smallest_normal"),
    )
    assert number_of(Componentwise(terms, ""), bf16) == "≤ 2.4e-7·Σ|x| + 3.9e-3·|out| + 4.6e-41"
    assert number_of(Componentwise(terms[:1], "", outside="beyond"), f32) == "≤ 1.8e-7·Σ|x|, except beyond"
    assert SYMBOLS["abs_matmul"] == "Σ|a||b|"


def test_exactness_page_names_every_measure() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/exactness.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+\*?)`", page))
    prefixes = tuple(name[:-1] for name in named if name.endswith("*"))
    known = {name for op in map(bp.get_op, bp.list_ops()) for name in op.plan.measures}
    missing = {name for name in known if name not in named and not name.startswith(prefixes)}
    assert not missing and set(SYMBOLS) <= named, missing


@pytest.mark.parametrize("device", ["cpu", "ptx"])
def test_verify_reports_the_worst_error(device: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=s).astype(np.float32) for s in ((5, 33), (33, 7)))
    plan = bp.MatmulPlan.select(bp.MatmulDescriptor.of(a, b), device=device)
    report = plan.verify(a=a, b=b)
    (out,) = report.outputs
    wide = a.astype(np.float64) @ b.astype(np.float64)
    error = np.abs(plan.run(a=a, b=b) - wide)
    assert (out.elements, sum(out.histogram), out.exact) == (35, 35, int((error == 0).sum()))
    assert 0 < out.share == report.share <= 1 and out.error == pytest.approx(error[out.place])
    assert out.share == pytest.approx(out.error / out.allowed) and out.histogram[int(out.share * 10)] > 0
    assert f"({out.share:.1%}) at {list(out.place)}" in repr(report) and json.dumps(report.to_dict())
    text = pytest.importorskip("rich.console").Console(width=200, record=True, file=io.StringIO())
    text.print(report)
    assert out.summary in text.export_text()


def test_verify_of_samples_merges_their_reports() -> None:
    op = bp.get_op("topk")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    report = op.plan.select(op.of(x=x, k=2), device="cpu").verify(x=x)
    assert [(o.name, o.exact, o.share) for o in report.outputs] == [("values", 6, 0.0), ("indices", 6, 0.0)]
    whole = op.plan.select(op.of(x=x, k=2), device="cpu").verify()
    assert whole.cases > 5 and {o.name for o in whole.outputs} == {"values", "indices"}
    assert all(sum(o.histogram) == o.elements for o in whole.outputs)


def test_verify_share_of_a_wrong_result_exceeds_the_bound(plan: Any) -> None:
    guarantee, operands = plan.precision_guarantee, {"a": np.ones((2, 2)), "b": np.ones((2, 2))}
    wide = np.full((2, 2), 2.0)
    got = wide.astype(np.float32)
    got[1, 0] = 3
    error, allowed = guarantee.deviations(got, wide, operands, ElementKind.F32, plan.measured())
    assert error[1, 0] == 1 > allowed[1, 0] > 0 and error.sum() == 1


def test_check_raises_what_a_status_says() -> None:
    x = np.arange(6, dtype=np.float32)
    fine = bp.take_along_axis(x, np.array([1, 2]), device="cpu")
    assert bp.check(fine) is fine and bp.check(fine, fine) == (fine, fine)
    wrong = bp.take_along_axis(x, np.array([1, 9]), status=np.zeros((), np.int32), device="cpu")
    refused(lambda: bp.check(fine, wrong), "take_along_axis: status = 1: an index is out of range")
    refused(
        lambda: bp.check(kv_append=np.array([0, 1, 0, 1], np.int32)), "kv_append: status[1] = 1", "2 of 4 are not 0"
    )
    refused(lambda: bp.check(paged_kv_append=np.array([[0, 7]], np.int32)), "status[0, 1] = 7", "was overwritten")
    refused(lambda: bp.check(kv_append=np.array([0, 1])), "holds int64, expected int32")
    refused(lambda: bp.check(gelu=np.zeros(1, np.int32)), "gelu has no output status")
    refused(lambda: bp.check(x), "a ndarray has no status", "kv_append")
    refused(lambda: bp.check(bp.topk(x, 2, device="cpu")), "a TopkPlanResult has no status")
    torch = pytest.importorskip("torch")
    refused(
        lambda: bp.check(write_slice=torch.ones((), dtype=torch.int32)),
        "write_slice: status = 1: the window does not fit",
    )


def test_check_knows_every_op_with_a_status() -> None:
    for name in bp.list_ops():
        family = bp.get_op(name).plan
        has = any(operand.name == "status" for operand in family.descriptor.signature_operands) or name == "write_slice"
        assert bool(family.statuses) == has, name
        assert all(cause and fix for cause, fix in family.statuses.values())


def test_check_names_readable_causes() -> None:
    with pytest.raises(bp.InvalidProblemError) as caught:
        bp.check(copy_pages=np.array([0, 1], np.int32))
    readable(caught.value, "copy_pages", "status[1] = 1")
