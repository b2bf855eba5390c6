"""The benchmark harness where it needs no GPU: its arithmetic, its targets, its rows, its tables and plots."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.floor import SHAPES, STREAMS, floor_source, kernel_name, matched
from benchmarks.report import plots, sections
from benchmarks.results import Record, best_peer, judged, read, write_line
from benchmarks.run import chosen
from benchmarks.stats import alternated, geometric_mean, paired_ratio, paired_spread, rotation, slug
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
    assert {row.group for row in chosen(["gelu"])} == {"elementwise"}
    assert chosen(["no such row"]) == []


# ---- from records to tables and plots ------------------------------------------------------------------------


def device_record(size: int, **fields: Any) -> Record:
    record = {
        "kind": "row", "row": f"elementwise/add {size}", "group": "elementwise", "name": f"add {size}", "op": "add",
        "dtype": "bfloat16", "shape": [size], "read_bytes": 4 * size, "written_bytes": 2 * size, "us": 10.0,
        "event_us": 12.0, "tbps": 6 * size / 1e7, "floor": {"us": 9.8, "event_us": 11.0, "ratio": 1.02},
        "peers": {"cupy": {"us": 14.0, "ratio": 0.7}, "torch": {"us": 9.0, "ratio": 1.1}, "other": {"error": "x"}},
    }  # fmt: skip
    return judged(record | fields, Target(1.03))


def host_record() -> Record:
    record = {"kind": "row", "row": "host/bp.add", "group": "host", "name": "bp.add", "us": 7.0, "peers": {}}
    return judged(record, Target(1.3, against="cupy"))


@pytest.fixture
def results_file(tmp_path: Path) -> Path:
    path = tmp_path / "results.jsonl"
    failed = {"kind": "row", "row": "contiguize/t", "group": "contiguize", "name": "t", "error": "MemoryError: |"}
    meta = {"kind": "meta", "gpu": "Some GPU", "date": "2026-01-01"}
    for line in (meta, *map(device_record, (1 << 12, 1 << 16, 1 << 20)), failed, host_record()):
        write_line(path, line)
    return path


def test_judged_uses_the_paired_ratio() -> None:
    assert device_record(8)["met"] is True
    assert device_record(8, floor={"us": 9.8, "ratio": 1.04})["met"] is False
    assert host_record()["met"] is None


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
    assert set(parts) == {"elementwise", "contiguize", "host", "summary"}
    assert "Rows that failed: contiguize/t." in parts["summary"]
    assert "MemoryError: \\|" in parts["contiguize"]


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
    assert [p.name for p in drawn] == ["some-gpu-floor.png", "some-gpu-peers.png", "some-gpu-sweep.png"]
    assert all(p.stat().st_size > 0 for p in drawn)


def test_a_results_file_is_json_lines(results_file: Path) -> None:
    assert [json.loads(line)["kind"] for line in results_file.read_text().splitlines()] == ["meta"] + ["row"] * 5
