"""The benchmark harness where it needs no GPU: its arithmetic, its targets, its rows, its tables and plots."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import baracuda_py as bp
from baracuda_py.types import DeviceSpec
from benchmarks import cublaslt, gemm_rows, harness, pictures, steps, sweep
from benchmarks.classes import ALIGNED, CLASSES, split
from benchmarks.floor import SHAPES, STREAMS, floor_source, kernel_name, matched
from benchmarks.gemm_peers import padded_call
from benchmarks.gpu import Sensor
from benchmarks.harness import Bench, Contender
from benchmarks.operands import TorchCall
from benchmarks.peers import WITHOUT_OUT, torch_function
from benchmarks.products import Product, plan_of
from benchmarks.report import committed, measured_gpus, pages, sections, written
from benchmarks.results import Record, Results, added, best_peer, judged, read, write, write_line
from benchmarks.row import Row
from benchmarks.rows import BINARY, UNARY
from benchmarks.run import FULL, QUICK, Session, chosen, compared, described, settled
from benchmarks.selection import report
from benchmarks.shapes import SHAPES as PRODUCTS
from benchmarks.stale import HostKit, bound, marked
from benchmarks.stats import alternated, geometric_mean, interval, paired, paired_ratio, repeats_for, rotation, slug
from benchmarks.tables import between_markers, cells, headings, markdown, verdict
from benchmarks.target import BEST, OPEN, Target


def test_paired_ratio_is_the_median_of_ratios() -> None:
    assert paired_ratio([1.0, 2.0, 9.0], [1.0, 1.0, 3.0]) == 2.0
    assert paired([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])[:2] == (2.0, 1.0)
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0], [1.0, 2.0])


def test_an_interval_is_where_the_median_lies() -> None:
    steady, noisy = [1.0 + 0.001 * (i % 3) for i in range(12)], [0.8 + 0.04 * i for i in range(12)]
    low, high = interval(steady)
    assert 1.0 <= low <= 1.001 <= high <= 1.002
    low, high = interval(noisy)
    assert low < 0.95 and high > 1.08
    assert interval(noisy) == (low, high)
    rng = np.random.default_rng(0)  # of 200 samples of a known median, some 95 % of the intervals hold it
    held = sum(low <= 0 <= high for low, high in (interval(rng.normal(size=12), resamples=200) for _ in range(200)))
    assert 0.88 * 200 <= held <= 200


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
    ("target", "between", "answer"),
    [
        (Target(1.00, "paired", BEST), (0.98, 0.99), True),
        (Target(1.00, "paired", BEST), (0.98, 1.01), OPEN),
        (Target(1.00, "paired", BEST), (1.001, 1.02), False),
        (Target(1.05), (1.02, 1.04), True),
        (Target(1.05), (1.02, 1.06), OPEN),
        (Target(1.00, "alone", BEST), (0.9, 1.1), OPEN),
    ],
)
def test_no_verdict_where_the_interval_holds_the_target(target: Target, between: Any, answer: Any) -> None:
    assert target.met(100.0, 101.0, sum(between) / 2, between) == answer


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
    assert theirs["interval"][0] <= theirs["ratio"] <= theirs["interval"][1]
    assert theirs["speedup"] == pytest.approx(1.1)  # of 1.05, 1.1 and 1.2
    assert theirs["ratio"] == pytest.approx(1 / 1.1)
    assert (theirs["us"], theirs["clock_mhz"]) == (121.0, None)
    assert judged(got, [Target(1.04, "paired", "cublas")])["met"] is True
    undecided = judged(got, [Target(1.1, "paired", "cublas")])
    assert (undecided["met"], undecided["open"], verdict(undecided)) == (None, True, "no verdict")


def test_the_best_peer_is_what_a_product_is_judged_by() -> None:
    timings = {"ours": [100.0] * 4, "cublas": [110.0] * 4, "cublaslt": [104.0] * 4, "cublas unpadded": [400.0] * 4}
    got = compared(2_000_000_000, timings, {})
    assert judged(got, [Target(1.05, "paired", BEST)])["met"] is False
    assert judged(got, [Target(1.04, "paired", BEST)])["met"] is True
    legs = {
        "ours": settled(10**9, harness.Alone([100.0, 101.0], [1400.0] * 2, [690.0] * 2)),
        "cublaslt": settled(10**9, harness.Alone([103.0, 104.0])),
    }
    beside = judged(got | {"alone": legs}, [Target(1.0, "alone", BEST)])
    assert beside["met"] is True and str(Target(1.0, "alone", BEST)) == "≥ 1.00 × best peer alone"
    assert judged(got | {"alone": legs}, [Target(1.02, "alone", BEST)])["open"] is True
    assert judged(got, [Target(1.0, "alone", BEST)])["met"] is None
    withdrawn = {"peers": got["peers"] | {"torch": {"withdrawn": "two kernels"}}}
    assert best_peer(got | withdrawn) is None and judged(got | withdrawn, [Target(1.0, "paired", BEST)])["met"] is None


class FakeBench(Bench):
    """Bursts without a device: each contender takes the time it is given, and the order is written down."""

    def __init__(self, replay_us: dict[str, float]) -> None:
        self.took, self.order, self.kit = replay_us, [], HostKit()

    def contender(self, name: str, calls: Any, *, graph: bool = True, launches: int = 16) -> Contender:
        return Contender(name, tuple(calls), lambda: None, max(launches, len(calls)) if graph else len(calls))

    def replay_us(self, contender: Contender, meanwhile: Any = None, repeats: int = 1) -> float:
        self.order.append((contender.name, repeats))
        if meanwhile is not None:
            meanwhile(contender.name)
        return self.took[contender.name] / contender.launches


def test_a_burst_has_five_calls_at_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "WARM_SECONDS", 0.0)
    bench = FakeBench({"ours": 26000.0})
    bench.bursts([Contender("ours", (lambda: None,) * 2, lambda: None, 2)], 1)
    assert bench.order[-1] == ("ours", 3)  # six calls, though one replay takes more than a burst should


def test_fastest_variant_of_a_peer_is_kept() -> None:
    bench = FakeBench({"ours": 160.0, "cublaslt/0": 320.0, "cublaslt/1": 300.0, "cublas": 310.0})
    ready = [Contender(name, (lambda: None,), lambda: None, 16) for name in bench.took]
    assert [(c.name, c.variant) for c in bench.fastest(ready)] == [("ours", ""), ("cublaslt", "1"), ("cublas", "")]


def test_alone_is_the_last_second_of_blocks_that_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(harness, "perf_counter", lambda: now[0])

    class Heating(FakeBench):
        """A burst takes 0.1 s of the clock, and the longer a contender has run the slower it is."""

        def replay_us(self, contender: Contender, meanwhile: Any = None, repeats: int = 1) -> float:
            now[0] += 0.1
            self.order.append((contender.name, repeats))
            sampled.append((1500.0 - len(self.order), 690.0))
            return 200.0 + len(self.order)

    bench, sampled = Heating({}), []

    def sense() -> dict[str, Any]:
        taken, sampled[:] = list(sampled), []
        return dict.fromkeys(("ours", "cublas"), taken[-1])

    both = [Contender(name, (lambda: None,), lambda: None, 1) for name in ("ours", "cublas")]
    legs = bench.alone(both, 3.0, sense, lambda _: None)
    names = [name for name, _ in bench.order]
    assert [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n] == ["ours", "cublas", "ours"]
    first, last = legs["ours"].blocks_us
    assert 200 + 21 < first < 200 + 33 and last > first  # bursts 21 to 31 of the first block, not its first twenty
    assert len(legs["cublas"].clocks_mhz) == len(legs["cublas"].watts) == 2


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


def test_product_rows_name_the_kernel_and_the_time_of_select(h200: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    session = Session.__new__(Session)
    session.kit, session.effort = HostKit(), QUICK
    session.bench = FakeBench({"ours": 160.0, "cublas": 320.0, "select": 160.0})
    session.sensor = Sensor.__new__(Sensor)
    session.sensor._samples, session.sensor._nvml = {}, None
    monkeypatch.setattr(gemm_rows, "lt_calls", lambda *_: {f"cublaslt/{i}": lambda: None for i in range(2)})
    session.bench.took |= {"cublaslt/0": 400.0, "cublaslt/1": 330.0, "cublaslt": 330.0}
    row = gemm_rows._compute("x", Product(64, 64, 64), gemm_rows.faster(1.5), select=True)
    got = judged(session._measured(row), row.targets)
    assert got["peers"]["cublaslt"]["variant"] == "1" and got["peers"]["cublaslt"]["us"] == 330.0 / 64
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


def test_sensor_records_contenders_separately() -> None:
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


@pytest.mark.parametrize("op", [*UNARY, *BINARY])
def test_a_torch_peer_is_one_kernel(op: str) -> None:
    """What writes into `out` must not be a fresh result and a copy of it."""
    torch = pytest.importorskip("torch")
    inputs = [torch.rand(64) + 0.5 for _ in range(1 if op in UNARY else 2)]
    out, wanted = torch.empty(64), torch.empty(64)
    function = torch_function(torch, op)
    if function is None:
        assert op in WITHOUT_OUT or not hasattr(torch, op)
        return
    function(*inputs, out=out)
    with torch.autograd.profiler.profile() as seen:
        function(*inputs, out=wanted)
    names = [event.name for event in seen.function_events]
    assert "aten::copy_" not in names and "aten::clone" not in names, names
    torch.testing.assert_close(out, wanted, rtol=0, atol=0, equal_nan=True)
    reference = {"relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu}.get(op)
    assert reference is None or torch.equal(out, reference(*inputs))


def test_relu_peer_clamps_and_keeps_nan() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([-1.0, -0.0, 2.0, float("nan"), float("-inf")])
    peer = torch_function(torch, "relu")
    assert peer is not None
    torch.testing.assert_close(peer(x), torch.relu(x), equal_nan=True)


def test_a_row_that_torch_lacks_has_no_torch_peer() -> None:
    torch = pytest.importorskip("torch")
    assert torch_function(torch, "softsign") is None  # torch.nn.functional has it, without ``out=``


@pytest.mark.parametrize("extents", [(7, 9, 13), (5, 16, 11), (8, 7, 16), (6, 8, 24)])
def test_the_padded_peer_multiplies(extents: tuple[int, int, int]) -> None:
    torch = pytest.importorskip("torch")
    m, n, k = extents

    class TorchKit(HostKit):
        torch = pytest.importorskip("torch")

        def as_torch(self, array: Any) -> Any:
            return array

    made = {"a": torch.randn(m, k).bfloat16(), "b": torch.randn(k, n).bfloat16(), "out": torch.zeros(m, n).bfloat16()}
    call = padded_call(TorchKit(), Product(m, n, k), made)
    for _ in range(2):
        call()
        torch.testing.assert_close(
            made["out"], (made["a"].float() @ made["b"].float()).bfloat16(), rtol=2e-2, atol=2e-2
        )
        made["a"].mul_(2)


def test_cublaslt_is_asked_for_plain_products_and_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cublaslt.takes(Product(8, 8, 8)) and cublaslt.takes(Product(8, 8, 8, "float16", out_dtype="float32"))
    assert not any(
        cublaslt.takes(p)
        for p in (Product(8, 8, 8, "float32"), Product(8, 8, 8, batch=(2,)), Product(8, 8, 8, epilogue=True))
    )

    def missing(_: Any) -> Any:
        raise OSError("libcublasLt.so is not here")

    monkeypatch.setattr(cublaslt._Problem, "of", missing)
    (name, call), *others = cublaslt.lt_calls(Product(8, 8, 8), {}).items()
    assert name == "cublaslt" and not others
    with pytest.raises(RuntimeError, match="OSError: libcublasLt"):
        call()


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


def test_rows_are_put_in_place_of_older_ones(tmp_path: Path) -> None:
    old = Results(
        {"kind": "meta", "date": "1"}, (device_record(8, made={"commit": "a"}), device_record(16), host_record())
    )
    new = Results({"kind": "meta", "date": "2"}, (device_record(32), device_record(8, made={"commit": "b"})))
    both = added(old, new, [f"elementwise/add {n}" for n in (32, 16, 8)])
    assert [r["row"] for r in both.rows] == [f"elementwise/add {n}" for n in (32, 16, 8)] + ["host/bp.add"]
    assert both.meta["date"] == "1" and both.rows[2]["made"] == {"commit": "b"}
    write(tmp_path / "x.jsonl", both)
    assert read(tmp_path / "x.jsonl") == json_round(both)


def json_round(results: Results) -> Results:
    meta, rows = json.loads(json.dumps([results.meta, results.rows]))
    return Results(meta, tuple(rows))


def test_cells_match_their_headings(results_file: Path) -> None:
    for row in read(results_file).rows:
        assert len(cells(row)) == len(headings(row["group"]))


def test_sections_say_what_failed(results_file: Path) -> None:
    parts = sections(read(results_file), [], {})
    assert set(parts) == {"elementwise", "contiguize", "gemm", "host", "summary", "gpu"}
    assert "Rows that failed: contiguize/t." in parts["summary"]
    assert "MemoryError: \\|" in parts["contiguize"]


def test_the_table_of_products_has_rates_and_the_kernel() -> None:
    assert cells(product_record(4096))[2:] == (
        "700.0", "", "1530, 650", "cublas 216.0 (1.10×)", "", "wgmma[128x256]", "≥ 1.05 × cublas", "yes"
    )  # fmt: skip
    legs = {
        name: settled(2 * 4096**3, harness.Alone([us], [mhz]))
        for name, us, mhz in (("ours", 213.0, 1395.0), ("cublas", 206.0, 1515.0))
    }
    assert cells(product_record(4096, alone=legs))[6] == "213.0 at 1395, cublas 206.0 at 1515 (0.97×)"
    relu = device_record(8, peers={"torch": {"withdrawn": "to be measured again"}})
    assert cells(relu)[5] == "torch: to be measured again"
    skinny = device_record(8, group="gemm", variant="gemv", config="", clock_mhz=None, power_w=None)
    assert cells(skinny)[2:5] == ("", "1.020", "")


def test_square_products_are_summed_up(results_file: Path) -> None:
    assert "geometric mean 1.100× of 2 rows (target 1.03)" in sections(read(results_file), [], {})["summary"]


def test_markdown_and_markers() -> None:
    table = markdown(("row", "µs"), [("a", "1")])
    assert table == "| row | µs |\n| --- | ---: |\n| a | 1 |"
    text = "before\n<!-- benchmark:x:begin -->\nold\n<!-- benchmark:x:end -->\nafter"
    once = between_markers(text, "x", table)
    assert once == f"before\n<!-- benchmark:x:begin -->\n{table}\n<!-- benchmark:x:end -->\nafter"
    assert between_markers(once, "x", table) == once
    with pytest.raises(ValueError, match="no markers"):
        between_markers(text, "y", table)


# ---- what is committed -----------------------------------------------------------------------------------------------


def test_every_product_is_in_one_class_and_the_split_is_of_all() -> None:
    _, found, _ = committed()
    assert len(found) == 200 and all(sum(holds(d.product) for holds in CLASSES.values()) == 1 for d in found)
    parts = dict(split(found))
    each = {" ".join(name.split()): parts[" ".join(name.split())] for name in CLASSES}
    assert len(parts["all"]) == sum(map(len, each.values())) == 200
    assert sorted(parts[ALIGNED]) == sorted(s for name, speedups in each.items() if "M " in name for s in speedups)


def test_headline_figures_are_those_of_picture_and_page() -> None:
    """The picture writes each class's mean; the README and the page write the same, and count the same rows."""
    results, found, swept = committed()
    parts = sections(results, found, swept)
    headline = " ".join(parts["headline"].split())
    for name, holds in CLASSES.items():
        mean = f"{geometric_mean([d.speedup for d in found if holds(d.product)]):.2f}×"
        assert mean in headline and f"| {' '.join(name.split())} |" in parts["split"]
        assert any(mean in row for row in parts["split"].splitlines() if " ".join(name.split()) in row)
    (rows,) = re.findall(r"median of (\d+) rows", headline)
    assert f"of {rows} rows." in parts["summary"]


