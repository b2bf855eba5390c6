"""Measured winners: on which devices they count, when they are void, and that no file breaks `select`."""

from __future__ import annotations

import json
import logging
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import baracuda_py as bp
from baracuda_py.plan.about import tuned
from baracuda_py.plan.about.tune import admissible
from baracuda_py.plan.select import Assessment, assess
from baracuda_py.runtime.compile.sources import Source
from baracuda_py.types import DeviceSpec, PlanPreference

H200 = DeviceSpec.named("h200")
DESC = bp.MatmulDescriptor((512, 640), (640, 768), "bf16", "bf16")  # type: ignore[arg-type]  # in no shipped table
ANY = PlanPreference()


pytestmark = pytest.mark.usefixtures("fresh_cache")


def second(device: DeviceSpec = H200, desc: Any = DESC) -> Any:
    """The plan that the model ranks second."""
    return admissible(bp.MatmulPlan, desc, ANY, device)[1]


def select(device: DeviceSpec = H200) -> Any:
    return bp.MatmulPlan.select(DESC, device=device)


def own_file(device: DeviceSpec = H200) -> Path:
    return tuned.own_folder(device) / f"{tuned.key_of(bp.MatmulPlan, DESC.canonical(), ANY)}.json"


# ---- what counts -------------------------------------------------------------------------------------------------------


def test_a_winner_is_selected_from_then_on() -> None:
    assert select().provenance == "model"
    tuned.record(second().selection, "tuned 2026-01-01")
    assert (select().provenance, select().sku) == ("tuned 2026-01-01", second().sku)
    other = bp.MatmulPlan.select(DESC, PlanPreference(deterministic=False), device=H200)
    assert other.provenance == "model", "another preference is another problem"


def slices() -> list[DeviceSpec]:
    """Devices that are distinguished: by a slice's size, by name alone, by the words after the first."""
    bare = DeviceSpec.named("sm_89")
    rtx = [replace(bare, name=f"NVIDIA GeForce RTX {n}", sms=sms) for n, sms in (("4090", 128), ("4060", 24))]
    pro = [replace(bare, name=f"NVIDIA RTX {n}") for n in ("A6000", "6000 Ada Generation")]
    mig = replace(H200, name="NVIDIA H200 MIG 1g.18gb", sms=16)
    return [H200, replace(H200, sms=16), mig, DeviceSpec.named("sm_90a"), *rtx, *pro]


def test_a_winner_counts_on_the_device_it_was_measured_on_alone() -> None:
    assert len({tuned.own_folder(d) for d in slices()}) == len(slices())
    for device in slices():
        tuned.record(second(device).selection, "tuned 2026-01-01")
        assert [d for d in slices() if select(d).provenance != "model"] == [device]
        own_file(device).unlink()


