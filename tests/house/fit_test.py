"""Fits of cost models: constants that are known are found again, and nothing is written but what predicts better."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from baracuda_py.ops import _fitted
from baracuda_py.ops._fitted import FITTED, Fitted, read_table, trial
from benchmarks import fit as command
from benchmarks.fitting import Fit, fit, held_out, models_read, split
from benchmarks.results import DIRECTORY
from benchmarks.timings import Timing, committed, device_of, timings_of

H200 = device_of("h200")
SWEEP = DIRECTORY / "sweeps" / "nvidia-h200-matmul.jsonl"
ROWS = DIRECTORY / "sweeps" / "nvidia-h200-rows.jsonl"


@lru_cache(maxsize=1)
def swept() -> tuple[Timing, ...]:
    return tuple(timings_of(SWEEP, "h200"))


def of_variant(variant: str) -> list[Timing]:
    return [t for t in swept() if t.candidate.variant == variant]


def made(timings: Sequence[Timing], model: type[Fitted], values: Mapping[str, Any]) -> list[Timing]:
    """The times that the model predicts with these values."""
    with trial(H200, {model: dict(vars(model.of(H200))) | values}) as tried:
        return [replace(t, seconds=t.predicted(tried.device)) for t in timings]


KNOWN = {
    "cublas": ("gemm.cublas", {
        "compute_efficiency": 0.6, "unaligned_compute_efficiency": 0.21, "unaligned_bandwidth_efficiency": 0.2,
        "latency_s": 1.6e-6,
    }),
    "simt": ("gemm.simt", {"lone_cta_ratio": 0.6, "bandwidth_efficiency": 0.3, "round_trip_s": 1.7e-6, "latency_s": 2e-7}),
}  # fmt: skip


@pytest.mark.parametrize("variant", KNOWN)
def test_fit_finds_constants_that_made_the_times(variant: str) -> None:
    table, known = KNOWN[variant]
    model = command.models()[table]
    found = fit(model, made(of_variant(variant), model, known), H200, iterations=30)
    assert set(found.fitted) == set(known) and not found.unread
    assert {name: found.values[name] for name in known} == pytest.approx(known, rel=0.02)
    assert found.after[1].times < 0.005 < found.before[1].times and found.better


def test_fit_stays_within_its_bound() -> None:
    model = command.models()["gemm.cublas"]
    far = made(of_variant("cublas"), model, {"compute_efficiency": 0.1})
    found = fit(model, far, H200, bound=1.5, iterations=8)
    assert found.values["compute_efficiency"] == pytest.approx(0.72 / 1.5, rel=1e-6)


def test_fit_leaves_what_no_time_depends_on() -> None:
    model = command.models()["gemm.cublas"]
    aligned = [t for t in of_variant("cublas") if t.desc.gemm.m % 8 == t.desc.gemm.n % 8 == t.desc.gemm.k % 8 == 0]
    found = fit(model, made(aligned, model, {"compute_efficiency": 0.6}), H200, iterations=8)
    assert set(found.unread) == {"unaligned_compute_efficiency", "unaligned_bandwidth_efficiency"}
    assert all(found.values[name] == found.start[name] for name in found.unread)


def test_fit_holds_out_whole_problems() -> None:
    seen, other = split(swept())
    assert {t.problem for t in seen}.isdisjoint(t.problem for t in other)
    assert len(seen) + len(other) == len(swept()) and 0.35 < len(other) / len(swept()) < 0.65
    assert all(held_out(t.problem) for t in other)


def test_fit_knows_which_models_a_time_asks() -> None:
    found = models_read(of_variant("wgmma_padded")[:3], H200)
    assert {model.table for model in found} == {"gemm.wgmma", "gemm.wgmma_padded"}


def test_trial_leaves_devices_as_they_are() -> None:
    model = command.models()["gemm.cublas"]
    timing = of_variant("cublas")[0]
    before = timing.predicted(H200)
    with trial(H200, {model: dict(vars(model.of(H200))) | {"latency_s": 1.0}}) as tried:
        assert timing.predicted(tried.device) > 1.0
        assert timing.predicted(H200) == before
    assert model in tried.read and tried.device.name not in _fitted._trials


def contents() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(FITTED.rglob("*.toml"))}


def test_fit_command_says_how_far_tables_are(capsys: pytest.CaptureFixture[str]) -> None:
    """On the committed sweeps; without --write nothing changes."""
    before = contents()
    assert command.main(["gemm.cublas", "gemm.simt", "rows.copy", "--file", str(SWEEP), "--iterations", "1"]) == 0
    said = capsys.readouterr().out
    assert "gemm.simt" in said and said.count("held out today times") == 2 and "compute_efficiency" in said
    assert "rows.copy: all" in said.partition("without times, not fitted:")[2]
    assert contents() == before


def test_fit_command_knows_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["gemm.nothing"]) == 2
    assert "gemm.wgmma" in capsys.readouterr().err
    assert {path.name for path in committed("h100")} >= {"nvidia-h100-80gb-hbm3-matmul.jsonl"}
    with pytest.raises(SystemExit, match="h200"):
        committed("a GPU without figures")


def test_times_of_benchmark_rows_are_read() -> None:
    found = timings_of(ROWS, "h200")
    assert {t.candidate.variant for t in found} >= {"wgmma", "cublas"}
    assert all(0.1 < t.seconds / t.predicted(H200) < 10 for t in found)


def a_fit() -> Fit:
    model = command.models()["gemm.mma_sync"]
    tensor = [t for t in swept() if t.candidate.variant == "tc"][:40]
    return fit(model, made(tensor, model, {"mma_sync_rate_ratio": 0.5}), H200, iterations=8)


def test_fitted_file_of_the_same_gpu_keeps_the_rest() -> None:
    text = (FITTED / "h200" / "gemm.toml").read_text()
    before, after = tomllib.loads(text), tomllib.loads(command.rewritten(text, "h200", [a_fit()], "2026-12-01", "f"))
    said = after["mma_sync"].pop("mma_sync_rate_ratio")
    was = before["mma_sync"].pop("mma_sync_rate_ratio")
    assert before == after
    assert said["value"] == pytest.approx(0.5, rel=0.01) and said["date"] == "2026-12-01" and "held out" in said["how"]
    assert said["unmeasured"] == was["unmeasured"]


def test_fitted_file_of_another_gpu_says_whose_values() -> None:
    text = (FITTED / "h200" / "gemm.toml").read_text()
    after = tomllib.loads(command.rewritten(text, "h100", [a_fit()], "2026-12-01", "f"))
    assert "H100" in after["gpu"] and after["cublas"]["how"].startswith("values of the NVIDIA H200: ")
    assert "unmeasured" not in after["mma_sync"]["mma_sync_rate_ratio"]


def test_fit_writes_what_predicts_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "h200").mkdir()
    for path in (FITTED / "h200").glob("*.toml"):
        (tmp_path / "h200" / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(command, "FITTED", tmp_path)
    better = a_fit()
    worse = replace(better, after=better.before)
    assert command.write("h100", [worse], "f") == []
    assert command.write("h100", [better], "f") == [tmp_path / "h100" / "gemm.toml"]
    monkeypatch.setattr(_fitted, "FITTED", tmp_path)
    read_table.cache_clear()
    try:
        assert read_table("gemm", "h100")["mma_sync"]["mma_sync_rate_ratio"]["value"] == pytest.approx(0.5, rel=0.01)
    finally:
        read_table.cache_clear()