def test_pages_say_what_the_committed_results_say() -> None:
    for gpu in measured_gpus():
        parts = sections(*committed(gpu))
        for page in pages(gpu):
            text = page.read_text(encoding="utf-8")
            assert written(page, gpu, parts) == text, f"{page}: run python -m benchmarks.report --gpu {gpu!r}"


def test_no_figure_stands_that_is_known_to_be_wrong() -> None:
    """Torch's relu of two kernels, a ragged product beside unpadded cuBLAS alone, and a spread wider than the margin."""
    results, _, _ = committed()
    rows = {r["row"]: r for r in results.rows}
    assert all("date" in r["made"] and "commit" in r["made"] for r in results.rows)
    for dtype in ("bf16", "f32"):
        torch = rows[f"elementwise/relu {dtype}"]["peers"]["torch"]
        assert "withdrawn" in torch or torch["ratio"] > 0.9
    for m, n, k in gemm_rows.RAGGED:
        assert gemm_rows.PADDED in rows[f"gemm/bf16 {m}×{n}×{k}"]["peers"]
    for row in results.rows:
        target = row["target"] or {"kind": ""}
        if target["kind"] == "paired" and row["met"] is True:
            assert all(p.get("spread", 0) <= 0.1 or "interval" in p for p in row["peers"].values()), row["row"]


