"""The selection set, what a sweep's file says of the selection, and the table written from it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.ops.gemm._candidates import CANDIDATES
from baracuda_py.plan.about import tuned
from baracuda_py.plan.about.tune import admissible
from baracuda_py.types import DeviceSpec
from benchmarks.products import Product
from benchmarks.results import DIRECTORY, Record, write_line
from benchmarks.selection import BACKENDS, predicted, read_sweep, report, slowdown, table_entries, update_table
from benchmarks.shapes import ROWS, SHAPES
from benchmarks.sweep import FAR, PER_VARIANT, rivals

H200 = DeviceSpec.named("h200").with_libraries(frozenset({"cublas"}))
SQUARE = next(s for s in SHAPES if s.name == "2048x4096x4096 bf16 rc")


# ---- the shapes ----------------------------------------------------------------------------------------------


def test_the_set_is_200_different_products_and_always_the_same() -> None:
    assert len({s.name for s in SHAPES}) == len({s.product for s in SHAPES}) == len(SHAPES) == 200
    assert Counter(s.source == "random" for s in SHAPES) == {True: 140, False: 60}
    text = "\n".join(s.name for s in SHAPES)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "36b3b87d7327f526"


def test_the_set_mixes_dtypes_layouts_and_odd_sizes() -> None:
    dtypes, layouts = (Counter(getattr(s.product, field) for s in SHAPES) for field in ("dtype", "layout"))
    assert min(dtypes["bfloat16"], dtypes["float16"]) > 50 and 5 < dtypes["float32"] < 25
    assert set(layouts) == {"rr", "rc", "cr", "cc"} and min(layouts.values()) >= 10
    assert 50 < sum(s.product.ragged for s in SHAPES) < 120


# ---- rivals --------------------------------------------------------------------------------------------------


def test_admissible_plans_are_sorted_and_limited_per_variant() -> None:
    desc = Product(1536, 1280, 1024).descriptor()  # in no table
    every = admissible(bp.MatmulPlan, desc, bp.PlanPreference(), H200)
    assert [p.cost.seconds for p in every] == sorted(p.cost.seconds for p in every)
    assert every[0] == bp.MatmulPlan.select(desc, device=H200)
    few = admissible(bp.MatmulPlan, desc, bp.PlanPreference(), H200, per_variant=2)
    assert max(Counter(p.sku.variant for p in few).values()) == 2
    assert {p.sku.variant for p in few} == {p.sku.variant for p in every} <= {c.variant for c in CANDIDATES}
    assert set(few) <= set(every)


def test_what_select_takes_is_timed() -> None:
    plans, chosen = rivals(SQUARE, H200)
    assert chosen in plans
    assert max(Counter(p.sku.variant for p in plans).values()) <= PER_VARIANT + 1


def test_the_rows_are_named_after_themselves_and_not_twice() -> None:
    names = [s.name for s in ROWS]
    assert len(set(names)) == len(names) and not set(names) & {s.name for s in SHAPES}
    assert "bf16 1024³" in names and "fp8_fast → bf16 8192³" in names


def test_what_is_predicted_far_behind_is_not_timed() -> None:
    """But for each variant's best, so that a sweep can tell where the predictions are wrong."""
    plans, _ = rivals(SQUARE, H200)
    behind = [p.sku.variant for p in plans if p.cost.seconds > FAR * plans[0].cost.seconds]
    assert behind and len(set(behind)) == len(behind)
    every = admissible(bp.MatmulPlan, SQUARE.product.descriptor(), bp.PlanPreference(), H200)
    assert {p.sku.variant for p in plans} == {p.sku.variant for p in every} and len(plans) < len(every)


# ---- what a sweep says ---------------------------------------------------------------------------------------


def shape_record(name: str, chosen: int, *times: tuple[str, str, float, float]) -> Record:
    """A line of a sweep's file; each candidate as (back end, configuration, predicted, measured)."""
    timed = [
        {
            "variant": f"v-{backend}",
            "config": config,
            "backend": backend,
            "predicted_us": guess,
            "us": us,
            "sources": "s",
        }
        for backend, config, guess, us in times
    ]
    selected = {key: timed[chosen][key] for key in ("variant", "config")} | {"provenance": "model"}
    return {"kind": "shape", "name": name, "selected": selected, "timed": timed, "failed": []}


RECORDS = [
    shape_record("a", 0, ("bespoke", "x", 1.0, 10.0), ("bespoke", "y", 2.0, 10.2), ("cublas", "", 3.0, 11.0)),
    shape_record("b", 0, ("bespoke", "x", 1.0, 11.0), ("bespoke", "y", 2.0, 10.0), ("cublas", "", 3.0, 20.0)),
    shape_record("c", 1, ("bespoke", "x", 1.0, 30.0), ("bespoke", "y", 2.0, 20.0), ("cublas", "", 3.0, 10.0)),
]