def ship(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table for the H200 that holds one winner."""
    monkeypatch.setattr(tuned, "SHIPPED", folder)
    (folder / "h200").mkdir()
    (folder / "h200" / "matmul.json").write_text(json.dumps(dict([tuned.entry(second().selection, "shipped")])))


def test_a_shipped_table_is_that_of_the_whole_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tuned.shipped_path(H200, "matmul")
    assert path is not None and path.parts[-2:] == ("h200", "matmul.json") and path.is_file()
    ship(tmp_path, monkeypatch)
    assert (select().provenance, select().sku) == ("shipped", second().sku)
    for device in (
        *slices()[1:],
        replace(H200, name="NVIDIA H200 MIG 7g.141gb"),
        replace(H200, name="NVIDIA H200 NVL"),
    ):
        assert select(device).provenance == "model" and tuned.shipped_path(device, "matmul") != tuned.shipped_path(
            H200, "matmul"
        ), device


# ---- when it is void ---------------------------------------------------------------------------------------------------


def test_a_winner_whose_kernels_have_changed_is_void() -> None:
    key, won = tuned.entry(second().selection, "tuned 2026-01-01")
    tuned.record(second().selection, "tuned 2026-01-01")
    own_file().write_text(json.dumps({key: won | {"sources": won["sources"][::-1]}}))
    assert select().provenance == "model"


def test_what_was_measured_is_named_by_the_code_of_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = second()
    before = tuned.source_digest(plan.selection.candidate, plan.selection.config, plan.selection.canonical, plan.device)
    monkeypatch.setattr(Source, "digest", lambda _source, entry: f"other code {entry}")
    assert (
        tuned.source_digest(plan.selection.candidate, plan.selection.config, plan.selection.canonical, plan.device)
        != before
    )


def test_a_winner_that_does_not_serve_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    """The very record is there, and its candidate answers no."""
    tuned.record(second().selection, "tuned 2026-01-01")
    canonical = DESC.canonical()
    candidates = bp.MatmulPlan.all_candidates()
    key, places = tuned._key(bp.MatmulPlan, canonical, ANY), tuned._places("matmul", H200)
    found = tuned._recorded(key, places, candidates, canonical, ANY, H200)
    assert found is not None and (found[0].candidate.variant, str(found[0].config)) == (
        second().sku.variant, second().sku.config,
    )  # fmt: skip
    monkeypatch.setattr(tuned, "serves", lambda *_question: False)
    assert tuned._recorded(key, places, candidates, canonical, ANY, H200) is None


# ---- files -------------------------------------------------------------------------------------------------------------

RECORD = {"variant": "simt", "config": "", "sources": "", "provenance": "shipped"}
MALFORMED: list[Any] = [
    "", "{", "null", "[]", "7", '"text"', "[" * 100_000, '{"k":' * 50_000, "NaN", "1" * 5000, "\x00", {"KEY": {}}, {"KEY": []},
    {"KEY": "simt"}, {"KEY": None}, {"KEY": RECORD | {"variant": 3}}, {"KEY": RECORD | {"config": None}},
    {"KEY": {k: v for k, v in RECORD.items() if k != "provenance"}}, {"KEY": RECORD | {"sources": ["x"]}},
    {"KEY": {"KEY": RECORD}}, {"KEY": RECORD | {"provenance": "two\nlines"}}, {"KEY": RECORD | {"provenance": "\ud800"}},
]  # fmt: skip


@pytest.mark.parametrize("shipped", [True, False], ids=["shipped", "own"])
@pytest.mark.parametrize("text", MALFORMED, ids=lambda t: repr(t)[:30])
def test_no_table_breaks_select(
    text: Any, shipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is ignored, with one warning for as long as it is so."""
    wanted = select()
    path = tmp_path / "table.json" if shipped else own_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    key = tuned.key_of(bp.MatmulPlan, DESC.canonical(), ANY)
    path.write_text(text if isinstance(text, str) else json.dumps(text).replace("KEY", key))
    if shipped:
        monkeypatch.setattr(tuned, "shipped_path", lambda _device, _op: path)
    with caplog.at_level(logging.WARNING, logger="baracuda_py"):
        for _ in range(3):
            assert select() == wanted and select().provenance == "model"
    assert [str(path) in r.getMessage() for r in caplog.records] == [True] * (path.stat().st_size > 0)


def test_a_record_that_is_none_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "table.json"
    key, won = tuned.entry(second().selection, "shipped")
    path.write_text(json.dumps({"a": 3, key: won, "b": {}}))
    monkeypatch.setattr(tuned, "shipped_path", lambda _device, _op: path)
    assert select().sku == second().sku


def test_a_winner_that_cannot_be_read_or_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BARACUDA_CACHE_DIR", str(tmp_path / "file" / "below"))
    tuned.record(second().selection, "tuned 2026-01-01")
    assert select().provenance == "model"
    long = replace(H200, name="x" * 128)
    tuned.record(second(long).selection, "tuned 2026-01-01")
    assert select(long).provenance == "model"


def _tune(folder: str, first: int, barrier: Any) -> None:
    import os

    os.environ["BARACUDA_CACHE_DIR"] = folder
    barrier.wait()
    for n in range(first, first + 6):
        desc = bp.UnaryDescriptor("exp", (64 * (n + 1),), "f32")  # type: ignore[arg-type]
        tuned.record(bp.UnaryPlan.select(desc, device=H200).selection, f"tuned by {n}")


def test_processes_that_tune_at_once_lose_no_winner(fresh_cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    workers = [context.Process(target=_tune, args=(str(fresh_cache), 6 * i, barrier)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    for n in range(12):
        desc = bp.UnaryDescriptor("exp", (64 * (n + 1),), "f32")  # type: ignore[arg-type]
        assert bp.UnaryPlan.select(desc, device=H200).provenance == f"tuned by {n}"


# ---- what it is called -------------------------------------------------------------------------------------------------


def reasons(plan: Any) -> dict[tuple[str, str], str]:
    return {(row.variant, row.config): row.reason for row in plan.explain(configs=True)}


def test_what_was_measured_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not that its predicted time is the least, which stands in the line below."""
    best = admissible(bp.MatmulPlan, DESC, ANY, H200)[0]
    ship(tmp_path, monkeypatch)
    assert reasons(select())[second().sku.variant, second().sku.config] == "chosen: measured fastest (shipped table)"
    tuned.record(second().selection, "tuned 2026-01-01")
    plan = select()
    assert reasons(plan)[plan.sku.variant, plan.sku.config] == "chosen: measured fastest (tuned 2026-01-01)"
    assert reasons(plan)[best.sku.variant, best.sku.config] == "would serve, predicted faster"


def test_what_is_equal_says_so() -> None:
    plan = bp.MatmulPlan.select(DESC, device=H200)
    answers = assess(plan.all_candidates(), plan.selection.canonical, plan.pref, plan.device)
    slowest = max((a for a in answers if a.cost), key=lambda a: a.cost.seconds if a.cost else 0.0)
    assert slowest.cost is not None and slowest.feasibility

    def tie(answer: Assessment) -> Assessment:
        return replace(answer, cost=replace(slowest.cost, seconds=plan.cost.seconds)) if answer is slowest else answer

    from baracuda_py.plan.about.explain import Explanation

    said = {
        (r.variant, r.config): r.reason for r in Explanation.of(plan.selection, list(map(tie, answers)), configs=True)
    }
    assert said[slowest.candidate.variant, str(slowest.config)] == "would serve, equal, later in order"
    assert list(said.values()).count("chosen: the least predicted time") == 1


# ---- neighbours --------------------------------------------------------------------------------------------------------


def products(m: int) -> Any:
    return bp.MatmulDescriptor((m, 640), (640, 768), "bf16", "bf16")  # type: ignore[arg-type]


def test_tuned_winner_corrects_the_model_for_neighbours_only() -> None:
    tuned.record(second().selection, "tuned 2026-01-01")
    found = {m: bp.MatmulPlan.select(products(m), device=H200) for m in (256, 480, 511, 512, 513)}
    near = "tuned 2026-01-01, for M 257..512"
    assert [p.provenance for p in found.values()] == ["model", near, near, "tuned 2026-01-01", "model"]
    assert found[480].sku.config == found[511].sku.config == second().sku.config
    assert bp.MatmulPlan.select(replace(products(500), activation="relu"), device=H200).provenance == "model"


def test_the_nearest_neighbour_speaks_first() -> None:
    for m, provenance in ((260, "far below"), (500, "near below"), (512, "near above")):
        tuned.record(second(desc=products(m)).selection, provenance)
        tuned._extents.cache_clear()  # folders of one moment look alike
    found = {m: bp.MatmulPlan.select(products(m), device=H200).provenance for m in (262, 505, 507)}
    said = {m: provenance.partition(",")[0] for m, provenance in found.items()}
    assert said == {262: "far below", 505: "near below", 507: "near above"}


@pytest.mark.parametrize(
    ("changed", "stands"),
    [
        ({}, True),
        ({"slower": "0.5"}, False),
        ({"slower": "nonsense"}, False),
        ({"code": "other"}, False),
        ({"variant": "tc"}, False),
    ],
)
def test_neighbour_winner_must_be_near_the_best_prediction(changed: dict[str, str], stands: bool) -> None:
    key, won = tuned.entry(second().selection, "tuned 2026-01-01")
    assert float(won["slower"]) >= 1.0
    own_file().parent.mkdir(parents=True, exist_ok=True)
    own_file().write_text(json.dumps({key: won | changed}))
    tuned._extents.cache_clear()  # folders of one moment look alike
    plan = bp.MatmulPlan.select(products(511), device=H200)
    assert ("for M" in plan.provenance) == stands
    if stands:
        best = admissible(bp.MatmulPlan, products(511), ANY, H200)[0]
        assert plan.cost.seconds <= best.cost.seconds * float(won["slower"]) * tuned.MAX_SLOWDOWN


def test_keys_say_what_counts_and_nothing_else() -> None:
    def key(m: int = 512, **fields: Any) -> Any:
        return replace(products(m), **fields).canonical().problem_key()

    assert key() == key(out_element="bf16") == key(a_strides=(640, 1)) and key().extent == 512
    assert key(300).text == key().text and key(300).extent == 300
    assert key(300, a_strides=(1, 300)).text == key(a_strides=(1, 512)).text != key().text
    others = [
        {"activation": "relu"}, {"bias_shape": (768,), "bias_element": "bf16"}, {"a_align": 8}, {"out_element": "f32"},
        {"a_strides": (648, 1)}, {"b_strides": (1, 640)}, {"name": "matmul_tc_bf16"},
    ]  # fmt: skip
    assert len({key(**fields).text for fields in others} | {key().text}) == len(others) + 1