def test_rows_of_other_kernels_are_marked() -> None:
    """Where a choice changes: python -m benchmarks.report."""
    results, _, _ = committed()
    again = marked(results, "NVIDIA H200")
    differ = [row["row"] for row, fresh in zip(results.rows, again.rows) if row.get("stale") != fresh.get("stale")]
    assert not differ, "run python -m benchmarks.report"
    assert sum("stale" in row for row in again.rows) > len(results.rows) // 2


def test_what_a_row_binds_is_known_without_a_gpu() -> None:
    (row,) = chosen(["int4/8192×8192 g128 M=1"])[:1]
    skus = bound(row, "h200")
    assert skus is not None and any(".gemv[" in sku for sku in skus) and any(".dequantize_matmul[" in s for s in skus)
    (lazy,) = chosen(["elementwise/neg bf16"])
    assert bound(lazy, "h200") is None
    record = {"kind": "row", "row": row.key, "group": row.group, "name": row.name, "sku": max(skus), "stale": True}
    rows = marked(
        Results({}, (record, record | {"sku": "another"}, {"row": "gone", "sku": "", "stale": True})), "NVIDIA H200"
    ).rows
    assert [r.get("stale") for r in rows] == [False, True, None]
    assert "stale" not in marked(Results({}, (record,)), "a GPU without figures").rows[0]