def test_a_report_counts_what_is_near_the_best() -> None:
    assert [slowdown(r, r["selected"]) for r in RECORDS] == [1.0, 1.1, 2.0]
    assert slowdown(RECORDS[0], {"variant": "gone", "config": ""}) is None
    text = report([*RECORDS, {"kind": "shape", "name": "d", "error": "MemoryError"}])
    assert "3 of 4 shapes timed, 9 candidates." in text
    assert "select: within 5 % of the best on 33.3%, within 15 % of the best on 66.7% of 3 shapes" in text
    assert "worst 3.00" in text  # the model's own choice of c
    assert "our best kernel against cuBLAS: geometric mean 1.032×, faster on 2 of 3 shapes." in text
    assert "v-cublas         median 3.67, from 3.33 to 6.67 (3)" in text
    worst = text[text.index("worst choices") :].splitlines()
    assert [line.split()[0] for line in worst[1:3]] == ["c", "b"]
    assert "d: MemoryError" in text


def test_a_sweep_file_is_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    for line in ({"kind": "meta"}, *RECORDS):
        write_line(path, line)
    assert read_sweep(path) == RECORDS


# ---- the shipped table ---------------------------------------------------------------------------------------


def sweep_record(slowest_first: bool) -> tuple[Record, list[Any]]:
    """A sweep in which the best predicted plan is the slowest, or the fastest."""
    plans = admissible(bp.MatmulPlan, SQUARE.product.descriptor(), bp.PlanPreference(backend="bespoke"), H200)[:3]
    timed = [
        {
            "variant": p.sku.variant, "config": p.sku.config, "backend": "bespoke", "predicted_us": p.cost.seconds * 1e6,
            "us": 100.0 - 10 * i if slowest_first else 100.0 + 10 * i, "sources": tuned.entry(p.selection, "")[1]["sources"],
        }
        for i, p in enumerate(plans)
    ]  # fmt: skip
    return {"kind": "shape", "name": SQUARE.name, "timed": timed, "failed": []}, plans


def test_winners_go_into_the_table_that_select_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "matmul.json"
    monkeypatch.setattr(tuned, "shipped_path", lambda _device, _op: path)
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    path.write_text(json.dumps({"another": {"variant": "v", "config": "", "sources": "", "provenance": "shipped"}}))
    record, plans = sweep_record(slowest_first=True)
    assert update_table(path, [record], H200) == (2, 3)  # for any back end, and for our own
    desc = SQUARE.product.descriptor()
    for pref in (None, bp.PlanPreference(backend="bespoke")):
        plan = bp.MatmulPlan.select(desc, pref, device=H200)
        assert (plan.provenance, plan.sku) == ("shipped", plans[2].sku)
    record, _ = sweep_record(slowest_first=False)
    assert update_table(path, [record], H200) == (0, 1)  # the model is right now: its entries go, others stay


def test_shipped_table_holds_the_committed_measurements() -> None:
    """An entry is the winner of a sweep, of the set or of the rows."""
    known: dict[str, list[Record]] = {}  # some products are in both
    for name, shapes in (("matmul", SHAPES), ("rows", ROWS)):
        products = {s.name: s.product for s in shapes}
        for record in read_sweep(DIRECTORY / "sweeps" / f"nvidia-h200-{name}.jsonl"):
            for backend in BACKENDS:
                timed = [t for t in record["timed"] if backend in (None, t["backend"])]
                if timed:
                    key = table_key(products[record["name"]], backend)
                    known.setdefault(key, []).append(min(timed, key=lambda t: float(t["us"])))
    table = json.loads(tuned.shipped_path(H200, "matmul").read_text())
    assert len(table) > 100
    for key, entry in table.items():
        fields = ("variant", "config", "sources")
        assert [entry[f] for f in fields] in [[m[f] for f in fields] for m in known[key]]


def table_key(product: Product, backend: str | None) -> str:
    pref = bp.PlanPreference(backend=backend)  # type: ignore[arg-type]
    return tuned.key_of(bp.MatmulPlan, product.descriptor().canonical(), pref)


def test_predictions_are_those_of_the_present_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "shipped_path", lambda _device, _op: tmp_path / "none.json")
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    record, plans = sweep_record(slowest_first=True)
    gone = {"variant": "wgmma", "config": "96x96", "backend": "bespoke", "sources": "", "predicted_us": 1.0, "us": 1e-3}
    timed = [t | {"predicted_us": 1e9} for t in record["timed"]]
    stale = record | {"timed": [gone, *timed], "selected": {"variant": "gone"}}
    (again,) = predicted([stale], H200)
    assert again["withdrawn"] == [gone] and predicted([again], H200) == [again]
    assert [t["predicted_us"] for t in again["timed"]] == [p.cost.seconds * 1e6 for p in plans]
    assert [t["us"] for t in again["timed"]] == [t["us"] for t in record["timed"]]
    chosen = bp.MatmulPlan.select(SQUARE.product.descriptor(), device=H200)
    assert (again["selected"]["variant"], again["selected"]["config"]) == (chosen.sku.variant, chosen.sku.config)


def test_equal_predictions_are_judged_by_the_choice_of_select() -> None:
    """Whatever the order in the sweep's file."""
    record, plans = sweep_record(slowest_first=True)
    timed = [t | {"predicted_us": 1.0} for t in record["timed"]]
    for order in (timed, timed[::-1]):
        (entry, _) = table_entries([record | {"timed": order}], H200).values()
        assert (entry["variant"], entry["config"]) == (plans[2].sku.variant, plans[2].sku.config)


def test_a_winner_whose_source_has_changed_is_left_out() -> None:
    record, _ = sweep_record(slowest_first=True)
    record["timed"][2]["sources"] = "before the change"
    assert table_entries([record], H200) == {}
