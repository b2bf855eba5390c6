"""The benchmark harness where it needs no GPU: its arithmetic, its targets, its rows, its tables and plots."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import DeviceSpec
from benchmarks import gemm_rows, harness, sweep
from benchmarks.floor import SHAPES, STREAMS, floor_source, kernel_name, matched
from benchmarks.gpu import Sensor
from benchmarks.harness import Bench, Contender
from benchmarks.operands import Kit, TorchCall, dtype_of
from benchmarks.products import Product, plan_of
from benchmarks.report import plots, sections
from benchmarks.results import Record, best_peer, judged, read, write_line
from benchmarks.row import Row
from benchmarks.run import QUICK, Session, chosen, compared, described
from benchmarks.selection import report
from benchmarks.shapes import SHAPES as PRODUCTS
from benchmarks.stats import alternated, geometric_mean, paired_ratio, paired_spread, repeats_for, rotation, slug
from benchmarks.tables import between_markers, cells, headings, markdown, verdict
from benchmarks.target import Target


def test_a_paired_ratio_is_the_median_of_ratios_not_the_ratio_of_medians() -> None:
    assert paired_ratio([1.0, 2.0, 9.0], [1.0, 1.0, 3.0]) == 2.0
    assert paired_spread([1.0, 2.0, 3.0], [1.0, 1.0, 1.0]) == 1.0
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0], [1.0, 2.0])


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert math.isnan(geometric_mean([]))


def test_the_order_alternates() -> None:
    assert alternated("ab", 0) + alternated("ab", 1) == ["a", "b", "b", "a"]


@pytest.mark.parametrize(("nbytes", "sets"), [(8192, 64), (200_000_000, 3), (300_000_000, 2), (1 << 31, 2), (0, 64)])
def test_rotation_covers_the_cache_within_bounds(nbytes: int, sets: int) -> None:
    assert rotation(nbytes, 600_000_000) == sets


@pytest.mark.parametrize(("replay", "count"), [(5000.0, 1), (12_000.0, 1), (400.0, 12), (2600.0, 2)])
def test_a_burst_is_whole_replays(replay: float, count: int) -> None:
    assert repeats_for(replay, 5000.0) == count


def test_slug() -> None:
    assert slug("NVIDIA H100 80GB HBM3") == "nvidia-h100-80gb-hbm3"


@pytest.mark.parametrize(
    ("target", "theirs", "ratio", "met", "text"),
    [
        (Target(1.05), 100.0, 1.04, True, "≤ 1.05 F"),
        (Target(1.05), 100.0, 1.06, False, "≤ 1.05 F"),
        (Target(1.05), None, None, None, "≤ 1.05 F"),
        (Target(1.01, against="memcpy"), 100.0, None, False, "≤ 1.01 memcpy"),
        (Target(0.5, "excess", "empty kernel"), 101.6, None, True, "≤ empty kernel + 0.5 µs"),
        (Target(30_000, "absolute"), None, None, True, "≤ 30,000 µs"),
        (Target(1.05, "paired", "cublas"), 100.0, 0.95, True, "≥ 1.05 × cublas"),
        (Target(1.05, "paired", "cublas"), 100.0, 0.96, False, "≥ 1.05 × cublas"),
        (Target(0.95, "paired", "cublas"), 100.0, None, True, "≥ 0.95 × cublas"),
        (Target(0.95, "paired", "cublas"), None, None, None, "≥ 0.95 × cublas"),
    ],
)
def test_targets(target: Target, theirs: float | None, ratio: float | None, met: bool | None, text: str) -> None:
    assert target.met(102.0, theirs, ratio) is met
    assert str(target) == text


@pytest.mark.parametrize(
    ("read_bytes", "written", "stream"),
    [
        (100, 100, (1, 1, 100)),
        (200, 100, (2, 1, 100)),
        (0, 64, (0, 1, 64)),
        (64, 0, (1, 0, 64)),
        (102, 100, (1, 1, 101)),
    ],
)
def test_the_floor_moves_the_bytes_of_the_row(read_bytes: int, written: int, stream: tuple[int, int, int]) -> None:
    assert tuple(matched(read_bytes, written)) == stream


def test_every_floor_kernel_is_in_the_source_once() -> None:
    source = floor_source()
    for kind in STREAMS.values():
        for shape in SHAPES:
            assert source.count(f"KERNEL({kernel_name(kind, shape)},") == 1


def test_row_keys_are_unique_and_patterns_choose() -> None:
    keys = [row.key for row in chosen([])]
    assert len(keys) == len(set(keys))
    assert {row.group for row in chosen(["gelu"])} == {"elementwise", "gemm"}
    assert chosen(["no such row"]) == []


# ---- compute-bound rows ------------------------------------------------------------------------------------------


def test_a_compute_row_holds_paired_ratios_rates_clock_and_power() -> None:
    timings = {"ours": [100.0, 110.0, 120.0], "cublas": [105.0, 121.0, 144.0]}
    got = compared(2_000_000_000, timings, {"ours": (1500.0, 600.0), "": (1400.0, 500.0)})
    assert (got["us"], got["clock_mhz"], got["power_w"], got["figure"]) == (110.0, 1500.0, 600.0, "burst")
    assert got["tflops"] == pytest.approx(2e9 / 110e-6 / 1e12)
    theirs = got["peers"]["cublas"]
    assert theirs["speedup"] == pytest.approx(1.1)  # of 1.05, 1.1 and 1.2
    assert theirs["ratio"] == pytest.approx(1 / 1.1)
    assert (theirs["us"], theirs["clock_mhz"]) == (121.0, None)
    assert judged(got, [Target(1.1, "paired", "cublas")])["met"] is True


class HostKit(Kit):
    """Operands in host memory."""

    def normal(self, shape: tuple[int, ...], dtype: str, *, positive: bool = False) -> Any:
        return np.zeros(shape, dtype_of(dtype))

    empty = normal


class FakeBench(Bench):
    """Bursts without a device: each contender takes what it is told, and the order is written down."""

    def __init__(self, replay_us: dict[str, float]) -> None:
        self.took, self.order, self.kit = replay_us, [], HostKit(use_torch=False)

    def contender(self, name: str, calls: Any, *, graph: bool = True, launches: int = 16) -> Contender:
        return Contender(name, tuple(calls), lambda: None, max(launches, len(calls)) if graph else len(calls))

    def replay_us(self, contender: Contender, meanwhile: Any = None, repeats: int = 1) -> float:
        self.order.append((contender.name, repeats))
        if meanwhile is not None:
            meanwhile(contender.name)
        return self.took[contender.name] / contender.launches


def test_bursts_alternate_and_last_five_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "WARM_SECONDS", 0.0)
    bench = FakeBench({"ours": 1600.0, "cublas": 2600.0})
    contenders = [Contender(name, (lambda: None,), lambda: None, 16) for name in bench.took]
    seen: list[str] = []
    timings = bench.bursts(contenders, 2, seen.append)
    assert bench.order == [("ours", 1), ("cublas", 1), ("ours", 3), ("cublas", 2), ("cublas", 2), ("ours", 3)]
    assert seen == ["ours", "cublas", "cublas", "ours"]
    assert timings == {"ours": [100.0, 100.0], "cublas": [162.5, 162.5]}


class Unbound:
    """Stands for a bound plan."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan

    def __call__(self) -> None:
        raise AssertionError("nothing is launched")


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An H200 with cuBLAS, as far as selection goes."""
    spec = DeviceSpec.named("h200").with_libraries(frozenset({"cublas"}))
    monkeypatch.setattr(bp.MatmulPlan, "bind", lambda self, **_: Unbound(self))
    monkeypatch.setattr(harness, "WARM_SECONDS", 0.0)
    plan_of.cache_clear()
    with bp.device(spec):
        yield spec
    plan_of.cache_clear()


def test_a_row_of_products_names_our_kernel_and_what_select_takes(h200: Any) -> None:  # noqa: ARG001
    session = Session.__new__(Session)
    session.kit, session.effort = HostKit(use_torch=False), QUICK
    session.bench = FakeBench({"ours": 160.0, "cublas": 320.0, "select": 160.0})
    session.sensor = Sensor.__new__(Sensor)
    session.sensor._samples, session.sensor._nvml = {}, None
    row = gemm_rows._compute("x", Product(64, 64, 64), gemm_rows.faster(1.5), select=True)
    got = judged(session._measured(row), row.targets)
    assert got["variant"] not in (None, "cublas") and got["sku"].endswith("@sm_90a") and got["met"] is True
    assert got["peers"]["cublas"]["speedup"] == 2.0 and "cublas.cublas@" in got["peers"]["cublas"]["sku"]
    assert (got["clock_mhz"], got["flops"]) == (None, 2 * 64**3)
    assert "graphs of 64 over 64 sets" in got["discipline"]
    assert len(cells(got | {"group": "gemm", "name": "x"})) == len(headings("gemm"))


def test_a_sweep_times_every_rival(h200: Any) -> None:
    shape = PRODUCTS[3]
    plans, chosen = sweep.rivals(shape, h200)
    bench = FakeBench({str(p.sku): 1000.0 + i for i, p in enumerate(plans)})
    got = sweep.measured(bench, shape, plans)
    assert len(got["timed"]) == len(plans) and not got["failed"]
    assert {t["variant"] for t in got["timed"]} == {p.sku.variant for p in plans}
    assert "select: within 5 % of the best on 100.0%," in report(
        [got | {"name": shape.name, "selected": {"variant": chosen.sku.variant, "config": chosen.sku.config}}]
    )


class WarmingBench(FakeBench):
    """Every replay takes 1 % longer than the one before it, whosever it is."""

    def replay_us(self, contender: Contender, meanwhile: Any = None, repeats: int = 1) -> float:
        return super().replay_us(contender, meanwhile, repeats) * 1.01 ** len(self.order)


def test_what_draws_full_power_takes_turns_with_cublas(h200: Any) -> None:
    """So that what drifts drops out: the ratios are those of neighbours."""
    shape = sweep.Shape("x", Product(2048, 2048, 2048), "test")
    assert sweep.PAIRED_FLOPS <= shape.product.flops < sweep.GRAPH_FLOPS
    plans, _ = sweep.rivals(shape, h200, 2)
    own = [p for p in plans if p.sku.variant != "cublas"]
    (theirs,) = (p for p in plans if p.sku.variant == "cublas")
    took = {str(p.sku): 8000.0 + 4000.0 * i for i, p in enumerate(own)} | {str(theirs.sku): 16000.0}
    bench = WarmingBench(took)
    got = sweep.measured(bench, shape, plans, 2)
    us = {(t["variant"], t["config"]): t["us"] for t in got["timed"]}
    reference = us["cublas", theirs.sku.config]
    for plan in own:
        ratio = us[plan.sku.variant, plan.sku.config] / reference
        assert ratio == pytest.approx(took[str(plan.sku)] / 16000.0, rel=1e-4)  # later in one pass, before in the other
    pairs = [name for name, _ in bench.order[len(plans) :]]
    first = [str(p.sku) for p in plans]
    expected = [x for name in first for x in ([name] if name == str(theirs.sku) else [str(theirs.sku), name])]
    assert pairs == expected + expected[::-1]


def test_a_sensor_keeps_contenders_apart() -> None:
    sensor = Sensor.__new__(Sensor)
    sensor._samples = {"ours": [(1500.0, 600.0), (1510.0, 601.0)], "cublas": [(1400.0, 700.4)]}
    assert sensor.take() == {"ours": (1505.0, 600), "cublas": (1400.0, 700), "": (1500.0, 601)}
    assert sensor.take() == {"": (None, None)}


def test_a_torch_call_is_captured_by_torch_under_any_name() -> None:
    assert Contender("cublas", (TorchCall(lambda: None),), lambda: None, 1).torch
    assert Contender("torch.compile", (lambda: None,), lambda: None, 1).torch
    assert not Contender("cublas", (lambda: None,), lambda: None, 1).torch


def test_what_a_row_describes_is_what_its_operands_are() -> None:
    for layout in ("rr", "rc", "cr", "cc"):
        product = Product(8, 12, 16, "float32", layout=layout, batch=(3,))
        made = product.operands(HostKit())
        found = bp.MatmulDescriptor.of(made["a"], made["b"], out=made["out"])
        assert found.canonical() == product.descriptor().canonical()
        assert (found.gemm.flops, found.gemm.nbytes) == (product.flops, product.read + product.written)
    fused = Product(8, 12, 16, "float32", epilogue=True)
    made = fused.operands(HostKit())
    assert bp.MatmulDescriptor.of(**made, activation="gelu").canonical() == fused.descriptor().canonical()


def test_ragged_is_a_pitch_of_no_multiple_of_16_bytes() -> None:
    assert Product(8192, 8191, 8200).ragged and Product(777, 1333, 2049).ragged
    assert not Product(4096, 4096, 4096).ragged


# ---- from records to tables and plots ------------------------------------------------------------------------


def device_record(size: int, **fields: Any) -> Record:
    record = {
        "kind": "row", "row": f"elementwise/add {size}", "group": "elementwise", "name": f"add {size}", "op": "add",
        "dtype": "bfloat16", "shape": [size], "read_bytes": 4 * size, "written_bytes": 2 * size, "us": 10.0,
        "event_us": 12.0, "tbps": 6 * size / 1e7, "floor": {"us": 9.8, "event_us": 11.0, "ratio": 1.02},
        "peers": {"cupy": {"us": 14.0, "ratio": 0.7}, "torch": {"us": 9.0, "ratio": 1.1}, "other": {"error": "x"}},
    }  # fmt: skip
    return judged(record | fields, [Target(1.03)])


def host_record() -> Record:
    record = {"kind": "row", "row": "host/bp.add", "group": "host", "name": "bp.add", "us": 7.0, "peers": {}}
    return judged(record, [Target(1.3, against="cupy")])


def product_record(size: int, **fields: Any) -> Record:
    """A compute-bound row in which cuBLAS takes 1.1 times as long as we do."""
    flops = 2 * size**3
    row = Row("gemm", f"bf16 {size}³", "matmul", (size, size, size), "bfloat16", 8, 4, lambda _: {}, flops=flops)
    sensed = {"ours": (1530.0, 650.0), "": (1525.0, 640.0)}
    timings = {"ours": [flops / 7e8] * 3, "cublas": [1.1 * flops / 7e8] * 3}
    head = {"kind": "row", "row": row.key, "group": row.group, "name": row.name}
    record = head | described(row, None) | compared(flops, timings, sensed) | {"variant": "wgmma", "config": "128x256"}
    return judged(record | fields, [Target(1.05, "paired", "cublas")])


@pytest.fixture
def results_file(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    failed = {"kind": "row", "row": "contiguize/t", "group": "contiguize", "name": "t", "error": "MemoryError: |"}
    meta = {"kind": "meta", "gpu": "Some GPU", "date": "2026-01-01"}
    products = [product_record(1024), product_record(4096)]
    for line in (meta, *map(device_record, (1 << 12, 1 << 16, 1 << 20)), failed, *products, host_record()):
        write_line(path, line)
    return path


def test_judged_uses_the_paired_ratio() -> None:
    assert device_record(8)["met"] is True
    assert device_record(8, floor={"us": 9.8, "ratio": 1.04})["met"] is False
    assert host_record()["met"] is None


def test_all_targets_are_to_be_met() -> None:
    both = [Target(1.03), Target(1.0, "paired", "torch")]
    assert judged(device_record(8), both[:1])["met"] is True
    missed = judged(device_record(8), both)
    assert (missed["met"], missed["target"]["text"]) == (False, "≤ 1.03 F, ≥ 1.00 × torch")
    assert judged(device_record(8), [Target(1.03), Target(1.0, "paired", "absent")])["met"] is None
    assert judged(device_record(8), [Target(1.0), Target(1.0, "paired", "absent")])["met"] is False


def test_the_best_peer_is_the_fastest_and_no_baseline() -> None:
    name, speedup = best_peer(device_record(8)) or ("", 0.0)
    assert (name, round(speedup, 3)) == ("torch", 0.909)
    assert best_peer(device_record(8, peers={"empty kernel": {"us": 1.0, "ratio": 2.0}})) is None
    assert verdict(device_record(8)) == "yes, behind torch"


def test_cells_match_their_headings(results_file: Path) -> None:
    for row in read(results_file).rows:
        assert len(cells(row)) == len(headings(row["group"]))


def test_sections_say_what_failed(results_file: Path) -> None:
    parts = sections(read(results_file))
    assert set(parts) == {"elementwise", "contiguize", "gemm", "host", "summary"}
    assert "Rows that failed: contiguize/t." in parts["summary"]
    assert "MemoryError: \\|" in parts["contiguize"]


def test_the_table_of_products_has_rates_and_the_kernel() -> None:
    assert cells(product_record(4096))[2:] == (
        "700.0", "", "1530, 650", "cublas 216.0 (1.10×)", "wgmma[128x256]", "≥ 1.05 × cublas", "yes"
    )  # fmt: skip
    skinny = device_record(8, group="gemm", variant="gemv", config="", clock_mhz=None, power_w=None)
    assert cells(skinny)[2:5] == ("", "1.020", "")


def test_square_products_are_summed_up(results_file: Path) -> None:
    assert "geometric mean 1.100× of 2 rows (target 1.03)" in sections(read(results_file))["summary"]


def test_markdown_and_markers() -> None:
    table = markdown(("row", "µs"), [("a", "1")])
    assert table == "| row | µs |\n| --- | ---: |\n| a | 1 |"
    text = "before\n<!-- benchmark:x:begin -->\nold\n<!-- benchmark:x:end -->\nafter"
    once = between_markers(text, "x", table)
    assert once == f"before\n<!-- benchmark:x:begin -->\n{table}\n<!-- benchmark:x:end -->\nafter"
    assert between_markers(once, "x", table) == once
    with pytest.raises(ValueError, match="no markers"):
        between_markers(text, "y", table)


def test_plots_are_drawn(results_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = plots(read(results_file), tmp_path)
    assert [p.name for p in drawn] == [f"some-gpu-{kind}.png" for kind in ("floor", "peers", "sweep", "gemm")]
    assert all(p.stat().st_size > 0 for p in drawn)


def test_a_results_file_is_json_lines(results_file: Path) -> None:
    assert [json.loads(line)["kind"] for line in results_file.read_text().splitlines()] == ["meta"] + ["row"] * 7