def test_served_rows_are_series_of_tokens(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results, _, _ = committed()
    lines = steps.by_series(steps.of_rows(results.rows))
    assert len(lines) == 11 and lines["W4A16 6144×4096"][0]["m"] == 1 and lines["q4_k 8192×28672"][-1]["m"] == 511
    assert all(r["us"] > 0 and r["cublas_us"] > 0 and r["first_us"] > 0 for line in lines.values() for r in line)
    steps.drawn(steps.of_rows(results.rows), tmp_path / "x.png", "here", logarithmic=True)
    assert 10_000 < (tmp_path / "x.png").stat().st_size < 300_000


def test_the_pictures_are_drawn_and_small(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    _, found, swept = committed()
    drawn = pictures.draw(found, "NVIDIA H200", f"{swept['gpu']}, {swept['date']}", tmp_path)
    assert [p.name for p in drawn] == ["nvidia-h200-roofline.png", "nvidia-h200-speedup.png"]
    assert all(10_000 < p.stat().st_size < 150_000 for p in drawn)


def test_a_session_says_what_it_measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session = Session.__new__(Session)
    session.kit, session.effort, session.commit = HostKit(), FULL, "abc"
    session.bench = FakeBench({})
    meta = {"kind": "meta", "date": "2026-01-01", "commit": "abc", "baracuda_py": bp.__version__, "sms": 132}
    monkeypatch.setattr(Session, "meta", lambda _: meta)
    monkeypatch.setattr(Session, "_measured", lambda *_: {"us": 1.0, "peers": {}})
    monkeypatch.setattr(FakeBench, "warm_up", lambda *_: None)
    monkeypatch.setattr(HostKit, "release", lambda _: None)
    (record,) = session.run(chosen(["add row"]), tmp_path / "x.jsonl")
    assert set(record["made"]) == {"date", "baracuda_py", "commit", "driver", "nvrtc", "cupy", "torch"}
    assert (record["made"]["commit"], record["made"]["baracuda_py"]) == ("abc", bp.__version__)
    assert read(tmp_path / "x.jsonl").rows[0]["made"]["commit"] == "abc"


def test_a_results_file_is_json_lines(results_file: Path) -> None:
    assert [json.loads(line)["kind"] for line in results_file.read_text().splitlines()] == ["meta"] + ["row"] * 7
